"""TRPO-PID: a trust-region step on the Lagrangian, with PID-controlled multipliers (Stooke, Achiam and Abbeel, 2020).

    lam  = [K_P P + I + K_D D]_+            once per epoch, before the policy update
    P    = average of J_c - d               I = [I + K_I (J_c - d)]_+
    D    = [average of J_c now - the one `delay` epochs ago]_+

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    x    = H^-1 g ,  g = grad mean(r A)
    step = sqrt(2 delta / x^T H x) x , shortened by 0.8 until mean(r A) is no worse and K <= delta

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost advantages (centred),
K = KL(old || new) averaged over samples and action dimensions, H = its Hessian at theta_k + damping I,
delta = `kl_limit`, lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`.

As in the usual implementation K averages over action dimensions, where TRPO has their sum: with m actions the same
limit allows m times the KL. The multiplier has no upper bound, since the advantage is divided by 1 + lam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.algorithms.registry import Traits, register
from cspo.duals import PIDDual
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.surrogates import lagrangian_advantage
from cspo.types import Batch, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner
    from cspo.optim.trust_region import Trial


@dataclass(frozen=True)
class TRPOPIDConfig:
    """Settings of TRPO-PID."""

    kl_limit: float = 0.01
    """Trust region delta: limit of the KL averaged over samples and action dimensions."""
    cg_iterations: int = 15
    """Iterations of conjugate gradients."""
    damping: float = 0.1
    """Added to the diagonal of the curvature."""
    backtracks: int = 15
    """Tries of the line search, each 0.8 times the one before."""
    multiplier_init: float = 0.001
    """Initial integral I, and with it the initial multiplier."""
    proportional: float = 0.1
    """Gain K_P of the averaged violation."""
    integral: float = 0.01
    """Gain K_I of the summed violation."""
    derivative: float = 0.01
    """Gain K_D of the rise of the averaged cost."""
    memory: float = 0.95
    """Share of the past in the two moving averages; 0 switches them off."""
    delay: int = 10
    """Epochs over which the rise of the cost is measured."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "kl_limit", "cg_iterations", "damping", "backtracks", "delay")
        require_not_negative(self, "multiplier_init", "proportional", "integral", "derivative")
        if not 0.0 <= self.memory < 1.0:
            raise CspoError(f"--memory must be at least 0 and less than 1, not {self.memory}.")


@register("trpo-pid")
class TRPOPID:
    """TRPO with PID-controlled multipliers."""

    Config = TRPOPIDConfig
    summary = "trust-region step on the Lagrangian, multipliers from a PID controller"
    traits = Traits("second", "dual")

    def __init__(self, config: TRPOPIDConfig, learner: Learner, num_costs: int, gamma: float) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        gains = config.proportional, config.integral, config.derivative
        self.dual = PIDDual(num_costs, config.multiplier_init, *gains, config.memory, config.delay)

    @property
    def multiplier(self) -> FloatArray:
        """The Lagrange multipliers, shape (K,)."""
        return self.dual.lam

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        cfg, delta = self.config, self.config.kl_limit
        lam = batch.adv_c.new_tensor(self.dual.step(J_c, d))
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        (x,) = region.solve(region.gradient(A))
        q = x @ region.product(x)

        def accept(new: Trial) -> bool:
            return new.change(A) >= 0.0 and new.kl <= delta

        step = region.search(np.sqrt(2.0 * delta / (q + 1e-8)) * x, accept, cfg.backtracks)
        integral = per_constraint("integral", self.dual.I)
        return {**step.metrics, **integral, **self.learner.fit_critics(batch)}

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"dual": self.dual.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.dual.load_state_dict(state["dual"])
