"""From what a policy puts out to the units of an environment's actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.types import FloatArray


@dataclass(frozen=True)
class ActionScaling:
    """Maps [-1, 1] to the action box; an action outside stays outside unless it is clipped.

    A column without a bound on both sides, and a choice, has the units of the policy itself.
    """

    low: FloatArray  # (A,)
    high: FloatArray  # (A,)
    choices: int = 0  # how many of the last columns are choices

    @cached_property
    def _scaled(self) -> NDArray[np.bool_]:
        scaled = np.isfinite(self.low) & np.isfinite(self.high)
        scaled[len(scaled) - self.choices :] = False
        return np.asarray(scaled)

    @cached_property
    def half_range(self) -> FloatArray:
        """Half the width of the box, (A,)."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(self._scaled, 0.5 * (self.high - self.low), 1.0)

    @cached_property
    def centre(self) -> FloatArray:
        """The middle of the box, (A,)."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(self._scaled, 0.5 * (self.high + self.low), 0.0)

    def __call__(self, action: NDArray[np.floating[Any]], clip: bool = False) -> FloatArray:
        """Return actions (..., A) in the environment's units, cut off at the bounds if `clip`."""
        scaled = action * self.half_range + self.centre
        if clip:  # as np.clip does, in half the time for a few numbers
            scaled = np.minimum(np.maximum(scaled, self.low), self.high)
        return np.asarray(scaled)
