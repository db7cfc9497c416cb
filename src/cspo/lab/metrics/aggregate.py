"""Statistics over seeds: interquartile mean, intervals, probability of improvement, differences.

Seeds are what is resampled, never epochs: the epochs of one run depend on each other. Bootstrap
intervals are those of percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cspo.types import FloatArray
from cspo.use.intervals import LEVEL, bootstrap

TRIM = 0.25  # share cut from each end


@dataclass(frozen=True)
class Estimate:
    """A value with the interval around it; nan bounds where there is one seed only."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def half_width(self) -> float:
        """Half the width of the interval, which is what the paper prints after its ± sign."""
        return (self.high - self.low) / 2.0

    def leaves_out(self, other: float) -> bool:
        """Return whether a number lies outside the interval; without an interval none does."""
        return other < self.low or other > self.high


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1 in its denominator) of the defined values."""

    mean: float  # nan without any value
    std: float  # nan with fewer than two
    count: int


def spread(values: ArrayLike) -> Spread:
    """Return mean and standard deviation; nan stands for undefined and is left out."""
    known = _known(values)
    mean = float(np.mean(known)) if len(known) else math.nan
    return Spread(mean, float(np.std(known, ddof=1)) if len(known) > 1 else math.nan, len(known))


def mean_of_seeds(values: ArrayLike) -> Spread:
    """Return mean and standard deviation over seeds of each seed's mean over its epochs.

    Every epoch of every seed weighs in, where the interquartile mean of all together leaves out
    the half that is far from the middle: a seed, or a stretch of epochs, unlike the others.

    Args:
        values: (seeds, epochs)
    """
    return spread([spread(epochs).mean for epochs in np.asarray(values, dtype=np.float64)])


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean of all values together: without the lowest and highest quarter.

    `scipy.stats.trim_mean` cuts int(n / 4) values from each end, so that for an n that is not a
    multiple of four less than a quarter is cut: nothing of three values, one from each end of five.
    nan is left out.
    """
    from scipy.stats import trim_mean

    known = _known(values)
    return float(trim_mean(known, TRIM)) if len(known) else math.nan


def iqm_estimate(values: ArrayLike, **options: Any) -> Estimate:
    """Return the interquartile mean over seeds and epochs, with a bootstrap interval over seeds.

    Args:
        values: (seeds, epochs)
        options: `level`, `resamples` and `seed` of `bootstrap`.
    """
    return stratified_iqm([values], **options)


def stratified_iqm(values: Sequence[ArrayLike], **options: Any) -> Estimate:
    """Return the interquartile mean over tasks, seeds and epochs.

    Each task's seeds are resampled on their own. Tasks with returns of different size need a
    common scale first.

    Args:
        values: One (seeds, epochs) array per task.
        options: `level`, `resamples` and `seed` of `bootstrap`.
    """
    from scipy.stats import trim_mean

    tasks = [np.asarray(item, dtype=np.float64) for item in values]
    for task in tasks:
        if task.ndim != 2:
            raise ValueError(f"values must be (seeds, epochs), not of shape {task.shape}")
    if not tasks or any(task.size == 0 for task in tasks):
        return Estimate(math.nan)
    value = iqm(np.concatenate([task.ravel() for task in tasks]))
    gaps = any(np.isnan(task).any() for task in tasks)
    if any(len(task) < 2 or np.isnan(task).all(axis=1).any() for task in tasks):
        return Estimate(value)

    def statistic(*chosen: Any, axis: int = -1) -> Any:
        """Take numbers of seeds (..., seeds of the task) per task: they are what is resampled."""
        pairs = zip(tasks, chosen, strict=True)
        pooled = [task[rows].reshape(*rows.shape[:-1], -1) for task, rows in pairs]
        together = np.concatenate(pooled, axis=-1)
        if gaps:
            return np.apply_along_axis(iqm, -1, together)
        return trim_mean(together, TRIM, axis=-1)

    seeds = [np.arange(len(task)) for task in tasks]
    return Estimate(value, *bootstrap(seeds, statistic, **options))


def probability_of_improvement(a: ArrayLike, b: ArrayLike, **options: Any) -> Estimate:
    """Return P(A > B) + P(A = B) / 2 for one value per seed each, with a bootstrap interval.

    It is Mann and Whitney's U over the number of pairs; `options` are those of `bootstrap`.
    """
    first, second = _known(a), _known(b)
    if not len(first) or not len(second):
        return Estimate(math.nan)
    value = float(_share_of_wins(first, second))
    if min(len(first), len(second)) < 2:
        return Estimate(value)
    return Estimate(value, *bootstrap([first, second], _share_of_wins, **options))


def difference_of_means(
    a: ArrayLike, b: ArrayLike, *, paired: bool, level: float = LEVEL
) -> Estimate:
    """Return mean(A) - mean(B) for one value per seed of A and of B, with Student's interval.

    Runs of one seed begin with the same networks and worlds, which can decide what they find:
    `paired` looks at the differences seed by seed. Student's interval knows how little few seeds
    say; a bootstrap of three does not.

    Args:
        a: Values of A; nan stands for undefined.
        b: Values of B.
        paired: a[i] and b[i] are of one seed, and pairs that lack a value are left out; otherwise
            Welch's interval.
        level: Confidence level of the interval.
    """
    if paired:
        samples = [_known(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64))]
    else:
        samples = [_known(a), _known(b)]
    if any(len(sample) == 0 for sample in samples):
        return Estimate(math.nan)
    first, *second = (sample.mean() for sample in samples)
    return _student(float(first - sum(second)), samples, level)


def _student(value: float, samples: Sequence[FloatArray], level: float) -> Estimate:
    """Return the interval of a mean or a difference of means, with Welch's degrees of freedom."""
    from scipy.stats import t

    if min(map(len, samples)) < 2:
        return Estimate(value)
    variances = [float(sample.var(ddof=1)) / len(sample) for sample in samples]  # of the means
    total = sum(variances)
    if total == 0.0:
        return Estimate(value, value, value)
    parts = zip(variances, samples, strict=True)
    freedom = total**2 / sum(variance**2 / (len(sample) - 1) for variance, sample in parts)
    half = float(t.ppf((1.0 + level) / 2.0, freedom)) * math.sqrt(total)
    return Estimate(value, value - half, value + half)


def _share_of_wins(a: FloatArray, b: FloatArray, axis: int = -1) -> Any:
    from scipy.stats import mannwhitneyu

    with np.errstate(all="ignore"):  # only U is used; where all are equal its p-value is undefined
        u = mannwhitneyu(a, b, axis=axis, method="asymptotic").statistic
    return u / (a.shape[axis] * b.shape[axis])


def _known(values: ArrayLike) -> FloatArray:
    flat = np.asarray(values, dtype=np.float64).ravel()
    return np.asarray(flat[~np.isnan(flat)])
