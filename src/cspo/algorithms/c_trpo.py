"""C-TRPO: constrained TRPO, a trust region that ends at the limit (Milosevic, Müller and Scherf, 2025).

    safe:      maximise mean(r A_r)   within   D(theta) = K + beta phi(u) <= delta
    recovery:  minimise mean(r A_c)   within   D(theta) = K <= delta

    u      = mean((r - 1) A_c) / (1 - gamma) ,  the predicted change of the cost
    phi(u) = u + (s_b - u) log((s_b - u) / s_b) ,  infinite from u = s_b on;  s_b = d - J_c , the slack
    H      = Hessian of K + (beta / s_b) a a^T + damping I ,  a = grad u        since phi''(0) = 1 / s_b
    step   = sqrt(2 delta / x^T H x) x ,  x = H^-1 g , shortened by 0.8 until the objective is no worse and D <= delta

The mode starts as recovery. It becomes safe when J_c < h d, and recovery when J_c >= d.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, K = KL(old || new) averaged over
samples and action dimensions, J_c = mean episode cost, d = `cost_limit`, delta = `kl_limit`, beta =
`barrier_weight`, h = `hysteresis`.

As in the authors' code J_c and d are undiscounted while u is discounted. There the critics share
one gradient norm clip; here each has its own. With a limit of zero there is never any slack, so the
mode stays recovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.errors import CspoError, require_not_negative, require_one_limit, require_positive
from cspo.optim.settings import TrustRegionSettings
from cspo.types import Batch, Discount, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner
    from cspo.optim.trust_region import Trial


@dataclass(frozen=True)
class CTRPOConfig(TrustRegionSettings):
    """Settings of C-TRPO."""

    barrier_weight: float = 1.0
    """Weight beta of the cost's part in the divergence."""
    hysteresis: float = 1.0
    """Recovery ends when the cost is below this share h of the limit."""
    kl_limit: float = 0.01
    """Trust region delta: limit of the divergence, the KL being averaged over samples and action
    dimensions."""
    cg_iterations: int = 10
    """Iterations of conjugate gradients."""
    backtracks: int = 10
    """Tries of the line search, each 0.8 times the one before."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_one_limit("C-TRPO", num_costs)
        TrustRegionSettings.validate(self, num_costs)
        require_positive(self, "hysteresis")
        require_not_negative(self, "barrier_weight")
        if self.hysteresis > 1.0:
            raise CspoError(f"--hysteresis must be at most 1, not {self.hysteresis}.")


def phi(u: float, slack: float) -> float:
    """Return the Bregman divergence of the negative entropy of the slack, for a cost that rises by u."""
    return u + (slack - u) * float(np.log((slack - u) / slack)) if u < slack else float("inf")


@register("c-trpo")
class CTRPO:
    """TRPO in a divergence that grows without bound towards the limit."""

    title = "C-TRPO"
    look = Look("#117733", "#74c686", DASHED, "X")
    Config = CTRPOConfig
    summary = "trust region shaped by a barrier at the limit, recovery outside it; one limit"
    traits = Traits("second", "barrier", several_limits=False)

    def __init__(
        self, config: CTRPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        if discount.gamma >= 1.0:
            raise CspoError("C-TRPO divides by 1 - gamma: it needs a discount of costs below 1.")
        self.config, self.learner, self.gamma = config, learner, discount.gamma
        self.multiplier, self.safe = np.zeros(num_costs), False

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        cfg, delta, horizon = self.config, self.config.kl_limit, 1.0 / (1.0 - self.gamma)
        A_c, slack = batch.adv_c[:, 0], float(d[0] - J_c[0])
        self.safe = bool(J_c[0] < d[0] * (1.0 if self.safe else cfg.hysteresis))
        A, beta = (batch.adv_r, cfg.barrier_weight) if self.safe else (-A_c, 0.0)

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        a = horizon * region.gradient(A_c)

        def H(v: FloatArray) -> FloatArray:
            return region.product(v) + (beta / slack * (a @ v) * a if beta else 0.0)

        (x,) = region.solve(region.gradient(A), product=H)

        def D(new: Trial) -> float:
            return new.kl + (beta * phi(horizon * new.change(A_c), slack) if beta else 0.0)

        y = np.sqrt(2.0 * delta / (x @ H(x) + 1e-8)) * x
        step = region.search(
            y, lambda new: new.change(A) >= 0.0 and D(new) <= delta, cfg.backtracks
        )
        return {
            **step.metrics,
            "safe": int(self.safe),
            "slack": slack,
            **self.learner.fit_critics(batch),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the mode."""
        return {"safe": self.safe}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.safe = bool(state["safe"])
