"""CSPO: constraint-sensitive policy optimisation (2026).

With g(theta) the constraint surrogate of each cost, minimise over theta

    [ -L_R + sum_i ( lam_i L_C_i + (alpha_i / 2) w_i [g_i]_+^2 ) ] / (1 + sum_i (lam_i + k_i))

    L_R = mean min(r A_r, clip(r) A_r)        L_C = mean max(r A_c, clip(r) A_c)      (clipped separately)
    w   = 1 / (||grad mean(r A_c)||^2 + eps_w) at theta_k, clipped, averaged over epochs, held fixed
    k   = alpha w [g(theta_k)]_+ , so that lam + k is the effective multiplier

    form     g(theta)                                    bounds of w
    direct   (J_c - d) + L_C                             0.01 .. 1     episode-cost units, the default
    scaled   (1 - gamma)(J_c - d) + L_C - L_C(theta_k)   1 .. 100      per-step units, invariant to cost scale
    literal  (J_c - d) + L_C / (1 - gamma)               0.01 .. 1     the paper's equation as printed

The penalty acts only under violation, and its gradient at theta_k is alpha times the shortest step back to
the boundary of the linearised constraint. The multiplier follows J_c - d slowly and carries the long run.

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, J_c = mean episode cost, d = `cost_limit`,
lam = `multiplier`, alpha = fraction of the violation to remove, w = sensitivity weight.

Where the paper is silent or contradicts itself the choice is a setting; docs/cspo.md explains each. The paper
writes no division (`divide=False`); with it, Adam's step sizes survive a violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cspo.algorithms.registry import register
from cspo.duals import DualRule, make_dual
from cspo.errors import CspoError, require_not_negative, require_positive
from cspo.sensitivity import SensitivityWeight
from cspo.surrogates import clip_fraction, clipped_cost_surrogate, clipped_reward_surrogate
from cspo.types import Batch, FloatArray, per_constraint

if TYPE_CHECKING:
    from torch import Tensor

    from cspo.optim.minibatch import Columns, Learner
    from cspo.policy import Distribution

WEIGHT_BOUNDS = {"direct": (0.01, 1.0), "scaled": (1.0, 100.0), "literal": (0.01, 1.0)}


@dataclass(frozen=True)
class Config:
    """Settings of CSPO."""

    alpha: tuple[float, ...] = (0.85,)
    """Fraction of the violation each update aims to remove, one value or one per constraint."""
    adaptive_alpha: bool = False
    """Set alpha to [J_c - d]_+ / d, at most 1, instead of the fixed value."""
    form: Literal["direct", "scaled", "literal"] = "direct"
    """Units of the constraint surrogate g, see the table above."""
    divide: bool = True
    """Divide the loss by 1 + the effective multiplier; False is the paper's literal loss."""
    penalty_cost: Literal["window", "epoch"] = "window"
    """Cost in the penalty: mean over the episode window, or over this epoch's episodes alone."""
    weight_min: float | None = None
    """Lower bound of the sensitivity weight; by default that of the form."""
    weight_max: float | None = None
    """Upper bound of the sensitivity weight; by default that of the form."""
    weight_epsilon: float = 1e-8
    """Added to the squared gradient norm."""
    weight_memory: float = 0.9
    """Share of the old weight in the moving average over epochs; 0 switches it off."""
    weight_average: Literal["linear", "log"] = "linear"
    """Average the weight itself or its logarithm."""
    skip_costless: bool = False
    """Leave the weight as it is in epochs in which no cost occurred."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    multiplier_init: float = 0.001
    """Initial Lagrange multiplier."""
    multiplier_lr: float = 0.035
    """Step size of the multiplier."""
    multiplier_max: float = float("inf")
    """Upper bound of the multiplier."""
    dual: DualRule = "adam"
    """Adam, or projected (plain gradient ascent, cut off at zero)."""
    dual_timing: Literal["before", "after"] = "after"
    """Move the multiplier before the policy update or after it, as in the paper's pseudo-code."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip", "multiplier_lr", "weight_min", "weight_max")
        require_not_negative(self, "multiplier_init", "multiplier_max", "weight_epsilon")
        if not 0.0 <= self.weight_memory < 1.0:
            raise CspoError(f"--weight-memory must be at least 0 and less than 1, not {self.weight_memory}.")
        if len(self.alpha) not in (1, num_costs) or not all(0.0 <= a < np.inf for a in self.alpha):
            raise CspoError(f"--alpha must be one non-negative value or one per cost limit ({num_costs}).")
        low, high = self.weight_bounds
        if low > high:
            raise CspoError(f"The lower bound of the weight, {low:g}, is above the upper bound, {high:g}.")

    @property
    def weight_bounds(self) -> tuple[float, float]:
        """Bounds of the sensitivity weight."""
        low, high = WEIGHT_BOUNDS[self.form]
        return (
            low if self.weight_min is None else self.weight_min,
            high if self.weight_max is None else self.weight_max,
        )


@register("cspo")
class CSPO:
    """Primal-dual PPO with a sensitivity-weighted penalty under violation."""

    Config = Config
    summary = "PPO with multipliers and a sensitivity-weighted penalty under violation"

    def __init__(self, config: Config, learner: Learner, num_costs: int, gamma: float) -> None:
        """See `Algorithm`."""
        self.config, self.learner, self.gamma = config, learner, gamma
        self.alpha = np.broadcast_to(np.asarray(config.alpha, dtype=float), (num_costs,))
        self.dual = make_dual(
            config.dual, num_costs, config.multiplier_init, config.multiplier_lr, config.multiplier_max
        )
        self.weight = SensitivityWeight(
            num_costs,
            *config.weight_bounds,
            config.weight_epsilon,
            config.weight_memory,
            config.weight_average,
        )

    @property
    def multiplier(self) -> FloatArray:
        """The Lagrange multipliers, shape (K,)."""
        return self.dual.lam

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
        loss, effective = self.make_loss(batch, violation, lam, alpha, w)
        fit = self.learner.fit(batch, loss, {"A_r": batch.adv_r, "A_c": batch.adv_c})
        if cfg.dual_timing == "after":
            self.dual.step(J_c, d)
        cost_clip = [clip_fraction(fit.ratio, A, cfg.clip, pessimistic_max=True) for A in batch.adv_c.T]
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

    def make_loss(
        self, batch: Batch, violation: FloatArray, lam: FloatArray, alpha: FloatArray, w: FloatArray
    ) -> tuple[Any, FloatArray]:
        """Return the loss over minibatches and the effective multiplier of grad L_C at theta_k, shape (K,)."""
        cfg, tensor = self.config, batch.adv_c.new_tensor
        # g = offset + slope * (L_C - centre) and the dual term is lam * dual_slope * L_C, in the form's units
        slope = 1.0 / (1.0 - self.gamma) if cfg.form == "literal" else 1.0
        c = (1.0 - self.gamma) * violation if cfg.form == "scaled" else violation
        k = alpha * w * np.maximum(c, 0.0) * slope
        effective = lam * slope + k
        scale = 1.0 + float(effective.sum()) if cfg.divide else 1.0
        offset, multiplier, half_weight = tensor(c), tensor(lam * slope), tensor(0.5 * alpha * w)
        centred = cfg.form == "scaled"

        def loss(new: Distribution, mb: Columns) -> Tensor:
            L_R = clipped_reward_surrogate(new.ratio, mb["A_r"], cfg.clip)
            L_C = clipped_cost_surrogate(new.ratio, mb["A_c"], cfg.clip)  # (K,)
            g = offset + slope * (L_C - mb["A_c"].mean(0) if centred else L_C)
            penalty = half_weight * g.clamp(min=0.0).square()
            return ((multiplier * L_C + penalty).sum() - L_R) / scale

        return loss, effective

    def _gradient_norm(self, batch: Batch) -> FloatArray:
        """Return ||grad mean(r A_c)|| at theta_k of each cost on the full batch, shape (K,)."""
        actor = self.learner.policy.actor
        gradients = [actor.score_gradient(batch.observation, batch.action, A) for A in batch.adv_c.T]
        return np.array([float(gradient.norm()) for gradient in gradients])

    def state_dict(self) -> dict[str, Any]:
        """See `Algorithm`."""
        return {"dual": self.dual.state_dict(), "weight": self.weight.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Algorithm`."""
        self.dual.load_state_dict(state["dual"])
        self.weight.load_state_dict(state["weight"])
