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
    """Maps [-1, 1] to the action box; an action outside stays outside unless it is clipped."""

    low: FloatArray  # (A,)
    high: FloatArray  # (A,)

    @cached_property
    def half_range(self) -> FloatArray:
        """Half the width of the box, (A,)."""
        return np.asarray(0.5 * (self.high - self.low))

    @cached_property
    def centre(self) -> FloatArray:
        """The middle of the box, (A,)."""
        return np.asarray(0.5 * (self.high + self.low))

    def __call__(self, action: NDArray[np.floating[Any]], clip: bool = False) -> FloatArray:
        """Return actions (..., A) in the environment's units, cut off at the bounds if `clip`."""
        scaled = action * self.half_range + self.centre
        return np.asarray(np.clip(scaled, self.low, self.high) if clip else scaled)
