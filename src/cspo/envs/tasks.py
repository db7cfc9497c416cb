"""The table of native tasks: cheap to read, no simulator needed."""

from __future__ import annotations

from typing import NamedTuple


class TaskRow(NamedTuple):
    """One line of `cspo tasks`."""

    name: str
    family: str  # "velocity" or "navigation"
    observation_size: int
    action_size: int
    description: str
    cost_limit: float  # what the benchmark trains with


NAMESPACE = "cspo/"  # in front of a native task's name in Gymnasium's registry
COST_LIMIT = 25.0

_ROWS = (
    TaskRow("SafetyAntVelocity-v1", "velocity", 27, 8, "run, but not faster than 2.6222 m/s", COST_LIMIT),
    TaskRow("SafetyHumanoidVelocity-v1", "velocity", 376, 17, "walk, but not faster than 1.4149 m/s", COST_LIMIT),
    TaskRow("SafetyHalfCheetahVelocity-v1", "velocity", 17, 6, "run, but not faster than 3.2096 m/s", COST_LIMIT),
    TaskRow("SafetyHopperVelocity-v1", "velocity", 11, 3, "hop, but not faster than 0.7402 m/s", COST_LIMIT),
    TaskRow("SafetySwimmerVelocity-v1", "velocity", 8, 2, "swim, but not faster than 0.2282 m/s", COST_LIMIT),
)


def native_tasks() -> list[TaskRow]:
    """Return the tasks simulated by this package, in the order of the benchmark."""
    return list(_ROWS)


def native_name(name: str) -> str | None:
    """Return the native task that `name` means, with or without "cspo/", or None."""
    short = name.removeprefix(NAMESPACE)
    return short if any(row.name == short for row in _ROWS) else None
