"""CSPO's sensitivity weight: strong where the constraint is flat, careful where it is steep."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cspo.types import FloatArray


class SensitivityWeight:
    """w = EMA( clip( 1 / (||grad g||^2 + eps_w), low, high ) ) over epochs, one per constraint.

    The average starts at the first clipped value rather than at zero.
    """

    def __init__(
        self,
        num_costs: int,
        low: float,
        high: float,
        epsilon: float = 1e-8,
        memory: float = 0.9,
        average: Literal["linear", "log"] = "linear",
    ) -> None:
        """Start without a value."""
        self.low, self.high, self.epsilon = low, high, epsilon
        self.memory, self.average = memory, average
        self.value = np.full(num_costs, np.nan)  # (K,) NaN until a constraint has been counted

    def update(self, gradient_norm: FloatArray, counts: NDArray[np.bool_]) -> FloatArray:
        """Take in gradient norms (K,) where `counts` (K,) is true, and return the weights (K,)."""
        clipped = np.clip(1.0 / (gradient_norm**2 + self.epsilon), self.low, self.high)
        old = np.where(np.isnan(self.value), clipped, self.value)
        beta = self.memory
        if self.average == "log":
            averaged = np.exp(beta * np.log(old) + (1.0 - beta) * np.log(clipped))
        else:
            averaged = beta * old + (1.0 - beta) * clipped
        self.value = np.where(counts, averaged, self.value)
        return np.where(np.isnan(self.value), clipped, self.value)

    def state_dict(self) -> dict[str, Any]:
        """Return the average."""
        return {"value": self.value.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.value = np.array(state["value"])
