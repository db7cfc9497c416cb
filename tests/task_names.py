"""Which of the native tasks a test is tried on where all of them would take too long."""

from __future__ import annotations

from cspo.envs.navigation.facts import TASKS as NAVIGATION
from cspo.envs.navigation.games import GAMES
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.velocity.facts import TASKS as VELOCITY

FIRST = ("SafetyPointGoal1-v0", "SafetyPointButton1-v0", "SafetyCarGoal1-v0", "SafetyCarButton1-v0")
# Every game once, every robot two or three times.
DIAGONAL = tuple(
    f"Safety{ROBOTS[i % len(ROBOTS)].name}{game.name}-v0" for i, game in enumerate(GAMES)
)
SAMPLE = [*VELOCITY, *dict.fromkeys((*FIRST, *DIAGONAL))]

assert set(SAMPLE) <= {*VELOCITY, *NAVIGATION}
