"""CSPO: constraint-sensitive policy optimisation (2026).

With g(theta) the constraint surrogate of each cost, minimise over theta

    [ -L_R + sum_i ( lam_i L_C_i + (alpha_i / 2) w_i [g_i]_+^2 ) ] / (1 + sum_i (lam_i + k_i))

    L_R = mean min(r A_r, clip(r) A_r)    L_C = mean max(r A_c, clip(r) A_c)    (clipped separately)
    w   = 1 / (||grad mean(r A_c)||^2 + eps_w) at theta_k, clipped, averaged over epochs, held fixed
    k   = alpha w [g(theta_k)]_+ , so that lam + k is the effective multiplier

    form        g(theta)                                   bounds of w
    predictive  (J_c - d) + L_C / (1 - gamma)              3 .. 10    of the new policy: the default
    direct      (J_c - d) + L_C                            0.01 .. 1  of the old policy
    scaled      (1 - gamma)(J_c - d) + L_C - L_C(theta_k)  1 .. 100   per step, whatever its scale
    literal     as predictive                              0.01 .. 1  lam, w over 1 - gamma

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
from typing import Any, Literal

import numpy as np

from cspo.algorithms.base import WithDual
from cspo.algorithms.learner import Learner, Loss
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.sensitivity import SensitivityWeight
from cspo.algorithms.settings import MultiplierSettings
from cspo.algorithms.surrogates import at_old_policy, clip_fraction, clipped_cost, clipped_reward
from cspo.errors import CspoError
from cspo.settings import memory, not_negative, positive, setting
from cspo.types import Batch, Discount, FloatArray, per_constraint

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
    weight_min: float | None = setting(None, positive)
    """Lower bound of the sensitivity weight; by default that of the form."""
    weight_max: float | None = setting(None, positive)
    """Upper bound of the sensitivity weight; by default that of the form."""
    weight_epsilon: float = setting(1e-8, not_negative)
    """Added to the squared gradient norm."""
    weight_memory: float = setting(0.9, memory)
    """Share of the old weight in the moving average over epochs; 0 switches it off."""
    weight_average: Literal["log", "linear"] = "log"
    """Average the logarithm of the weight, or the weight itself."""
    skip_costless: bool = True
    """Leave the weight as it is in epochs in which no cost occurred."""
    clip: float = setting(0.2, positive)
    """Clip range of the probability ratio."""
    dual_timing: Literal["before", "after"] = "after"
    """Move the multiplier before the policy update or after it, as in the paper's pseudo-code."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that do not fit each other or the number of limits."""
        super().validate(num_costs)
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
        given, usual = (self.weight_min, self.weight_max), WEIGHT_BOUNDS[self.form]
        low, high = (b if a is None else a for a, b in zip(given, usual, strict=True))
        return low, high


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
        """Start the multipliers, and the weight without a value."""
        super().__init__(config, learner, num_costs, discount)
        if config.form in ("predictive", "literal") and discount.gamma >= 1.0:
            raise CspoError(
                f"--form {config.form} divides by 1 - gamma: it needs a discount of costs below 1."
            )
        self.alpha = np.broadcast_to(np.asarray(config.alpha, dtype=np.float64), (num_costs,))
        low, high = config.weight_bounds
        memory, average = config.weight_memory, config.weight_average
        self.weight = SensitivityWeight(
            num_costs, low, high, config.weight_epsilon, memory, average
        )

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Weigh the penalty, minimise the loss, move the multipliers."""
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
        loss, effective = self.loss(batch, violation, lam, alpha, w)
        fit = self.learner.fit(batch, loss)
        if cfg.dual_timing == "after":
            self.dual.step(J_c, d)
        cost_clip = [
            clip_fraction(fit.ratio, A, cfg.clip, pessimistic_max=True) for A in batch.adv_c.T
        ]
        return fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, cfg.clip),
            **per_constraint("clip_fraction_cost", cost_clip),
            **per_constraint("violation", violation),
            **per_constraint("alpha", alpha),
            **per_constraint("weight", w),
            **per_constraint("gradient_norm", grad_norm),
            **per_constraint("effective_multiplier", effective),
        )

    def loss(
        self, batch: Batch, violation: FloatArray, lam: FloatArray, alpha: FloatArray, w: FloatArray
    ) -> tuple[Loss, FloatArray]:
        """Return the loss and the effective multiplier of grad L_C at theta_k, shape (K,).

        With [g]_+ and grad g of one minibatch, the mean of their product is not the product of
        their means: minibatches that overrate L_C count most, which makes for caution.
        `hinge_minibatch="previous"` takes it out.
        """
        form, independent = self.config.form, self.config.hinge_minibatch == "previous"
        gamma = self.discount.gamma
        horizon = 1.0 / (1.0 - gamma) if form in ("predictive", "literal") else 1.0
        rho = horizon if form == "literal" else 1.0  # what multiplies grad L_C besides its price
        c = (1.0 - gamma) * violation if form == "scaled" else violation
        effective = (lam + alpha * w * np.maximum(c, 0.0)) * rho
        scale = 1.0 + effective.sum() if self.config.divide else 1.0
        before = [c]  # g on the minibatch before; c at theta_k

        def loss(L_R: Any, L_C: Any, L_C_old: Any = 0.0) -> Any:
            g = c + horizon * (L_C - L_C_old)
            penalty = (alpha / 2.0) * w * np.maximum(g, 0.0) ** 2
            return (-L_R + (rho * lam * L_C + rho / horizon * penalty).sum()) / scale

        def loss_of_independent_hinge(L_R: Any, L_C: Any, L_C_old: Any = 0.0) -> Any:
            price = lam + alpha * w * np.maximum(before[-1], 0.0)
            return (-L_R + rho * (price * L_C).sum()) / scale

        def remember(L_R: Any, L_C: Any, L_C_old: Any = 0.0) -> None:
            before[-1] = c + horizon * (L_C - L_C_old)

        surrogates = [clipped_reward(batch.adv_r), clipped_cost(batch.adv_c)]
        if form == "scaled":
            surrogates.append(at_old_policy(batch.adv_c))
        function = loss_of_independent_hinge if independent else loss
        observe = remember if independent else None
        return Loss(function, *surrogates, clip=self.config.clip, observe=observe), effective

    def _gradient_norm(self, batch: Batch) -> FloatArray:
        """Return ||grad mean(r A_c)|| at theta_k of each cost on the full batch, shape (K,)."""
        score = self.learner.policy.actor.score_gradient
        gradients = [score(batch.observation, batch.action, A) for A in batch.adv_c.T]
        return np.array([float(np.linalg.norm(gradient)) for gradient in gradients])

    def state_dict(self) -> dict[str, Any]:
        """Return the multipliers and the weight."""
        return {**super().state_dict(), "weight": self.weight.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        super().load_state_dict(state)
        self.weight.load_state_dict(state["weight"])
