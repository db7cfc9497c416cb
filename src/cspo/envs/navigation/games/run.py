"""Run: go down a straight path as fast as possible without leaving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import Game
from cspo.envs.navigation.parts import walls

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

TARGET = (0.0, -1000.0)  # so far away that only the way down the path counts
REWARD = 60.0  # per metre
LINE = 0.5  # how far from the middle the path ends


class Run0(Game):
    """A path between two lines, which the robot does not see.

    Attributes:
        potential: (N,) after the last step; what it grows by is the reward.
    """

    name = "Run0"
    description = "{} down a path, but do not leave it"
    objects = (walls(17.5, ((LINE, 0.0), (-LINE, 0.0)), (0.0, 0.0)),)
    cost_terms = ("out_of_boundary",)
    time_limit = 500
    extent = 2.0
    robot_keepout = 0.0
    robot_area = (-0.2, 16.5, 0.2, 16.5)

    def __init__(self, world: World) -> None:
        """Begin with nothing earned."""
        super().__init__(world)
        self.potential: FloatArray = self.remember("old_potential")

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; no goal is ever met."""
        potential = self._potentials()
        np.subtract(potential, self.potential, out=reward)
        self.potential[:] = potential
        self.costs["out_of_boundary"][:] = np.abs(self.world.robot_places[:, 0]) > LINE
        return self.nowhere

    def begin(self, index: int, stream: Stream) -> bool:
        """Measure from where the robot starts."""
        self.potential[index] = self._potentials()[index]
        return True

    def _potentials(self) -> FloatArray:
        away = self.world.robot_places - TARGET
        potentials: FloatArray = -REWARD * np.sqrt(np.square(away).sum(axis=1))
        return potentials
