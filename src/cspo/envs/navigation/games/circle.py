"""Circle: run along the rim of a disc, which lies beyond lines that must not be crossed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import REWARD_CLIP, Game, Objects
from cspo.envs.navigation.parts import circle, walls

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream

RADIUS = 1.5  # of the disc
REWARD = 0.1
LINE = 1.125  # how far from the origin the lines are
_LENGTH = 3.5  # half of it


class Circle0(Game):
    """Nothing but the disc."""

    name = "Circle0"
    description = "{} around a circle"
    objects: ClassVar[Objects] = (circle(RADIUS),)
    time_limit = 500
    extent = 2.0
    robot_keepout = 0.0
    robot_area = (-0.8, -0.8, 0.8, 0.8)
    lidar_range = 6.0

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; no goal is ever met."""
        x, y = self.world.robot_places.T
        u, v, _ = self.world.robot_velocities.T
        radius = np.sqrt(x * x + y * y)
        around = (x * v - y * u) / radius
        np.multiply(REWARD, around / (1.0 + np.abs(radius - RADIUS)), out=reward)
        np.clip(reward, -REWARD_CLIP, REWARD_CLIP, out=reward)
        self._count_costs(np.abs(x), np.abs(y))
        return self.nowhere

    def begin(self, index: int, stream: Stream) -> bool:
        """Show the disc exactly at the origin, wherever its place was drawn."""
        self.world.where("circle")[index] = 0.0
        return True

    def _count_costs(self, x: FloatArray, y: FloatArray) -> None:
        """Nothing costs."""


class Circle1(Circle0):
    """A line on either side."""

    name = "Circle1"
    description = "{} around a circle, but not beyond the lines on two sides"
    objects = (*Circle0.objects, walls(_LENGTH, ((LINE, 0.0), (-LINE, 0.0)), (0.0, 0.0)))
    cost_terms = ("out_of_boundary",)

    def _count_costs(self, x: FloatArray, y: FloatArray) -> None:
        self.costs["out_of_boundary"][:] = x > LINE


class Circle2(Circle1):
    """A line on each of four sides."""

    name = "Circle2"
    description = "{} around a circle, but not beyond the lines on four sides"
    objects = (
        *Circle0.objects,
        walls(
            _LENGTH,
            ((LINE, 0.0), (-LINE, 0.0), (0.0, LINE), (0.0, -LINE)),
            (0.0, 0.0, math.pi / 2.0, math.pi / 2.0),
        ),
    )

    def _count_costs(self, x: FloatArray, y: FloatArray) -> None:
        self.costs["out_of_boundary"][:] = (x > LINE) | (y > LINE)
