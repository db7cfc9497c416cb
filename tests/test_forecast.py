"""The filter behind CSPO's price: the textbook's, its gain and correction, a plant it steers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Array
from price_helpers import LinearPlant, WrittenFilter

from cspo.algorithms.cspo import CSPO
from cspo.algorithms.forecast import BOUNDS, LIMIT, Forecast

pytestmark = pytest.mark.usefixtures("no_runtime_warnings")

ONE = np.ones(1)  # a natural price


def seen(batch_cost: Any, error: Any) -> Any:
    """Return what the filter looks at in a batch."""
    plant = LinearPlant(np.zeros(1), lambda _: np.zeros(1), lambda _: np.zeros(1))
    return plant.batch(J=np.atleast_1d(batch_cost), error=error)


def test_forecast_is_the_textbook_filter() -> None:
    """Two constraints with other units, errors and answers, against matrices written out."""
    rng, d = np.random.default_rng(5), np.array([25.0, 4.0])
    ours, unit = Forecast(2), np.array([1.0, 4.0 / LIMIT])
    written, deltas = [WrittenFilter(), WrittenFilter()], []
    for epoch in range(60):
        y = np.array([28.0, 3.0]) + rng.standard_normal(2) * [4.0, 0.7] + [0.1 * epoch, 0.0]
        error = np.array([3.0, 0.2]) * rng.uniform(0.5, 1.5, 2)
        natural = rng.uniform(0.1, 2.0, 2)
        J, delta, limit = ours.update(seen(y, error), d, natural)
        for i, level in enumerate(written):
            level.see(y[i] / unit[i], error[i] / unit[i], natural[i])
        np.testing.assert_allclose(limit, LIMIT)
        np.testing.assert_allclose(J, [level.x[0] for level in written], rtol=1e-9)
        np.testing.assert_allclose(delta, [level.x[1] for level in written], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours.K, [level.gain for level in written], rtol=1e-9)
        deltas.append(delta)
        change, answer = rng.standard_normal(2), rng.uniform(0.0, 3.0, 2)
        answer[1] *= epoch >= 5  # not known before
        ours.expect(change, answer)
        for i, level in enumerate(written):
            level.change, level.answer = change[i], answer[i]
    assert (np.std(deltas, axis=0) > 0.05).all(), "delta has learned something"
    assert (ours.K > 0.05).all() and (ours.K < 0.99).all()


def gains(move: float, error: float, answer: float, d: float = 25.0) -> Array:
    """Return the gains on a cost that wanders by `move` and is measured with `error`."""
    forecast, rng, J, found = Forecast(1), np.random.default_rng(6), 30.0, []
    for _ in range(300):
        y = max(J + error * rng.standard_normal(), 0.1)
        forecast.update(seen(y, error), np.array([d]), ONE)
        forecast.expect(np.zeros(1), np.array([answer]))
        found.append(float(forecast.K[0]))
        J = max(J + move * rng.standard_normal(), 1.0)
    return np.array(found)


@pytest.mark.parametrize("d", [25.0, 1e-6, 0.0])
def test_gain_follows_the_better_of_measurement_and_model(d: float) -> None:
    assert (gains(4.0, 0.0, 0.5, d)[1:] == 1.0).all(), "a cost without error is the level"
    assert (gains(0.0, 0.0, 0.0, d)[1:] == 1.0).all()
    # Of a cost that wanders by twice the error, q = 4 in variances: P^2 = q P + q, K = P / (P + 1).
    q = 4.0
    P = (q + np.sqrt(q * q + 4.0 * q)) / 2.0
    assert gains(4.0, 2.0, 0.0, d)[100:].mean() == pytest.approx(P / (P + 1.0), abs=0.12)
    assert gains(0.0, 2.0, 0.0, d)[100:].mean() < 0.35  # 0.25: what it takes for noise is noisy


def test_gain_of_a_cost_that_never_surprises_falls_like_that_of_a_mean() -> None:
    forecast = Forecast(1)
    for epoch in range(200):
        forecast.update(seen(20.0, 3.0), np.array([25.0]), ONE)
        forecast.expect(np.zeros(1), np.zeros(1))
        assert forecast.K[0] == pytest.approx(1.0 / (epoch + 1.0))


def test_costs_that_are_all_the_same_keep_the_filter_finite() -> None:
    """Without error the covariance is singular; rounding must not make a variance negative."""
    rng, forecast = np.random.default_rng(7), Forecast(1)
    for y in (0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 30.0, 30.0, 30.0):
        forecast.update(seen(y, 0.0), np.array([25.0]), ONE)
        assert forecast.P[0, 0, 0] >= 0.0 and forecast.P[0, 1, 1] >= 0.0
        assert forecast.K[0] == 1.0 and forecast.J[0] == y
        forecast.expect(np.zeros(1), rng.uniform(1e-3, 1e-2, 1))


@pytest.mark.parametrize("bias", [0.8, -0.4])
def test_delta_learns_what_the_model_gets_wrong(bias: float) -> None:
    """A price of `bias` holds the cost where the model has 0: delta tends to it."""
    forecast, S = Forecast(1), np.array([2.0])
    assert BOUNDS[0] < bias < BOUNDS[1]
    for _ in range(100):
        _, delta, _ = forecast.update(seen(20.0, 0.5), np.array([25.0]), ONE)
        forecast.expect(S * (delta - bias), S)
    assert delta == pytest.approx(bias, abs=1e-3)


def test_delta_falls_with_natural_prices_and_does_not_rise_with_them() -> None:
    """What was learned of the price while a cost hardly counted is no price once it does."""
    forecast, S = Forecast(1), np.array([0.1])
    found = []
    for natural in (5.0, 5.0, 1.0, 1.0, 4.0, 2.0, 0.5):
        y = forecast.predicted if found else np.array([20.0])  # nothing to learn
        _, delta, _ = forecast.update(seen(y, 0.5), np.array([25.0]), np.array([natural]))
        deviation = np.sqrt(forecast.P[0, 1, 1])
        found.append(float(delta[0]))
        forecast.expect(np.zeros(1), S)
        if len(found) == 2:
            forecast.lift(np.array([3.0]))
    np.testing.assert_allclose(found, [0.0, 0.0, 0.6, 0.6, 0.6, 0.6, 0.3], rtol=1e-12)
    assert deviation < 1.0


def test_delta_stands_still_where_the_cost_does_not_answer_to_it() -> None:
    forecast = Forecast(1)
    for epoch in range(50):
        _, delta, _ = forecast.update(seen(20.0 + epoch, 0.5), np.array([25.0]), ONE)
        forecast.expect(np.zeros(1), np.zeros(1))
        assert delta == 0.0
    assert forecast.J[0] > 60.0


@pytest.mark.parametrize(
    ("bias", "move", "error", "S"),
    [(0.8, 1.0, 1.0, 2.0), (0.8, 0.2, 1.0, 0.5), (-0.3, 0.2, 2.0, 1.0)],
)
def test_simulated_plant_settles_at_its_limit(
    bias: float, move: float, error: float, S: float
) -> None:
    """J' = J + S (rho + bias - lam) + w: the price that holds is rho + bias, whatever rho says.

    The bound on the mean is four standard errors, from the scatter of means over 100 epochs. There
    is no systematic part as long as the price stays above zero, where the loop is linear.
    """
    rng, forecast = np.random.default_rng(8), Forecast(1)
    rho, natural, J, levels, prices = 1.0, np.array([1.5]), 40.0, [], []
    for _ in range(3500):
        y = max(J + error * rng.standard_normal(), 0.1)
        level, delta, d = forecast.update(seen(y, error), np.array([LIMIT]), natural)
        hold = np.maximum(rho + delta, 0.0)
        lam = np.maximum(
            hold + np.minimum((level - d) / (S + CSPO.epsilon / natural), natural), 0.0
        )
        forecast.expect(S * (hold - lam), np.array([S]))
        J += S * (rho + bias - lam[0]) + move * rng.standard_normal()
        levels.append(J)
        prices.append(lam[0])
    means = np.array(levels[500:]).reshape(-1, 100).mean(1)
    bound = 4.0 * means.std(ddof=1) / np.sqrt(len(means))
    assert bound < 0.3
    assert means.mean() == pytest.approx(LIMIT, abs=bound)
    assert np.mean(prices[500:]) == pytest.approx(rho + bias, abs=0.05)
