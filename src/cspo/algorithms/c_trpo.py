"""C-TRPO: a trust region that ends at the limit (Milosevic, Müller and Scherf, 2025).

    safe:      maximise mean(r A_r)   within   D(theta) = K + beta phi(u) <= delta
    recovery:  minimise mean(r A_c)   within   D(theta) = K <= delta

    u      = mean((r - 1) A_c) / (1 - gamma) ,  the predicted change of the cost
    phi(u) = u + (s_b - u) log((s_b - u) / s_b) ,  infinite from the slack s_b = d - J_c on
    H      = Hessian of K + (beta / s_b) a a^T + damping I ,  a = grad u ,  as phi''(0) = 1 / s_b
    step   = sqrt(2 delta / x^T H x) x ,  x = H^-1 g ,
             shortened by 0.8 until the objective is no worse and D <= delta

The mode starts as recovery. It becomes safe when J_c < h d, and recovery when J_c >= d.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, K = KL(old || new) averaged over
samples and action dimensions, J_c = mean episode cost, d = `cost_limit`, delta = `kl_limit`, beta =
`barrier_weight`, h = `hysteresis`.

As in the authors' code J_c and d are undiscounted while u is discounted. There J_c is over 50
episodes, here over `episode_window` (100); there the critics share one gradient norm clip, here
each has its own. With a limit of zero there is never any slack, so the mode stays recovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Learner, Trial
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.settings import TrustRegionSettings
from cspo.errors import CspoError
from cspo.settings import not_negative, positive, setting
from cspo.types import Batch, Discount, FloatArray


def _share_of_limit(value: float) -> str | None:
    return positive(value) or (None if value <= 1.0 else "must be at most 1")


@dataclass(frozen=True)
class CTRPOConfig(TrustRegionSettings):
    """Settings of C-TRPO."""

    barrier_weight: float = setting(1.0, not_negative)
    """Weight beta of the cost's part in the divergence."""
    hysteresis: float = setting(1.0, _share_of_limit)
    """Recovery ends when the cost is below this share h of the limit."""
    kl_limit: float = setting(0.01, positive)
    """Trust region delta: limit of the divergence, the KL being averaged over samples and action
    dimensions."""
    cg_iterations: int = setting(10, positive)
    """Iterations of conjugate gradients."""
    backtracks: int = setting(10, positive)
    """Tries of the line search, each 0.8 times the one before."""


def phi(u: float, slack: float) -> float:
    """Return the Bregman divergence of the slack's negative entropy, for a cost that rises by u."""
    return u + (slack - u) * float(np.log((slack - u) / slack)) if u < slack else float("inf")


@register("c-trpo")
class CTRPO(WithoutDual):
    """TRPO in a divergence that grows without bound towards the limit."""

    title = "C-TRPO"
    look = Look("#117733", "#74c686", DASHED, "X")
    Config = CTRPOConfig
    summary = "trust region shaped by a barrier at the limit, recovery outside it; one limit"
    traits = Traits("second", "barrier", several_limits=False)

    def __init__(
        self, config: CTRPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """Start in recovery."""
        super().__init__(config, learner, num_costs, discount)
        if discount.gamma >= 1.0:
            raise CspoError("C-TRPO divides by 1 - gamma: it needs a discount of costs below 1.")
        self.safe = False

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Choose the mode, take its step, train the critics."""
        cfg, delta, horizon = self.config, self.config.kl_limit, 1.0 / (1.0 - self.discount.gamma)
        A_c, slack = batch.adv_c[:, 0], float(d[0] - J_c[0])
        self.safe = bool(J_c[0] < d[0] * (1.0 if self.safe else cfg.hysteresis))
        A, beta = (batch.adv_r, cfg.barrier_weight) if self.safe else (-A_c, 0.0)

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        a = horizon * region.gradient(A_c)

        def H(v: FloatArray) -> FloatArray:
            return region.product(v) + (beta / slack * (a @ v) * a if beta else 0.0)

        def D(new: Trial) -> float:
            return new.kl + (beta * phi(horizon * new.change(A_c), slack) if beta else 0.0)

        def accept(new: Trial) -> bool:
            return new.change(A) >= 0.0 and D(new) <= delta

        (x,) = region.solve(region.gradient(A), product=H)
        y = np.sqrt(2.0 * delta / (x @ H(x) + 1e-8)) * x
        step = region.search(y, accept, cfg.backtracks)
        own = {"safe": int(self.safe), "slack": slack}
        return {**step.metrics, **own, **self.learner.fit_critics(batch)}

    def state_dict(self) -> dict[str, Any]:
        """Return the mode."""
        return {"safe": self.safe}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the mode back."""
        self.safe = bool(state["safe"])
