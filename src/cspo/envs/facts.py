"""What every family tells about a task."""

from __future__ import annotations

from typing import NamedTuple

COST_LIMIT = 25.0


class TaskRow(NamedTuple):
    """One line of `cspo tasks`."""

    name: str
    family: str  # "velocity" or "navigation"
    observation_size: int
    action_size: int
    step_seconds: float  # simulated time of one step
    description: str
    cost_terms: tuple[str, ...]  # what the cost of a step is made of; it is 1 where any of them is
    cost_limit: float = COST_LIMIT  # what the benchmark trains with
