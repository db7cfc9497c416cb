"""How the returns, costs or lengths of episodes are spread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Distribution:
    """What a number is over some episodes; there is at least one."""

    episodes: int
    mean: float
    lowest: float
    q10: float  # a tenth of the episodes are below
    median: float
    q90: float
    highest: float
    zero_share: float  # share of episodes in which it is zero

    @classmethod
    def of(cls, values: ArrayLike) -> Distribution:
        """Measure values, one per episode."""
        array = np.asarray(values, np.float64)
        lowest, q10, median, q90, highest = np.quantile(array, (0.0, 0.1, 0.5, 0.9, 1.0)).tolist()
        zero_share = float(np.mean(array == 0.0))
        mean = float(array.mean())
        return cls(len(array), mean, lowest, q10, median, q90, highest, zero_share)
