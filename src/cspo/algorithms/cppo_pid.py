"""CPPO-PID: PPO, the multiplier set by a PID controller (Stooke, Achiam and Abbeel, 2020).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)

    lam  = [K_P P + I + K_D D]_+            once per epoch, before the policy update
    P    = average of J_c - d               I = [I + K_I (J_c - d)]_+
    D    = [average of J_c now - the one `delay` epochs ago]_+

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`,
eps = `clip`, K_P, K_I, K_D = `proportional`, `integral`, `derivative`; averages are exponential
with `memory`.

As in the usual implementation the multiplier has no upper bound, since the advantage is divided by
1 + lam, and for the first `delay` epochs the rise of the cost is measured from zero: D is then the
averaged cost itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from cspo.algorithms.base import WithDual
from cspo.algorithms.duals import PIDDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.settings import PIDSettings
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, lagrangian_advantage
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray, per_constraint


@dataclass(frozen=True)
class CPPOPIDConfig(PIDSettings):
    """Settings of CPPO-PID."""

    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio."""


@register("cppo-pid")
class CPPOPID(WithDual):
    """PPO with multipliers from a PID controller."""

    dual: PIDDual
    title = "CPPO-PID"
    look = Look("#aa4499", "#dd8bd0", SOLID, "^")
    Config = CPPOPIDConfig
    summary = "PPO on the Lagrangian, multipliers set by a PID controller"
    traits = Traits("first", "dual")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, then maximise the clipped surrogate of A."""
        lam, eps = self.dual.step(J_c, d), self.config.clip
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        fit = self.learner.fit(batch, Loss(lambda L: -L, clipped_reward(A), clip=eps))
        metrics = fit.report(clip_fraction=clip_fraction(fit.ratio, A, eps))
        return metrics | per_constraint("integral", self.dual.I)
