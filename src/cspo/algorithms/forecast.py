"""Where a noisy cost stands, and what its model gets wrong: a Kalman filter per constraint.

    J'     = J + S (rho + delta - lam) + noise of the update         an epoch's mean cost y = J + e
    delta' = delta + lift + wander

The error e of y is known: the standard error of the epoch's episodes. The noise of the update is
what the errors of the predictions have beyond that. So the gain K of the level is near 1 where
episodes agree and the policy moves, and small where they scatter; and delta, which carries what
gradients do not tell of the price that holds the cost, learns only as fast as y can teach. It
wanders since the better a policy is, the dearer its limit; the lift is patience that ends.

delta is counted in the smallest natural price so far. As a cost begins to count, natural prices
fall a hundredfold, and with them what was learned of the price while there was hardly any cost;
later they rise as a policy gets safer, which is no reason to charge more.

Costs are counted in units in which the limit is 25, the benchmark's, so that nothing depends on the
unit in which they come. Where the limit is far below the first cost, or zero, that is 250 units.
"""

from __future__ import annotations

import numpy as np

from cspo.state import Remembers
from cspo.types import Batch, FloatArray, per_constraint

LIMIT = 25.0
# In natural prices of the epoch:
WANDER = 0.2  # of delta in an epoch
SPREAD = 1.0  # of delta, when nothing is known of it; no more than that, or than delta itself
BOUNDS = -1.0, 20.0  # of delta: beyond, a step follows the cost alone, and the way back is long

LEARN = 0.05  # how fast the noise of the update is learned
ERROR_MEMORY = 0.8
TINY = np.finfo(np.float64).tiny


class Forecast(Remembers):
    """Level J and correction delta of K costs.

    Attributes:
        J: (K,) the level in units, NaN before the first epoch.
        delta: (K,) a price, which falls with the smallest natural price so far.
        K: (K,) gain of the level.
        unit: (K,) of cost; zero before any cost occurred.
    """

    remembered = ("unit", "J", "delta", "K", "P", "Q", "R", "predicted", "S", "least")

    def __init__(self, num_costs: int) -> None:
        """Start with nothing seen."""
        self.J, self.delta = np.full(num_costs, np.nan), np.zeros(num_costs)
        self.K: FloatArray = np.ones(num_costs)
        self.P = np.zeros((num_costs, 2, 2))  # covariance of (J, delta)
        self.Q, self.R = np.zeros(num_costs), np.zeros(num_costs)  # variances of update and e
        self.predicted, self.S = np.zeros(num_costs), np.zeros(num_costs)
        self.unit = np.zeros(num_costs)
        self.least = np.zeros(num_costs)  # the smallest natural price; 0 until S is known

    def cost_unit(self, J: FloatArray, d: FloatArray) -> FloatArray:
        """Return the unit of each cost (K,), which the first epoch with a cost J > 0 fixes."""
        first = (self.unit == 0.0) & (J > 0.0)
        self.unit = np.where(first, np.maximum(d, 0.1 * J) / LIMIT, self.unit)
        return np.where(self.unit > 0.0, self.unit, 1.0)

    def expect(self, change: FloatArray, S: FloatArray) -> None:
        """Expect an update to change the cost by `change`, S (rho + delta - lam), (K,) each."""
        self.predicted, self.S = self.J + change, S

    def lift(self, rise: FloatArray) -> None:
        """Raise delta (K,) without evidence: all of that may be too much."""
        self.delta = self.delta + rise
        self.P[:, 1, 1] = (np.sqrt(self.P[:, 1, 1]) + rise) ** 2

    def update(
        self, batch: Batch, d: FloatArray, natural: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Take in an epoch's cost; return J, delta and the limits in units, (K,) each.

        `natural` are the natural prices of this epoch, (K,).
        """
        self._count_in(natural)
        unit = self.cost_unit(batch.epoch_cost, d)
        y, d = batch.epoch_cost / unit, d / unit
        R = (batch.cost_error / unit) ** 2
        if np.isnan(self.J).any():
            self.J, self.R = y, R
            self.P[:, 0, 0], self.P[:, 1, 1] = R, (SPREAD * natural) ** 2
        else:
            self.R = ERROR_MEMORY * self.R + (1.0 - ERROR_MEMORY) * R
            self._filter(y - self.predicted, natural)
        self._epoch_cost, self._in_use = batch.epoch_cost, unit
        return self.J, self.delta, d

    def _count_in(self, natural: FloatArray) -> None:
        """Take delta along as the smallest natural price falls, once there is one."""
        before = np.where(self.least > 0.0, self.least, natural)
        least = np.minimum(natural, before)
        shrunk = least / before
        self.delta, self.least = self.delta * shrunk, np.where(self.S > 0.0, least, self.least)
        self.P[:, 1] *= shrunk[:, None]
        self.P[:, :, 1] *= shrunk[:, None]

    def _filter(self, surprise: FloatArray, natural: FloatArray) -> None:
        F = np.zeros_like(self.P)
        F[:, 0, 0] = F[:, 1, 1] = 1.0
        F[:, 0, 1] = self.S
        P = F @ self.P @ F.transpose(0, 2, 1)
        P[:, 0, 0] = np.maximum(P[:, 0, 0] + self.Q, TINY)  # so that e = 0 gives K = 1
        spread = np.maximum(SPREAD * natural, np.abs(self.delta))
        wandered = np.sqrt(P[:, 1, 1] + (WANDER * natural) ** 2)
        wandered = np.where(self.S > 0.0, wandered, spread)  # without S nothing is known of it
        at_most = np.minimum(spread / wandered, 1.0)
        P[:, 1, 1] = (at_most * wandered) ** 2
        P[:, 0, 1] = P[:, 1, 0] = at_most * P[:, 0, 1]
        variance = P[:, 0, 0] + self.R
        gains = P[:, 0] / variance[:, None]  # (K, 2) of the level and of delta
        self.J = self.predicted + gains[:, 0] * surprise
        self.delta = np.clip(
            self.delta + gains[:, 1] * surprise, BOUNDS[0] * natural, BOUNDS[1] * natural
        )
        # (I - K C) P, whose first row is K R: a difference might round to a negative variance.
        P[:, 1, 1] = np.maximum(P[:, 1, 1] - gains[:, 1] * P[:, 0, 1], 0.0)
        P[:, 0] = P[:, :, 0] = gains * self.R[:, None]
        self.P = P
        self.Q = np.clip(self.Q + LEARN * (surprise**2 - variance), 0.0, LIMIT**2)
        self.K = gains[:, 0]

    def report(self) -> dict[str, float]:
        """Return what is logged, in the cost's own unit."""
        return {
            **per_constraint("cost_epoch", self._epoch_cost),
            **per_constraint("cost_level", self.J * self._in_use),
            **per_constraint("cost_predicted", self.predicted * self._in_use),
            **per_constraint("gain", self.K),
        }
