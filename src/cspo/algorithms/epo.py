"""EPO: exterior penalty policy optimisation with a penalty metric network (Gao et al., 2024), a reconstruction.

    minimise  [ -L_R + sum_i p E_i Psi_i ] / (1 + sum_i E_i)

    E   = exp(min(J_c - d, M))
    Psi = a softplus(min(L_C, m)) + (1 - a) softplus(min(L_Q, m)),   L_C = mean(r A_c), L_Q = mean(r A_q)

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
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.algorithms.duals import WithoutDual
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, unclipped
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.optim.objective import SurrogateObjective
from cspo.types import Batch, Discount, ExtraStream, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class EPOConfig:
    """Settings of EPO."""

    penalty: float = 0.1
    """Factor p of the penalty."""
    linear_share: float = 0.5
    """Share a of the cost advantages in the penalty; the rest is that of the quadratic stream."""
    violation_cap: float = 5.0
    """Largest violation M in the exponential."""
    surrogate_cap: float = 10.0
    """Value m above which a surrogate of the penalty gives no gradient."""
    divide: bool = True
    """Divide the loss by 1 + the exponentials of the violations."""
    clip: float = 0.2
    """Clip range of the probability ratio in the reward surrogate."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip", "violation_cap", "surrogate_cap")
        require_not_negative(self, "penalty")
        if not 0.0 <= self.linear_share <= 1.0:
            raise CspoError(f"--linear-share must be between 0 and 1, not {self.linear_share}.")


@register("epo")
class EPO(WithoutDual):
    """PPO with an exponential penalty on a linear and a quadratic cost stream."""

    title = "EPO"
    look = Look("#6b4c2a", "#c79d70", DASHED, "d")
    Config = EPOConfig
    summary = "PPO with an exponential penalty on costs and their squares (a reconstruction)"
    traits = Traits("first", "penalty")

    def __init__(
        self, config: EPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.multiplier = np.zeros(num_costs)

    @staticmethod
    def extra_stream(
        c: FloatArray, V_c: FloatArray, V_c_next: FloatArray, gamma: float, lam: float
    ) -> ExtraStream:
        """Return the quadratic stream of the costs: what V_q values, with its discount and its lambda."""
        x = (c + gamma * V_c_next) ** 2 - V_c**2
        return ExtraStream(x, gamma**2, lam**2, target_min=0.0)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        cfg = self.config
        E = np.exp(np.minimum(J_c - d, cfg.violation_cap))
        fit = self.learner.fit(batch, self.make_objective(batch, E))
        return {
            "kl": fit.kl,
            "passes": fit.passes,
            "clip_fraction": clip_fraction(fit.ratio, batch.adv_r, cfg.clip),
            **per_constraint("penalty", cfg.penalty * E),
            **fit.metrics,
        }

    def make_objective(self, batch: Batch, E: FloatArray) -> SurrogateObjective:
        """Return the loss by its derivatives; d softplus(min(L, m)) / dL = sigmoid(L) below m."""
        assert batch.adv_extra is not None
        p, a, m = self.config.penalty, self.config.linear_share, self.config.surrogate_cap
        scale = 1.0 + E.sum() if self.config.divide else 1.0

        def slope(surrogate: FloatArray) -> FloatArray:
            sigmoid = 0.5 * (1.0 + np.tanh(0.5 * surrogate))  # in this form it cannot overflow
            return np.where(surrogate < m, sigmoid, 0.0)

        def slopes(L_R: float, L_C: FloatArray, L_Q: FloatArray) -> list[Any]:
            return [
                -1.0 / scale,
                p * E * a * slope(L_C) / scale,
                p * E * (1.0 - a) * slope(L_Q) / scale,
            ]

        surrogates = [
            clipped_reward(batch.adv_r),
            unclipped(batch.adv_c),
            unclipped(batch.adv_extra),
        ]
        return SurrogateObjective(surrogates, self.config.clip, slopes)
