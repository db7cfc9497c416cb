"""P3O: penalised PPO, an exact penalty without multipliers (Zhang et al., 2022).

    minimise  -L_R + kappa sum_i [ mean(r A_c_i) + c_i ]_+

    L_R = mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)

    variant     c
    paper       J_c - d               as usually implemented: a cost per episode beside one per step
    corrected   (1 - gamma)(J_c - d)  as published: the hinge compares like with like

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), kappa = `penalty`, J_c = mean episode cost over the window, d = `cost_limit`,
gamma = discount of costs, eps = `clip`.

A minibatch's mean(r A_c) is of the order of 0.05 and J_c - d of 1 to 10, so "paper" is a switch:
PPO below the limit, PPO plus kappa grad mean(r A_c) above it. "corrected" also opens and closes
within an update. In both the ratio of the cost is not clipped and the loss is not divided by 1 +
kappa, as usually implemented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, unclipped
from cspo.settings import not_negative, positive, setting
from cspo.types import Batch, FloatArray, per_constraint


@dataclass(frozen=True)
class P3OConfig:
    """Settings of P3O."""

    penalty: float = setting(20.0, not_negative)
    """Weight kappa of the penalty."""
    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio of the reward."""
    variant: Literal["paper", "corrected"] = "paper"
    """The violation inside the hinge: J_c - d, or times 1 - gamma as published."""


@register("p3o")
class P3O(WithoutDual):
    """PPO with a hinge penalty on every cost."""

    title = "P3O"
    look = Look("#3a9c8c", "#83dccf", DASHED, "h")
    Config = P3OConfig
    summary = "PPO with an exact penalty: a hinge on each cost, no multiplier"
    traits = Traits("first", "penalty")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Minimise the penalised loss."""
        eps, kappa = self.config.clip, self.config.penalty
        gamma = self.discount.gamma
        c = J_c - d if self.config.variant == "paper" else (1.0 - gamma) * (J_c - d)

        def loss(L_R: Any, L_C: Any) -> Any:
            return -L_R + kappa * np.maximum(L_C + c, 0.0).sum()

        surrogates = clipped_reward(batch.adv_r), unclipped(batch.adv_c)
        fit = self.learner.fit(batch, Loss(loss, *surrogates, clip=eps))
        L_C = fit.ratio.astype(np.float64) @ batch.adv_c.astype(np.float64) / len(fit.ratio)
        return fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, eps),
            **per_constraint("violation", J_c - d),
            **per_constraint("hinge", np.maximum(L_C + c, 0.0)),
        )
