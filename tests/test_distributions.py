"""Distributions against SciPy and plain NumPy in float64: values, gradients, curvature, samples."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from conftest import float64, make_learner, random_batch, relative_error, small_policy
from scipy import special, stats

from cspo.algorithms.learner import Loss, Reference
from cspo.algorithms.surrogates import clipped_reward, divergence, unclipped
from cspo.optim.autograd import AutogradObjective
from cspo.optim.objective import SurrogateObjective
from cspo.policy import categorical
from cspo.policy.distribution import Distribution

MIXED = Distribution(2, (3, 1, 5, 1))
PRODUCTS = {
    "gaussian": Distribution(3),
    "categorical": Distribution(0, (4,)),
    "categoricals": Distribution(0, (2, 5, 3)),
    "bits": Distribution(0, (1, 1, 1)),
    "mixed": MIXED,
}
STEP = 1e-5
CLOSE = 2e-5  # relative error of a gradient in single precision


def logit_parts(distribution: Distribution, rows: Any) -> list[Any]:
    """Return the logits of each choice at some samples; those of a bit as (0, logit)."""
    ends = distribution.gaussians + np.cumsum(distribution.choices)
    parts = [rows[..., end - k : end] for k, end in zip(distribution.choices, ends, strict=True)]
    zeros = [np.zeros((*part.shape[:-1], int(part.shape[-1] == 1))) for part in parts]
    return [np.concatenate(both, axis=-1) for both in zip(zeros, parts, strict=True)]


def probabilities(distribution: Distribution, rows: Any) -> list[Any]:
    return [special.softmax(part, axis=-1) for part in logit_parts(distribution, rows)]


def reference_log_prob(distribution: Distribution, rows: Any, log_std: Any, action: Any) -> Any:
    G = distribution.gaussians
    total = stats.norm.logpdf(action[:, :G], rows[:, :G], np.exp(log_std)).sum(axis=1)
    each = np.arange(len(rows))
    for m, logits in enumerate(logit_parts(distribution, rows), G):
        total = total + special.log_softmax(logits, axis=1)[each, action[:, m].astype(int)]
    return total


def reference_entropy(distribution: Distribution, rows: Any, log_std: Any) -> Any:
    gaussian = stats.norm.entropy(0.0, np.exp(log_std)).sum()
    return gaussian + sum(stats.entropy(p, axis=1) for p in probabilities(distribution, rows))


def reference_kl(
    distribution: Distribution, rows: Any, log_std: Any, others: Any, other_log_std: Any
) -> Any:
    """Return KL(row || other) by the definition: a numerical integral, and a sum.

    Sums at equal steps are as exact as floats are where a Gaussian is integrated as a whole.
    """
    total, at = np.zeros(len(rows)), np.linspace(-12.0, 12.0, 241)
    for column in range(distribution.gaussians):
        std, other_std = np.exp(float64(log_std)[column]), np.exp(float64(other_log_std)[column])
        mean, other = float64(rows)[:, [column]], float64(others)[:, [column]]
        x = mean + std * at
        log_p, log_q = stats.norm.logpdf(x, mean, std), stats.norm.logpdf(x, other, other_std)
        total += (np.exp(log_p) * (log_p - log_q)).sum(axis=1) * std * (at[1] - at[0])
    pairs = zip(probabilities(distribution, rows), probabilities(distribution, others), strict=True)
    return total + sum(stats.entropy(mine, theirs, axis=1) for mine, theirs in pairs)


def made(distribution: Distribution, rows: int = 7, seed: int = 0) -> tuple[Any, ...]:
    """Return outputs, log_std and actions that the distribution could have drawn."""
    rng = np.random.default_rng(seed)
    output = (1.5 * rng.standard_normal((rows, distribution.output_size))).astype(np.float32)
    log_std = (0.4 * rng.standard_normal(distribution.gaussians)).astype(np.float32)
    action = distribution.sample(output, distribution.noise(rng, (rows,), log_std))
    return output, log_std, action


def differences(function: Any, point: Any) -> Any:
    """Return the central differences of a function of an array, in float64."""
    point, slopes = float64(point).copy(), np.zeros(point.shape)
    for index in np.ndindex(*point.shape):
        kept = point[index]
        point[index] = kept + STEP
        above = function(point)
        point[index] = kept - STEP
        slopes[index] = (above - function(point)) / (2 * STEP)
        point[index] = kept
    return slopes


@pytest.mark.parametrize("name", PRODUCTS)
def test_log_prob_entropy_and_both_divergences_are_those_of_scipy(name: str) -> None:
    distribution = PRODUCTS[name]
    output, log_std, action = made(distribution)
    other, other_log_std, _ = made(distribution, seed=1)
    expected = reference_log_prob(distribution, output, log_std, action)
    found = distribution.log_prob(output, log_std, action)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    entropy = np.mean(reference_entropy(distribution, output, log_std))
    assert distribution.mean_entropy(output, log_std) == pytest.approx(entropy, rel=2e-6)
    for p, q in (((output, log_std), (other, other_log_std)), ((other, other_log_std),) * 2):
        kl = np.mean(reference_kl(distribution, *p, *q))
        assert distribution.mean_kl(*p, *q) == pytest.approx(kl, rel=5e-6, abs=1e-6)


@pytest.mark.parametrize("name", PRODUCTS)
def test_slope_of_log_prob_by_outputs_and_log_std_is_its_central_difference(name: str) -> None:
    distribution = PRODUCTS[name]
    output, log_std, action = made(distribution)
    weight = np.random.default_rng(3).standard_normal(len(output)).astype(np.float32)

    def weighted(outputs: Any, log_stds: Any) -> float:
        each = reference_log_prob(distribution, outputs, log_stds, float64(action))
        return float(np.dot(weight, each))

    by_output, by_log_std = distribution.through_log_prob(output, log_std, action, weight)
    slopes = differences(lambda x: weighted(x, float64(log_std)), output)
    np.testing.assert_allclose(by_output, slopes, atol=2e-5)
    slopes = differences(lambda x: weighted(float64(output), x), log_std)
    np.testing.assert_allclose(by_log_std, slopes, atol=5e-5)


@pytest.mark.parametrize("logits", [[0.3], [-40.0], [2.0, -1.0, 0.5], [60.0, 0.0], [0.0, 0.0]])
def test_compiled_slopes_of_one_choice_are_central_differences_in_float64(logits: Any) -> None:
    at, out = np.array(logits), np.empty(len(logits))
    other = at[::-1] * 0.5 + 0.2
    functions = {
        "entropy": lambda x, out: categorical.entropy(x, out),
        "divergence": lambda x, out: categorical.divergence(x, other, out),
        "score": lambda x, out: categorical.score(x, 0.0, out),
    }
    for function in functions.values():
        function(at, out)
        slopes = differences(lambda x, f=function: f(x, np.empty(len(x))), at)
        np.testing.assert_allclose(out, slopes, atol=1e-6)
        assert np.isfinite(out).all()


def test_extreme_logits_give_finite_numbers() -> None:
    distribution = Distribution(0, (3, 1))
    output = np.array([[1e4, -1e4, 0.0, 1e4], [-1e4, 1e4, 0.0, -1e4]], np.float32)
    empty, action = np.zeros(0, np.float32), np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    np.testing.assert_array_equal(distribution.log_prob(output, empty, action), [0.0, 0.0])
    assert distribution.mean_entropy(output, empty) == 0.0
    assert distribution.mean_kl(output, empty, output, empty) == 0.0
    assert 1e4 < distribution.mean_kl(output, empty, output[::-1].copy(), empty) < np.inf
    assert not distribution.choice_entropy(output)[1].any()


@pytest.mark.parametrize("name", PRODUCTS)
def test_fisher_metric_is_the_expected_outer_product_of_scores(name: str) -> None:
    distribution, G = PRODUCTS[name], PRODUCTS[name].gaussians
    output, log_std, _ = made(distribution)
    tangent = np.random.default_rng(2).standard_normal(output.shape).astype(np.float32)
    for row, direction in zip(output, tangent, strict=True):
        F = np.zeros((len(row), len(row)))
        F[range(G), range(G)] = np.exp(-2.0 * float64(log_std))
        begin = G
        for k, logits in zip(distribution.choices, logit_parts(distribution, row), strict=True):
            p = special.softmax(float64(logits))
            for option, share in enumerate(p):
                score = (np.arange(len(p)) == option) - p
                score = score[1:] if k == 1 else score  # a bit's logit is the second of (0, logit)
                F[begin : begin + k, begin : begin + k] += share * np.outer(score, score)
            begin += k
        found = distribution.apply_metric(row[None].copy(), log_std, direction[None].copy())[0]
        np.testing.assert_allclose(found, F @ float64(direction), rtol=2e-5, atol=2e-6)


def test_samples_have_the_frequencies_and_moments_of_the_distribution() -> None:
    n, rng = 200_000, np.random.default_rng(5)
    row, log_std, _ = made(MIXED, rows=1, seed=4)
    output = np.repeat(row, n, axis=0)
    action = MIXED.sample(output, MIXED.noise(rng, (n,), log_std))
    np.testing.assert_allclose(action[:, :2].mean(0), row[0, :2], atol=5 / np.sqrt(n) * 2)
    np.testing.assert_allclose(action[:, :2].std(0), np.exp(log_std), rtol=0.01)
    for m, logits in enumerate(logit_parts(MIXED, row[0])):
        counts = np.bincount(action[:, 2 + m].astype(int), minlength=len(logits))
        assert stats.chisquare(counts, n * special.softmax(float64(logits))).pvalue > 1e-4
    joint = np.corrcoef(action, rowvar=False) - np.eye(6)
    assert np.abs(joint).max() < 5 / np.sqrt(n)  # independent columns
    modes = [float(np.argmax(logits)) for logits in logit_parts(MIXED, row[0])]
    np.testing.assert_array_equal(MIXED.mode(row)[0], [*row[0, :2], *modes])


def test_without_choices_the_stream_of_normal_numbers_is_left_as_it_was() -> None:
    log_std = np.array([0.1, -0.2], np.float32)
    plain, mixed, by_hand = (np.random.default_rng(0) for _ in range(3))
    expected = by_hand.standard_normal((5, 3, 2), np.float32) * np.exp(log_std)
    np.testing.assert_array_equal(Distribution(2).noise(plain, (5, 3), log_std), expected)
    assert plain.bit_generator.state == by_hand.bit_generator.state
    noise = Distribution(2, (3,)).noise(mixed, (5, 3), log_std)
    np.testing.assert_array_equal(noise[..., :2], expected)
    np.testing.assert_array_equal(noise[..., 2:], by_hand.random((5, 3, 1), np.float32))


# ---------------------------------------------------------------- through the network

CHOICES = (3, 1, 4)


def mixed_policy(choices: tuple[int, ...] = CHOICES, gaussians: int = 2) -> Any:
    return small_policy(3, gaussians + len(choices), choices=choices)


def network_log_probs(policy: Any, flat: Any, batch: Any) -> Any:
    outputs, log_std = network(policy, flat, batch.observation)
    return reference_log_prob(policy.actor.distribution, outputs, log_std, float64(batch.action))


def network(policy: Any, flat: Any, x: Any) -> tuple[Any, Any]:
    """Return outputs and log_std of the network with these parameters, in float64."""
    sizes, start, h = policy.actor.mlp.sizes, 0, float64(x)
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        weight = flat[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        h = h @ weight + flat[start : start + fan_out]
        start += fan_out
        h = np.tanh(h) if layer < len(sizes) - 2 else h
    return h, flat[start:]


@pytest.mark.parametrize("gaussians", [0, 2])
@pytest.mark.parametrize("entropy", [0.0, 0.3])
@pytest.mark.parametrize("autograd", [False, True])
def test_gradient_of_a_loss_with_ratio_divergence_and_entropy(
    gaussians: int, entropy: float, autograd: bool
) -> None:
    policy = mixed_policy(gaussians=gaussians)
    actor = policy.actor
    batch = random_batch(policy, 9)
    reference = Reference(batch.output + np.float32(0.2), batch.log_std - np.float32(0.1))
    rng = np.random.default_rng(0)
    actor.parameters += (0.1 * rng.standard_normal(actor.parameters.size)).astype(np.float32)
    kind, A = actor.distribution, float64(batch.adv_r)
    weight = 0.0 if autograd else 0.7  # a loss in PyTorch states its own divergence

    def loss(flat: Any) -> float:
        r = np.exp(network_log_probs(policy, flat, batch) - float64(batch.log_prob))
        outputs, log_std = network(policy, flat, batch.observation)
        L_R = np.minimum(r * A, np.clip(r, 0.8, 1.2) * A).mean()
        kl = reference_kl(kind, outputs, log_std, reference.output, reference.log_std).mean()
        H = reference_entropy(kind, outputs, log_std).mean()
        return float(-L_R + weight * kl - entropy * H)

    learner = make_learner(policy, entropy_coefficient=entropy)
    if autograd:

        def in_torch(new: Any, columns: dict[str, Any]) -> Any:
            A = columns["A"]
            return -(new.ratio * A).minimum(new.ratio.clamp(0.8, 1.2) * A).mean()

        objective = AutogradObjective(in_torch, {"A": batch.adv_r})
        objective.gradient(actor, batch, np.arange(9), entropy)
    else:
        stated = Loss(
            lambda L_R, KL: -L_R + weight * KL,
            *(clipped_reward(batch.adv_r), divergence(batch.adv_r)),
            clip=0.2,
            reference=reference,
        )
        learner._write_gradient(batch, SurrogateObjective(stated), np.arange(9))
    expected = differences(loss, float64(actor.parameters))
    assert relative_error(actor.gradient, expected) < CLOSE


def test_score_gradients_and_fisher_products_of_a_mixed_policy() -> None:
    policy = mixed_policy()
    actor, kind = policy.actor, policy.actor.distribution
    batch, theta = random_batch(policy, 700), float64(policy.actor.parameters)
    few = random_batch(policy, 8)
    weights = np.stack([few.adv_r, few.adv_c[:, 0]])
    rows = np.array([1, 5, 6, 2])
    found = actor.score_gradients(few.observation, few.action, weights, rows)
    for weight, gradient in zip(float64(weights), found, strict=True):
        expected = differences(
            lambda flat, w=weight: float((w * network_log_probs(policy, flat, few))[rows].mean()),
            theta,
        )
        assert relative_error(gradient, expected) < CLOSE

    # H explicitly: J^T F J over samples, F from the metric applied to unit vectors.
    H, x = np.zeros((len(theta), len(theta))), float64(batch.observation)
    outputs = network(policy, theta, x)[0]
    J = np.empty((*outputs.shape, len(theta)))
    for i in range(len(theta)):
        shift = np.eye(len(theta))[i] * STEP
        J[..., i] = (
            network(policy, theta + shift, x)[0] - network(policy, theta - shift, x)[0]
        ) / (2 * STEP)
    for row, jacobian in zip(outputs, J, strict=True):
        unit = np.eye(kind.output_size)
        same = np.repeat(row[None], len(unit), axis=0)
        F = kind.apply_metric(same, float64(actor.log_std), unit)
        H += jacobian.T @ F @ jacobian / (len(x) * kind.action_size)
    G = kind.gaussians
    H[-G:, -G:] = 2.0 * np.eye(G) / kind.action_size
    v = np.random.default_rng(3).standard_normal(len(theta))
    assert relative_error(actor.fisher(batch.observation).product(v), H @ v) < CLOSE


def test_the_fisher_product_is_the_curvature_of_the_mean_kl() -> None:
    """K(theta + s v) = s^2 v H v / 2 + O(s^3): the trust region measures what it steers by."""
    policy = mixed_policy()
    actor, kind = policy.actor, policy.actor.distribution
    batch = random_batch(policy, 200)
    theta, x = float64(actor.parameters), float64(batch.observation)
    v = np.random.default_rng(1).standard_normal(len(theta))
    v /= np.linalg.norm(v)
    old, old_log_std = network(policy, theta, x)

    def K(s: float) -> float:
        new, log_std = network(policy, theta + s * v, x)
        return kind.mean_kl(old, old_log_std, new, log_std) / kind.action_size

    s = 1e-3
    curvature = (K(s) + K(-s)) / s**2
    assert v @ actor.fisher(batch.observation).product(v) == pytest.approx(curvature, rel=1e-3)


@pytest.mark.parametrize(("gaussians", "choices"), list(product([0, 1], [(4,), (1, 1), (2, 1, 3)])))
def test_a_step_against_the_loss_raises_the_surrogate(gaussians: int, choices: Any) -> None:
    policy = mixed_policy(choices, gaussians)
    batch = random_batch(policy, 256)
    A = (batch.action[:, -1] > 0).astype(np.float32)
    A -= A.mean()
    fit = make_learner(policy, passes=3, actor_lr=0.01, target_kl=1.0, minibatch_size=64).fit(
        batch, Loss(lambda L: -L, unclipped(A))
    )
    assert float((fit.ratio * A).mean()) > 0.02 and 0.0 < fit.kl < 1.0
    assert fit.output.shape == batch.output.shape
    assert fit.metrics["choice_entropy"] > 0.0
    assert ("policy_std" in fit.metrics) == (gaussians > 0)
