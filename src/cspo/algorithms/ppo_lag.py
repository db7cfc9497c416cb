"""PPO-Lag: PPO on the Lagrangian of the constrained problem (Ray, Achiam and Amodei, 2019).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)
    lam  <- Adam ascent on lam (J_c - d), clamped at 0, once per epoch, before the policy update

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost advantages
(centred), lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`, eps = `clip`.

The ratio is clipped on the combined advantage, as the usual implementations do; CSPO clips the reward and
the cost separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cspo.algorithms.registry import Traits, register
from cspo.duals import DualRule, make_dual
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.optim.objective import SurrogateObjective
from cspo.surrogates import clip_fraction, clipped_reward, lagrangian_advantage
from cspo.types import Batch, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class PPOLagConfig:
    """Settings of PPO-Lag."""

    clip: float = 0.2
    """Clip range eps of the probability ratio."""
    multiplier_init: float = 0.001
    """Initial Lagrange multiplier."""
    multiplier_lr: float = 0.035
    """Step size of the multiplier."""
    multiplier_max: float = float("inf")
    """Upper bound of the multiplier."""
    dual: DualRule = "adam"
    """Adam, or projected (plain gradient ascent, cut off at zero)."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip", "multiplier_lr")
        require_not_negative(self, "multiplier_init", "multiplier_max")
        if self.multiplier_init > self.multiplier_max:
            raise CspoError("--multiplier-init is above --multiplier-max.")


@register("ppo-lag")
class PPOLag:
    """PPO with Lagrange multipliers."""

    Config = PPOLagConfig
    summary = "PPO on the Lagrangian, one adaptive multiplier per constraint"
    traits = Traits("first", "dual")

    def __init__(self, config: PPOLagConfig, learner: Learner, num_costs: int, gamma: float) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.dual = make_dual(
            config.dual, num_costs, config.multiplier_init, config.multiplier_lr, config.multiplier_max
        )

    @property
    def multiplier(self) -> FloatArray:
        """The Lagrange multipliers, shape (K,)."""
        return self.dual.lam

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        eps = self.config.clip
        lam = batch.adv_c.new_tensor(self.dual.step(J_c, d))
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, lam)
        objective = SurrogateObjective([clipped_reward(A)], eps, lambda L: (-1.0,))
        fit = self.learner.fit(batch, objective)
        return {
            "kl": fit.kl,
            "passes": fit.passes,
            "clip_fraction": clip_fraction(fit.ratio, A, eps),
            **fit.metrics,
        }

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"dual": self.dual.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.dual.load_state_dict(state["dual"])
