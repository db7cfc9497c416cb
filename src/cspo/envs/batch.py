"""The one interface the trainer knows: N environments, arrays in, arrays out."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class StepResult(NamedTuple):
    """What one step of N environments returns.

    The arrays belong to the environment and are overwritten by its next call: copy what you keep.
    """

    observation: FloatArray  # (N, D) the next observation; a finished environment shows its new episode
    reward: FloatArray  # (N,)
    cost: FloatArray  # (N, K)
    terminated: BoolArray  # (N,) the task ended the episode
    truncated: BoolArray  # (N,) the time limit ended the episode (never both)
    final_observation: FloatArray  # (N, D) the true last observation, valid where an episode ended


class BatchEnv(Protocol):
    """N environments stepped together, with same-step automatic reset.

    An environment whose episode ended is reset within the same `step`: `observation` already shows the new
    episode and `final_observation` keeps the last one of the old.
    """

    name: str
    num_envs: int
    observation_size: int
    action_size: int
    action_low: FloatArray  # (A,)
    action_high: FloatArray  # (A,)
    cost_names: tuple[str, ...]  # K names, one per constraint
    time_limit: int | None  # steps after which an episode is truncated, where known

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N new episodes; environment i is seeded with `seed + i`, or continues its stream if None.

        Returns:
            The first observations, shape (N, D).
        """
        ...

    def step(self, actions: FloatArray) -> StepResult:
        """Advance every environment by one step with `actions` of shape (N, A) in environment units."""
        ...

    def random_state(self) -> dict[str, Any]:
        """Everything random that survives a reset, as JSON-compatible data."""
        ...

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        ...

    def close(self) -> None:
        """Release threads and simulators."""
        ...
