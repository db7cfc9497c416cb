"""EPO: exterior penalty policy optimisation (Gao et al., 2024), a reconstruction.

    minimise  [ -L_R + sum_i p E_i Psi_i ] / (1 + sum_i E_i)

    E   = exp(min(J_c - d, M))
    Psi = a softplus(min(L_C, m)) + (1 - a) softplus(min(L_Q, m))
    L_C = mean(r A_c)      L_Q = mean(r A_q)

A_q belongs to a second cost critic V_q, the penalty metric network, which values the squares of the
costs to come:

    delta_t = (c_t + gamma V_c(s'))^2 - V_c(s)^2 + gamma^2 V_q(s') - V_q(s)
    A_q     = sum_k (gamma lambda)^(2k) delta_{t+k}, centred;   target of V_q = max(0, A_q + V_q(s))

Symbols: L_R = mean min(r A_r, clip(r) A_r), r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages,
J_c = mean episode cost, d = `cost_limit`, p = `penalty`, a = `linear_share`, M = `violation_cap`, m
= `surrogate_cap`.

The paper gives no numbers, and the authors' program lacks its settings file: this is the form that
program computes, with p and a as found there and M, m and the division chosen here. It has no
multiplier. Where a minibatch's surrogate exceeds m its gradient is zero. docs/algorithms/epo.md
tells what is known and what is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, softplus, unclipped
from cspo.settings import not_negative, positive, setting, share
from cspo.types import Batch, ExtraStream, FloatArray, per_constraint


@dataclass(frozen=True)
class EPOConfig:
    """Settings of EPO."""

    penalty: float = setting(0.1, not_negative)
    """Factor p of the penalty."""
    linear_share: float = setting(0.5, share)
    """Share a of the cost advantages in the penalty; the rest is that of the quadratic stream."""
    violation_cap: float = setting(5.0, positive)
    """Largest violation M in the exponential."""
    surrogate_cap: float = setting(10.0, positive)
    """Value m above which a surrogate of the penalty gives no gradient."""
    divide: bool = True
    """Divide the loss by 1 + the exponentials of the violations."""
    clip: float = setting(0.2, positive)
    """Clip range of the probability ratio in the reward surrogate."""


@register("epo")
class EPO(WithoutDual):
    """PPO with an exponential penalty on a linear and a quadratic cost stream."""

    title = "EPO"
    look = Look("#6b4c2a", "#c79d70", DASHED, "d")
    Config = EPOConfig
    summary = "PPO with an exponential penalty on costs and their squares (a reconstruction)"
    traits = Traits("first", "penalty")

    @staticmethod
    def extra_stream(
        c: FloatArray, V_c: FloatArray, V_c_next: FloatArray, gamma: float, lam: float
    ) -> ExtraStream:
        """Return what V_q values, the quadratic stream of the costs."""
        x = (c + gamma * V_c_next) ** 2 - V_c**2
        return ExtraStream(x, gamma**2, lam**2, target_min=0.0)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Minimise the penalised loss with E held fixed."""
        E = np.exp(np.minimum(J_c - d, self.config.violation_cap))
        fit = self.learner.fit(batch, self.loss(batch, E))
        return fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, self.config.clip),
            **per_constraint("penalty", self.config.penalty * E),
        )

    def loss(self, batch: Batch, E: FloatArray) -> Loss:
        """Return the loss for exponentials E (K,)."""
        p, a, m = self.config.penalty, self.config.linear_share, self.config.surrogate_cap
        scale = 1.0 + E.sum() if self.config.divide else 1.0

        def loss(L_R: Any, L_C: Any, L_Q: Any) -> Any:
            linear, quadratic = softplus(np.minimum(L_C, m)), softplus(np.minimum(L_Q, m))
            Psi = a * linear + (1.0 - a) * quadratic
            return (-L_R + p * E @ Psi) / scale

        assert batch.adv_extra is not None
        costs = unclipped(batch.adv_c), unclipped(batch.adv_extra)
        return Loss(loss, clipped_reward(batch.adv_r), *costs, clip=self.config.clip)
