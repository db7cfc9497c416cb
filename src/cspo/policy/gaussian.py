"""A diagonal Gaussian policy: a network for the mean, one trained standard deviation per action."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cspo.policy import kernels
from cspo.policy.networks import CHUNK, StackedMLP, Workspace, parameter_count
from cspo.types import Array

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def standardise(action: Array, mean: Array, log_std: Array) -> Array:
    """Return z = (action - mean) / std, all (B, A)."""
    return (action - mean) * np.exp(-log_std)


def log_density(z: Array, log_std: Array) -> Array:
    """Return the log-density (B,) of standardised samples z (B, A), all actions together."""
    constant = log_std.sum() + np.float32(HALF_LOG_TWO_PI * z.shape[1])
    log_prob: Array = np.float32(-0.5) * np.square(z).sum(axis=1) - constant
    return log_prob


def mean_kl(old_mean: Array, old_log_std: Array, mean: Array, log_std: Array) -> float:
    """Return KL(old || new), summed over action dimensions, averaged over samples."""
    difference = old_log_std - log_std
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a step too long gives infinity, not a warning
        squares = np.square(old_mean - mean).mean(axis=0, dtype=np.float64)
        shift = squares * np.exp(-2.0 * log_std)
        kl = 0.5 * (np.exp(2.0 * difference) + shift - 1.0) - difference
        return float(kl.sum())


class Actor:
    """The mean network and the log standard deviations, on one flat array of parameters.

    Attributes:
        parameters: (P,) of the network, then `log_std`.
        gradient: (P,) what `backward` writes.
        log_std: (A,) view of the parameters.
        mlp: The mean network.
    """

    def __init__(self, sizes: Sequence[int], log_std_init: float, rng: np.random.Generator) -> None:
        """Initialise the mean network from `rng` and the log standard deviations as given."""
        mlp_size, actions = parameter_count(sizes), sizes[-1]
        self.parameters = np.zeros(mlp_size + actions, np.float32)
        self.gradient = np.zeros_like(self.parameters)
        self.log_std = self.parameters[mlp_size:]
        self._log_std_gradient = self.gradient[mlp_size:]
        views = self.parameters[None, :mlp_size], self.gradient[None, :mlp_size]
        self.mlp = StackedMLP(sizes, *views)
        self.mlp.initialise(rng)
        self.log_std[:] = log_std_init

    def log_prob(self, action: Array, mean: Array) -> Array:
        """Return the log-probability (B,) of actions (B, A) where the policy has these means."""
        return log_density(standardise(action, mean, self.log_std), self.log_std)

    def ratio(self, action: Array, mean: Array, old_log_prob: Array) -> Array:
        """Return pi_theta(a|s) / pi_k(a|s), (B,), for means (B, A) of the present policy."""
        with np.errstate(over="ignore", invalid="ignore"):
            ratio: Array = np.exp(self.log_prob(action, mean) - old_log_prob)
        return ratio

    def through_log_prob(self, z: Array, by_log_prob: Array) -> tuple[Array, Array]:
        """Return gradients at the mean (B, A) and log_std (A,) of one at log-probabilities (B,)."""
        weighted = z * by_log_prob[:, None]
        by_mean = weighted * np.exp(-self.log_std)  # d log_prob / d mean = z / std
        by_log_std = (weighted * z).sum(axis=0, dtype=np.float64) - by_log_prob.sum()  # z^2 - 1
        return by_mean, by_log_std.astype(np.float32)

    def backward(self, by_mean: Array, by_log_std: Array) -> None:
        """Fill `gradient` from the gradient at the mean (B, A) and at log_std (A,)."""
        self.mlp.backward(by_mean[None])
        self._log_std_gradient[:] = by_log_std

    def score_gradient(self, x: Array, action: Array, weight: Array) -> Array:
        """Return the gradient (P,) of mean(weight * log pi(action|x)), for any length."""
        rows = np.arange(len(x))
        gradient: Array = self.score_gradients(x, action, weight[None], rows)[0]
        return gradient

    def score_gradients(
        self, x: Array, action: Array, weights: Array, rows: NDArray[np.int64]
    ) -> Array:
        """Return the gradients (C, P) for C weightings (C, n), over these rows of the samples.

        Several threads may call it at a time.
        """
        total = np.empty((len(weights), self.parameters.size), np.float32)
        space = Workspace(self.mlp.sizes, CHUNK)
        arrays = (np.ascontiguousarray(array, np.float32) for array in (x, action, weights))
        kernels.score_gradients(
            *(self.parameters, self.mlp.size_array, *arrays, rows),
            *(space.work, space.inputs, space.scratch, total),
        )
        return total
