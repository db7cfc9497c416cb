"""The table of native tasks: cheap to read, no simulator needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cspo.errors import CspoError, nearest


class TaskRow(NamedTuple):
    """One line of `cspo tasks`."""

    name: str
    family: str  # "velocity" or "navigation"
    observation_size: int
    action_size: int
    step_seconds: float  # simulated time of one step
    description: str
    cost_terms: tuple[str, ...]  # what the cost of a step is made of; it is 1 where any of them is
    cost_limit: float  # what the benchmark trains with


NAMESPACE = "cspo/"  # in front of a native task's name in Gymnasium's registry
COST_LIMIT = 25.0


def _velocity(name: str, sizes: tuple[int, int], step_seconds: float, description: str) -> TaskRow:
    return TaskRow(name, "velocity", *sizes, step_seconds, description, ("velocity",), COST_LIMIT)


def _navigation(
    name: str, sizes: tuple[int, int], step_seconds: float, description: str, *terms: str
) -> TaskRow:
    return TaskRow(name, "navigation", *sizes, step_seconds, description, terms, COST_LIMIT)


_GOAL = "{} to goals, but not through hazards"
_BUTTON = "{} to marked buttons, but touch nothing else"
_BUTTON_TERMS = ("buttons", "gremlins", "hazards")

_ROWS = (
    _velocity("SafetyAntVelocity-v1", (27, 8), 0.05, "run, but not faster than 2.6222 m/s"),
    _velocity(
        "SafetyHumanoidVelocity-v1", (376, 17), 0.015, "walk, but not faster than 1.4149 m/s"
    ),
    _velocity("SafetyHalfCheetahVelocity-v1", (17, 6), 0.05, "run, but not faster than 3.2096 m/s"),
    _velocity("SafetyHopperVelocity-v1", (11, 3), 0.008, "hop, but not faster than 0.7402 m/s"),
    _velocity("SafetySwimmerVelocity-v1", (8, 2), 0.04, "swim, but not faster than 0.2282 m/s"),
    _navigation("SafetyPointGoal1-v0", (60, 2), 0.02, _GOAL.format("glide"), "hazards"),
    _navigation("SafetyPointButton1-v0", (76, 2), 0.02, _BUTTON.format("glide"), *_BUTTON_TERMS),
    _navigation("SafetyCarGoal1-v0", (72, 2), 0.04, _GOAL.format("drive"), "hazards"),
    _navigation("SafetyCarButton1-v0", (88, 2), 0.04, _BUTTON.format("drive"), *_BUTTON_TERMS),
)


def native_tasks() -> list[TaskRow]:
    """Return the tasks simulated by this package, in the order of the benchmark."""
    return list(_ROWS)


def native_name(name: str) -> str | None:
    """Return the native task that `name` means, with or without "cspo/", or None."""
    short = name.removeprefix(NAMESPACE)
    return short if any(row.name == short for row in _ROWS) else None


def task_row(name: str) -> TaskRow:
    """Return the facts of a native task, or name the nearest."""
    short = native_name(name)
    for row in _ROWS:
        if row.name == short:
            return row
    raise CspoError(
        f"there is no native task {name!r}: {nearest(name, [row.name for row in _ROWS])}"
    )


def check_task_name(name: str) -> None:
    """Refuse a misspelt native task; other names are left to Gymnasium."""
    if (
        native_name(name) is None
        and ":" not in name
        and "/" not in name
        and name.startswith("Safety")
    ):
        raise CspoError(f"there is no task {name!r}: {nearest(name, [row.name for row in _ROWS])}")


def check_cost_terms(name: str, cost_terms: Sequence[str]) -> None:
    """Refuse terms that the cost of the native task `name` does not have, or that are named twice."""
    known = task_row(name).cost_terms
    for term in cost_terms:
        if term not in known:
            raise CspoError(f"{name} has no cost term {term!r}: it has {', '.join(known)}.")
    if len(set(cost_terms)) != len(cost_terms):
        raise CspoError(f"--cost-terms names a term twice: {','.join(cost_terms)}.")
