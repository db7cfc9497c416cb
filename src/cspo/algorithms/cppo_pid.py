"""CPPO-PID: PPO on the Lagrangian, the multiplier set by a PID controller (Stooke, Achiam and Abbeel, 2020).

    A    = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i)
    maximise  mean min(r A, clip(r, 1 - eps, 1 + eps) A)

    lam  = [K_P P + I + K_D D]_+            once per epoch, before the policy update
    P    = average of J_c - d               I = [I + K_I (J_c - d)]_+
    D    = [average of J_c now - the one `delay` epochs ago]_+

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost advantages (centred),
lam = `multiplier`, J_c = mean episode cost over the window, d = `cost_limit`, eps = `clip`, K_P, K_I, K_D =
`proportional`, `integral`, `derivative`; averages are exponential with `memory`.

As in the usual implementation the multiplier has no upper bound, since the advantage is divided by 1 + lam, and for
the first `delay` epochs the rise of the cost is measured from zero: D is then the averaged cost itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cspo.algorithms.registry import Traits, register
from cspo.duals import PIDDual
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.optim.objective import SurrogateObjective
from cspo.surrogates import clip_fraction, clipped_reward, lagrangian_advantage
from cspo.types import Batch, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class CPPOPIDConfig:
    """Settings of CPPO-PID."""

    clip: float = 0.2
    """Clip range eps of the probability ratio."""
    multiplier_init: float = 0.001
    """Initial integral I, and with it the initial multiplier."""
    proportional: float = 0.1
    """Gain K_P of the averaged violation."""
    integral: float = 0.01
    """Gain K_I of the summed violation."""
    derivative: float = 0.01
    """Gain K_D of the rise of the averaged cost."""
    memory: float = 0.95
    """Share of the past in the two moving averages; 0 switches them off."""
    delay: int = 10
    """Epochs over which the rise of the cost is measured."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip", "delay")
        require_not_negative(self, "multiplier_init", "proportional", "integral", "derivative")
        if not 0.0 <= self.memory < 1.0:
            raise CspoError(f"--memory must be at least 0 and less than 1, not {self.memory}.")


@register("cppo-pid")
class CPPOPID:
    """PPO with multipliers from a PID controller."""

    Config = CPPOPIDConfig
    summary = "PPO on the Lagrangian, multipliers set by a PID controller"
    traits = Traits("first", "dual")

    def __init__(self, config: CPPOPIDConfig, learner: Learner, num_costs: int, gamma: float) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.dual = PIDDual(
            num_costs,
            config.multiplier_init,
            config.proportional,
            config.integral,
            config.derivative,
            config.memory,
            config.delay,
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
            **per_constraint("integral", self.dual.I),
            **fit.metrics,
        }

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"dual": self.dual.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.dual.load_state_dict(state["dual"])
