"""The navigation tasks, one row each: a robot, and a game that it plays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cspo.envs.navigation.games.button import Button1
from cspo.envs.navigation.games.game import Game
from cspo.envs.navigation.games.goal import Goal1
from cspo.envs.navigation.parts import LIDAR_BINS, SUB_STEPS, Robot
from cspo.envs.navigation.robots.car import CAR
from cspo.envs.navigation.robots.point import POINT


@dataclass(frozen=True)
class NavigationTask:
    """The facts that make one navigation task."""

    robot: Robot
    game: type[Game]

    family: ClassVar[str] = "navigation"

    @property
    def name(self) -> str:
        """What the task is called."""
        return f"Safety{self.robot.name}{self.game.name}-v0"

    @property
    def description(self) -> str:
        """What is to be done."""
        return self.game.description.format(self.robot.verb)

    @property
    def observation_size(self) -> int:
        """How many numbers are observed: those of the sensors, and a lidar per class of objects."""
        return self.robot.observation_size + LIDAR_BINS * len(self.game.objects)

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return self.robot.action_size

    @property
    def step_seconds(self) -> float:
        """Simulated time of one step."""
        return self.robot.timestep * SUB_STEPS

    @property
    def cost_terms(self) -> tuple[str, ...]:
        """What the cost of a step is made of."""
        return self.game.cost_terms

    @property
    def options(self) -> tuple[str, ...]:
        """What may be chosen about it."""
        return self.game.options


_ROWS = [NavigationTask(robot, game) for robot in (POINT, CAR) for game in (Goal1, Button1)]
TASKS = {task.name: task for task in _ROWS}
