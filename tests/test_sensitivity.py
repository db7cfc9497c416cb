"""What gradients say of a price: products free of noise, the step size, shared work, Fisher."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import float64, make_learner, random_batch, small_policy
from price_helpers import (
    TwoActions,
    late,
    price_of,
    probe_trainer,
    quadratic,
    settle,
    smallest_prices,
)

from cspo.algorithms.forecast import LIMIT
from cspo.algorithms.sensitivity import DAMPING, MEMORY, SHARED, Sensitivity, halves

pytestmark = pytest.mark.usefixtures("no_runtime_warnings")


# ---------------------------------------------------------------- the gradients' products


def test_product_of_the_halves_is_free_of_their_noise() -> None:
    """|b|^2 = 1 under noise that makes |b|^2 of a batch a hundred times as large."""
    P, sd, epochs, rng = 800, 0.5, 6000, np.random.default_rng(9)
    exact = np.zeros((2, P))
    exact[0, :2], exact[1, 0] = [0.5, 1.0], 1.0  # a . b = 0.5
    sense, shared, total = Sensitivity(1), np.zeros((2, 2)), np.zeros((2, 2))
    for _ in range(epochs):
        both = exact + sd * rng.standard_normal((2, 2, P))
        sense.average(both, both, np.ones(1, bool))
        shared += sense.shared / epochs
        total += sense.total / epochs
    # Memory is at its longest, so that averages weigh all epochs alike; the first one counts for 10
    # of them, and its prior is of the size of the noise.
    error = np.sqrt((sd**4 * P + 2.0 * sd**2) / epochs)
    prior = 0.5 * total[1, 1] / (1.0 - MEMORY[1]) / epochs
    assert shared[1, 1] == pytest.approx(1.0, abs=4.0 * error + prior)
    assert shared[0, 1] == pytest.approx(0.5, abs=4.0 * error + prior)
    assert 4.0 * error + prior < 0.5
    assert total[1, 1] == pytest.approx(1.0 + sd**2 * P / 2.0, rel=0.02)
    assert sense.bb[0, 0] >= SHARED * sense.total[1, 1] * (1.0 - 1e-9), "never below its floor"


@pytest.mark.parametrize("eta", [1e-3, 0.4])
def test_step_size_of_the_update_is_recovered(eta: float) -> None:
    """The plant moves by eta over the loss's divisor; with two constraints at other prices too."""
    plant, _ = quadratic([6.0, 4.0, 1.0], [[1.0, 0.2, 0.0], [0.6, 1.0, 0.0]], constant=3.0)
    plant.eta = eta
    algorithm = price_of(plant, 2)
    for report in plant.train(algorithm, [LIMIT, 30.0], 3):
        divisor = 1.0 + sum(report["lam"] / [report["price_natural_0"], report["price_natural_1"]])
        latest = eta / divisor
    # Eta is an average over these three epochs, whose divisors are between 1 and `divisor`.
    assert divisor > 1.2
    assert (algorithm.sensitivity.eta <= eta * (1.0 + 1e-9)).all()
    assert (algorithm.sensitivity.eta >= latest * (1.0 - 1e-9)).all()
    algorithm = price_of(plant, 2, alpha=(0.0,))
    plant.slopes = lambda theta: np.array([[-1.0, 0.0, 0.3], [1.0, 0.2, 0.0], [0.6, 1.0, 0.0]])
    plant.train(algorithm, [LIMIT, 30.0], 3)
    assert (algorithm.multiplier == 0.0).all()
    np.testing.assert_allclose(algorithm.sensitivity.eta, eta, rtol=1e-9)


@pytest.mark.parametrize(("steps", "N"), [(7, 4), (6, 3), (5, 2), (9, 1), (10, 1)])
def test_halves_do_not_tear_environments_apart(steps: int, N: int) -> None:
    batch = random_batch(small_policy(), steps * N, num_envs=N)
    first, second = halves(batch)
    assert sorted([*first, *second]) == list(range(steps * N))
    if N == 1:
        assert max(first) < min(second) and abs(len(first) - len(second)) <= 1
        return
    envs = [set((rows % N).tolist()) for rows in (first, second)]
    assert not envs[0] & envs[1] and envs[0] | envs[1] == set(range(N))
    assert [len(rows) for rows in (first, second)] == [steps * len(e) for e in envs]
    assert abs(len(envs[0]) - len(envs[1])) <= 1


def test_prices_share_the_work_of_constraints_that_share_a_gradient() -> None:
    """One constraint needs all of it; a second with the same gradient adds nothing to the step."""
    b = np.array([1.0, 2.0, 0.0])
    one = settle(Sensitivity(1), [0.5 * b, b])
    two = settle(Sensitivity(2), [0.5 * b, b, b])
    assert two.rho.sum() == pytest.approx(one.rho[0], rel=0.05)  # correlations stop at 0.95
    # And where one asks to fall and the other may rise, a price never pays for a rise.
    lam = two.prices(np.zeros(2), np.array([0.4, -2.0]))
    assert lam[1] == 0.0 <= lam[0] <= 0.4
    expected = smallest_prices(two.bb, np.diag(two.bb) * np.array([0.4, -2.0]))
    np.testing.assert_allclose(lam, expected, rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- Fisher metric


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_fisher_products_are_those_of_the_known_matrix(scale: float) -> None:
    """A linear Gaussian policy: F = mean x x^T / std^2 by the mean, 2 by log std, damped."""
    policy = small_policy(observation=3, action=1, costs=2, hidden=())
    batch = random_batch(policy, 400, 2, num_envs=4)
    batch = replace(batch, adv_c=batch.adv_c * np.float32(scale))
    x = np.column_stack([float64(batch.observation), np.ones(400)])
    variance = float(np.exp(2.0 * policy.actor.log_std[0]))
    F = np.zeros((5, 5))
    F[:4, :4], F[4, 4] = x.T @ x / 400.0 / variance, 2.0
    F += DAMPING * np.eye(5)
    error = float64(batch.action - batch.output)[:, 0]
    score = np.column_stack([x * (error / variance)[:, None], error**2 / variance - 1.0])
    A = np.column_stack([float64(batch.adv_r), float64(batch.adv_c)])
    g1, g2 = (
        (A[:, :, None] * score[:, None])[np.arange(400) % 4 % 2 == half].mean(0) for half in (0, 1)
    )
    solve = np.linalg.solve
    sense = Sensitivity(2)
    sense.measure(make_learner(policy), batch, "fisher")
    whole = (g1 + g2) / 2.0
    size = np.outer([1.0, scale, scale], [1.0, scale, scale])
    np.testing.assert_allclose(sense.now / size, whole @ solve(F, whole.T) / size, atol=5e-6)
    first = MEMORY[0]  # the memory of the first epoch, of products that count as half noise
    product = (g1 @ solve(F, g2.T) + g2 @ solve(F, g1.T)) / 2.0
    expected = first * whole @ solve(F, whole.T) / 2.0 + (1.0 - first) * product
    np.testing.assert_allclose(sense.shared / size, expected / size, atol=5e-6)
    assert np.abs(expected / size).max() > 0.01


def test_fisher_metric_keeps_two_limits() -> None:
    settings = {"metric": "fisher", "entropy_coefficient": 0.0, "margin": "off"}
    reports = list(probe_trainer(TwoActions, (40.0, 110.0), 60, **settings))
    # Over two seeds 40.6 and 42.2, 106 and 110: the second limit binds late.
    assert late(reports, "cost")[0] == pytest.approx(40.0, abs=4.0)
    assert 100.0 < late(reports, "cost")[1] < 112.0
    prices = np.array([report.multiplier for report in reports])
    assert np.isfinite(prices).all() and (prices.max(0) > 0.2).all()
