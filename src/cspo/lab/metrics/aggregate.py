"""Statistics over seeds: interquartile mean, intervals, probability of improvement, differences; SciPy does the work.

Seeds are what is resampled, never epochs: the epochs of one run depend on each other. Bootstrap
intervals are those of percentiles, from `RESAMPLES` resamples drawn by a generator seeded with
`SEED`: equal data give equal intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cspo.types import FloatArray

TRIM = 0.25  # share cut from each end
RESAMPLES = 2000
SEED = 0
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with the interval around it; nan bounds where there is one seed only."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval, which is what the paper prints after its plus-minus sign."""
        return (self.high - self.low) / 2.0


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


def iqm(values: ArrayLike) -> float:
    """Return the interquartile mean of all values together: the mean without the lowest and highest quarter.

    `scipy.stats.trim_mean` cuts int(n / 4) values from each end, so that for an n that is not a
    multiple of four less than a quarter is cut: nothing of three values, one from each end of five.
    nan is left out.
    """
    from scipy.stats import trim_mean

    known = _known(values)
    return float(trim_mean(known, TRIM)) if len(known) else math.nan


def iqm_estimate(
    values: ArrayLike, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """Return the interquartile mean over seeds and epochs, with a bootstrap interval over seeds.

    Args:
        values: (seeds, epochs)
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.
        seed: Of the generator that draws them.
    """
    return stratified_iqm([values], level, resamples, seed)


def stratified_iqm(
    values: Sequence[ArrayLike], level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """Return the interquartile mean over tasks, seeds and epochs; each task's seeds are resampled on their own.

    Tasks with returns of different size need a common scale first.

    Args:
        values: One (seeds, epochs) array per task.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.
        seed: Of the generator that draws them.
    """
    from scipy.stats import trim_mean

    tasks = [_two_dimensional(item) for item in values]
    if not tasks or any(task.size == 0 for task in tasks):
        return Estimate(math.nan, math.nan, math.nan)
    value = iqm(np.concatenate([task.ravel() for task in tasks]))
    gaps = any(np.isnan(task).any() for task in tasks)
    if min(len(task) for task in tasks) < 2 or any(
        np.isnan(task).all(axis=1).any() for task in tasks
    ):
        return Estimate(value, math.nan, math.nan)

    def statistic(*chosen: Any, axis: int = -1) -> Any:
        """Take seeds (..., seeds of the task) per task; the bootstrap runs over the numbers of the seeds."""
        pooled = [
            task[rows].reshape(*rows.shape[:-1], -1)
            for task, rows in zip(tasks, chosen, strict=True)
        ]
        together = np.concatenate(pooled, axis=-1)
        return (
            np.apply_along_axis(iqm, -1, together) if gaps else trim_mean(together, TRIM, axis=-1)
        )

    return Estimate(
        value,
        *_interval([np.arange(len(task)) for task in tasks], statistic, level, resamples, seed),
    )


def probability_of_improvement(
    a: ArrayLike, b: ArrayLike, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> Estimate:
    """Return P(A > B) + P(A = B) / 2 for one value per seed of A and of B, with a bootstrap interval.

    It is Mann and Whitney's U over the number of pairs.
    """
    first, second = _known(a), _known(b)
    if not len(first) or not len(second):
        return Estimate(math.nan, math.nan, math.nan)
    value = float(_share_of_wins(first, second))
    if min(len(first), len(second)) < 2:
        return Estimate(value, math.nan, math.nan)
    return Estimate(value, *_interval([first, second], _share_of_wins, level, resamples, seed))


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
        gaps = _known(np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64))
        return _student(gaps.mean() if len(gaps) else math.nan, [gaps], level)
    first, second = _known(a), _known(b)
    gap = first.mean() - second.mean() if len(first) and len(second) else math.nan
    return _student(gap, [first, second], level)


def _student(value: float, samples: Sequence[FloatArray], level: float) -> Estimate:
    """Return the interval of a sum or difference of sample means, with Welch's degrees of freedom."""
    from scipy.stats import t

    if min(map(len, samples)) < 2:
        return Estimate(float(value), math.nan, math.nan)
    variances = [float(sample.var(ddof=1)) / len(sample) for sample in samples]  # of the means
    total = sum(variances)
    if total == 0.0:
        return Estimate(float(value), float(value), float(value))
    parts = zip(variances, samples, strict=True)
    freedom = total**2 / sum(variance**2 / (len(sample) - 1) for variance, sample in parts)
    half = float(t.ppf((1.0 + level) / 2.0, freedom)) * math.sqrt(total)
    return Estimate(float(value), float(value) - half, float(value) + half)


def _share_of_wins(a: FloatArray, b: FloatArray, axis: int = -1) -> Any:
    from scipy.stats import mannwhitneyu

    with np.errstate(
        all="ignore"
    ):  # of its result only U is used; its p-value is undefined where all are equal
        u = mannwhitneyu(a, b, axis=axis, method="asymptotic").statistic
    return u / (a.shape[axis] * b.shape[axis])


def _interval(
    samples: Sequence[Any], statistic: Callable[..., Any], level: float, resamples: int, seed: int
) -> tuple[float, float]:
    from scipy.stats import bootstrap

    result = bootstrap(
        tuple(samples),
        statistic,
        n_resamples=resamples,
        batch=500,  # bounds the memory: 500 resamples of 5 seeds times 100 epochs are 2 MB
        vectorized=True,
        axis=-1,
        confidence_level=level,
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _known(values: ArrayLike) -> FloatArray:
    flat = np.asarray(values, dtype=np.float64).ravel()
    return np.asarray(flat[~np.isnan(flat)])


def _two_dimensional(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"values must be (seeds, epochs), not of shape {array.shape}")
    return array
