"""PPO-Lag: PPO on the Lagrangian of the constrained problem (Ray, Achiam and Amodei, 2019).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)
    lam  <- Adam ascent on lam (J_c - d), clamped at 0, once per epoch, before the policy update

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`,
eps = `clip`.

The ratio is clipped on the combined advantage, as the usual implementations do; CSPO clips the
reward and the cost separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cspo.algorithms.duals import MultiplierSettings, WithDual
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.surrogates import lagrangian_advantage
from cspo.errors import require_positive
from cspo.optim.clipped import fit_clipped
from cspo.types import Batch, Discount, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class PPOLagConfig(MultiplierSettings):
    """Settings of PPO-Lag."""

    clip: float = 0.2
    """Clip range eps of the probability ratio."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        super().validate(num_costs)
        require_positive(self, "clip")


@register("ppo-lag")
class PPOLag(WithDual):
    """PPO with Lagrange multipliers."""

    title = "PPO-Lag"
    look = Look("#0072b2", "#5bb0ea", SOLID, "o")
    Config = PPOLagConfig
    summary = "PPO on the Lagrangian, one adaptive multiplier per constraint"
    traits = Traits("first", "dual")

    def __init__(
        self, config: PPOLagConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.dual = config.make_dual(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        lam = batch.adv_c.new_tensor(self.dual.step(J_c, d))
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        return fit_clipped(self.learner, batch, A, self.config.clip)
