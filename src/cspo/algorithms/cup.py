"""CUP: constrained update projection, improve and project back afterwards (Yang et al., 2022).

    1. improvement   maximise  mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)        gives pi_half
    2. projection    minimise  mean(r sum_i lam_i rho A_c_i) + mean KL(pi_theta || pi_half)

    rho  = (1 - gamma lambda_GAE) / (1 - gamma)            5.95 for 0.99 and 0.95
    lam  <- Adam ascent on lam (J_c - d), clamped to [0, lam_max], once per epoch, before both

Symbols: r = pi_theta(a|s) / pi_k(a|s), in both stages relative to the policy that collected the
data, A_r = reward advantage (standardised), A_c_i = cost advantages (centred), lam = `multiplier`,
gamma = discount of costs, lambda_GAE = `cost_gae_lambda`, J_c = mean episode cost over the window,
d = `cost_limit`, eps = `clip`.

As in the usual implementation both stages are passes over minibatches with one Adam state, the KL
limit holds in stage 2 around pi_half (in the authors' code around pi_k), the ratio of stage 2 is
not clipped, and the critics are trained in stage 1. With lam = 0 stage 2 has no gradient at pi_half
and only spends what momentum stage 1 has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cspo.algorithms.base import WithDual
from cspo.algorithms.learner import Learner, Loss, Reference
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.settings import MultiplierSettings
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, divergence, unclipped
from cspo.errors import CspoError
from cspo.settings import not_negative, positive, setting
from cspo.types import Batch, Discount, FloatArray


@dataclass(frozen=True)
class CUPConfig(MultiplierSettings):
    """Settings of CUP."""

    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio in the improvement."""
    multiplier_lr: float = setting(0.01, positive)
    """Step size of the multiplier."""
    multiplier_max: float = setting(2.0, not_negative)
    """Upper bound of the multiplier."""


@register("cup")
class CUP(WithDual):
    """PPO, then a projection towards lower cost."""

    title = "CUP"
    look = Look("#7b7b1c", "#c9c96e", DASHED, ">")
    Config = CUPConfig
    summary = "PPO on the reward, then a projection towards lower cost"
    traits = Traits("first", "projection")

    def __init__(
        self, config: CUPConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """Start the multipliers; rho needs a discount below 1."""
        super().__init__(config, learner, num_costs, discount)
        gamma, lambda_GAE = discount
        if gamma >= 1.0:
            raise CspoError("CUP divides by 1 - gamma: it needs a discount of costs below 1.")
        self.rho = (1.0 - gamma * lambda_GAE) / (1.0 - gamma)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, improve, and project."""
        eps, rho = self.config.clip, self.rho
        lam = self.dual.step(J_c, d)
        improvement = Loss(lambda L_R: -L_R, clipped_reward(batch.adv_r), clip=eps)
        fit = self.learner.fit(batch, improvement)

        def projection(L_C: Any, KL: Any) -> Any:
            return rho * lam @ L_C + KL

        half = Reference(fit.output, self.learner.policy.actor.log_std.copy())
        surrogates = unclipped(batch.adv_c), divergence(batch.adv_c)
        loss = Loss(projection, *surrogates, clip=eps, reference=half)
        projected = self.learner.fit_actor(batch, loss, half)
        return {
            **fit.metrics,
            **projected.metrics,
            "kl": projected.kl,
            "passes": fit.passes,
            "passes_projection": projected.passes,
            "kl_improvement": fit.kl,
            "kl_projection": projected.kl_reference,
            "clip_fraction": clip_fraction(fit.ratio, batch.adv_r, eps),
        }
