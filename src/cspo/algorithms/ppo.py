"""PPO: proximal policy optimisation, without constraints (Schulman et al., 2017).

    maximise  L_R(theta) = mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), eps = `clip`.

Costs are measured, logged and fitted by their critics, but do not influence the policy: the
reference for what ignoring the limits costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import DOTTED, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO."""

    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio."""


@register("ppo")
class PPO(WithoutDual):
    """Unconstrained PPO."""

    title = "PPO"
    look = Look("#777777", "#a6a6a6", DOTTED, ".")
    Config = PPOConfig
    summary = "unconstrained PPO: measures costs, ignores limits"
    traits = Traits("first", "none")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Maximise L_R."""
        eps = self.config.clip
        loss = Loss(lambda L_R: -L_R, clipped_reward(batch.adv_r), clip=eps)
        fit = self.learner.fit(batch, loss)
        return fit.report(clip_fraction=clip_fraction(fit.ratio, batch.adv_r, eps))
