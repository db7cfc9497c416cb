"""CSPO to the letter of its paper (2026): `cspo train --form paper`.

    L_R  = mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)
    L_C  = mean max(r A_c, clip(r, 1 - eps, 1 + eps) A_c)
    g    = J_c - d + L_C / (1 - gamma)
    Loss = -L_R + sum_i ( (alpha_i / 2) w_i [g_i]_+^2 + lam_i g_i )           no division

Algorithm 1 in each epoch: train the critics; weigh; descend on Loss with w and lam fixed, until the
KL limit; then lam <- [lam + eta (J_c - d)]_+ . Algorithm 2 is the weight, on the whole batch:

    w_raw  = 1 / (||grad mean(r A_c)||^2 + eps_w) at theta_k
    w_clip = clip(w_raw, w_min, w_max),    w <- beta w + (1 - beta) w_clip

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r, A_c = advantages, J_c = mean episode cost, d =
`cost_limit`, lam = `multiplier`, eta = `multiplier_lr`, alpha = fraction of the violation to
remove, eps = `clip`; eps_w, w_min, w_max, beta = `weight_epsilon`, `_min`, `_max`, `_memory`.

The paper prints no eps_w, w_min, w_max, beta, and no start of the average: here the first w_clip.
Where it contradicts itself the pseudo-code is taken. For w the text and Algorithm 1 name grad g,
Algorithm 2, which computes it, (1 - gamma) times that; so the penalty's gradient at theta_k is
1 / (1 - gamma)^2 times alpha times the shortest step to the linearised boundary. The theory bounds
lam by lam_max, the pseudo-code by zero alone. Printed is a stop by KL(pi_theta || pi_k) after each
step; the learner's is by KL(pi_k || pi_theta) after each pass, or `--kl-check minibatch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.algorithms.base import WithDual
from cspo.algorithms.duals import ProjectedAscent
from cspo.algorithms.learner import Learner, Loss, Reference
from cspo.algorithms.surrogates import clip_fraction, clipped_cost, clipped_reward
from cspo.errors import CspoError
from cspo.settings import memory, not_negative, positive, setting
from cspo.types import Batch, Discount, FloatArray, per_constraint


@dataclass(frozen=True)
class PaperSettings:
    """Settings of the paper's letter."""

    alpha: tuple[float, ...] = (0.85,)
    """Fraction of the violation to remove, one value or one per constraint."""
    clip: float = setting(0.2, positive)
    """Clip range of the probability ratio."""
    multiplier_init: float = setting(0.001, not_negative)
    """Initial Lagrange multiplier."""
    multiplier_lr: float = setting(0.035, positive)
    """Step size of the multiplier."""
    weight_min: float = setting(0.01, positive)
    """Lower bound of the sensitivity weight; the paper prints none."""
    weight_max: float = setting(1.0, positive)
    """Upper bound of the sensitivity weight; the paper prints none."""
    weight_epsilon: float = setting(1e-8, positive)
    """Added to the squared gradient norm; the paper prints none."""
    weight_memory: float = setting(0.9, memory)
    """Share of the old weight in the moving average over epochs; the paper prints none."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that do not fit each other or the number of limits."""
        if len(self.alpha) not in (1, num_costs) or not all(0.0 <= a < np.inf for a in self.alpha):
            raise CspoError(
                f"--alpha must be one non-negative value or one per cost limit ({num_costs})."
            )
        if self.weight_min > self.weight_max:
            raise CspoError("--weight-min is above --weight-max.")


class CSPOPaper(WithDual):
    """Loss, weight and dual ascent as printed; lam + alpha w [g]_+ stands in front of grad g."""

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Start the multipliers, and the weight without a value."""
        if discount.gamma >= 1.0:
            raise CspoError("--form paper divides by 1 - gamma: the discount of costs must be < 1.")
        self.config, self.learner, self.discount = config, learner, discount
        # Not `config.make_dual`: the paper prints this rule, whatever else the settings offer.
        self.dual = ProjectedAscent(num_costs, config.multiplier_init, config.multiplier_lr)
        self.alpha = np.broadcast_to(np.asarray(config.alpha, dtype=np.float64), (num_costs,))
        self.weight = np.full(num_costs, np.nan)  # (K,) NaN before the first epoch

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Train the critics, weigh the penalty, minimise the loss, move the multipliers."""
        eps, gamma, alpha, lam = self.config.clip, self.discount.gamma, self.alpha, self.dual.lam
        critics = self.learner.fit_critics(batch)
        gradient_norm = self._weigh(batch)
        w = self.weight

        def loss(L_R: Any, L_C: Any) -> Any:
            g = J_c - d + L_C / (1.0 - gamma)
            return -L_R + (alpha / 2.0 * w * np.maximum(g, 0.0) ** 2 + lam * g).sum()

        stated = Loss(loss, clipped_reward(batch.adv_r), clipped_cost(batch.adv_c), clip=eps)
        fit = self.learner.fit_actor(batch, stated, Reference(batch.output, batch.log_std))
        self.dual.step(J_c, d)
        cost_clip = [clip_fraction(fit.ratio, A, eps, pessimistic_max=True) for A in batch.adv_c.T]
        return critics | fit.report(
            clip_fraction=clip_fraction(fit.ratio, batch.adv_r, eps),
            **per_constraint("clip_fraction_cost", cost_clip),
            **per_constraint("violation", J_c - d),
            **per_constraint("weight", w),
            **per_constraint("gradient_norm", gradient_norm),
            **per_constraint("effective_multiplier", lam + alpha * w * np.maximum(J_c - d, 0.0)),
        )

    def _weigh(self, batch: Batch) -> FloatArray:
        """Algorithm 2: clip, then average. Returns ||grad mean(r A_c)|| at theta_k, shape (K,)."""
        cfg, score = self.config, self.learner.policy.actor.score_gradient
        gradients = [score(batch.observation, batch.action, A) for A in batch.adv_c.T]
        norm: FloatArray = np.linalg.norm(np.array(gradients, dtype=np.float64), axis=1)
        raw = 1.0 / (norm**2 + cfg.weight_epsilon)
        clipped = np.clip(raw, cfg.weight_min, cfg.weight_max)
        before = np.where(np.isnan(self.weight), clipped, self.weight)
        self.weight = cfg.weight_memory * before + (1.0 - cfg.weight_memory) * clipped
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the multipliers and the weight."""
        return {**super().state_dict(), "weight": self.weight.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        super().load_state_dict(state)
        self.weight = np.array(state["weight"])
