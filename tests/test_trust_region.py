"""Curvature, conjugate gradients and line search against second transcriptions in float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    Array,
    central_differences,
    float64,
    make_learner,
    random_batch,
    reference_log_prob,
    reference_mlp,
    relative_error,
    small_policy,
    unpack,
)

from cspo.algorithms.learner import Trial
from cspo.errors import CspoError
from cspo.experience.advantages import _mean_length
from cspo.optim.trust_region import FisherTrustRegion, conjugate_gradient
from cspo.policy.fisher import ROWS
from cspo.policy.gaussian import mean_kl

FLOAT32 = 2e-6  # the largest relative error seen in this file is 4e-7


def region(
    samples: int = 80, damping: float = 0.1, iterations: int = 15, **policy: Any
) -> tuple[FisherTrustRegion, Any, Any]:
    """Return a trust region, its actor and its batch."""
    made = small_policy(**policy)
    batch = random_batch(made, samples)
    return FisherTrustRegion(made.actor, batch, damping, iterations), made.actor, batch


def mean_kl_of(flat: torch.Tensor, batch: Any, sizes: Any) -> torch.Tensor:
    """K in float64, averaged over samples and actions, as torch.distributions defines it."""
    x = torch.from_numpy(float64(batch.observation))
    layers, log_std = unpack(flat, sizes)
    new = torch.distributions.Normal(reference_mlp(layers, x), log_std.exp())
    old_layers, old_log_std = unpack(flat.detach(), sizes)
    old = torch.distributions.Normal(reference_mlp(old_layers, x), old_log_std.exp())
    return torch.distributions.kl_divergence(old, new).mean()


def double_backprop(parameters: Any, batch: Any, sizes: Any, v: Array) -> Array:
    """Hessian of K times v."""
    flat = torch.from_numpy(float64(parameters)).requires_grad_()
    (first,) = torch.autograd.grad(mean_kl_of(flat, batch, sizes), flat, create_graph=True)
    (second,) = torch.autograd.grad(first @ torch.from_numpy(v), flat)
    return float64(second)


# ---------------------------------------------------------------- curvature


@pytest.mark.parametrize("hidden", [(5,), (5, 4), (64, 64), (9, 3, 8)], ids=str)
@pytest.mark.parametrize("samples", [1, 37, ROWS, 2 * ROWS + 3])
@pytest.mark.parametrize("action", [1, 3])
def test_fisher_product_equals_double_backpropagation(
    hidden: Any, samples: int, action: int
) -> None:
    _, actor, batch = region(samples, action=action, hidden=hidden)
    actor.log_std += np.linspace(-0.4, 0.7, action, dtype=np.float32)
    v = np.random.default_rng(3).standard_normal(actor.parameters.size)
    product = actor.fisher(batch.observation).product(v)
    expected = double_backprop(actor.parameters, batch, actor.mlp.sizes, v)
    assert relative_error(product, expected) < FLOAT32
    border = len(v) - action  # the log-stds' block is exact and diagonal
    np.testing.assert_allclose(product[border:], 2.0 * v[border:] / action, rtol=1e-15)


def test_fisher_is_symmetric_and_positive() -> None:
    _, actor, batch = region()
    fisher, n = actor.fisher(batch.observation), actor.parameters.size
    H = np.stack([fisher.product(row) for row in np.eye(n)])
    np.testing.assert_allclose(H, H.T, atol=1e-7)
    assert np.linalg.eigvalsh((H + H.T) / 2.0).min() > -1e-7


def test_second_thread_does_not_change_a_bit() -> None:
    _, actor, batch = region(3 * ROWS + 5)
    v = np.random.default_rng(0).standard_normal(actor.parameters.size)
    with ThreadPoolExecutor(1) as executor:
        assert (
            actor.fisher(batch.observation, executor).product(v).tobytes()
            == actor.fisher(batch.observation).product(v).tobytes()
        )


def test_damping_is_added_to_the_averaged_fisher() -> None:
    made, actor, batch = region(damping=0.25)
    v = np.random.default_rng(0).standard_normal(actor.parameters.size)
    np.testing.assert_allclose(
        made.product(v), actor.fisher(batch.observation).product(v) + 0.25 * v, rtol=1e-15
    )


def test_half_of_the_curvature_is_the_kl_of_a_small_step() -> None:
    made, actor, _ = region(samples=500, damping=0.0)
    start = actor.parameters.copy()
    v = np.random.default_rng(0).standard_normal(actor.parameters.size)
    quadratic = 0.5 * v @ made.product(v)
    seen: list[Trial] = []
    made.search(1e-2 * v, lambda trial: bool(seen.append(trial)), 1)
    assert seen[0].kl == pytest.approx(1e-4 * quadratic, rel=0.02)
    assert np.array_equal(actor.parameters, start)


# ---------------------------------------------------------------- conjugate gradients


def transcribed_cg(H: Array, b: Array, iterations: int) -> Array:
    """Spec 4.1: start at 0, 1e-6 in both denominators, stop below a residual of 1e-10."""
    x, r, p = 0.0 * b, np.array(b), np.array(b)
    for _ in range(iterations):
        alpha = sum(r * r) / (sum(p * (H @ p)) + 1e-6)
        x, rest = x + alpha * p, r - alpha * (H @ p)
        if sum(rest * rest) ** 0.5 < 1e-10:
            break
        p = rest + sum(rest * rest) / (sum(r * r) + 1e-6) * p
        r = rest
    return x


def spd(n: int, seed: int = 0) -> Array:
    M = np.random.default_rng(seed).standard_normal((n, n))
    return M @ M.T / n + 0.1 * np.eye(n)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("iterations", [1, 3, 15])
def test_conjugate_gradient_equals_its_transcription(size: float, iterations: int) -> None:
    H, b = spd(12), size * np.random.default_rng(1).standard_normal(12)
    np.testing.assert_allclose(
        conjugate_gradient(lambda v: H @ v, b, iterations),
        transcribed_cg(H, b, iterations),
        rtol=1e-9,
    )


def test_conjugate_gradient_solves() -> None:
    H, b = spd(8), 1e3 * np.random.default_rng(1).standard_normal(8)
    assert relative_error(conjugate_gradient(lambda v: H @ v, b, 30), np.linalg.solve(H, b)) < 1e-6


def test_guards_shorten_the_solution_for_a_small_right_side() -> None:
    H, b = spd(8), np.random.default_rng(1).standard_normal(8)
    errors = [
        relative_error(
            conjugate_gradient(lambda v: H @ v, size * b, 30), np.linalg.solve(H, size * b)
        )
        for size in (1.0, 1e-3)
    ]
    assert errors[0] < 1e-3 < 1e-2 < errors[1]


def test_conjugate_gradient_of_nothing_is_nothing() -> None:
    assert conjugate_gradient(lambda v: v, np.zeros(5), 15).tolist() == [0.0] * 5


def test_solve_inverts_the_damped_curvature() -> None:
    made, actor, batch = region(samples=300, iterations=60)
    b = np.random.default_rng(0).standard_normal(actor.parameters.size)
    (x,) = made.solve(b)
    H = np.stack(
        [double_backprop(actor.parameters, batch, actor.mlp.sizes, row) for row in np.eye(len(b))]
    )
    assert relative_error(x, np.linalg.solve(H + 0.1 * np.eye(len(b)), b)) < 1e-4


def test_direction_that_is_not_finite_is_an_error_in_words() -> None:
    made, actor, _ = region()
    with pytest.raises(CspoError, match="not finite"):
        made.solve(np.full(actor.parameters.size, np.nan))


# ---------------------------------------------------------------- search


def test_gradient_and_change_are_those_of_the_surrogate() -> None:
    made, actor, batch = region()
    sizes, A = actor.mlp.sizes, float64(batch.adv_r)
    observation, action = float64(batch.observation), float64(batch.action)

    def surrogate(flat: Array) -> float:
        log_prob = reference_log_prob(flat, sizes, observation, action)
        return float((np.exp(log_prob - float64(batch.log_prob)) * A).mean())

    start = float64(actor.parameters)
    assert relative_error(made.gradient(batch.adv_r), central_differences(surrogate, start)) < 1e-5
    step = 0.05 * np.random.default_rng(0).standard_normal(len(start))
    changes: list[float] = []
    made.search(step, lambda trial: bool(changes.append(trial.change(batch.adv_r))), 1)
    assert changes == pytest.approx([surrogate(start + step) - surrogate(start)], abs=1e-6)


@pytest.mark.parametrize("refused", [0, 1, 4])
def test_first_accepted_step_is_taken(refused: int) -> None:
    made, actor, batch = region(action=2)
    start, step = actor.parameters.copy(), np.full(actor.parameters.size, 0.02)
    trials: list[Trial] = []

    def accept(trial: Trial) -> bool:
        trials.append(trial)
        return len(trials) > refused

    taken = made.search(step, accept, 5)
    assert taken.fraction == pytest.approx(0.8**refused) and taken.backtracks == refused
    np.testing.assert_allclose(
        float64(actor.parameters), float64(start) + 0.8**refused * 0.02, atol=1e-7
    )
    # K averages over the two action dimensions, the log has their sum.
    mean = actor.outputs(batch.observation)
    assert taken.kl == pytest.approx(
        mean_kl(batch.output, batch.log_std, mean, actor.log_std), rel=1e-6
    )
    assert taken.kl == pytest.approx(2.0 * trials[-1].kl)
    assert set(taken.metrics) == {"kl", "step_fraction", "backtracks"}


def test_failed_search_leaves_the_actor_as_it_was() -> None:
    made, actor, _ = region()
    start = actor.parameters.copy()
    taken = made.search(np.full(actor.parameters.size, 0.3), lambda trial: False, 7)
    assert (taken.fraction, taken.backtracks, taken.kl) == (0.0, 7, 0.0)
    assert np.array_equal(actor.parameters, start)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_step_that_is_not_finite_is_never_taken(value: float) -> None:
    made, actor, batch = region()
    start = actor.parameters.copy()
    taken = made.search(
        np.full(actor.parameters.size, value),
        lambda new: new.change(batch.adv_r) >= 0 and new.kl <= 1,
        4,
    )
    assert taken.fraction == 0.0
    assert np.array_equal(actor.parameters, start)


def test_search_can_end_at_a_kl_that_overflows() -> None:
    made, actor, _ = region()
    step = np.zeros(actor.parameters.size)
    step[-1] = -200.0  # a log-std: exp(400) is beyond float32
    assert made.search(step, lambda new: new.kl <= 0.01, 50).fraction > 0.0
    made, actor, _ = region()
    start = actor.parameters.copy()
    taken = made.search(step, lambda new: new.kl <= 0.01, 50, give_up_at_infinity=True)
    assert (taken.fraction, taken.backtracks) == (0.0, 1)
    assert np.array_equal(actor.parameters, start)


# ---------------------------------------------------------------- what it is reached by


def test_learner_hands_it_out_and_refuses_an_entropy_bonus() -> None:
    policy = small_policy()
    batch = random_batch(policy, 30)
    assert isinstance(make_learner(policy).trust_region(batch, 0.1, 15), FisherTrustRegion)
    with pytest.raises(CspoError, match="entropy"):
        make_learner(policy, entropy_coefficient=0.01).trust_region(batch, 0.1, 15)


def test_mean_length_counts_finished_episodes_only() -> None:
    ended = np.zeros((10, 3), dtype=bool)
    assert _mean_length(ended) == 10.0
    ended[[2, 5], 0] = True  # lengths 3 and 3, and four steps that are cut
    ended[9, 1] = True  # length 10
    assert _mean_length(ended) == pytest.approx(16 / 3)
    assert replace(random_batch(small_policy(), 3), episode_length=5.0).episode_length == 5.0
