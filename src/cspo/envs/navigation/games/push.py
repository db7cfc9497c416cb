"""Push: bring the box into the area of light."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import REWARD_CLIP, Game, Names, Objects
from cspo.envs.navigation.parts import goal, hazards, pillars, push_box
from cspo.envs.navigation.robots.robot import Robot

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

RADIUS = 0.3  # of the area, and of a hazard
KEEPOUT = 0.4  # of both
_GOAL = goal(RADIUS, KEEPOUT)


class Push0(Game):
    """Nothing but the goal and the box.

    The robot is paid for coming nearer to the box, and for bringing the box nearer to the goal.

    Attributes:
        to_box: (N,) distance from robot to box after the last step.
        to_goal: (N,) distance from box to goal after the last step.
    """

    name = "Push0"
    description = "{} and push the box to goals"
    objects: ClassVar[Objects] = (_GOAL,)
    extent = 1.0

    def __init__(self, world: World) -> None:
        """Begin with nothing earned."""
        super().__init__(world)
        self.to_box: FloatArray = self.remember("last_dist_box")
        self.to_goal: FloatArray = self.remember("last_box_goal")

    @classmethod
    def objects_for(cls, robot: Robot) -> Objects:
        """Return the objects, with the box that is meant for `robot`."""
        return *cls.objects, push_box(robot.push_box)

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; return where a goal is met."""
        to_box, to_goal = self._distances(slice(None))
        reached: BoolArray = to_goal <= RADIUS
        reward[:] = np.where(self.to_box > 0.0, self.to_box - to_box, 0.0)
        reward += self.to_goal - to_goal
        reward += reached
        np.clip(reward, -REWARD_CLIP, REWARD_CLIP, out=reward)
        self.to_box[:], self.to_goal[:] = to_box, to_goal
        self._count_costs()
        return reached

    def begin(self, index: int, stream: Stream) -> bool:
        """Choose the first goal of an episode; False if there is no place for it."""
        return self.new_goal(index, stream)

    def new_goal(self, index: int, stream: Stream) -> bool:
        """Move the goal, not the box; False if there is no place for it."""
        found = self.move_goal(index, stream)
        if found:
            one = slice(index, index + 1)
            self.to_box[one], self.to_goal[one] = self._distances(one)
        return found

    def _distances(self, which: slice) -> tuple[FloatArray, FloatArray]:
        """Return how far the box is from the robot and from the goal, in space."""
        box = self.world.positions("push_box")[which, 0]  # (n, 3)
        goals = np.full_like(box, _GOAL.height)
        goals[:, :2] = self.world.where("goal")[which, 0]
        return _length(box - self.world.robot_positions[which]), _length(box - goals)

    def _count_costs(self) -> None:
        """Nothing costs."""


class Push1(Push0):
    """Two hazards, and one pillar that costs nothing."""

    name = "Push1"
    description = "{} and push the box to goals, but stay out of hazards"
    objects = (_GOAL, hazards(2, RADIUS, KEEPOUT), pillars(1))
    cost_terms: ClassVar[Names] = ("hazards",)
    extent = 1.5

    def _count_costs(self) -> None:
        inside = self.world.distances("hazards") < RADIUS  # (N, hazards)
        self.costs["hazards"][:] = inside.any(axis=1)


class Push2(Push1):
    """Four hazards, and four pillars that must not be touched."""

    name = "Push2"
    description = "{} and push the box to goals, but stay out of hazards and touch no pillar"
    objects = (_GOAL, hazards(4, RADIUS, KEEPOUT), pillars(4))
    felt = ("pillars",)
    cost_terms = ("hazards", "pillars")
    extent = 2.0

    def _count_costs(self) -> None:
        super()._count_costs()
        self.costs["pillars"][:] = self.world.touched("pillars").any(axis=1)


def _length(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt(np.square(vectors).sum(axis=1))
    return lengths
