"""TRPO-PID: a trust-region step with PID-controlled multipliers (Stooke et al., 2020).

    lam  = [K_P P + I + K_D D]_+            once per epoch, before the policy update
    P    = average of J_c - d               I = [I + K_I (J_c - d)]_+
    D    = [average of J_c now - the one `delay` epochs ago]_+

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    x    = H^-1 g ,  g = grad mean(r A)
    step = sqrt(2 delta / x^T H x) x , shortened by 0.8 until mean(r A) is no worse and K <= delta

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), K = KL(old || new) averaged over samples and action dimensions, H = its
Hessian at theta_k + damping I, delta = `kl_limit`, lam = `multiplier`, J_c = mean episode cost over
the window, d = `cost_limit`.

As in the usual implementation K averages over action dimensions, where TRPO has their sum: with m
actions the same limit allows m times the KL. The multiplier has no upper bound, since the advantage
is divided by 1 + lam.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cspo.algorithms.base import WithDual
from cspo.algorithms.duals import PIDDual
from cspo.algorithms.learner import Trial
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.settings import PIDSettings, TrustRegionSettings
from cspo.algorithms.surrogates import lagrangian_advantage
from cspo.types import Batch, FloatArray, per_constraint


@dataclass(frozen=True)
class TRPOPIDConfig(PIDSettings, TrustRegionSettings):
    """Settings of TRPO-PID."""


@register("trpo-pid")
class TRPOPID(WithDual):
    """TRPO with PID-controlled multipliers."""

    dual: PIDDual
    title = "TRPO-PID"
    look = Look("#882255", "#e583ad", DASHED, "v")
    Config = TRPOPIDConfig
    summary = "trust-region step on the Lagrangian, multipliers from a PID controller"
    traits = Traits("second", "dual")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, take the step, train the critics."""
        cfg, delta = self.config, self.config.kl_limit
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, self.dual.step(J_c, d))

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        (x,) = region.solve(region.gradient(A))
        q = x @ region.product(x)

        def accept(new: Trial) -> bool:
            return new.change(A) >= 0.0 and new.kl <= delta

        step = region.search(np.sqrt(2.0 * delta / (q + 1e-8)) * x, accept, cfg.backtracks)
        integral = per_constraint("integral", self.dual.I)
        return {**step.metrics, **integral, **self.learner.fit_critics(batch)}
