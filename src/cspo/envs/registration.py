"""Tasks made known: the native ones to Gymnasium, and a user's own to everything."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import gymnasium

from cspo.envs.navigation.facts import NavigationTask
from cspo.envs.navigation.games import GAMES, Game
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.navigation.robots.robot import Robot
from cspo.envs.tasks import FACTS, NAMESPACE, add_tasks
from cspo.errors import CspoError

G = TypeVar("G", bound=type[Game])
_BUILT_IN = frozenset(FACTS)
_games, _robots = list(GAMES), list(ROBOTS)
_modules: set[str] = set()  # that registered something


def register_tasks() -> None:
    """Tell Gymnasium about the native tasks as "cspo/NAME"; a second call changes nothing."""
    for name, facts in FACTS.items():
        if NAMESPACE + name not in gymnasium.registry:
            gymnasium.register(
                id=NAMESPACE + name,
                entry_point="cspo.envs.gym:SafetyTaskEnv",
                vector_entry_point="cspo.envs.gym:SafetyVectorEnv",
                max_episode_steps=facts.row.time_limit,
                kwargs={"task": name},
            )


def register_task(game: G) -> G:
    """Make a navigation task of your own known, for every robot: `SafetyPointNAME-v0` and so on.

    Put it above the class of a game, in a script or in a file given as `--plugin`; then `cspo
    train`, `gymnasium.make("cspo/...")` and all the rest know it. docs/own-task.md has an example.

    Args:
        game: A class derived from `cspo.envs.navigation.games.Game`.

    Raises:
        CspoError: Something about the class cannot work.
    """
    if not (isinstance(game, type) and issubclass(game, Game)):
        raise CspoError("a task of your own is a class derived from Game.")
    _check_game(game)
    _add(NavigationTask(robot, game) for robot in _robots)
    _games[:] = [one for one in _games if one.name != game.name] + [game]
    _modules.add(game.__module__)
    return game


def register_agent(robot: Robot) -> Robot:
    """Make a robot of your own known, for every navigation task: `SafetyNAMEGoal1-v0` and so on.

    Args:
        robot: Its facts; `robots/point.py` is the shortest model.

    Raises:
        CspoError: Its name cannot work.
    """
    _check_name(robot.name, "robot")
    _add(NavigationTask(robot, game) for game in _games)
    _robots[:] = [one for one in _robots if one.name != robot.name] + [robot]
    return robot


def registers_tasks(module: str) -> bool:
    """Whether a module has registered a task."""
    return module in _modules


def _add(tasks: Iterable[NavigationTask]) -> None:
    """Make tasks known; one of your own may be replaced, one of this package may not."""
    named = {task.row.name: task for task in tasks}
    for name in named.keys() & _BUILT_IN:
        raise CspoError(f"{name} is a task of this package: choose another name.")
    add_tasks(named)
    for name in named:
        gymnasium.registry.pop(NAMESPACE + name, None)
    register_tasks()


def _check_name(name: str, what: str) -> None:
    if not re.fullmatch("[A-Z][A-Za-z0-9]*", name):
        raise CspoError(f"the name of a {what} is a capital and letters or digits, not {name!r}.")


def _check_game(game: type[Game]) -> None:
    """Refuse a game that would fail later, in words."""
    for fact in ("name", "description"):
        if not isinstance(getattr(game, fact, None), str):
            raise CspoError(f"{game.__name__} needs a class attribute {fact}, a text.")
    _check_name(game.name, "task")
    if left := sorted(game.__abstractmethods__):
        raise CspoError(f"{game.__name__} must define {', '.join(left)}.")
    classes = [one.name for one in game.objects_for(_robots[0])]
    if len(set(classes)) < len(classes):
        raise CspoError(f"{game.__name__} has two classes of objects of one name: {classes}.")
    for name in game.felt:
        if name not in classes:
            raise CspoError(f"{game.__name__} feels {name!r}, and has no such objects.")
