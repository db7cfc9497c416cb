"""IPO: interior-point policy optimisation, a barrier on each limit (Liu, Ding and Liu, 2020).

    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)

    A    = (A_r - sum_i p_i A_c_i) / (1 + sum_i p_i)
    p    = kappa / (d - J_c)                   the slope of the barrier -kappa log(d - J_c) at J_c
    p    = p_max where J_c >= d or p > p_max   outside the barrier has no value: a constant price

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), p = `penalty` in the log, kappa = `barrier`, p_max = `penalty_max`, J_c = mean
episode cost over the window, d = `cost_limit`, eps = `clip`.

The barrier keeps a feasible policy inside. From an infeasible start the price stays at p_max, which
is not made to find the way back. Its preset trains on normalised rewards and costs, as the usual
implementation does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, lagrangian_advantage
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray, per_constraint


@dataclass(frozen=True)
class IPOConfig:
    """Settings of IPO."""

    barrier: float = setting(0.1, positive)
    """Strength kappa of the barrier, the inverse of its temperature."""
    penalty_max: float = setting(1.0, positive)
    """Price of a unit of cost near the limit and beyond it."""
    clip: float = setting(0.2, positive)
    """Clip range eps of the probability ratio."""


@register("ipo")
class IPO(WithoutDual):
    """PPO with a logarithmic barrier on every limit."""

    title = "IPO"
    look = Look("#cc6677", "#f09ca8", SOLID, "p")
    Config = IPOConfig
    summary = "PPO with a logarithmic barrier: costs get dearer as the limit comes near"
    traits = Traits("first", "barrier", feasible_start=True)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Maximise the clipped surrogate of A at the barrier's price."""
        kappa, p_max, eps = self.config.barrier, self.config.penalty_max, self.config.clip
        # The slack at which the price is p_max stands for every smaller one, and for the outside.
        p = kappa / np.maximum(d - J_c + 1e-8, kappa / p_max)
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, p)
        fit = self.learner.fit(batch, Loss(lambda L: -L, clipped_reward(A), clip=eps))
        metrics = fit.report(clip_fraction=clip_fraction(fit.ratio, A, eps))
        return metrics | per_constraint("violation", J_c - d) | per_constraint("penalty", p)
