"""What every family tells about a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cspo.errors import CspoError

COST_LIMIT = 25.0
TimeLimit = int | Literal["task"] | None  # steps, the task's own, or none


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
    time_limit: int = 1000  # steps after which an episode is truncated

    def check_cost_terms(self, asked: Sequence[str]) -> None:
        """Refuse terms that the cost of the task does not have, or that are named twice."""
        for term in asked:
            if term not in self.cost_terms:
                known = ", ".join(self.cost_terms) or "none, its cost is always 0"
                raise CspoError(f"{self.name} has no cost term {term!r}: it has {known}.")
        if len(set(asked)) != len(asked):
            raise CspoError(f"--cost-terms names a term twice: {','.join(asked)}.")
