"""What all games have in common: a goal to come near to, and hazards on the way."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.parts import HAZARD_RADIUS, ObjectClass

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

REWARD_CLIP = 10.0


class Game(ABC):
    """One game, played in N worlds at a time.

    Its class is its facts, which are read without a simulator.

    Args:
        world: The N worlds.

    Attributes:
        last_distance: (N,) distance to the goal after the last step, which the next reward is
            measured from.
        all_costs: (terms, N) the terms of the cost of the last step, 0 or 1.
        costs: The same by name, (N,) each.
    """

    name: ClassVar[str]  # in the name of a task
    description: ClassVar[str]  # with a place for what the robot does
    objects: ClassVar[tuple[ObjectClass, ...]]  # in the order of placement and of the lidars
    felt: ClassVar[tuple[str, ...]] = ()  # the classes whose contacts with the robot matter
    cost_terms: ClassVar[tuple[str, ...]]
    options: ClassVar[tuple[str, ...]] = ()  # more arguments of the constructor

    def __init__(self, world: World) -> None:
        """Begin with nothing earned."""
        self.world = world
        self.last_distance: FloatArray = np.zeros(world.num_envs)
        self.all_costs: FloatArray = np.zeros((len(self.cost_terms), world.num_envs))
        self.costs = dict(zip(self.cost_terms, self.all_costs, strict=True))

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; return where a goal is met."""
        distance = self.world.distances("goal")[:, 0]
        reached = self._reached(distance)
        inside = self.world.distances("hazards") < HAZARD_RADIUS  # (N, hazards)
        self.costs["hazards"][:] = inside.any(axis=1)
        np.subtract(self.last_distance, distance, out=reward)
        reward += reached
        np.clip(reward, -REWARD_CLIP, REWARD_CLIP, out=reward)
        self.last_distance[:] = distance
        return reached

    def begin(self, index: int, stream: Stream) -> bool:
        """Choose the first goal of an episode; False if there is no place for it."""
        return self.new_goal(index, stream)

    def new_goal(self, index: int, stream: Stream) -> bool:
        """Choose the next goal of one world; False if there is no place for it."""
        if not self._choose_goal(index, stream):
            return False
        x, y = self.world.where("goal")[index, 0] - self.world.robot_places[index]
        self.last_distance[index] = math.sqrt(x * x + y * y)
        return True

    def blind(self, lidars: FloatArray, which: Any) -> None:  # noqa: B027 (most hide nothing)
        """Blank what robots must not see now, in the lidars (n, classes, 16) of some worlds."""

    @abstractmethod
    def _reached(self, distance: FloatArray) -> BoolArray:
        """Return where the goal is reached, given its distance from the robot, (N,) each."""

    @abstractmethod
    def _choose_goal(self, index: int, stream: Stream) -> bool:
        """Put the goal of one world somewhere else; False if there is no place for it."""
