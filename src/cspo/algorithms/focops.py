"""FOCOPS: first-order constrained optimisation in policy space (Zhang, Vuong and Ross, 2020).

The best policy near pi_k is known in closed form up to a constant; the loss moves pi_theta towards
it:

    variant     minimise
    corrected   mean_i 1_i ( kl_i - r_i A_i / tau )                       as published
    paper       mean_i(1_i kl_i) - mean_i(1_i) mean_j(r_j A_j) / tau      as usually implemented

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    kl_i = KL(pi_theta || pi_k) at sample i, summed over action dimensions
    1_i  = 1 if kl_i <= eta, not differentiated
    lam  <- Adam ascent on lam (J_c - d), clamped to [0, lam_max], once per epoch, before the update

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, tau = `temperature`, eta = `trust`, J_c = mean episode
cost over the window, d = `cost_limit`.

There a column kl (B, 1) meets a row r A (B,), so the mean runs over all B^2 pairs: the advantage is
not masked sample by sample but scaled by the share of samples inside the trust region. The ratio is
not clipped in either. Both divide by 1 + lam and move lam by Adam; the authors' code does neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cspo.algorithms.base import WithDual
from cspo.algorithms.learner import Loss, Reference
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.settings import MultiplierSettings
from cspo.algorithms.surrogates import (
    divergence,
    lagrangian_advantage,
    share_inside,
    unclipped,
    unclipped_inside,
)
from cspo.settings import not_negative, positive, setting
from cspo.types import Batch, FloatArray


@dataclass(frozen=True)
class FOCOPSConfig(MultiplierSettings):
    """Settings of FOCOPS."""

    temperature: float = setting(1.5, positive)
    """Temperature tau: how much divergence an advantage is worth."""
    trust: float = setting(0.02, positive)
    """Divergence eta beyond which a sample is masked."""
    multiplier_init: float = setting(1.0, not_negative)
    """Initial Lagrange multiplier."""
    multiplier_lr: float = setting(0.01, positive)
    """Step size of the multiplier."""
    multiplier_max: float = setting(2.0, not_negative)
    """Upper bound of the multiplier."""
    variant: Literal["paper", "corrected"] = "paper"
    """Scale the advantage by the share of samples inside the trust region, or mask it sample by
    sample."""


@register("focops")
class FOCOPS(WithDual):
    """A first-order step towards the best policy of a trust region."""

    title = "FOCOPS"
    look = Look("#b07d00", "#e6bd50", SOLID, "<")
    Config = FOCOPSConfig
    summary = "moves towards the optimal policy of a trust region, with multipliers"
    traits = Traits("first", "dual")

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Move the multipliers, then the policy towards the best one nearby."""
        tau, masked = self.config.temperature, self.config.variant == "corrected"
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, self.dual.step(J_c, d))
        shares: list[float] = []

        def loss(L: Any, KL: Any, share: Any) -> Any:
            return KL - (1.0 if masked else share) * L / tau

        fit = self.learner.fit(
            batch,
            Loss(
                loss,
                *(unclipped_inside(A) if masked else unclipped(A), divergence(A), share_inside(A)),
                reference=Reference(batch.output, batch.log_std),
                trust=self.config.trust,
                observe=lambda L, KL, share: shares.append(share),
            ),
        )
        return fit.report(share_inside=float(np.mean(shares)))
