"""The bricks that papers name, a few lines each, in the papers' letters.

`ratio` is r = pi_theta(a|s) / pi_k(a|s), `A` an advantage, `eps` PPO's clip. With a reference
policy, `kl` is KL(pi_theta || reference) at a sample, summed over action dimensions, and a sample
is inside if kl <= `trust`; both belong to the objective, see `cspo.optim.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# As `kernels.actor_forward` knows them.
CLIPPED_MIN, CLIPPED_MAX, CONSTANT, UNCLIPPED, UNCLIPPED_INSIDE, DIVERGENCE, INSIDE = range(7)
NEED_REFERENCE = (UNCLIPPED_INSIDE, DIVERGENCE, INSIDE)


@dataclass(frozen=True)
class Surrogate:
    """The mean over samples of a function of the ratio and of one advantage (n,) or K of them (n, K)."""

    kind: int
    A: Tensor


def clipped_reward(A: Tensor) -> Surrogate:
    """L_R = mean min(r A, clip(r, 1 - eps, 1 + eps) A): a pessimistic estimate of the improvement."""
    return Surrogate(CLIPPED_MIN, A)


def clipped_cost(A: Tensor) -> Surrogate:
    """L_C = mean max(r A, clip(r, 1 - eps, 1 + eps) A): a pessimistic estimate of the cost."""
    return Surrogate(CLIPPED_MAX, A)


def at_old_policy(A: Tensor) -> Surrogate:
    """L(theta_k) = mean A: the surrogate on the same samples before the update; no gradient."""
    return Surrogate(CONSTANT, A)


def unclipped(A: Tensor) -> Surrogate:
    """L = mean(r A): the first-order estimate of the change itself."""
    return Surrogate(UNCLIPPED, A)


def unclipped_inside(A: Tensor) -> Surrogate:
    """L = mean(1[kl <= trust] r A): samples outside the trust region count as zero."""
    return Surrogate(UNCLIPPED_INSIDE, A)


def divergence(A: Tensor) -> Surrogate:
    """D = mean(1[kl <= trust] kl), over as many samples as A has."""
    return Surrogate(DIVERGENCE, A.new_ones(len(A)))


def share_inside(A: Tensor) -> Surrogate:
    """Share = mean 1[kl <= trust], over as many samples as A has; no gradient."""
    return Surrogate(INSIDE, A.new_ones(len(A)))


def lagrangian_advantage(A_r: Tensor, A_c: Tensor, lam: Tensor) -> Tensor:
    """A = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i), with A_c (B, K) and lam (K,)."""
    return (A_r - A_c @ lam) / (1.0 + lam.sum())


def clip_fraction(ratio: Tensor, A: Tensor, eps: float, *, pessimistic_max: bool = False) -> float:
    """Return the share of samples whose clipped term is the active one, so that they give no gradient."""
    outside = (ratio - 1.0) * A.sign()
    active = outside < -eps if pessimistic_max else outside > eps
    return float(active.float().mean())
