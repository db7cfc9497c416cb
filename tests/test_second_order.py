"""TRPO-PID, CPO, PCPO and C-TRPO: each step against a second transcription, and every edge case.

The transcription is in NumPy and float64. It has a dense Hessian from double backpropagation, its
own conjugate gradients and its own line search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import (
    Array,
    float64,
    make_learner,
    random_batch,
    reference_log_prob,
    reference_mlp,
    small_policy,
    unpack,
)
from probe_envs import RandomWalk
from test_trust_region import double_backprop, transcribed_cg

import cspo
from cspo.algorithms import get_algorithm
from cspo.algorithms.c_trpo import phi
from cspo.algorithms.cpo import optimal_step
from cspo.errors import CspoError
from cspo.runs import checkpoint
from cspo.settings import check_fields
from cspo.types import Discount

ALGORITHMS = ("trpo-pid", "cpo", "pcpo", "c-trpo")
ONE_LIMIT = ("cpo", "pcpo", "c-trpo")
GAMMA, DELTA, DAMPING = 0.99, 0.01, 0.1
LIMIT = np.array([25.0])


def setup(
    algo: str, samples: int = 400, costs: int = 1, seed: int = 0, **settings: Any
) -> tuple[Any, Any, Any]:
    """Return an algorithm, its actor and a batch."""
    policy = small_policy(costs=costs, seed=seed)
    learner = make_learner(policy, np.random.default_rng(seed), passes=1, minibatch_size=128)
    kind = get_algorithm(algo)
    batch = random_batch(policy, samples, costs, seed + 1, episode_length=50.0)
    return kind(kind.Config(**settings), learner, costs, Discount(GAMMA, 0.95)), policy.actor, batch


class Reference:
    """The batch seen from theta_k, in float64."""

    def __init__(self, actor: Any, batch: Any) -> None:
        self.batch, self.sizes = batch, actor.mlp.sizes
        self.theta = float64(actor.parameters)
        rows = np.eye(len(self.theta))
        hessian = np.stack(
            [double_backprop(actor.parameters, batch, self.sizes, row) for row in rows]
        )
        self.H = hessian + DAMPING * rows

    def ratio(self, theta: Array) -> Array:
        observation, action = float64(self.batch.observation), float64(self.batch.action)
        return np.exp(
            reference_log_prob(theta, self.sizes, observation, action)
            - float64(self.batch.log_prob)
        )

    def change(self, theta: Array, A: Array) -> float:
        return float((self.ratio(theta) * A).mean() - (self.ratio(self.theta) * A).mean())

    def kl(self, theta: Array) -> float:
        """Average over samples and actions of log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2."""
        (old, old_log_std), (new, log_std) = (
            unpack(self.theta, self.sizes),
            unpack(theta, self.sizes),
        )
        x = float64(self.batch.observation)
        shift = reference_mlp(old, x) - reference_mlp(new, x)
        variance, old_variance = np.exp(2.0 * log_std), np.exp(2.0 * old_log_std)
        return float(
            (log_std - old_log_std + (old_variance + shift**2) / (2.0 * variance) - 0.5).mean()
        )

    def gradient(self, A: Array) -> Array:
        """mean(A grad log pi), the exact gradient of mean(r A) at theta_k."""
        flat = torch.from_numpy(self.theta).requires_grad_()
        layers, log_std = unpack(flat, self.sizes)
        x, action = (
            torch.from_numpy(float64(values))
            for values in (self.batch.observation, self.batch.action)
        )
        normal = torch.distributions.Normal(reference_mlp(layers, x), log_std.exp())
        log_prob = normal.log_prob(action).sum(1)
        (gradient,) = torch.autograd.grad((log_prob * torch.from_numpy(A)).mean(), flat)
        return float64(gradient)

    def search(
        self, step: Array, accept: Callable[[Array], bool], tries: int
    ) -> tuple[Array, float]:
        """Return the parameters reached and the fraction of the step."""
        for k in range(tries):
            if accept(candidate := self.theta + 0.8**k * step):
                return candidate, 0.8**k
        return self.theta, 0.0


def assert_moved(
    actor: Any, reference: Reference, expected: Array, tolerance: float = 2e-4
) -> None:
    """Compare the step taken with the expected one."""
    taken, wanted = float64(actor.parameters) - reference.theta, expected - reference.theta
    assert np.linalg.norm(wanted) > 1e-3
    assert np.linalg.norm(taken - wanted) < tolerance * np.linalg.norm(wanted)


# ---------------------------------------------------------------- TRPO-PID


@pytest.mark.parametrize("costs", [1, 3])
def test_trpo_pid_step(costs: int) -> None:
    algorithm, actor, batch = setup("trpo-pid", costs=costs)
    reference = Reference(actor, batch)
    J_c, d = np.array([35.0, 2.0, 60.0])[:costs], np.array([25.0, 8.0, 25.0])[:costs]
    metrics = algorithm.update(batch, J_c, d)

    # First PID update by hand: I = 0.001 + 0.01 e, P = 0.05 e, D = 0.05 J_c since the history holds
    # one zero.
    e = J_c - d
    lam = np.maximum(0.0, 0.1 * 0.05 * e + np.maximum(0.0, 0.001 + 0.01 * e) + 0.01 * 0.05 * J_c)
    assert algorithm.multiplier == pytest.approx(lam, rel=1e-12)
    A = (float64(batch.adv_r) - float64(batch.adv_c) @ lam) / (1.0 + lam.sum())
    x = transcribed_cg(reference.H, reference.gradient(A), 15)
    step = np.sqrt(2.0 * DELTA / (x @ reference.H @ x + 1e-8)) * x
    expected, fraction = reference.search(
        step, lambda theta: reference.change(theta, A) >= 0.0 and reference.kl(theta) <= DELTA, 15
    )
    assert metrics["step_fraction"] == pytest.approx(fraction)
    assert_moved(actor, reference, expected)
    # The limit is on the average over the two action dimensions; the log has their sum.
    assert metrics["kl"] == pytest.approx(2.0 * reference.kl(expected), rel=1e-3)
    assert 0.5 * DELTA < metrics["kl"] / 2.0 <= DELTA


def test_trpo_pid_without_violation_is_trpo() -> None:
    algorithm, actor, batch = setup("trpo-pid", multiplier_init=0.0)
    reference = Reference(actor, batch)
    algorithm.update(batch, np.array([0.0]), LIMIT)
    assert algorithm.multiplier.tolist() == [0.0]
    assert reference.change(float64(actor.parameters), float64(batch.adv_r)) > 0.0


# ---------------------------------------------------------------- CPO


def brute_force(g: Array, H: Array, b: Array, c: float, delta: float) -> Array:
    """Best feasible point on the ellipse y^T H y = 2 delta: the optimum of a linear objective."""
    angle = np.linspace(0.0, 2.0 * np.pi, 400_001)
    circle = np.sqrt(2.0 * delta) * np.stack([np.cos(angle), np.sin(angle)])
    y = np.linalg.solve(np.linalg.cholesky(H).T, circle)
    value = np.where(c + b @ y <= 0.0, g @ y, -np.inf)
    return y[:, value.argmax()]


def quadratic(g: Array, H: Array, b: Array, c: float, delta: float) -> tuple[Array, int, float]:
    x, p = np.linalg.solve(H, g), np.linalg.solve(H, b)
    return optimal_step(x, p, x @ H @ x, g @ p, b @ p, b @ b, c, delta)


@pytest.mark.parametrize("share", [-0.95, -0.5, -0.1, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(6))
def test_cpo_solves_its_quadratic_problem(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((2, 2))
    g, b, H, delta = rng.standard_normal(2), rng.standard_normal(2), M @ M.T + 0.5 * np.eye(2), 0.02
    c = share * np.sqrt(2.0 * delta * (b @ np.linalg.solve(H, b)))  # between the cases' borders
    y, case, nu = quadratic(g, H, b, c, delta)
    assert case == (2 if c < 0 else 1)
    best = brute_force(g, H, b, c, delta)
    assert g @ y == pytest.approx(g @ best, abs=2e-4)
    assert c + b @ y <= 1e-6 and 0.5 * y @ H @ y <= delta * (1.0 + 1e-5)
    np.testing.assert_allclose(y, best, atol=5e-3)
    assert (nu > 0.0) == (c + b @ best > -1e-3)


def test_cpo_by_hand() -> None:
    """H = I, g = b = (1, 0), 2 delta = 1, c = -0.6: the reward wants y = (1, 0), the limit 0.6."""
    y, case, nu = quadratic(np.array([1.0, 0.0]), np.eye(2), np.array([1.0, 0.0]), -0.6, 0.5)
    assert case == 2
    assert y[0] == pytest.approx(0.6, abs=1e-4) and nu > 0.0
    y, case, _ = quadratic(
        np.array([0.0, 1.0]), np.eye(2), np.array([1.0, 0.0]), 0.6, 0.5
    )  # back by 0.6, then up
    assert case == 1
    assert y == pytest.approx([-0.6, 0.8], abs=1e-6)


@pytest.mark.parametrize(("c", "case"), [(0.01, 1), (-0.01, 2), (1.0, 0), (-1.0, 3)])
def test_cpo_cases(c: float, case: int) -> None:
    """With s = 0.03 the limit cuts the trust region for |c| < sqrt(0.0006) = 0.024."""
    x, p = np.array([0.4, 0.1]), np.array([0.3, -0.2])
    assert optimal_step(x, p, 0.5, 0.02, 0.03, 1.0, c, DELTA)[1] == case
    vanished = optimal_step(x, p, 0.5, 0.02, 0.03, 1e-7, c, DELTA)[1]
    assert vanished == (4 if c < 0 else case)


def cpo_reference(
    reference: Reference, batch: Any, c: float, sign: float
) -> tuple[Array, float, int]:
    """The same by maximising the dual over a grid.

    `sign` is that of r: -1 is right, +1 is the usual implementation.
    """
    A_r, A_c, H = float64(batch.adv_r), float64(batch.adv_c[:, 0]), reference.H
    g, b = reference.gradient(A_r), reference.gradient(A_c)
    x, p = transcribed_cg(H, g, 15), transcribed_cg(H, b, 15)
    q, r, s = x @ H @ x, sign * (g @ p), b @ p
    B = 2 * DELTA - c * c / s
    if B < 0 and c >= 0:
        case, step = 0, -np.sqrt(2 * DELTA / s) * p
    elif B < 0:
        case, step = 3, np.sqrt(2 * DELTA / q) * x
    else:
        case = 2 if c < 0 else 1
        grid = np.geomspace(
            1e-3, 1e3, 200_001
        )  # the dual over lambda, with the best nu(lambda) in closed form
        nu = np.maximum(0.0, (grid * c - r) / s)
        dual = -0.5 * (q + 2 * nu * r + nu * nu * s) / grid + nu * c - grid * DELTA
        best = dual.argmax()
        step = (x - nu[best] * p) / grid[best]

    def accept(theta: Array) -> bool:
        worse = case > 1 and reference.change(theta, A_r) < 0
        return (
            not worse
            and reference.change(theta, A_c) <= max(-c, 0.0)
            and reference.kl(theta) <= DELTA
        )

    return (*reference.search(step, accept, 20), case)


@pytest.mark.parametrize(("violation", "case"), [(5.0, 0), (-5.0, 3), (0.004, 1), (-0.004, 2)])
@pytest.mark.parametrize("variant", ["paper", "corrected"])
def test_cpo_step(variant: str, violation: float, case: int) -> None:
    """`corrected` divides by the episode length, 50: the same cases at 50 times the violation."""
    algorithm, actor, batch = setup("cpo", variant=variant)
    reference = Reference(actor, batch)
    scale, sign = (50.0, -1.0) if variant == "corrected" else (1.0, 1.0)
    metrics = algorithm.update(batch, LIMIT + scale * violation, LIMIT)
    expected, fraction, expected_case = cpo_reference(reference, batch, violation, sign)
    assert metrics["case"] == expected_case == case
    assert metrics["violation"] == pytest.approx(violation)
    assert metrics["step_fraction"] == pytest.approx(fraction)
    if fraction > 0.0:
        assert_moved(actor, reference, expected, 1e-3)
    else:
        assert np.array_equal(actor.parameters, reference.theta.astype(np.float32))


# ---------------------------------------------------------------- PCPO


@pytest.mark.parametrize("violation", [-5.0, 5.0])
@pytest.mark.parametrize("variant", ["paper", "corrected"])
def test_pcpo_step(variant: str, violation: float) -> None:
    algorithm, actor, batch = setup("pcpo", variant=variant)
    reference = Reference(actor, batch)
    metrics = algorithm.update(batch, LIMIT + violation, LIMIT)

    A_c, H = float64(batch.adv_c[:, 0]), reference.H
    g, b = reference.gradient(float64(batch.adv_r)), reference.gradient(A_c)
    x, p = transcribed_cg(H, g, 15), transcribed_cg(H, b, 15)
    scale = np.sqrt(2 * DELTA / (x @ H @ x + 1e-8))
    projection = max(0.0, (scale * (g @ p) + violation) / (b @ p))
    step = scale * (H @ x if variant == "paper" else x) - projection * p
    assert metrics["projection"] == pytest.approx(projection, rel=1e-3)
    expected, fraction = reference.search(
        step,
        lambda theta: (
            reference.change(theta, A_c) <= max(-violation, 0.0) and reference.kl(theta) <= DELTA
        ),
        200,
    )
    assert metrics["step_fraction"] == pytest.approx(fraction)
    assert_moved(actor, reference, expected, 1e-3)


def test_pcpo_as_implemented_follows_the_plain_gradient() -> None:
    cosines = {}
    for variant in ("paper", "corrected"):
        algorithm, actor, batch = setup("pcpo", variant=variant)
        reference = Reference(actor, batch)
        assert algorithm.update(batch, LIMIT - 20.0, LIMIT)["projection"] == 0.0
        step, g = (
            float64(actor.parameters) - reference.theta,
            reference.gradient(float64(batch.adv_r)),
        )
        cosines[variant] = step @ g / np.linalg.norm(step) / np.linalg.norm(g)
    assert cosines["paper"] > 0.9999 > 0.95 > cosines["corrected"]


def test_pcpo_corrected_ends_on_the_linearised_limit() -> None:
    """c + b^T y = 0 for the full step y = scale x - projection p, by construction."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((4, 4))
    g, b, H, c = rng.standard_normal(4), rng.standard_normal(4), M @ M.T + np.eye(4), 0.3
    x, p = np.linalg.solve(H, g), np.linalg.solve(H, b)
    scale = np.sqrt(2 * DELTA / (x @ H @ x))
    projection = (scale * (g @ p) + c) / (b @ p)
    assert c + b @ (scale * x - projection * p) == pytest.approx(0.0, abs=1e-12)
    assert abs(c + b @ (scale * H @ x - projection * p)) > 0.01


# ---------------------------------------------------------------- C-TRPO


def test_phi_and_its_derivatives() -> None:
    for slack in (0.5, 3.0, 25.0):
        assert phi(0.0, slack) == 0.0
        h = 1e-4 * slack
        up, down = phi(h, slack), phi(-h, slack)
        assert (up - down) / (2 * h) == pytest.approx(0.0, abs=1e-6)
        assert (up + down) / h**2 == pytest.approx(1.0 / slack, rel=1e-4)
        assert phi(slack, slack) == phi(2 * slack, slack) == np.inf
        assert phi(0.999 * slack, slack) > phi(0.5 * slack, slack) > 0.0


def test_rank_one_term_equals_double_backpropagation() -> None:
    """Hessian of phi(u(theta)) at theta_k: phi''(0) a a^T, since phi'(0) = 0."""
    _, actor, batch = setup("c-trpo", samples=60)
    reference, slack = Reference(actor, batch), 4.0
    A_c = torch.from_numpy(float64(batch.adv_c[:, 0]))
    flat = torch.from_numpy(reference.theta).requires_grad_()
    layers, log_std = unpack(flat, reference.sizes)
    x, action = (torch.from_numpy(float64(v)) for v in (batch.observation, batch.action))
    normal = torch.distributions.Normal(reference_mlp(layers, x), log_std.exp())
    log_prob = normal.log_prob(action).sum(1)
    ratio = (log_prob - log_prob.detach()).exp()
    u = ((ratio - 1.0) * A_c).mean() / (1.0 - GAMMA)
    divergence = u + (slack - u) * ((slack - u) / slack).log()
    (first,) = torch.autograd.grad(divergence, flat, create_graph=True)
    v = np.random.default_rng(0).standard_normal(len(reference.theta))
    (second,) = torch.autograd.grad(first @ torch.from_numpy(v), flat)
    a = reference.gradient(float64(batch.adv_c[:, 0])) / (1.0 - GAMMA)
    np.testing.assert_allclose(float64(second), (a @ v) * a / slack, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("J_c", [5.0, 24.5, 25.0, 40.0])
def test_c_trpo_step(J_c: float) -> None:
    algorithm, actor, batch = setup("c-trpo")
    reference = Reference(actor, batch)
    metrics = algorithm.update(batch, np.array([J_c]), LIMIT)
    A_r, A_c, slack, safe = float64(batch.adv_r), float64(batch.adv_c[:, 0]), 25.0 - J_c, J_c < 25.0
    assert metrics["safe"] == safe and metrics["slack"] == slack

    H, A = reference.H, A_r if safe else -A_c
    if safe:
        a = 100.0 * reference.gradient(A_c)
        H = H + np.outer(a, a) / slack
    x = transcribed_cg(H, reference.gradient(A), 10)

    def accept(theta: Array) -> bool:
        D = reference.kl(theta)
        if safe:
            u = 100.0 * float(((reference.ratio(theta) - 1.0) * A_c).mean())
            if u >= slack:
                return False
            D += u + (slack - u) * np.log((slack - u) / slack)
        return reference.change(theta, A) >= 0.0 and D <= DELTA

    expected, fraction = reference.search(np.sqrt(2 * DELTA / (x @ H @ x + 1e-8)) * x, accept, 10)
    assert metrics["step_fraction"] == pytest.approx(fraction)
    assert_moved(actor, reference, expected, 2e-3)


def test_c_trpo_mode_has_hysteresis_and_survives_a_round_trip() -> None:
    algorithm, _, batch = setup("c-trpo", hysteresis=0.8)
    seen = []
    for J_c in (22.0, 19.0, 22.0, 25.0, 22.0, 19.9):
        seen.append(algorithm.update(batch, np.array([J_c]), LIMIT)["safe"])
        restored, _, _ = setup("c-trpo", hysteresis=0.8)
        restored.load_state_dict(algorithm.state_dict())
        assert restored.safe is algorithm.safe
    assert seen == [0, 1, 1, 0, 0, 1]


# ---------------------------------------------------------------- edge cases


def costless(batch: Any) -> Any:
    return replace(batch, adv_c=np.zeros_like(batch.adv_c))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_without_any_cost_below_the_limit_all_take_a_reward_step(algo: str) -> None:
    algorithm, actor, batch = setup(algo)
    reference = Reference(actor, batch)
    metrics = algorithm.update(costless(batch), np.array([0.0]), LIMIT)
    assert metrics["step_fraction"] > 0.0
    assert reference.change(float64(actor.parameters), float64(batch.adv_r)) > 0.0
    if algo == "cpo":
        assert metrics["case"] == 4


@pytest.mark.parametrize("algo", ["cpo", "c-trpo"])
def test_above_the_limit_without_a_cost_gradient_cost_descent_stands_still(algo: str) -> None:
    algorithm, actor, batch = setup(algo)
    start = actor.parameters.copy()
    metrics = algorithm.update(costless(batch), np.array([30.0]), LIMIT)
    assert np.array_equal(actor.parameters, start)
    assert metrics["kl"] == 0.0
    assert metrics.get("case", 0) == 0 == metrics.get("safe", 0)


def test_above_the_limit_without_a_cost_gradient_pcpo_has_nothing_to_project() -> None:
    algorithm, _, batch = setup("pcpo")
    metrics = algorithm.update(costless(batch), np.array([30.0]), LIMIT)
    assert metrics["projection"] == 0.0 and np.isfinite(metrics["kl"])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_infeasible_start_lowers_the_cost(algo: str) -> None:
    algorithm, actor, batch = setup(algo)
    reference = Reference(actor, batch)
    metrics = algorithm.update(batch, np.array([40.0]), LIMIT)
    assert reference.change(float64(actor.parameters), float64(batch.adv_c[:, 0])) < 0.0
    assert metrics["step_fraction"] > 0.0 and metrics["kl"] / 2.0 <= DELTA


@pytest.mark.parametrize(
    ("algo", "mode"), [("cpo", {"case": 1}), ("pcpo", {}), ("c-trpo", {"safe": 0})]
)
@pytest.mark.parametrize("cost", [True, False], ids=["costs", "costless"])
def test_limit_of_zero_is_defined(algo: str, mode: dict[str, int], cost: bool) -> None:
    """At J_c = d = 0, CPO moves along the limit; C-TRPO has no slack and stays in recovery."""
    algorithm, actor, batch = setup(algo)
    metrics = algorithm.update(batch if cost else costless(batch), np.zeros(1), np.zeros(1))
    assert (
        np.isfinite(list(metrics.values())).all() and np.isfinite(float64(actor.parameters)).all()
    )
    assert mode.items() <= metrics.items()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_failed_search_changes_the_critics_only(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cspo.policy.distribution.Distribution.mean_kl", lambda *arguments: 1.0)
    algorithm, actor, batch = setup(algo)
    start, critics = actor.parameters.copy(), algorithm.learner.policy.critics.parameters.copy()
    metrics = algorithm.update(batch, np.array([0.0]), LIMIT)
    assert (metrics["step_fraction"], metrics["backtracks"], metrics["kl"]) == (
        0.0,
        algorithm.config.backtracks,
        0.0,
    )
    assert np.array_equal(actor.parameters, start)
    assert not np.array_equal(algorithm.learner.policy.critics.parameters, critics)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_advantages_that_are_not_finite_are_an_error_in_words(algo: str) -> None:
    algorithm, actor, batch = setup(algo)
    start = actor.parameters.copy()
    broken = replace(batch, adv_r=batch.adv_r * np.inf, adv_c=batch.adv_c * np.inf)
    with pytest.raises(CspoError, match="not finite"):
        algorithm.update(broken, np.array([30.0]), LIMIT)
    assert np.array_equal(actor.parameters, start)


def test_overflowing_kl_ends_the_search_as_implemented_and_shortens_the_step_as_corrected() -> None:
    fractions = {}
    for variant in ("paper", "corrected"):
        algorithm, _, batch = setup("pcpo", variant=variant)
        fractions[variant] = algorithm.update(batch, np.array([1e6]), LIMIT)["step_fraction"]
    assert fractions["paper"] == 0.0 < fractions["corrected"] < 1e-4


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("algo", ONE_LIMIT)
def test_several_limits_are_refused_in_one_sentence(algo: str) -> None:
    with pytest.raises(CspoError, match="is defined for one cost limit, not 2") as refusal:
        cspo.make_config("walk", algo, cost_limit=(1.0, 2.0))
    assert "\n" not in str(refusal.value)
    assert not get_algorithm(algo).traits.several_limits


def test_trpo_pid_takes_several_limits() -> None:
    assert cspo.make_config("walk", "trpo-pid", cost_limit=(1.0, 2.0)).cost_limit == (1.0, 2.0)
    assert get_algorithm("trpo-pid").traits.several_limits


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize(
    "task", ["SafetyHopperVelocity-v1", "SafetyPointGoal1-v0", "my_module:Mine"]
)
def test_defaults_are_the_papers(algo: str, task: str) -> None:
    config = cspo.make_config(task, algo)
    own = config.algorithm
    assert (config.critic_lr, config.passes) == (1e-3, 10)
    assert config.minibatch_size == (256 if algo == "c-trpo" else 128)
    assert (own.kl_limit, own.damping) == (0.01, 0.1)
    assert own.cg_iterations == (10 if algo == "c-trpo" else 15)
    assert own.backtracks == {"trpo-pid": 15, "cpo": 20, "pcpo": 200, "c-trpo": 10}[algo]
    assert getattr(own, "variant", "paper") == "paper"


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("setting", ["kl_limit", "cg_iterations", "damping", "backtracks"])
def test_settings_that_make_no_sense_are_refused(algo: str, setting: str) -> None:
    with pytest.raises(CspoError, match=setting.replace("_", "-")):
        cspo.make_config("walk", algo, **{setting: 0})


def test_c_trpo_needs_a_discount_and_a_share() -> None:
    kind = get_algorithm("c-trpo")
    with pytest.raises(CspoError, match="discount"):
        kind(kind.Config(), None, 1, Discount(1.0, 0.95))
    with pytest.raises(CspoError, match="hysteresis"):
        check_fields(kind.Config(hysteresis=1.5))


# ---------------------------------------------------------------- determinism and resume


class OneCost(RandomWalk):
    num_costs = 1

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return (*rest, {"cost": info["cost"][0]})


OPTIONS: dict[str, dict[str, Any]] = {
    "trpo-pid": {"env": RandomWalk, "cost_limit": (2.0, 3.0)},
    "cpo": {},
    "cpo corrected": {"variant": "corrected"},
    "pcpo": {},
    "pcpo corrected": {"variant": "corrected"},
    "c-trpo": {"hysteresis": 0.9},
}


def trainer(name: str, **settings: Any) -> cspo.Trainer:
    options: dict[str, Any] = {
        "cost_limit": (2.0,),
        "steps_per_epoch": 1200,  # three pieces of the curvature's
        "total_steps": 4 * 1200,
        "num_envs": 4,
        "hidden_sizes": (16, 16),
        "passes": 2,
        "threads": 1,
        "tensorboard": False,
    }
    options |= OPTIONS[name] | settings
    env = options.pop("env", OneCost)
    return cspo.Trainer(cspo.make_config("walk", name.split()[0], **options), env=env)


def numbers(reports: list[Any]) -> list[Any]:
    return [
        (report.epoch, report.cost, report.multiplier, report.kl, report.metrics)
        for report in reports
    ]


@pytest.mark.parametrize("name", OPTIONS)
def test_same_seed_gives_the_same_bits_whatever_the_threads_and_interruptions(
    name: str, tmp_path: Any
) -> None:
    whole = trainer(name)
    expected = numbers(list(whole))
    assert any(row[-1]["step_fraction"] > 0.0 for row in expected)

    broken = trainer(name, threads=2)
    iterator = iter(broken)
    reports = [next(iterator), next(iterator)]
    path = checkpoint.save(tmp_path, 2, broken.state_dict())
    resumed = trainer(name, threads=2)
    resumed.load_state_dict(checkpoint.load(path))
    reports += list(resumed)
    assert numbers(reports) == expected
    assert resumed.parameter_hash() == whole.parameter_hash()
    assert trainer(name, seed=1).parameter_hash() != trainer(name).parameter_hash()
