"""What a worker needs to make its copies: names and functions that can be imported, no objects."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium

from cspo.envs.workers import channel
from cspo.errors import CspoError


class Recipe(NamedTuple):
    """How to make one environment."""

    env: Any  # a name, or a function that can be imported
    cost_fn: Any
    cost_terms: tuple[str, ...]
    env_options: dict[str, Any]
    spec: Any = None  # what Gymnasium knows of the name here, where another process may not


class Script(NamedTuple):
    """The program that was started, for what is defined in it."""

    module: str | None  # as in `python -m module`
    path: str | None


class Order(NamedTuple):
    """What a worker is told when it starts."""

    first: int  # the first of its copies in the whole batch
    copies: int
    cost_names: tuple[str, ...] | None  # where they are known
    recipe: bytes  # pickled, since unpickling it imports what it names
    script: Script | None  # to import before, if the recipe names something in it
    argv: list[str]


def pack(
    env: Any, cost_fn: Any, cost_terms: tuple[str, ...], env_options: Mapping[str, Any]
) -> bytes:
    """Return a pickled `Recipe`, or say what has no name that another process could import."""
    if channel.inside_worker:
        guard = 'if __name__ == "__main__":'
        raise CspoError(f"workers import this script: put what starts training under `{guard}`.")
    if os.name != "posix":
        raise CspoError("--workers needs Linux or macOS: leave it out here.")
    for what, name in ((env, "the environment"), (cost_fn, "cost_fn")):
        _check_importable(what, name)
    recipe = Recipe(env, cost_fn, cost_terms, dict(env_options))
    return pickle.dumps(recipe._replace(spec=_spec_of(env)))


def _check_importable(what: Any, name: str) -> None:
    try:
        packed = pickle.dumps(what)
    except Exception:  # of several kinds, none of which says it to a user
        called = getattr(what, "__qualname__", type(what).__name__)
        raise CspoError(
            f"workers import {name} by its name, and {called} has none that can be imported: "
            'define it at the top of a module, or name it "module:function".'
        ) from None
    if b"__main__" in packed and program() is None:
        raise CspoError(
            f"workers import {name} by its name, and it was defined in an interactive session: "
            "put it into a module."
        )


def _spec_of(env: Any) -> Any:
    """Return what was registered under a Gymnasium id in this process, if it can be sent."""
    spec = gymnasium.registry.get(env.rpartition(":")[2]) if isinstance(env, str) else None
    try:
        pickle.dumps(spec)
    except Exception:
        return None
    return spec


def program() -> Script | None:
    """Return what this process was started with, or None for an interactive session."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return Script(spec.name, None)
    path = getattr(main, "__file__", None)
    return None if path is None or not os.path.exists(path) else Script(None, os.path.abspath(path))
