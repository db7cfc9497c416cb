"""FOCOPS: first-order constrained optimisation in policy space (Zhang, Vuong and Ross, 2020).

The best policy near pi_k is known in closed form up to a constant; the loss moves pi_theta towards
it:

    variant     minimise
    corrected   mean_i 1_i ( kl_i - r_i A_i / tau )                       as published
    paper       mean_i(1_i kl_i) - mean_i(1_i) mean_j(r_j A_j) / tau      as the usual implementation has it

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    kl_i = KL(pi_theta || pi_k) at sample i, summed over action dimensions; 1_i = 1 if kl_i <= eta, not differentiated
    lam  <- Adam ascent on lam (J_c - d), clamped to [0, lam_max], once per epoch, before the policy update

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, tau = `temperature`, eta = `trust`, J_c = mean episode
cost over the window, d = `cost_limit`.

There a column kl (B, 1) meets a row r A (B,), so the mean runs over all B^2 pairs: the advantage is
not masked sample by sample but scaled by the share of samples inside the trust region. The ratio is
not clipped in either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from cspo.algorithms.duals import MultiplierSettings, WithDual
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.surrogates import (
    divergence,
    lagrangian_advantage,
    share_inside,
    unclipped,
    unclipped_inside,
)
from cspo.errors import require_positive
from cspo.optim.objective import Reference, SurrogateObjective
from cspo.types import Batch, Discount, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class FOCOPSConfig(MultiplierSettings):
    """Settings of FOCOPS."""

    temperature: float = 1.5
    """Temperature tau: how much divergence an advantage is worth."""
    trust: float = 0.02
    """Divergence eta beyond which a sample is masked."""
    multiplier_init: float = 1.0
    """Initial Lagrange multiplier."""
    multiplier_lr: float = 0.01
    """Step size of the multiplier."""
    multiplier_max: float = 2.0
    """Upper bound of the multiplier."""
    variant: Literal["paper", "corrected"] = "paper"
    """Scale the advantage by the share of samples inside the trust region, or mask it sample by
    sample."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        super().validate(num_costs)
        require_positive(self, "temperature", "trust")


@register("focops")
class FOCOPS(WithDual):
    """A first-order step towards the best policy of a trust region."""

    title = "FOCOPS"
    look = Look("#b07d00", "#e6bd50", SOLID, "<")
    Config = FOCOPSConfig
    summary = "moves towards the optimal policy of a trust region, with multipliers"
    traits = Traits("first", "dual")

    def __init__(
        self, config: FOCOPSConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.dual = config.make_dual(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        tau = self.config.temperature
        lam = batch.adv_c.new_tensor(self.dual.step(J_c, d))
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        masked = self.config.variant == "corrected"
        shares: list[float] = []

        def slopes(L: float, KL: float, share: float) -> tuple[float, ...]:
            shares.append(share)
            return (-1.0 if masked else -share) / tau, 1.0, 0.0

        surrogates = [
            unclipped_inside(A) if masked else unclipped(A),
            divergence(A),
            share_inside(A),
        ]
        old = Reference(batch.mean, batch.log_std)
        fit = self.learner.fit(
            batch, SurrogateObjective(surrogates, 0.0, slopes, old, self.config.trust)
        )
        return {
            "kl": fit.kl,
            "passes": fit.passes,
            "share_inside": float(np.mean(shares)),
            **fit.metrics,
        }
