"""The bricks that papers name, a few lines each, in the papers' letters.

`ratio` is r = pi_theta(a|s) / pi_k(a|s), `A` an advantage, `eps` PPO's clip. With a reference
policy, `kl` is KL(pi_theta || reference) at a sample, summed over action dimensions, and a sample
is inside if kl <= `trust`; both belong to the objective, see `cspo.optim.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.types import Array, FloatArray

# As `kernels.actor_forward` knows them.
CLIPPED_MIN, CLIPPED_MAX, UNCLIPPED, UNCLIPPED_INSIDE, DIVERGENCE, INSIDE = range(6)
NEED_REFERENCE = (UNCLIPPED_INSIDE, DIVERGENCE, INSIDE)


@dataclass(frozen=True)
class Surrogate:
    """The mean over samples of a function of the ratio and of advantages, (n,) or (n, K)."""

    kind: int
    A: Array


def clipped_reward(A: Array) -> Surrogate:
    """L_R = mean min(r A, clip(r, 1 - eps, 1 + eps) A): a pessimistic improvement."""
    return Surrogate(CLIPPED_MIN, A)


def clipped_cost(A: Array) -> Surrogate:
    """L_C = mean max(r A, clip(r, 1 - eps, 1 + eps) A): a pessimistic cost."""
    return Surrogate(CLIPPED_MAX, A)


def unclipped(A: Array) -> Surrogate:
    """L = mean(r A): the first-order estimate of the change itself."""
    return Surrogate(UNCLIPPED, A)


def unclipped_inside(A: Array) -> Surrogate:
    """L = mean(1[kl <= trust] r A): samples outside the trust region count as zero."""
    return Surrogate(UNCLIPPED_INSIDE, A)


def divergence(A: Array) -> Surrogate:
    """D = mean(1[kl <= trust] kl), over as many samples as A has."""
    return Surrogate(DIVERGENCE, np.ones(len(A), np.float32))


def share_inside(A: Array) -> Surrogate:
    """Share = mean 1[kl <= trust], over as many samples as A has; no gradient."""
    return Surrogate(INSIDE, np.ones(len(A), np.float32))


def lagrangian_advantage(A_r: Array, A_c: Array, lam: FloatArray) -> Array:
    """A = (A_r - sum_i lam_i A_c_i) / (1 + sum_i lam_i), with A_c (B, K) and lam (K,)."""
    price = lam.astype(A_c.dtype)
    with np.errstate(invalid="ignore"):  # what is not finite is refused later, in words
        A: Array = (A_r - A_c @ price) / (1.0 + price.sum())
    return A


def clip_fraction(ratio: Array, A: Array, eps: float, *, pessimistic_max: bool = False) -> float:
    """Return the share of samples whose clipped term is the active one: they give no gradient."""
    outside = (ratio - np.float32(1.0)) * np.sign(A)
    active = outside < -eps if pessimistic_max else outside > eps
    return float(active.mean())


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow, of real or complex numbers."""
    sign = np.where(np.real(x) >= 0.0, 1.0, -1.0)
    return np.maximum(x, 0.0) + np.log1p(np.exp(-sign * x))
