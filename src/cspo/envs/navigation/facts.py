"""The navigation tasks: every robot plays every game.

A new robot is a module in `robots`, a new game one in `games`; everything else is derived.
"""

from __future__ import annotations

from dataclasses import dataclass

from cspo.envs.facts import TaskRow
from cspo.envs.navigation.games import GAMES, Game
from cspo.envs.navigation.parts import LIDAR_BINS, SUB_STEPS, ObjectClass, Stage
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.navigation.robots.robot import Robot


@dataclass(frozen=True)
class NavigationTask:
    """The facts that make one navigation task."""

    robot: Robot
    game: type[Game]

    @property
    def objects(self) -> tuple[ObjectClass, ...]:
        """The objects, in the order of placement."""
        return self.game.objects_for(self.robot)

    @property
    def stage(self) -> Stage:
        """What surrounds the robot."""
        game = self.game
        place = game.extent, game.robot_keepout, game.robot_area
        return Stage(self.objects, game.felt, *place)

    @property
    def seen(self) -> tuple[ObjectClass, ...]:
        """The classes of objects that have a lidar, in its order."""
        return tuple(one for one in self.objects if one.lidar)

    @property
    def row(self) -> TaskRow:
        """What there is to know without simulating it."""
        robot, game = self.robot, self.game
        return TaskRow(
            name=f"Safety{robot.name}{game.name}-v0",
            family="navigation",
            observation_size=robot.observation_size + LIDAR_BINS * len(self.seen),
            action_size=robot.action_size,
            step_seconds=robot.timestep * SUB_STEPS,
            description=game.description.format(robot.verb),
            cost_terms=game.cost_terms,
            time_limit=game.time_limit,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """What may be chosen about it."""
        return self.game.options


_ROWS = [NavigationTask(robot, game) for robot in ROBOTS for game in GAMES]
TASKS = {task.row.name: task for task in _ROWS}
