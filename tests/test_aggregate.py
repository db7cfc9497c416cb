"""Statistics over seeds, against values by hand and bootstrap intervals by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cspo.lab.metrics import (
    Estimate,
    difference_of_means,
    iqm,
    iqm_estimate,
    mean_of_seeds,
    probability_of_improvement,
    spread,
    stratified_iqm,
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3, 100], 2.5),  # one cut from each end
        ([5, 1, 9, 2, 3, 4, 7, 8], 4.75),  # sorted 1 2 | 3 4 5 7 | 8 9
        ([0, 10, 20, 30, 1000], 20.0),  # int(5 / 4) = 1 from each end
        ([1, 2, 9], 4.0),  # int(3 / 4) = 0: nothing is cut
        ([4], 4.0),
        ([[1, 2], [3, 100]], 2.5),  # all values together
        ([1, math.nan, 2, 3, 100], 2.5),  # nan is left out
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert iqm(values) == pytest.approx(expected, abs=1e-12)


def test_nothing_has_no_mean() -> None:
    assert math.isnan(iqm([]))
    assert math.isnan(iqm([math.nan]))
    assert math.isnan(iqm_estimate(np.empty((0, 5))).value)
    assert math.isnan(stratified_iqm([]).value)


def trimmed(values: np.ndarray) -> float:
    """An interquartile mean written differently: repeat taking away the least and the greatest."""
    left = sorted(map(float, values.ravel()))
    for _ in range(len(left) // 4):
        left.remove(max(left))
        left.remove(min(left))
    return sum(left) / len(left)


def exact_interval(values: np.ndarray) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points of the interquartile mean over all seeds**seeds resamples."""
    n = len(values)
    outcomes = sorted(trimmed(values[list(rows)]) for rows in itertools.product(range(n), repeat=n))
    low, high = np.quantile(outcomes, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def test_interval_resamples_whole_seeds() -> None:
    """Three seeds, whose 27 resamples can be listed; epochs are never resampled."""
    values = np.array([[0.0, 1.0, 2.0, 3.0], [10.0, 11.0, 12.0, 13.0], [20.0, 21.0, 22.0, 23.0]])
    estimate = iqm_estimate(values)
    assert estimate.value == pytest.approx(11.5)
    # A seed is drawn three times with probability 1 / 27 > 2.5 %: the bounds are the means of seeds
    # 0 and 2 alone.
    assert (estimate.low, estimate.high) == exact_interval(values)
    assert (estimate.low, estimate.high) == (1.5, 21.5)
    assert estimate.half_width == pytest.approx(10.0)


def test_interval_of_five_seeds_agrees_with_enumeration() -> None:
    values = np.random.default_rng(3).normal(size=(5, 4)) + np.arange(5.0)[:, None]
    low, high = exact_interval(values)
    estimate = iqm_estimate(values, resamples=20_000)
    assert estimate.low == pytest.approx(low, abs=0.05)
    assert estimate.high == pytest.approx(high, abs=0.05)


def test_equal_data_give_equal_intervals_and_the_level_widens_them() -> None:
    values = np.random.default_rng(0).normal(size=(5, 100)) + np.arange(5.0)[:, None]
    assert iqm_estimate(values) == iqm_estimate(values.copy())
    narrow, wide = iqm_estimate(values, level=0.5), iqm_estimate(values, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_one_seed_has_no_interval() -> None:
    estimate = iqm_estimate([[1.0, 2.0, 3.0, 100.0]])
    assert estimate.value == 2.5
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)
    assert math.isnan(estimate.half_width)


def test_unknown_epochs_are_left_out_of_the_interval_too() -> None:
    values = np.array(
        [[math.nan, 0.0, 0.0, 0.0], [10.0, 10.0, 10.0, 10.0], [20.0, 20.0, 20.0, 20.0]]
    )
    estimate = iqm_estimate(values)
    assert (estimate.low, estimate.high) == (0.0, 20.0)
    values[0] = math.nan  # a seed of which nothing is known
    assert math.isnan(iqm_estimate(values).low)


def test_shape_is_checked() -> None:
    with pytest.raises(ValueError, match="seeds, epochs"):
        iqm_estimate([1.0, 2.0])


def test_stratified_interval_resamples_each_task_on_its_own() -> None:
    """Two tasks of two seeds: 16 resamples; one over all four seeds would go far below 50."""
    first, second = np.array([[0.0], [2.0]]), np.array([[100.0], [104.0]])
    outcomes = [
        trimmed(np.concatenate([first[list(a)], second[list(b)]]))
        for a in itertools.product(range(2), repeat=2)
        for b in itertools.product(range(2), repeat=2)
    ]
    estimate = stratified_iqm([first, second])
    assert estimate.value == pytest.approx((2 + 100) / 2)
    assert estimate.low == min(outcomes) == 50.0
    assert estimate.high == max(outcomes) == 53.0
    assert iqm_estimate(np.concatenate([first, second])).low < 3.0


def test_stratified_takes_tasks_of_different_shape() -> None:
    estimate = stratified_iqm([np.ones((2, 3)), np.ones((4, 5))])
    assert (estimate.value, estimate.low, estimate.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([3, 4], [1, 2], 1.0),
        ([1, 2], [3, 4], 0.0),
        ([1, 3], [2, 2], 0.5),
        (
            [1, 2, 3],
            [2, 3, 4],
            (0 + 0.5 + 1.5) / 9,
        ),  # 1 beats none; 2 ties one; 3 beats one and ties one
        ([2, 2], [2, 2], 0.5),
        ([5], [1, 9, 5, 2], 2.5 / 4),
    ],
)
def test_probability_of_improvement_by_hand(
    a: list[float], b: list[float], expected: float
) -> None:
    estimate = probability_of_improvement(a, b)
    assert estimate.value == pytest.approx(expected, abs=1e-12)
    if min(len(a), len(b)) > 1:
        assert 0.0 <= estimate.low <= estimate.high <= 1.0
    else:
        assert math.isnan(estimate.low)


def test_probability_of_improvement_interval_by_enumeration() -> None:
    a, b = [1.0, 4.0, 6.0], [2.0, 3.0, 5.0]
    outcomes = [
        np.mean([(x > y) + 0.5 * (x == y) for x in first for y in second])
        for first in itertools.product(a, repeat=3)
        for second in itertools.product(b, repeat=3)
    ]
    estimate = probability_of_improvement(a, b, resamples=20_000)
    assert estimate.low == pytest.approx(
        np.quantile(outcomes, 0.025), abs=0.12
    )  # outcomes are ninths
    assert estimate.high == pytest.approx(np.quantile(outcomes, 0.975), abs=0.12)
    assert probability_of_improvement(b, a).value == pytest.approx(1.0 - estimate.value)
    assert math.isnan(probability_of_improvement([], [1.0]).value)


def test_spread_by_hand() -> None:
    found = spread([2.0, 4.0, math.nan, 6.0])
    assert (found.mean, found.count) == (4.0, 3)
    assert found.std == pytest.approx(2.0)  # (4 + 0 + 4) / (3 - 1) = 4
    assert spread([5.0]).mean == 5.0
    assert math.isnan(spread([5.0]).std)
    assert math.isnan(spread([]).mean)
    assert spread([]).count == 0


def test_mean_of_seeds_weighs_every_seed_alike_by_hand() -> None:
    """Seed means 2, 4 and 12; a seed of which less is known weighs as much as the others."""
    unknown = [math.nan] * 3
    values = [[0.0, 1.0, 1.0, 6.0], [4.0, *unknown], [10.0, 12.0, 12.0, 14.0]]
    found = mean_of_seeds(values)
    assert (found.mean, found.count) == (6.0, 3)
    assert found.std == pytest.approx(math.sqrt((16 + 4 + 36) / 2))
    assert iqm(values) == pytest.approx((1 + 4 + 6 + 10 + 12) / 5)  # 0 1 | 1 4 6 10 12 | 12 14
    one = mean_of_seeds([[1.0, 3.0]])
    assert one.mean == 2.0 and math.isnan(one.std)


def test_an_interval_leaves_out_what_is_beyond_its_bounds() -> None:
    lopsided = Estimate(2.0, 1.0, 9.0)
    outside = [value for value in (0.9, 1.0, 8.0, 9.0, 9.1) if lopsided.leaves_out(value)]
    assert outside == [0.9, 9.1]
    assert not Estimate(2.0).leaves_out(100.0)  # no interval
    assert not lopsided.leaves_out(math.nan)


def test_paired_difference_by_hand() -> None:
    """Gaps 1, 2, 6: mean 3, variance 7; t of 2 degrees of freedom at 97.5 % is 4.302653."""
    a, b = [11.0, 22.0, math.nan, 36.0, 5.0], [10.0, 20.0, 3.0, 30.0, math.nan]
    found = difference_of_means(a, b, paired=True)
    half = 4.302653 * math.sqrt(7.0 / 3.0)
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))
    one = difference_of_means([3.0], [1.0], paired=True)
    assert one.value == 2.0 and math.isnan(one.low)
    assert math.isnan(difference_of_means([math.nan], [1.0], paired=True).value)
    same = difference_of_means([3.0, 4.0], [1.0, 2.0], paired=True)
    assert (same.value, same.low, same.high) == (2.0, 2.0, 2.0)


def test_paired_difference_covers_the_truth() -> None:
    """Seeds that shift both sides alike do not widen it; it holds the truth in 95 % of studies."""
    draws = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        of_seed = 1000.0 * draws.standard_normal(3)
        found = difference_of_means(
            of_seed + draws.standard_normal(3), of_seed + draws.standard_normal(3), paired=True
        )
        hits += found.low <= 0.0 <= found.high
        assert found.half_width < 100.0
    assert 0.93 <= hits / 1000 <= 0.97


def test_difference_without_pairs_is_welchs() -> None:
    from scipy.stats import ttest_ind

    a, b = [1.0, 2.0, 6.0], [0.0, 4.0]
    found = difference_of_means([*a, math.nan], b, paired=False)
    bounds = ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, bounds.low, bounds.high))
    one = difference_of_means([3.0], b, paired=False)
    assert one.value == pytest.approx(1.0) and math.isnan(one.low)
    assert math.isnan(difference_of_means([], b, paired=False).value)
