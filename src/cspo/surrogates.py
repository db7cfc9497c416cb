"""The bricks that papers name, a few lines each, in the papers' letters.

`ratio` is pi_theta(a|s) / pi_k(a|s), shape (B,); `A` an advantage, shape (B,) or (B, K); `eps` PPO's clip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def clipped_reward_surrogate(ratio: Tensor, A: Tensor, eps: float) -> Tensor:
    """L_R = mean min(r A, clip(r, 1 - eps, 1 + eps) A): a pessimistic estimate of the improvement."""
    return (ratio * A).minimum(ratio.clamp(1.0 - eps, 1.0 + eps) * A).mean()


def clipped_cost_surrogate(ratio: Tensor, A: Tensor, eps: float) -> Tensor:
    """L_C = mean max(r A, clip(r, 1 - eps, 1 + eps) A) for each of K costs, A (B, K): pessimistic as well."""
    r = ratio.unsqueeze(1)
    return (r * A).maximum(r.clamp(1.0 - eps, 1.0 + eps) * A).mean(0)


def lagrangian_advantage(A_r: Tensor, A_c: Tensor, lam: Tensor) -> Tensor:
    """A = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i), with A_c (B, K) and lam (K,)."""
    return (A_r - A_c @ lam) / (1.0 + lam.sum())


def clip_fraction(ratio: Tensor, A: Tensor, eps: float, *, pessimistic_max: bool = False) -> float:
    """Return the share of samples whose clipped term is the active one, so that they give no gradient."""
    outside = (ratio - 1.0) * A.sign()
    active = outside < -eps if pessimistic_max else outside > eps
    return float(active.float().mean())
