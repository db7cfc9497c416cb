"""What a game is: objects, a reward and a cost; and what those with a goal have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.parts import ROBOT_KEEPOUT, Area, ObjectClass
from cspo.envs.navigation.robots.robot import Robot

if TYPE_CHECKING:
    from cspo.envs.navigation.layout import Stream
    from cspo.envs.navigation.world import World

REWARD_CLIP = 10.0
Names = tuple[str, ...]
Objects = tuple[ObjectClass, ...]


class Game(ABC):
    """One game, played in N worlds at a time by any robot.

    Its class is its facts, which are read without a simulator.

    Args:
        world: The N worlds.

    Attributes:
        all_costs: (terms, N) the terms of the cost of the last step, 0 or 1.
        costs: The same by name, (N,) each.
        nowhere: (N,) all False: what `judge` returns where no goal is ever met.
        unjudged: (N,) where a term of the cost was not judged in the last step but is 0 because
            its objects rest, by name; terms that always are judged are not in it.
        memory: What a game remembers from one step to the next, (N,) each, by the names that
            recordings give it.
    """

    name: ClassVar[str]  # in the name of a task
    description: ClassVar[str]  # with a place for what the robot does
    objects: ClassVar[Objects] = ()  # in the order of placement and of the lidars
    felt: ClassVar[Names] = ()  # the classes whose contacts with the robot matter
    cost_terms: ClassVar[Names] = ()  # by default it costs nothing
    options: ClassVar[Names] = ()  # more arguments of the constructor
    time_limit: ClassVar[int] = 1000  # steps of an episode
    extent: ClassVar[float] = 1.5  # half the side of the square that objects are placed in
    robot_keepout: ClassVar[float] = ROBOT_KEEPOUT
    robot_area: ClassVar[Area | None] = None  # where a robot starts, if not anywhere in the square
    lidar_range: ClassVar[float] = 3.0

    def __init__(self, world: World) -> None:
        """Begin with nothing earned."""
        self.world = world
        self.all_costs: FloatArray = np.zeros((len(self.cost_terms), world.num_envs))
        self.costs = dict(zip(self.cost_terms, self.all_costs, strict=True))
        self.unjudged: dict[str, BoolArray] = {}
        self.memory: dict[str, NDArray[Any]] = {}
        self.nowhere: BoolArray = np.zeros(world.num_envs, np.bool_)

    @classmethod
    def objects_for(cls, robot: Robot) -> Objects:
        """Return the objects where `robot` plays."""
        return cls.objects

    @abstractmethod
    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; return where a goal is met."""

    def begin(self, index: int, stream: Stream) -> bool:
        """Begin an episode in a world that was just laid out; False if there is no place."""
        return True

    def new_goal(self, index: int, stream: Stream) -> bool:
        """Choose the next goal where one was met; False, which ends the episode, if impossible."""
        return True

    def blind(self, lidars: FloatArray, which: Any) -> None:  # noqa: B027 (most hide nothing)
        """Blank what robots must not see now, in the lidars (n, classes, 16) of some worlds."""

    def remember(self, name: str, kind: type = np.float64) -> NDArray[Any]:
        """Return room for something to be remembered, (N,)."""
        self.memory[name] = np.zeros(self.world.num_envs, kind)
        return self.memory[name]

    def move_goal(self, index: int, stream: Stream) -> bool:
        """Draw a place for the goal that is clear of where everything is now."""
        world = self.world
        goal = world.inventory.rows["goal"].start
        places = np.concatenate([world.robot_places[index][None], world.objects[index]])
        if not stream.draw_goal(world.rooms, places, 1 + goal):
            return False
        world.objects[index, goal] = places[1 + goal]
        return True


class GoalGame(Game):
    """A game that pays for coming nearer to a goal, and 1 for reaching it.

    Attributes:
        last_distance: (N,) distance to the goal after the last step, which the next reward is
            measured from.
    """

    def __init__(self, world: World) -> None:
        """Begin with nothing earned."""
        super().__init__(world)
        self.last_distance: FloatArray = self.remember("last_dist_goal")

    def judge(self, reward: FloatArray) -> BoolArray:
        """Write rewards (N,) and costs of the step just taken; return where a goal is met."""
        distance = self.world.distances("goal")[:, 0]
        reached = self._reached(distance)
        np.subtract(self.last_distance, distance, out=reward)
        reward += reached
        np.clip(reward, -REWARD_CLIP, REWARD_CLIP, out=reward)
        self.last_distance[:] = distance
        self._count_costs()
        return reached

    def begin(self, index: int, stream: Stream) -> bool:
        """Choose the first goal of an episode; False if there is no place for it."""
        return self.new_goal(index, stream)

    def new_goal(self, index: int, stream: Stream) -> bool:
        """Choose the next goal of one world; False if there is no place for it."""
        if not self._choose_goal(index, stream):
            return False
        x, y = (self.world.where("goal")[index, 0] - self.world.robot_places[index]).tolist()
        self.last_distance[index] = np.sqrt(x * x + y * y)
        return True

    @abstractmethod
    def _reached(self, distance: FloatArray) -> BoolArray:
        """Return where the goal is reached, given its distance from the robot, (N,) each."""

    @abstractmethod
    def _count_costs(self) -> None:
        """Write the terms of the cost."""

    def _choose_goal(self, index: int, stream: Stream) -> bool:
        """Put the goal of one world somewhere else; False if there is no place for it."""
        return self.move_goal(index, stream)
