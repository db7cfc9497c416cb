"""What alpha and patience do to the price: fractions of a push, and time outside the limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Array
from price_helpers import LinearPlant, price_of, quadratic

from cspo.algorithms.cspo import CSPO
from cspo.algorithms.forecast import BOUNDS, LIMIT, Forecast
from cspo.algorithms.patience import Patience

EPSILON = CSPO.epsilon
pytestmark = pytest.mark.usefixtures("no_runtime_warnings")


def one_more(plant: LinearPlant, state: Any, J: float, **settings: Any) -> dict[str, float]:
    """Return the report of one update from a given state, at an episode cost J."""
    algorithm, theta = price_of(plant, **settings), plant.theta.copy()
    algorithm.load_state_dict(state)
    report = algorithm.update(plant.batch(J=[J]), np.array([J]), np.array([LIMIT]))
    plant.theta = theta
    return report | {"lam": algorithm.multiplier[0], "state": algorithm.state_dict()}


def prepared(epochs: int = 6, **settings: Any) -> tuple[LinearPlant, Any]:
    """Return a plant, and the state of CSPO after some epochs on it."""
    plant, _ = quadratic([3.0, 1.0, 0.0], [[1.0, 0.5, 0.0]], constant=2.0)
    algorithm = price_of(plant, **settings)
    plant.train(algorithm, [LIMIT], epochs)
    return plant, algorithm.state_dict()


def test_larger_alpha_pushes_harder_on_both_sides_of_the_limit() -> None:
    plant, state = prepared()
    for J, sign in ((LIMIT + 0.5, 1), (LIMIT + 50.0, 1), (LIMIT - 0.5, -1)):
        found = [one_more(plant, state, J, alpha=(alpha,)) for alpha in (0.0, 0.2, 0.5, 1.0)]
        pushes = np.array([report["price_push"] for report in found])
        np.testing.assert_allclose(pushes, pushes[-1] * np.array([0.0, 0.2, 0.5, 1.0]))
        assert (sign * np.diff(pushes) > 0.0).all()
        assert (sign * np.diff([report["lam"] for report in found]) >= 0.0).all()
        assert found[0]["lam"] != found[-1]["lam"]
        hold = max(found[0]["price_rho"] + found[0]["price_delta"], 0.0)
        assert found[0]["lam"] == pytest.approx(hold), "alpha 0 pays what holds the cost"


def test_each_constraint_has_its_own_alpha() -> None:
    plant, _ = quadratic([6.0, 4.0, 1.0], [[1.0, 0.2, 0.0], [0.6, 1.0, 0.0]], constant=3.0)
    reports = plant.train(price_of(plant, 2, alpha=(0.0, 1.0)), [LIMIT, LIMIT], 3)
    assert reports[-1]["price_push_0"] == 0.0 < reports[-1]["price_push_1"]


@pytest.mark.parametrize("J", [LIMIT - 20.0, LIMIT - 0.5, LIMIT + 0.5, LIMIT + 100.0])
def test_push_is_the_weighted_violation_and_at_most_one_natural_price(J: float) -> None:
    plant, state = prepared()
    report = one_more(plant, state, J)
    weight = 1.0 / (report["sensitivity"] + EPSILON / report["price_natural"])
    wanted, natural = weight * (report["cost_level"] - LIMIT), report["price_natural"]
    assert report["price_push"] == pytest.approx(min(wanted, natural))
    assert (wanted > natural) == (J > LIMIT + 50.0)


def test_weight_removes_the_violation_where_the_cost_answers_and_is_bounded_where_not() -> None:
    """Within a quarter of the gain of the regulator that minimises (J - d)^2 + (epsilon lam)^2.

    The gain of J' = J - S lam, of which P = 1 + P - S^2 P^2 / (epsilon^2 + S^2 P) is the Riccati
    equation: prices in natural ones.
    """
    for S in (1e-9, 0.1, 1.0, 5.0, 7.5, 30.0, 1e3):
        P = (1.0 + np.sqrt(1.0 + 4.0 * (EPSILON / S) ** 2)) / 2.0
        np.testing.assert_allclose(P * P, P + (EPSILON / S) ** 2)
        gain = S * P / (EPSILON**2 + S * S * P)
        assert 0.79 < 1.0 / (S + EPSILON) / gain < 1.02


def test_delta_rises_while_the_bound_holds_the_price_down() -> None:
    patience, far = 20.0, LIMIT + 100.0
    plant, state = prepared(patience=patience)
    for epoch in range(8):
        report = one_more(plant, state, far, patience=patience)
        natural = report["price_natural"]
        assert report["price_push"] == pytest.approx(natural)
        hold = max(report["price_rho"] + report["price_delta"], 0.0)
        assert report["lam"] == pytest.approx(hold + natural)
        # The filter's own delta of this epoch, and what patience adds to it for the next.
        state = report["state"]
        after = float(state["forecast"]["delta"][0])
        assert after == pytest.approx(report["price_delta"] + natural / patience)
        assert state["patience"]["held"].tolist() == [epoch + 1.0]
    for J in (LIMIT + 1e-3, LIMIT - 5.0):
        state = one_more(plant, state, J, patience=patience)["state"]
        assert state["patience"]["held"].tolist() == [0.0]


def test_alpha_scales_what_patience_adds() -> None:
    plant, state = prepared()
    for alpha in (0.0, 0.4):
        report = one_more(plant, state, LIMIT + 100.0, alpha=(alpha,))
        after = report["price_delta"] + alpha * report["price_natural"] / 10.0
        assert report["state"]["forecast"]["delta"][0] == pytest.approx(after)


def test_delta_that_was_lifted_is_the_less_certain_and_stays_within_its_bounds() -> None:
    forecast, natural = Forecast(2), np.array([0.5, 2.0])
    batch = prepared()[0].batch(J=[20.0, 20.0])
    forecast.update(batch, np.array([LIMIT, LIMIT]), natural)
    deviation = np.sqrt(forecast.P[:, 1, 1])
    np.testing.assert_array_equal(deviation, natural)
    forecast.lift(np.array([0.0, 0.3]))
    np.testing.assert_allclose(forecast.delta, [0.0, 0.3])
    np.testing.assert_allclose(np.sqrt(forecast.P[:, 1, 1]) - deviation, [0.0, 0.3], atol=1e-15)
    forecast.lift(np.array([1e3, 0.0]))
    forecast.expect(np.zeros(2), np.zeros(2))
    _, delta, _ = forecast.update(batch, np.array([LIMIT, LIMIT]), natural)
    np.testing.assert_allclose(delta, [BOUNDS[1] * 0.5, 0.3])


def spend(patience: Patience, m: float, holds: Any, epochs: int, excess: float = 0.5) -> Array:
    """Return the rises (epochs, K), when the bound holds (K,) and the cost has that excess."""
    seen = np.array(holds), np.full(len(holds), excess)
    return np.array([patience.spend(*seen, m) for _ in range(epochs)])


@pytest.mark.parametrize("m", [4.0, 10.0, 25.0])
def test_patience_ends_delta_then_rises_e_fold_in_as_many_epochs_again(m: float) -> None:
    rises = spend(Patience(1), m, [True], int(4 * m), excess=1.0)[:, 0]
    evenly = int(m)
    np.testing.assert_allclose(rises[: evenly + 1], 1.0 / m)
    np.testing.assert_allclose(rises[:evenly].sum(), 1.0)
    np.testing.assert_allclose(rises[evenly + 1 :] / rises[evenly:-1], np.exp(1.0 / m))


def test_patience_that_has_ended_lets_delta_rise_in_proportion_to_the_excess() -> None:
    m = 10
    near, at, far = (spend(Patience(1), m, [True], 40, excess)[:, 0] for excess in (0.3, 1, 4))
    np.testing.assert_allclose(far[m:], 4.0 * at[m:])
    evenly = np.full_like(at, 1.0 / m)
    np.testing.assert_allclose(near[m:], np.maximum(0.3 * at[m:], evenly[m:]))
    assert (near == evenly).sum() == m + 13, "10 ln(1 / 0.3) = 12.04: no faster until then"
    np.testing.assert_array_equal(far[:m], evenly[:m])


def test_patience_is_finite_and_starts_anew_after_one_calm_epoch() -> None:
    both = Patience(2)
    rises = spend(both, 5.0, [True, False], 5000)
    assert np.isfinite(rises).all() and (rises[:, 1] == 0.0).all()
    assert spend(both, 5.0, [False, False], 1).tolist() == [[0.0, 0.0]]
    np.testing.assert_allclose(spend(both, 5.0, [True, True], 6), 0.2)
