"""The navigation tasks, one row each: a robot, and a game that it plays.

A new robot is a module in `robots`, a new game one in `games`; everything else is derived.
"""

from __future__ import annotations

from dataclasses import dataclass

from cspo.envs.facts import TaskRow
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

    @property
    def row(self) -> TaskRow:
        """What there is to know without simulating it."""
        robot, game = self.robot, self.game
        return TaskRow(
            name=f"Safety{robot.name}{game.name}-v0",
            family="navigation",
            # What the sensors tell, and a lidar per class of objects.
            observation_size=robot.observation_size + LIDAR_BINS * len(game.objects),
            action_size=robot.action_size,
            step_seconds=robot.timestep * SUB_STEPS,
            description=game.description.format(robot.verb),
            cost_terms=game.cost_terms,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """What may be chosen about it."""
        return self.game.options


_ROWS = [NavigationTask(robot, game) for robot in (POINT, CAR) for game in (Goal1, Button1)]
TASKS = {task.row.name: task for task in _ROWS}
