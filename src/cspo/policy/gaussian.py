"""The Gaussian brick: independent normal columns, each with one trained standard deviation."""

from __future__ import annotations

import math

import numpy as np

from cspo.types import Array

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def standardise(action: Array, mean: Array, log_std: Array) -> Array:
    """Return z = (action - mean) / std, all (B, G)."""
    return (action - mean) * np.exp(-log_std)


def log_density(z: Array, log_std: Array) -> Array:
    """Return the log-density (B,) of standardised samples z (B, G), all columns together."""
    constant = log_std.sum() + np.float32(HALF_LOG_TWO_PI * z.shape[1])
    log_prob: Array = np.float32(-0.5) * np.square(z).sum(axis=1) - constant
    return log_prob


def mean_kl(old_mean: Array, old_log_std: Array, mean: Array, log_std: Array) -> float:
    """Return KL(old || new), summed over columns, averaged over samples."""
    difference = old_log_std - log_std
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a step too long gives infinity, not a warning
        squares = np.square(old_mean - mean).mean(axis=0, dtype=np.float64)
        shift = squares * np.exp(-2.0 * log_std)
        kl = 0.5 * (np.exp(2.0 * difference) + shift - 1.0) - difference
        return float(kl.sum())


def entropy(log_std: Array) -> float:
    """Return the entropy of all columns together, the same at every sample."""
    return float(log_std.sum(dtype=np.float64) + (HALF_LOG_TWO_PI + 0.5) * len(log_std))


def through_log_density(z: Array, log_std: Array, by_log_prob: Array) -> tuple[Array, Array]:
    """Return gradients at the mean (B, G) and log_std (G,) of one at log-densities (B,)."""
    weighted = z * by_log_prob[:, None]
    by_mean = weighted * np.exp(-log_std)  # d log_prob / d mean = z / std
    by_log_std = (weighted * z).sum(axis=0, dtype=np.float64) - by_log_prob.sum()  # z^2 - 1
    return by_mean, by_log_std.astype(np.float32)
