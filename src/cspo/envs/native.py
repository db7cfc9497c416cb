"""The native tasks by name: which class simulates a task, and which options it takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cspo.envs.facts import TaskRow
from cspo.envs.tasks import FACTS, task_row
from cspo.errors import CspoError, nearest
from cspo.settings import check_memory

COPY_BYTES = 100_000  # what a simulator takes at least

if TYPE_CHECKING:
    from cspo.envs.physics.simulated import SimulatedEnv

# Imported on first use: a simulator takes a while to load.
_CLASSES = {
    "velocity": "cspo.envs.velocity.task:VelocityEnv",
    "navigation": "cspo.envs.navigation.task:NavigationEnv",
}
_STEPPERS = ("auto", "compiled", "python")


def _is_whole(value: Any, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _is_time_limit(value: Any) -> bool:
    return value is None or _is_whole(value, 1)


# option: what its value must be, in words and as a test
_OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "time_limit": ("a whole number of steps from 1 on", _is_time_limit),
    "stepper": (f"one of {', '.join(_STEPPERS)}", lambda value: value in _STEPPERS),
    "button_timer_after_reset": ("a whole number of steps from 0 on", lambda v: _is_whole(v, 0)),
}


def make_native(
    name: str,
    num_envs: int = 1,
    threads: int = 1,
    cost_terms: Sequence[str] = (),
    *,
    autoreset: bool = True,
    **options: Any,
) -> SimulatedEnv:
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
    check_memory(f"{num_envs} copies of {row.name}", {"--num-envs": num_envs * COPY_BYTES})
    module, kind = _CLASSES[row.family].split(":")
    make: type[SimulatedEnv] = getattr(importlib.import_module(module), kind)
    return make(
        row.name, num_envs, threads, autoreset=autoreset, cost_terms=tuple(cost_terms), **options
    )


def native_options(row: TaskRow) -> tuple[str, ...]:
    """Return the options a task takes."""
    return "time_limit", "stepper", *FACTS[row.name].options


def check_native(
    name: str, cost_terms: Sequence[str], options: Mapping[str, Any], workers: int = 0
) -> None:
    """Refuse cost terms, options and workers that the native task `name` does not take."""
    row = task_row(name)
    if workers:
        threads = "is stepped by threads of this process (--threads) and needs no workers"
        raise CspoError(f"{row.name} {threads}: leave --workers out.")
    row.check_cost_terms(cost_terms)
    known = native_options(row)
    for option, value in options.items():
        if option not in known:
            raise CspoError(f"{row.name} has no option {option!r}: {nearest(option, known)}")
        words, fits = _OPTIONS[option]
        if not fits(value):
            raise CspoError(f"option {option} of {row.name} must be {words}, not {value!r}.")
