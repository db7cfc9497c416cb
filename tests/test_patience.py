"""What alpha and patience do to the price: fractions of a push, and time outside the limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Array
from price_helpers import LinearPlant, price_of, quadratic

from cspo.algorithms.forecast import LIMIT
from cspo.algorithms.patience import MOST, Patience

pytestmark = pytest.mark.usefixtures("no_runtime_warnings")


def one_more(plant: LinearPlant, state: Any, J: float, **settings: Any) -> dict[str, float]:
    """Return the report of one update from a given state, at an episode cost J."""
    algorithm, theta = price_of(plant, **settings), plant.theta.copy()
    algorithm.load_state_dict(state)
    report = algorithm.update(plant.batch(J=[J]), np.array([J]), np.array([LIMIT]))
    plant.theta = theta
    return report | {"lam": algorithm.multiplier[0], "c": algorithm.patience.c[0]}


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


def test_patience_is_spent_while_it_holds_the_price_down_and_comes_back() -> None:
    patience, far = 20.0, LIMIT + 100.0
    plant, state = prepared(patience=patience)
    spent = [float(state["patience"]["c"][0])]
    assert spent == [0.0]
    for _ in range(8):
        report = one_more(plant, state, far, patience=patience)
        natural = report["price_natural"]
        assert report["price_push"] == pytest.approx(report["gain"] * natural)
        assert report["price_patience"] == pytest.approx(spent[-1] * natural)
        hold = max(report["price_rho"] + report["price_delta"], 0.0)
        assert report["lam"] == pytest.approx(hold + (report["gain"] + spent[-1]) * natural)
        spent.append(report["c"])
        state = with_spent(state, report["c"])
    np.testing.assert_allclose(np.diff(spent), 1.0 / patience)
    for J in (LIMIT + 1e-3, LIMIT - 5.0):  # asks for little, or for nothing
        state = with_spent(state, spent[-1])
        back = []
        for _ in range(10):
            back.append(one_more(plant, state, J, patience=patience)["c"])
            state = with_spent(state, back[-1])
        assert back[0] < spent[-1] and (np.diff(back) <= 0.0).all() and back[-1] == 0.0


def test_what_patience_added_is_not_taken_off_by_the_brake() -> None:
    plant, state = prepared(patience=20.0)
    for c in (0.0, 3.0):
        report = one_more(plant, with_spent(state, c), LIMIT - 20.0, patience=20.0)
        hold = max(report["price_rho"] + report["price_delta"], 0.0)
        assert report["price_push"] < -hold
        assert report["lam"] == pytest.approx(c * report["price_natural"])


def with_spent(state: Any, c: float) -> Any:
    return state | {"patience": state["patience"] | {"c": np.array([c])}}


def spend(patience: Patience, m: float, holds: Any, epochs: int, level: float = 1.5) -> Array:
    """Return c (epochs, K), when the bound holds (K,) and the cost is at that level in all."""
    seen = np.array(holds), np.full(len(holds), level)
    return np.array([(patience.spend(*seen, m), patience.c)[1] for _ in range(epochs)])


@pytest.mark.parametrize("m", [4.0, 10.0, 25.0])
def test_patience_ends_the_price_then_grows_e_fold_in_as_many_epochs_again(m: float) -> None:
    c = spend(Patience(1), m, [True], int(4 * m) + 1)[:, 0]
    evenly = int(m) + 1
    np.testing.assert_allclose(c[:evenly], np.arange(1, evenly + 1) / m)
    late = np.diff(c[evenly - 1 :])
    np.testing.assert_allclose(late[1:] / late[:-1], np.exp(1.0 / m))
    # In closed form: a geometric series after the first m + 1 epochs.
    k, q = np.arange(1, len(late) + 1), np.exp(1.0 / m)
    np.testing.assert_allclose(c[evenly:], c[evenly - 1] + q * (q**k - 1.0) / (q - 1.0) / m)


def test_patience_that_has_ended_grows_with_the_excess_above_the_limit() -> None:
    m = 10
    near, twice, far = (spend(Patience(1), m, [True], 30, level)[:, 0] for level in (1.3, 2, 5))
    np.testing.assert_array_equal(near, twice)
    np.testing.assert_array_equal(far[:m], near[:m])
    np.testing.assert_allclose(np.diff(far[m - 1 :]), 4.0 * np.diff(near[m - 1 :]))


@pytest.mark.parametrize(("level", "left"), [(1.2, 0.9), (0.6, 0.9), (0.4, 0.5)])
def test_patience_halves_where_the_cost_is_far_below_its_limit(level: float, left: float) -> None:
    full = Patience(1)
    before = spend(full, 10.0, [True], 40)[-1, 0]
    c = spend(full, 10.0, [False], 3, level)[:, 0]
    np.testing.assert_allclose(c / before, left ** np.arange(1, 4))


def test_patience_stays_finite_comes_back_and_starts_anew_after_one_calm_epoch() -> None:
    both = Patience(2)
    c = spend(both, 5.0, [True, False], 500)
    assert c[-1].tolist() == [MOST, 0.0] and np.isfinite(c).all()
    calm = spend(both, 5.0, [False, False], 80)[:, 0]
    high = calm > 1.0
    np.testing.assert_allclose(calm[high], MOST * 0.8 ** np.arange(1, high.sum() + 1))
    np.testing.assert_allclose(-np.diff(calm[~high][calm[~high] > 0.0]), 0.2)
    assert calm[-1] == 0.0
    np.testing.assert_allclose(np.diff(spend(both, 5.0, [True, True], 6), axis=0), 0.2)
