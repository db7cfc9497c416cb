"""What is to be done: one module per game, with its objects, its reward and its cost."""

from __future__ import annotations

from cspo.envs.navigation.games.button import Button0, Button1, Button2
from cspo.envs.navigation.games.circle import Circle0, Circle1, Circle2
from cspo.envs.navigation.games.game import Game, GoalGame
from cspo.envs.navigation.games.goal import Goal0, Goal1, Goal2
from cspo.envs.navigation.games.push import Push0, Push1, Push2
from cspo.envs.navigation.games.run import Run0

GAMES: tuple[type[Game], ...] = (
    *(Goal0, Goal1, Goal2),
    *(Button0, Button1, Button2),
    *(Push0, Push1, Push2),
    *(Circle0, Circle1, Circle2),
    Run0,
)

__all__ = ["GAMES", "Game", "GoalGame"]
