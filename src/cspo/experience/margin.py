"""How far below the limit to steer, so that the reported cost exceeds it as rarely as asked."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from cspo.state import Remembers
from cspo.types import FloatArray, per_constraint

MEMORY = 0.9  # of both spreads
STEP = 0.1  # of z, for an epoch above the limit
Z_MAX = 3.0
WIDEST = 0.3  # of the limit: the margin is not wider, and learns only this close to its target
FAR = 1.3  # times the limit: a cost above that is on its way back, and teaches nothing until there


class Margin(Remembers):
    """d - margin is what an algorithm is told to keep; margin = z sigma, one per constraint.

    z starts where a normal distribution has a share p above it, and tracks the quantile from there:

        z <- z + 0.1 (1[J_c > d] - p)

    It stands still only where J_c exceeds d in a share p of the epochs, whatever the distribution.
    sigma is the larger of two: the standard error of J_c, from the scatter of episodes, and how far
    J_c went above its target (root mean square, of both sides if they were alike). The first is
    what a calm policy has, the second what the restlessness of training adds.

    Args:
        rate: The share p of epochs; None for no margin.
        num_costs: Constraints K.
    """

    remembered = ("z", "noise", "excess", "settled")

    def __init__(self, rate: float | None, num_costs: int) -> None:
        """Start at the normal quantile, with no scatter seen."""
        self.rate = rate
        below = np.clip(0.5 if rate is None else 1.0 - rate, 0.5, NormalDist().cdf(Z_MAX))
        self.z = np.full(num_costs, NormalDist().inv_cdf(below))
        self.noise = np.full(num_costs, np.nan)  # variance of J_c by its episodes' scatter
        self.excess = np.zeros(num_costs)  # mean square of J_c above its target
        self.settled = np.zeros(num_costs, bool)  # whether the target was reached, and not left far
        self.width = np.zeros(num_costs)  # the margin, in the cost's own unit

    def target(self, J_c: FloatArray, error: FloatArray, d: FloatArray) -> FloatArray:
        """Take in the reported cost J_c and its standard error, (K,) each; return d - margin."""
        if self.rate is None:
            return d
        before = np.where(np.isnan(self.noise), error**2, self.noise)
        self.noise = MEMORY * before + (1.0 - MEMORY) * error**2
        aim = d - self._width(d)
        self.settled = (J_c <= aim) | (self.settled & (J_c < FAR * d))
        near = self.settled & (J_c > aim - WIDEST * d)
        above = 2.0 * np.maximum(J_c - aim, 0.0) ** 2
        self.excess = np.where(near, MEMORY * self.excess + (1.0 - MEMORY) * above, self.excess)
        self.z = np.clip(self.z + STEP * near * ((J_c > d) - self.rate), 0.0, Z_MAX)
        self.width = self._width(d)
        return np.asarray(d - self.width)

    def _width(self, d: FloatArray) -> FloatArray:
        sigma = np.sqrt(np.maximum(self.noise, self.excess))
        return np.asarray(np.minimum(self.z * sigma, WIDEST * d))

    @property
    def metrics(self) -> dict[str, float]:
        """What is logged: the present margin of each constraint, nothing where there is none."""
        return {} if self.rate is None else per_constraint("margin", self.width)
