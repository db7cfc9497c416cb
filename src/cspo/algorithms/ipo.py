"""IPO: interior-point policy optimisation, a logarithmic barrier on each limit (Liu, Ding and Liu, 2020).

    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)

    A    = (A_r - sum_i p_i A_c_i) / (1 + sum_i p_i)
    p    = kappa / (d - J_c)                       the slope of the barrier -kappa log(d - J_c) at J_c
    p    = p_max where J_c >= d or p > p_max       outside the barrier has no value: a constant price instead

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), p = `penalty` in the log, kappa = `barrier`, p_max = `penalty_max`, J_c = mean
episode cost over the window, d = `cost_limit`, eps = `clip`.

The barrier keeps a feasible policy inside. From an infeasible start the price stays at p_max, which
is not made to find the way back. Its preset trains on normalised rewards and costs, as the usual
implementation does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cspo.algorithms.duals import WithoutDual
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.surrogates import lagrangian_advantage
from cspo.errors import require_positive
from cspo.optim.clipped import fit_clipped
from cspo.types import Batch, Discount, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class IPOConfig:
    """Settings of IPO."""

    barrier: float = 0.1
    """Strength kappa of the barrier, the inverse of its temperature."""
    penalty_max: float = 1.0
    """Price of a unit of cost near the limit and beyond it."""
    clip: float = 0.2
    """Clip range eps of the probability ratio."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "barrier", "penalty_max", "clip")


@register("ipo")
class IPO(WithoutDual):
    """PPO with a logarithmic barrier on every limit."""

    title = "IPO"
    look = Look("#cc6677", "#f09ca8", SOLID, "p")
    Config = IPOConfig
    summary = "PPO with a logarithmic barrier: costs get dearer as the limit comes near"
    traits = Traits("first", "barrier", feasible_start=True)

    def __init__(
        self, config: IPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.multiplier = np.zeros(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        kappa = self.config.barrier
        # The slack at which the price is p_max also stands for every smaller one and for all of the
        # outside.
        p = kappa / np.maximum(d - J_c + 1e-8, kappa / self.config.penalty_max)
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, batch.adv_c.new_tensor(p))
        metrics = fit_clipped(self.learner, batch, A, self.config.clip)
        return metrics | per_constraint("violation", J_c - d) | per_constraint("penalty", p)
