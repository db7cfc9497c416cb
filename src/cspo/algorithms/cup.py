"""CUP: constrained update projection, improve first and project back afterwards (Yang et al., 2022).

    1. improvement   maximise  mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)              gives pi_half
    2. projection    minimise  mean(r sum_i lam_i rho A_c_i) + mean KL(pi_theta || pi_half)

    rho  = (1 - gamma lambda_GAE) / (1 - gamma)            5.95 for 0.99 and 0.95
    lam  <- Adam ascent on lam (J_c - d), clamped to [0, lam_max], once per epoch, before both stages

Symbols: r = pi_theta(a|s) / pi_k(a|s), in both stages relative to the policy that collected the data, A_r = reward
advantage (standardised), A_c_i = cost advantages (centred), lam = `multiplier`, gamma = discount of costs,
lambda_GAE = `projection_lambda`, J_c = mean episode cost over the window, d = `cost_limit`, eps = `clip`.

As in the usual implementation both stages are passes over minibatches with one Adam state, the KL limit holds in stage
2 around pi_half, the ratio of stage 2 is not clipped, and the critics are trained in stage 1. With lam = 0 stage 2
has no gradient at pi_half and only spends what momentum stage 1 has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cspo.algorithms.registry import Traits, register
from cspo.duals import DualRule, make_dual
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.optim.objective import Reference, SurrogateObjective
from cspo.surrogates import clip_fraction, clipped_reward, divergence, unclipped
from cspo.types import Batch, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class CUPConfig:
    """Settings of CUP."""

    clip: float = 0.2
    """Clip range eps of the probability ratio in the improvement."""
    multiplier_init: float = 0.001
    """Initial Lagrange multiplier."""
    multiplier_lr: float = 0.01
    """Step size of the multiplier."""
    multiplier_max: float = 2.0
    """Upper bound of the multiplier."""
    dual: DualRule = "adam"
    """Adam, or projected (plain gradient ascent, cut off at zero)."""
    projection_lambda: float = 0.95
    """GAE's lambda in the weight of the cost in the projection; meant to be that of --cost-gae-lambda."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip", "multiplier_lr")
        require_not_negative(self, "multiplier_init", "multiplier_max")
        if self.multiplier_init > self.multiplier_max:
            raise CspoError("--multiplier-init is above --multiplier-max.")
        if not 0.0 <= self.projection_lambda <= 1.0:
            raise CspoError(f"--projection-lambda must be between 0 and 1, not {self.projection_lambda}.")


@register("cup")
class CUP:
    """PPO, then a projection towards lower cost."""

    Config = CUPConfig
    summary = "PPO on the reward, then a projection towards lower cost"
    traits = Traits("first", "projection")

    def __init__(self, config: CUPConfig, learner: Learner, num_costs: int, gamma: float) -> None:
        """See `Algorithm`."""
        if gamma >= 1.0:
            raise CspoError("CUP divides by 1 - gamma: it needs a discount of costs below 1.")
        self.config, self.learner = config, learner
        self.rho = (1.0 - gamma * config.projection_lambda) / (1.0 - gamma)
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
        lam = self.dual.step(J_c, d)
        improvement = SurrogateObjective([clipped_reward(batch.adv_r)], eps, lambda L_R: (-1.0,))
        fit = self.learner.fit(batch, improvement)

        half = Reference(fit.mean, self.learner.policy.actor.log_std.clone())
        A_c = batch.adv_c
        projection = SurrogateObjective(
            [unclipped(A_c), divergence(A_c)], eps, lambda L_C, KL: (self.rho * lam, 1.0), half
        )
        projected = self.learner.fit_actor(batch, projection, half)
        return {
            **fit.metrics,
            **projected.metrics,
            "kl": projected.kl,
            "passes": fit.passes,
            "passes_projection": projected.passes,
            "kl_improvement": fit.kl,
            "kl_projection": projected.kl_reference,
            "clip_fraction": clip_fraction(fit.ratio, batch.adv_r, eps),
        }

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"dual": self.dual.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.dual.load_state_dict(state["dual"])
