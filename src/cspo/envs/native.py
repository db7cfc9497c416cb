"""The native tasks by name: which class simulates a task, and which options it takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from cspo.envs.batch import NativeEnv
from cspo.envs.tasks import TaskRow, check_cost_terms, task_row
from cspo.errors import CspoError, nearest

# Imported on first use: a simulator takes a while to load.
_CLASSES = {
    "velocity": "cspo.envs.velocity.task:VelocityEnv",
    "navigation": "cspo.envs.navigation:NavigationEnv",
}
_STEPPERS = ("auto", "compiled", "python")


def _is_whole(value: Any, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


# option: what its value must be, in words and as a test
_OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "time_limit": (
        "a whole number of steps from 1 on",
        lambda value: value is None or _is_whole(value, 1),
    ),
    "stepper": (f"one of {', '.join(_STEPPERS)}", lambda value: value in _STEPPERS),
    "button_timer_after_reset": (
        "a whole number of steps from 0 on",
        lambda value: _is_whole(value, 0),
    ),
}


def make_native(
    name: str,
    num_envs: int = 1,
    threads: int = 1,
    cost_terms: Sequence[str] = (),
    *,
    autoreset: bool = True,
    **options: Any,
) -> NativeEnv:
    """Return `num_envs` copies of a native task.

    Args:
        name: The task, with or without "cspo/".
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        cost_terms: Terms of the cost to give one by one, as K columns; by default the cost itself.
        autoreset: Reset finished copies within `step`.
        **options: What else the task takes, see `native_options`.
    """
    check_native(name, cost_terms, options)
    row = task_row(name)
    module, kind = _CLASSES[row.family].split(":")
    make = getattr(importlib.import_module(module), kind)
    env = make(
        row.name, num_envs, threads, autoreset=autoreset, cost_terms=tuple(cost_terms), **options
    )
    return cast("NativeEnv", env)


def native_options(row: TaskRow) -> tuple[str, ...]:
    """Return the options a task takes."""
    return tuple(
        name
        for name in _OPTIONS
        if name != "button_timer_after_reset" or "buttons" in row.cost_terms
    )


def check_native(name: str, cost_terms: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse cost terms and options that the native task `name` does not take."""
    row = task_row(name)
    check_cost_terms(row.name, cost_terms)
    known = native_options(row)
    for option, value in options.items():
        if option not in known:
            raise CspoError(f"{row.name} has no option {option!r}: {nearest(option, known)}")
        words, fits = _OPTIONS[option]
        if not fits(value):
            raise CspoError(f"option {option} of {row.name} must be {words}, not {value!r}.")
