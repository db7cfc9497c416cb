"""Names of native tasks for tests that need not see every combination."""

from __future__ import annotations

from itertools import cycle

from cspo.envs.navigation.games import GAMES
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.velocity.facts import TASKS as VELOCITY

# Every game once, and every robot at least twice.
NAVIGATION = [
    f"Safety{robot.name}{game.name}-v0" for robot, game in zip(cycle(ROBOTS), GAMES, strict=False)
]
TELLING = [*VELOCITY, *NAVIGATION]
