"""Running statistics: observations, and rewards and costs where that is asked for, standardised."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.policy import kernels
from cspo.types import Array, FloatArray


class Normaliser:
    """Running mean and standard deviation of everything seen so far, per coordinate.

    A new batch is counted first and normalised with the statistics that include it. The standard
    deviation has the (n - 1) divisor and a floor; with a single observation seen there is none, and
    it passes unchanged.

    Attributes:
        inverse_std: What deviations from the mean are multiplied by, (D,).
        as_is: The coordinates that pass unchanged all the same; None if there are none.
    """

    dtype: type[np.generic] = np.float32  # of what networks see

    def __init__(
        self,
        size: int,
        clip: float = 5.0,
        std_floor: float = 0.01,
        enabled: bool = True,
        as_is: NDArray[np.bool_] | None = None,
    ) -> None:
        """Start with nothing seen.

        `enabled=False` passes every observation through unchanged, a mask `as_is` (D,) these
        coordinates.
        """
        self.clip, self.std_floor, self.enabled = clip, std_floor, enabled
        self.as_is = None if as_is is None or not np.any(as_is) else np.flatnonzero(as_is)
        self.count = 0
        self.mean = np.zeros(size)
        self.square_sum = np.zeros(size)  # sum of squared deviations from the mean
        self.inverse_std = np.ones(size)

    def push(self, x: NDArray[np.floating[Any]]) -> None:
        """Count the rows of x (B, D), merged with the past as one group with another."""
        if not self.enabled:
            return
        x = np.asarray(x, np.float64)
        kernels.merge_statistics(x, self.count, self.mean, self.square_sum)
        self.count += len(x)
        self._set_inverse_std()

    def _set_inverse_std(self) -> None:
        if self.count > 1:
            std = np.sqrt(self.square_sum / (self.count - 1))
            self.inverse_std = 1.0 / np.maximum(std, self.std_floor)

    def __call__(self, x: NDArray[np.floating[Any]]) -> Array:
        """Normalise x (B, D) without counting it."""
        if not self.enabled or self.count <= 1:
            return x.astype(np.float32)
        out = np.empty(x.shape, np.float32)
        kernels.normalise(np.asarray(x, np.float64), self.mean, self.inverse_std, self.clip, out)
        if self.as_is is not None:
            out[:, self.as_is] = x[:, self.as_is]
        return out

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics."""
        return {
            "count": self.count,
            "mean": self.mean.copy(),
            "square_sum": self.square_sum.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"])
        self.square_sum = np.array(state["square_sum"])
        self._set_inverse_std()


class SignalNormaliser:
    """Rewards and costs as the advantages and the critics see them: raw, or standardised.

    At every step the values of all environments are counted and then standardised; every cost has
    its own statistics. What is not switched on passes unchanged.
    """

    def __init__(self, num_costs: int, rewards: bool = False, costs: bool = False) -> None:
        """Start with nothing seen."""
        self.parts = {
            "reward": Normaliser(1, enabled=rewards),
            "cost": Normaliser(num_costs, enabled=costs),
        }

    def __call__(self, reward: FloatArray, cost: FloatArray) -> FloatArray:
        """Count an epoch of rewards (T, N) and costs (T, N, K); return both as (T, N, 1 + K)."""
        rewards = _step_by_step(self.parts["reward"], reward[..., None])
        return np.concatenate([rewards, _step_by_step(self.parts["cost"], cost)], axis=2)

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of what is switched on."""
        return {name: part.state_dict() for name, part in self.parts.items() if part.enabled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name, part in self.parts.items():
            if part.enabled:
                part.load_state_dict(state[name])


def _step_by_step(normaliser: Normaliser, raw: FloatArray) -> FloatArray:
    """Count each step of raw (T, N, D) and standardise it with everything seen until then."""
    if not normaliser.enabled:
        return raw
    result = np.empty_like(raw)
    for t, values in enumerate(raw):
        normaliser.push(values)
        result[t] = normaliser(values)
    return result
