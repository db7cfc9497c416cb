"""CPPO-PID: PPO on the Lagrangian, the multiplier set by a PID controller (Stooke, Achiam and Abbeel, 2020).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)

    lam  = [K_P P + I + K_D D]_+            once per epoch, before the policy update
    P    = average of J_c - d               I = [I + K_I (J_c - d)]_+
    D    = [average of J_c now - the one `delay` epochs ago]_+

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`,
eps = `clip`, K_P, K_I, K_D = `proportional`, `integral`, `derivative`; averages are exponential
with `memory`.

As in the usual implementation the multiplier has no upper bound, since the advantage is divided by
1 + lam, and for the first `delay` epochs the rise of the cost is measured from zero: D is then the
averaged cost itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cspo.algorithms.duals import PIDDual, PIDSettings, WithDual
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.surrogates import lagrangian_advantage
from cspo.errors import require_positive
from cspo.optim.clipped import fit_clipped
from cspo.types import Batch, Discount, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class CPPOPIDConfig(PIDSettings):
    """Settings of CPPO-PID."""

    clip: float = 0.2
    """Clip range eps of the probability ratio."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        super().validate(num_costs)
        require_positive(self, "clip")


@register("cppo-pid")
class CPPOPID(WithDual):
    """PPO with multipliers from a PID controller."""

    dual: PIDDual
    title = "CPPO-PID"
    look = Look("#aa4499", "#dd8bd0", SOLID, "^")
    Config = CPPOPIDConfig
    summary = "PPO on the Lagrangian, multipliers set by a PID controller"
    traits = Traits("first", "dual")

    def __init__(
        self, config: CPPOPIDConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.dual = config.make_dual(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        lam = batch.adv_c.new_tensor(self.dual.step(J_c, d))
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        metrics = fit_clipped(self.learner, batch, A, self.config.clip)
        return metrics | per_constraint("integral", self.dual.I)
