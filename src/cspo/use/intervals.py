"""The intervals of this package, all by SciPy: one bootstrap, and Wilson's for a share.

A bootstrap draws from a generator with a fixed seed: equal data give equal intervals.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cspo.types import FloatArray

LEVEL = 0.95
RESAMPLES = 2000
SEED = 0


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(
    samples: Sequence[Any],
    statistic: Callable[..., Any],
    *,
    method: Literal["percentile", "BCa"] = "percentile",
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[float, float]:
    """Return the bounds of a bootstrap interval; not finite where the method is not defined.

    Args:
        samples: One array per sample, each resampled on its own.
        statistic: Takes as many arrays, and `axis`.
        method: How bounds are found from the resamples.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.
        seed: Of the generator that draws them.
    """
    from scipy import stats

    with warnings.catch_warnings():
        if method == "BCa":
            warnings.simplefilter("ignore")  # SciPy warns where it is not defined; the caller looks
        found = stats.bootstrap(
            tuple(samples),
            statistic,
            n_resamples=resamples,
            batch=500,  # bounds the memory: 500 resamples of 5 seeds times 100 epochs are 2 MB
            vectorized=True,
            axis=-1,
            confidence_level=level,
            method=method,
            random_state=np.random.default_rng(seed),
        ).confidence_interval
    return float(found.low), float(found.high)


def mean_interval(values: FloatArray) -> Interval:
    """Return the mean with its bootstrap interval: BCa, or percentiles where BCa is not defined.

    Equal values give an interval of no width; a single one says nothing about the spread and gives
    NaN.
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    if np.ptp(values) == 0.0:
        return Interval(mean, mean, mean)
    bounds = bootstrap([values], np.mean, method="BCa")
    if not np.isfinite(bounds).all():
        bounds = bootstrap([values], np.mean)
    return Interval(mean, *bounds)


def share_interval(count: int, total: int) -> Interval:
    """Return a share with Wilson's interval."""
    from scipy.stats import binomtest

    found = binomtest(count, total).proportion_ci(LEVEL, method="wilson")
    return Interval(count / total, float(found.low), float(found.high))
