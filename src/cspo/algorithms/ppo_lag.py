"""PPO-Lag: PPO on the Lagrangian of the constrained problem (Ray, Achiam and Amodei, 2019).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)
    lam  <- Adam ascent on lam (J_c - d), clamped at 0, once per epoch, before the policy update

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`,
eps = `clip`.

The ratio is clipped on the combined advantage, as the usual implementations do; CSPO clips the
reward and the cost separately.
"""

from __future__ import annotations

from dataclasses import dataclass

from cspo.algorithms.base import WithDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.settings import MultiplierSettings
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, lagrangian_advantage
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray


@dataclass(frozen=True)
class PPOLagConfig(MultiplierSettings):
    """Settings of PPO-Lag."""

    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio."""


@register("ppo-lag")
class PPOLag(WithDual):
    """PPO with Lagrange multipliers."""

    title = "PPO-Lag"
    look = Look("#0072b2", "#5bb0ea", SOLID, "o")
    Config = PPOLagConfig
    summary = "PPO on the Lagrangian, one adaptive multiplier per constraint"
    traits = Traits("first", "dual")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, then maximise the clipped surrogate of A."""
        lam, eps = self.dual.step(J_c, d), self.config.clip
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        fit = self.learner.fit(batch, Loss(lambda L: -L, clipped_reward(A), clip=eps))
        return fit.report(clip_fraction=clip_fraction(fit.ratio, A, eps))
