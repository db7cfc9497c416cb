"""APPO: augmented proximal policy optimisation, an augmented Lagrangian (Dai et al., 2023).

    minimise  [ -L_R + sum_i f_i L_C_i ] / (1 + sum_i f_i)

    f    = [lam + sigma (J_c - d)]_+         held fixed during an update
    L_R  = mean min(r A_r, clip(r) A_r)   L_C = mean max(r A_c, clip(r) A_c)   (clipped separately)
    lam  <- Adam ascent on lam (J_c - d), clamped at 0, once per epoch, before the policy update

f is the gradient of the augmented Lagrangian's (sigma / 2)([lam / sigma + phi]_+^2 - lam^2 /
sigma^2) by the constraint phi at theta_k, so the penalty starts before the limit is reached, at J_c
> d - lam / sigma.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, sigma = `penalty`, f = `effective_multiplier` in the log,
J_c = mean episode cost over the window, d = `cost_limit`, clip(r) = clip(r, 1 - eps, 1 + eps) with
eps = `clip`.

From the authors' code: f uses J_c alone and not the surrogate, sigma is constant. Not from it:
full-batch policy steps, a fixed and annealed standard deviation and scaled rewards; those belong to
its training loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.algorithms.base import WithDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.settings import DualRule, MultiplierSettings
from cspo.algorithms.surrogates import clip_fraction, clipped_cost, clipped_reward
from cspo.settings import not_negative, positive, setting
from cspo.types import Batch, FloatArray, per_constraint


@dataclass(frozen=True)
class APPOConfig(MultiplierSettings):
    """Settings of APPO."""

    penalty: float = setting(0.2, not_negative)
    """Weight sigma of the quadratic penalty."""
    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio."""
    dual: DualRule = "adam"
    """Adam, or projected (plain ascent, cut off at zero; the textbook rule has a step size of
    sigma)."""


@register("appo")
class APPO(WithDual):
    """PPO on the augmented Lagrangian."""

    title = "APPO"
    look = Look("#00876a", "#3ecb9e", SOLID, "s")
    Config = APPOConfig
    summary = "PPO on the augmented Lagrangian: multipliers plus a quadratic penalty"
    traits = Traits("first", "dual and penalty")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, then minimise the loss with f held fixed."""
        eps, sigma = self.config.clip, self.config.penalty
        lam = self.dual.step(J_c, d)
        f = np.maximum(lam + sigma * (J_c - d), 0.0)

        def loss(L_R: Any, L_C: Any) -> Any:
            return (-L_R + f @ L_C) / (1.0 + f.sum())

        surrogates = clipped_reward(batch.adv_r), clipped_cost(batch.adv_c)
        fit = self.learner.fit(batch, Loss(loss, *surrogates, clip=eps))
        return fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, eps),
            **per_constraint("violation", J_c - d),
            **per_constraint("effective_multiplier", f),
        )
