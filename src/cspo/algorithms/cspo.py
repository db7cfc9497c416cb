"""CSPO: constraint-sensitive policy optimisation (2026).

With g(theta) the constraint surrogate of each cost, minimise over theta

    [ -L_R + sum_i ( lam_i L_C_i + (alpha_i / 2) w_i [g_i]_+^2 ) ] / (1 + sum_i (lam_i + k_i))

    L_R = mean min(r A_r, clip(r) A_r)        L_C = mean max(r A_c, clip(r) A_c)      (clipped separately)
    w   = 1 / (||grad mean(r A_c)||^2 + eps_w) at theta_k, clipped, averaged over epochs, held fixed
    k   = alpha w [g(theta_k)]_+ , so that lam + k is the effective multiplier

    form        g(theta)                                    bounds of w
    predictive  (J_c - d) + L_C / (1 - gamma)               3 .. 10       the cost the new policy will have: the default
    direct      (J_c - d) + L_C                             0.01 .. 1     the cost the old policy had
    scaled      (1 - gamma)(J_c - d) + L_C - L_C(theta_k)   1 .. 100      per-step units, invariant to cost scale
    literal     as predictive                               0.01 .. 1     lam and w times 1 / (1 - gamma), as printed

(predictive: w_i (1 - gamma) in the loss above.) The penalty acts only where g > 0. Its gradient at
theta_k points along the shortest step back to the boundary of the linearised constraint, and is
alpha times that step in the forms direct and scaled. The multiplier follows J_c - d slowly and
carries the long run.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, J_c = mean episode cost, d =
`cost_limit`, lam = `multiplier`, alpha = fraction of the violation to remove, w = sensitivity
weight.

Where the paper is silent or contradicts itself the choice is a setting; docs/cspo.md explains each.
The paper writes no division (`divide=False`); with it, Adam's step sizes survive a violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cspo.algorithms.duals import MultiplierSettings, WithDual
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.sensitivity import SensitivityWeight
from cspo.algorithms.surrogates import at_old_policy, clip_fraction, clipped_cost, clipped_reward
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.optim.objective import SurrogateObjective
from cspo.types import Batch, Discount, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner

WEIGHT_BOUNDS = {
    "predictive": (3.0, 10.0),
    "direct": (0.01, 1.0),
    "scaled": (1.0, 100.0),
    "literal": (0.01, 1.0),
}


@dataclass(frozen=True)
class CSPOConfig(MultiplierSettings):
    """Settings of CSPO."""

    alpha: tuple[float, ...] = (0.85,)
    """Fraction of the violation each update aims to remove, one value or one per constraint."""
    adaptive_alpha: bool = False
    """Set alpha to [J_c - d]_+ / d, at most 1, instead of the fixed value."""
    form: Literal["predictive", "direct", "scaled", "literal"] = "predictive"
    """What the constraint surrogate g is, and in which units the penalty acts: docs/cspo.md."""
    divide: bool = True
    """Divide the loss by 1 + the effective multiplier; False is the paper's literal loss."""
    penalty_cost: Literal["window", "epoch"] = "window"
    """Cost in the penalty: mean over the episode window, or over this epoch's episodes alone."""
    hinge_minibatch: Literal["same", "previous"] = "same"
    """Minibatch from which [g]_+ takes L_C: that of the gradient, or the one before, independent of
    it."""
    weight_min: float | None = None
    """Lower bound of the sensitivity weight; by default that of the form."""
    weight_max: float | None = None
    """Upper bound of the sensitivity weight; by default that of the form."""
    weight_epsilon: float = 1e-8
    """Added to the squared gradient norm."""
    weight_memory: float = 0.9
    """Share of the old weight in the moving average over epochs; 0 switches it off."""
    weight_average: Literal["log", "linear"] = "log"
    """Average the logarithm of the weight, or the weight itself."""
    skip_costless: bool = True
    """Leave the weight as it is in epochs in which no cost occurred."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    dual_timing: Literal["before", "after"] = "after"
    """Move the multiplier before the policy update or after it, as in the paper's pseudo-code."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        super().validate(num_costs)
        require_positive(self, "clip", "weight_min", "weight_max")
        require_not_negative(self, "weight_epsilon")
        if not 0.0 <= self.weight_memory < 1.0:
            raise CspoError(
                f"--weight-memory must be at least 0 and less than 1, not {self.weight_memory}."
            )
        if len(self.alpha) not in (1, num_costs) or not all(0.0 <= a < np.inf for a in self.alpha):
            raise CspoError(
                f"--alpha must be one non-negative value or one per cost limit ({num_costs})."
            )
        low, high = self.weight_bounds
        if low > high:
            raise CspoError(
                f"The lower bound of the weight, {low:g}, is above the upper bound, {high:g}: "
                "set both, --weight-min and --weight-max."
            )

    @property
    def weight_bounds(self) -> tuple[float, float]:
        """Bounds of the sensitivity weight."""
        low, high = WEIGHT_BOUNDS[self.form]
        return (
            low if self.weight_min is None else self.weight_min,
            high if self.weight_max is None else self.weight_max,
        )


@register("cspo")
class CSPO(WithDual):
    """Primal-dual PPO with a sensitivity-weighted penalty under violation."""

    title = "CSPO"
    look = Look("#d55e00", "#ff8f45", SOLID, "*", stands_out=True)
    Config = CSPOConfig
    summary = "PPO with multipliers and a sensitivity-weighted penalty under violation"
    traits = Traits("first", "dual and penalty")

    def __init__(
        self, config: CSPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        if config.form in ("predictive", "literal") and discount.gamma >= 1.0:
            raise CspoError(
                f"--form {config.form} divides by 1 - gamma: it needs a discount of costs below 1."
            )
        self.config, self.learner, self.gamma = config, learner, discount.gamma
        self.alpha = np.broadcast_to(np.asarray(config.alpha, dtype=np.float64), (num_costs,))
        self.dual = config.make_dual(num_costs)
        self.weight = SensitivityWeight(
            num_costs,
            *config.weight_bounds,
            config.weight_epsilon,
            config.weight_memory,
            config.weight_average,
        )

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        cfg = self.config
        if cfg.dual_timing == "before":
            self.dual.step(J_c, d)
        lam = self.dual.lam
        violation = (batch.epoch_cost if cfg.penalty_cost == "epoch" else J_c) - d
        alpha = self.alpha
        if cfg.adaptive_alpha:
            alpha = np.clip(np.maximum(violation, 0.0) / (d + 1e-8), 0.0, 1.0)
        grad_norm = self._gradient_norm(batch)
        w = self.weight.update(grad_norm, batch.any_cost | (not cfg.skip_costless))
        objective, effective = self.make_objective(batch, violation, lam, alpha, w)
        fit = self.learner.fit(batch, objective)
        if cfg.dual_timing == "after":
            self.dual.step(J_c, d)
        cost_clip = [
            clip_fraction(fit.ratio, A, cfg.clip, pessimistic_max=True) for A in batch.adv_c.T
        ]
        return {
            "kl": fit.kl,
            "passes": fit.passes,
            "clip_fraction": clip_fraction(fit.ratio, batch.adv_r, cfg.clip),
            **per_constraint("clip_fraction_cost", cost_clip),
            **per_constraint("violation", violation),
            **per_constraint("alpha", alpha),
            **per_constraint("weight", w),
            **per_constraint("gradient_norm", grad_norm),
            **per_constraint("effective_multiplier", effective),
            **fit.metrics,
        }

    def make_objective(
        self, batch: Batch, violation: FloatArray, lam: FloatArray, alpha: FloatArray, w: FloatArray
    ) -> tuple[SurrogateObjective, FloatArray]:
        """Return the loss and the effective multiplier of grad L_C at theta_k, shape (K,).

        The loss is given by its derivatives, the paper's grad Loss = -grad L_R + (lam + alpha w
        [g]_+) grad g. With [g]_+ and grad g of one minibatch, the mean of their product is not the
        product of their means: minibatches that overrate L_C count most, which makes for caution.
        `hinge_minibatch="previous"` takes it out.
        """
        form, independent = self.config.form, self.config.hinge_minibatch == "previous"
        horizon = 1.0 / (1.0 - self.gamma) if form in ("predictive", "literal") else 1.0
        rho = (
            horizon if form == "literal" else 1.0
        )  # what multiplies grad L_C besides lam and the penalty
        c = (1.0 - self.gamma) * violation if form == "scaled" else violation
        effective = (lam + alpha * w * np.maximum(c, 0.0)) * rho
        scale = 1.0 + effective.sum() if self.config.divide else 1.0
        surrogates = [clipped_reward(batch.adv_r), clipped_cost(batch.adv_c)]
        if form == "scaled":
            surrogates.append(at_old_policy(batch.adv_c))

        before = np.zeros_like(c)  # g - c on the minibatch before; zero at theta_k

        def slopes(L_R: float, L_C: FloatArray, *L_C_old: FloatArray) -> list[Any]:
            nonlocal before
            here = horizon * (L_C - sum(L_C_old))
            g, before = c + (before if independent else here), here
            return [
                -1.0 / scale,
                (lam + alpha * w * np.maximum(g, 0.0)) * rho / scale,
                *(0.0 for _ in L_C_old),
            ]

        return SurrogateObjective(surrogates, self.config.clip, slopes), effective

    def _gradient_norm(self, batch: Batch) -> FloatArray:
        """Return ||grad mean(r A_c)|| at theta_k of each cost on the full batch, shape (K,)."""
        actor = self.learner.policy.actor
        gradients = [
            actor.score_gradient(batch.observation, batch.action, A) for A in batch.adv_c.T
        ]
        return np.array([float(gradient.norm()) for gradient in gradients])

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {**super().state_dict(), "weight": self.weight.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        super().load_state_dict(state)
        self.weight.load_state_dict(state["weight"])
