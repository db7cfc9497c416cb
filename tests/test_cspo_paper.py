"""CSPO to the letter of its paper, against a second transcription and the paper's propositions.

The transcription is in NumPy and float64, from the definitions alone; gradients are central
differences over all parameters of the actor. Achieved on x86: 7e-7 (Euclidean norm, relative). The
propositions are checked with a plain gradient step, as the paper proves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import (
    Array,
    RecordingLearner,
    central_differences,
    float64,
    make_learner,
    perturb,
    random_batch,
    reference_log_prob,
    relative_error,
    small_policy,
)

from cspo.algorithms.cspo_paper import CSPOPaper, PaperSettings
from cspo.errors import CspoError
from cspo.runs import checkpoint
from cspo.settings import check_fields, explanations, setting
from cspo.types import Batch, Discount

GRADIENT, VALUE, EPS, ROWS = 1e-5, 1e-6, 0.2, 96
D = np.array([25.0, 40.0])
C = np.array([8.0, -15.0])  # the first limit is violated, the second kept
# No bounds and no average, so that w is 1 / |grad mean(r A_c)|^2.
FREE = {"weight_min": 1e-9, "weight_max": 1e9, "weight_epsilon": 1e-12, "weight_memory": 0.0}


@dataclass(frozen=True)
class Config(PaperSettings):
    """What a caller adds to the settings of the letter."""

    alpha: tuple[float, ...] = (0.85,)
    clip: float = setting(EPS)


class Recorder(RecordingLearner):
    """Records the loss, the order of the calls, and the multiplier at each of them."""

    def __init__(self, policy: Any, samples: int) -> None:
        super().__init__(policy, samples)
        self.calls: list[tuple[str, list[float]]] = []
        self.algorithm: Any = None

    def _note(self, name: str) -> None:
        self.calls.append((name, self.algorithm.multiplier.tolist()))

    def fit_critics(self, batch: Batch) -> Any:
        self._note("critics")
        return super().fit_critics(batch)

    def fit_actor(self, batch: Batch, loss: Any, reference: Any) -> Any:
        self._note("actor")
        self.batch, self.loss = batch, loss
        return super().fit_actor(batch, loss, reference)


def prepare(
    costs: int = 2, gamma: float = 0.99, seed: int = 0, **settings: Any
) -> tuple[CSPOPaper, Recorder, Batch]:
    """Return the algorithm, a learner that gives gradients instead of steps, and a batch."""
    policy = small_policy(costs=costs, seed=seed)
    learner, config = Recorder(policy, ROWS), Config(**settings)
    check_fields(config)
    config.validate(costs)
    algorithm = CSPOPaper(config, learner, costs, Discount(gamma, 0.95))
    learner.algorithm = algorithm
    return algorithm, learner, random_batch(policy, ROWS, costs, seed + 1)


# ---------------------------------------------------------------- the transcription


def ratios(flat: Array, learner: Recorder, rows: Sequence[int] = range(ROWS)) -> Array:
    """pi_theta(a|s) / pi_k(a|s)."""
    batch, index = learner.batch, list(rows)
    x, action, old = (float64(v)[index] for v in (batch.observation, batch.action, batch.log_prob))
    return np.exp(reference_log_prob(flat, learner.policy.actor.mlp.sizes, x, action) - old)


def surrogates(
    flat: Array, learner: Recorder, rows: Sequence[int] = range(ROWS)
) -> tuple[float, list[float]]:
    """L_R with the lesser, each L_C with the greater of the plain and the clipped product."""
    r, index = ratios(flat, learner, rows), list(rows)
    near = np.where(r > 1 + EPS, 1 + EPS, np.where(r < 1 - EPS, 1 - EPS, r))
    A_r, A_c = float64(learner.batch.adv_r)[index], float64(learner.batch.adv_c)[index]
    L_R = sum(min(a * x, a * y) for a, x, y in zip(A_r, r, near, strict=True)) / len(index)
    L_C = [
        sum(max(a * x, a * y) for a, x, y in zip(column, r, near, strict=True)) / len(index)
        for column in A_c.T
    ]
    return L_R, L_C


def printed_loss(
    flat: Array,
    learner: Recorder,
    gamma: float,
    c: Array,
    lam: Array,
    alpha: Array,
    w: Array,
    rows: Sequence[int] = range(ROWS),
) -> float:
    """-L_R + sum_i ( alpha_i / 2 w_i [g_i]_+^2 + lam_i g_i ), g = c + L_C / (1 - gamma)."""
    L_R, L_C = surrogates(flat, learner, rows)
    total = -L_R
    for i, L in enumerate(L_C):
        g = c[i] + L / (1.0 - gamma)
        total += lam[i] * g
        if g > 0.0:
            total += 0.5 * alpha[i] * w[i] * g * g
    return total


def signal_norms(learner: Recorder) -> Array:
    """|grad mean(r A_c)| at theta_k of each cost: Algorithm 2, by differences."""
    theta_k, A_c = float64(learner.policy.actor.parameters), float64(learner.batch.adv_c)
    gradients = [
        central_differences(
            lambda flat, A=A: float(np.dot(ratios(flat, learner), A)) / ROWS, theta_k
        )
        for A in A_c.T
    ]
    return np.array([np.sqrt(np.sum(v * v)) for v in gradients])


def grad_g(learner: Recorder, gamma: float, k: int = 0) -> Array:
    """Gradient of the printed constraint surrogate where the actor is."""
    return central_differences(
        lambda flat: surrogates(flat, learner)[1][k] / (1.0 - gamma),
        float64(learner.policy.actor.parameters),
    )


def logged(metrics: dict[str, float], name: str) -> Array:
    """Collect a metric of two constraints."""
    return np.array([metrics[f"{name}_{k}"] for k in range(2)])


@pytest.mark.parametrize("gamma", [0.99, 0.9])
@pytest.mark.parametrize("away", [0.0, 0.08], ids=["at theta_k", "away"])
def test_loss_gradient_and_weight_are_the_printed_ones(away: float, gamma: float) -> None:
    alpha, lam = np.array([0.3, 0.85]), np.array([0.4, 0.4])
    algorithm, learner, batch = prepare(
        gamma=gamma, alpha=tuple(alpha), multiplier_init=0.4, weight_min=1e-3, weight_max=1e3
    )
    metrics = algorithm.update(batch, C + D, D)
    norms = signal_norms(learner)
    w = np.array([1.0 / (norm * norm + 1e-8) for norm in norms])
    assert ((w > 1e-3) & (w < 1e3)).all(), "the bounds must not decide"
    assert logged(metrics, "gradient_norm") == pytest.approx(norms, rel=GRADIENT)
    assert logged(metrics, "weight") == pytest.approx(w, rel=2 * GRADIENT)
    assert logged(metrics, "violation") == pytest.approx(C)

    perturb(learner.policy, away)
    theta = float64(learner.policy.actor.parameters)
    if away:
        r = ratios(theta, learner)
        assert min((r > 1 + EPS).sum(), (r < 1 - EPS).sum()) >= 5, "clipping has to be exercised"
    for rows in (range(ROWS), range(5, 42)):  # all, and a minibatch whose A_c is not centred
        arguments = (learner, gamma, C, lam, alpha, w, rows)
        value = learner.loss.function(*learner.surrogates(rows))
        expected = printed_loss(theta, *arguments)
        assert value == pytest.approx(expected, rel=GRADIENT)
        differences = central_differences(lambda flat, a=arguments: printed_loss(flat, *a), theta)
        assert relative_error(learner.gradient(rows), differences) < 2 * GRADIENT


def test_reward_and_cost_are_clipped_separately_with_the_callers_clip() -> None:
    algorithm, learner, batch = prepare()
    algorithm.update(batch, C + D, D)
    assert learner.loss.clip == EPS
    perturb(learner.policy, 0.15)
    L_R, L_C = surrogates(float64(learner.policy.actor.parameters), learner)
    measured = learner.surrogates()
    assert measured[0] == pytest.approx(L_R, abs=VALUE)
    assert measured[1] == pytest.approx(L_C, abs=VALUE)


def test_clip_fractions_count_each_constraint_on_its_own() -> None:
    algorithm, _, batch = prepare()
    batch = replace(batch, log_prob=batch.log_prob - np.float32(np.log(0.5)))  # all ratios are 0.5
    metrics = algorithm.update(batch, C + D, D)
    # The minimum is the clipped term for A_r < 0, the maximum for A_c > 0.
    assert metrics["clip_fraction"] == pytest.approx((batch.adv_r < 0).mean())
    assert logged(metrics, "clip_fraction_cost") == pytest.approx((batch.adv_c > 0).mean(axis=0))


# ---------------------------------------------------------------- propositions


@pytest.mark.parametrize("seed", range(3))
def test_penalty_and_its_gradient_vanish_where_all_constraints_are_feasible(seed: int) -> None:
    """With g(theta) <= 0 the penalised gradient is the Lagrangian's, to the last bit."""
    settings = {"multiplier_init": 0.02, "weight_max": 1e9}
    for c, away in ((-0.01, 0.0), (-400.0, 0.02), (-400.0, 0.1)):
        results = []
        for alpha in (0.85, 0.0):
            algorithm, learner, batch = prepare(seed=seed, alpha=(alpha,), **settings)
            algorithm.update(batch, D + c, D)
            perturb(learner.policy, away)
            values = [*learner.surrogates()]
            assert (c + values[1] / (1 - 0.99) < 0.0).all(), "feasible, or nothing is shown"
            results.append((learner.gradient(), learner.loss.function(*values)))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        assert results[0][1] == results[1][1]


def test_penalty_ends_within_an_epoch_once_the_surrogate_is_feasible() -> None:
    """J_c > d at theta_k, but g <= 0 after a step down the cost: only the Lagrangian is left."""
    results = []
    for alpha in (0.85, 0.0):
        algorithm, learner, batch = prepare(costs=1, alpha=(alpha,), multiplier_init=0.02)
        algorithm.update(batch, D[:1] + 0.5, D[:1])
        results.append(learner.gradient())
        learner.policy.actor.parameters -= (1e-3 * grad_g(learner, 0.99)).astype(np.float32)
        _, (L_C,) = surrogates(float64(learner.policy.actor.parameters), learner)
        assert 0.5 + L_C / (1 - 0.99) < 0.0
        results.append(learner.gradient())
    assert relative_error(results[0], results[2]) > 0.01, "penalised at theta_k"
    np.testing.assert_array_equal(results[1], results[3])


def test_a_kkt_point_stays_where_it_is() -> None:
    """grad L_R = lam grad g, g_0 = 0 with lam_0 > 0, g_1 < 0 with lam_1 = 0: nothing moves."""
    lam, gamma = np.array([0.02, 0.0]), 0.99
    sizes = {}
    for excess in (0.0, 1.0):
        algorithm, learner, batch = prepare(gamma=gamma)
        algorithm.dual.lam = lam.copy()
        batch = replace(batch, adv_r=np.float32(lam[0] / (1 - gamma)) * batch.adv_c[:, 0])
        metrics = algorithm.update(batch, D + np.array([excess, -3.0]), D)
        score = learner.policy.actor.score_gradient
        reward = np.linalg.norm(score(batch.observation, batch.action, batch.adv_r))
        sizes[excess] = float(np.linalg.norm(learner.gradient()) / reward)
        if excess == 0.0:
            assert algorithm.multiplier.tolist() == lam.tolist()
            assert logged(metrics, "effective_multiplier").tolist() == lam.tolist()
    assert sizes[0.0] < 1e-3  # g = 0 up to the rounding of L_C, times 1 / (1 - gamma)
    assert sizes[1.0] > 0.1, "a violation moves it"


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_penalty_gradient_is_alpha_times_the_shortest_step_in_units_of_the_horizon(
    alpha: float, gamma: float
) -> None:
    """min |step|^2 subject to g + grad g . step = (1 - alpha) g, as a least-norm problem.

    g carries 1 / (1 - gamma), the gradient in the weight of Algorithm 2 does not: they meet at
    gamma = 0, and the square of the factor is left elsewhere."""
    parts = []
    for share in (alpha, 0.0):
        algorithm, learner, batch = prepare(costs=1, gamma=gamma, alpha=(share,), **FREE)
        algorithm.update(batch, D[:1] + 7.0, D[:1])
        parts.append(learner.gradient())
    slope = grad_g(learner, gamma)
    shortest, *_ = np.linalg.lstsq(slope[None], np.array([-alpha * 7.0]), rcond=None)
    penalty = (parts[0] - parts[1]) * (1.0 - gamma) ** 2
    assert relative_error(-penalty, shortest) < 2 * GRADIENT
    length = alpha * 7.0 / np.linalg.norm(slope)
    assert np.linalg.norm(penalty) == pytest.approx(length, rel=2 * GRADIENT)


def test_effective_multiplier_stands_in_front_of_the_gradient_of_each_constraint() -> None:
    """grad Loss = -grad L_R + sum_i (lam_i + alpha_i w_i [g_i]_+) grad g_i at theta_k."""
    gamma, alpha = 0.99, np.array([0.3, 0.85])
    algorithm, learner, batch = prepare(gamma=gamma, alpha=tuple(alpha), multiplier_init=0.4)
    metrics = algorithm.update(batch, C + D, D)
    effective = logged(metrics, "effective_multiplier")
    w = logged(metrics, "weight")
    assert effective == pytest.approx([0.4 + 0.3 * w[0] * 8.0, 0.4], rel=1e-12)
    theta_k = float64(learner.policy.actor.parameters)
    reward = central_differences(lambda flat: surrogates(flat, learner)[0], theta_k)
    expected = -reward + sum(effective[k] * grad_g(learner, gamma, k) for k in range(2))
    assert relative_error(learner.gradient(), expected) < GRADIENT


def test_gradient_norms_within_an_epoch_fall_as_fast_as_the_paper_says() -> None:
    """eta / 2 sum_t |grad Loss|^2 <= Loss(theta_0) - Loss(theta_T): so the least is O(1 / T)."""
    gamma, eta, steps, lam = 0.5, 2e-4, 40, np.array([0.1, 0.1])
    algorithm, learner, batch = prepare(gamma=gamma, multiplier_init=0.1, **FREE)
    w = logged(algorithm.update(batch, C + D, D), "weight")
    actor, squares, losses = learner.policy.actor, [], []
    for _ in range(steps + 1):
        theta = float64(actor.parameters)
        losses.append(printed_loss(theta, learner, gamma, C, lam, np.full(2, 0.85), w))
        gradient = learner.gradient()
        squares.append(float(gradient @ gradient))
        actor.parameters -= (eta * gradient).astype(np.float32)
    for T in (1, 5, 20, steps):
        assert eta / 2.0 * sum(squares[:T]) <= losses[0] - losses[T]
        assert min(squares[:T]) <= 2.0 * (losses[0] - min(losses)) / (eta * T)
    assert losses[0] - losses[steps] > 1.0, "there was something to descend"


def one_step(c: float, lam: float, eta: float, alpha: float) -> dict[str, float]:
    """One plain gradient step where reward and cost conflict: the proposition's worst case."""
    gamma = 0.5
    algorithm, learner, batch = prepare(
        costs=1, gamma=gamma, alpha=(alpha,), multiplier_init=lam, **FREE
    )
    batch = replace(batch, adv_r=batch.adv_c[:, 0] / batch.adv_c.std())
    w = algorithm.update(batch, D[:1] + c, D[:1])["weight"]
    actor = learner.policy.actor
    theta, slope = float64(actor.parameters), grad_g(learner, gamma)
    reward = central_differences(lambda flat: surrogates(flat, learner)[0], theta)
    actor.parameters -= (eta * learner.gradient()).astype(np.float32)

    def g(flat: Array) -> float:
        return c + surrogates(flat, learner)[1][0] / (1.0 - gamma)

    return {
        "before": g(theta),
        "after": g(float64(actor.parameters)),
        "gain": alpha * w * c * float(slope @ slope),
        "delta": float(np.linalg.norm(reward) * np.linalg.norm(slope)),
        "dual": lam * float(slope @ slope),
    }


@pytest.mark.parametrize("lam", [0.0, 0.4])
def test_one_small_step_decreases_the_constraint_as_much_as_the_paper_says(lam: float) -> None:
    """g_new <= g - eta (alpha w g |grad g|^2 - delta) + O(eta^2), delta = G_R G_g."""
    remainders = []
    for eta in (2e-3, 1e-3, 5e-4):
        step = one_step(3.0, lam, eta, 0.5)
        first_order = step["before"] - eta * (step["gain"] - step["delta"] + step["dual"])
        remainders.append((step["after"] - first_order) / eta**2)
        bound = step["before"] - eta * (step["gain"] - step["delta"])
        assert step["after"] <= bound + 1.5 * abs(remainders[0]) * eta**2
        assert step["after"] < step["before"]
    # What is left is of second order: divided by eta^2 it tends to a constant.
    assert remainders[2] == pytest.approx(remainders[1], rel=0.2, abs=0.5)


@pytest.mark.parametrize("alpha", [0.2, 0.8])
@pytest.mark.parametrize(("share", "sign"), [(1.1, -1), (0.9, 1)])
def test_the_condition_for_decrease_is_sharp(share: float, sign: int, alpha: float) -> None:
    """Above g = delta / (alpha w |grad g|^2) the constraint falls, below it rises."""
    probe = one_step(1.0, 0.0, 1e-3, alpha)
    threshold = probe["delta"] / probe["gain"]  # gain is alpha w |grad g|^2 for g = 1
    # By the Remark the threshold is about delta / alpha; here times (1 - gamma)^2, see the weight.
    assert threshold == pytest.approx(0.25 * probe["delta"] / alpha, rel=1e-4)
    step = one_step(share * threshold, 0.0, 1e-4, alpha)
    assert np.sign(step["after"] - step["before"]) == sign


# ---------------------------------------------------------------- Algorithm 1: order, dual


def test_critics_come_first_and_the_multiplier_moves_last() -> None:
    algorithm, learner, batch = prepare(multiplier_init=0.5)
    algorithm.update(batch, C + D, D)
    moved = [0.5 + 0.035 * 8.0, 0.0]  # 0.5 - 0.035 * 15 is below zero
    assert learner.calls == [("critics", [0.5, 0.5]), ("actor", [0.5, 0.5])]
    assert algorithm.multiplier == pytest.approx(moved)
    # The recorded loss keeps the multiplier of its epoch; the next one has the new one.
    old = learner.gradient()
    metrics = algorithm.update(batch, D - 5.0, D)
    assert learner.calls[-1] == ("actor", pytest.approx(moved))
    assert logged(metrics, "effective_multiplier") == pytest.approx(moved)
    assert relative_error(learner.gradient(), old) > 0.01


def test_multipliers_ascend_along_the_violation_projected_at_zero_and_unbounded_above() -> None:
    algorithm, _, batch = prepare(multiplier_init=0.1, multiplier_lr=0.02)
    rng, expected = np.random.default_rng(0), [0.1, 0.1]
    touched = False
    for violation in [*rng.normal(0.0, 10.0, (30, 2)), np.array([1e5, -1e5])]:
        algorithm.update(batch, D + violation, D)
        for k in range(2):
            expected[k] = max(expected[k] + 0.02 * violation[k], 0.0)
            touched |= expected[k] == 0.0
        assert algorithm.multiplier == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert touched
    assert expected[0] > 1e3


def test_the_kl_limit_stops_the_policy_and_not_the_critics() -> None:
    passes = {}
    for target_kl in (1e-9, 1e9):
        policy = small_policy(costs=2)
        learner = make_learner(policy, passes=4, minibatch_size=32, target_kl=target_kl)
        algorithm = CSPOPaper(Config(), learner, 2, Discount(0.99, 0.95))
        metrics = algorithm.update(random_batch(policy, ROWS, 2), C + D, D)
        passes[target_kl] = metrics["passes"]
        assert learner.critic_optimiser.count == 4 * 3
        assert learner.actor_optimiser.count == 3 * metrics["passes"]
        assert {"kl", "critic_loss_reward", "critic_loss_cost_1", "actor_lr"} <= set(metrics)
        assert metrics["policy_std"] == pytest.approx(np.exp(policy.actor.log_std).mean())
    assert passes == {1e-9: 1, 1e9: 4}


# ---------------------------------------------------------------- Algorithm 2: the weight


def test_weight_is_clipped_then_averaged_over_all_epochs_from_its_first_value() -> None:
    low, high, beta = 0.5, 20.0, 0.8
    algorithm, learner, batch = prepare(weight_min=low, weight_max=high, weight_memory=beta)
    algorithm.update(batch, D, D)
    norms = signal_norms(learner)
    algorithm, learner, batch = prepare(weight_min=low, weight_max=high, weight_memory=beta)
    expected: list[float] = []
    raws = []
    for factor in (1.0, 1e-3, 1e3, 0.0, 0.7, 2.0):  # 1e-3 and 0 meet the upper bound, 1e3 the lower
        scaled = replace(batch, adv_c=batch.adv_c * np.float32(factor))
        scaled = replace(scaled, any_cost=np.full(2, factor > 0.0))
        metrics = algorithm.update(scaled, D, D)
        raws.append([1.0 / ((factor * norm) ** 2 + 1e-8) for norm in norms])
        clipped = [min(max(raw, low), high) for raw in raws[-1]]
        before = expected or clipped
        expected = [beta * a + (1.0 - beta) * b for a, b in zip(before, clipped, strict=True)]
        assert logged(metrics, "weight") == pytest.approx(expected, rel=2 * GRADIENT)
    smoothed = np.array(raws[0])  # the other order: average, then clip
    for raw in raws[1:]:
        smoothed = beta * smoothed + (1.0 - beta) * np.array(raw)
    assert (np.abs(np.clip(smoothed, low, high) / expected - 1.0) > 0.1).all()


def test_weight_is_held_during_the_update_and_of_the_policy_that_collected_the_batch() -> None:
    """A learner that really moves: the weight logged is that of theta_k."""
    policy = small_policy(costs=2)
    batch = random_batch(policy, ROWS, 2)
    _, reference, _ = prepare()
    reference.batch = batch
    norms = signal_norms(reference)  # the same policy, before it moves
    learner = make_learner(policy, passes=3, minibatch_size=32, actor_lr=0.05, target_kl=1e9)
    config = Config(**FREE)  # type: ignore[arg-type]
    algorithm = CSPOPaper(config, learner, 2, Discount(0.99, 0.95))
    start = policy.actor.parameters.copy()
    metrics = algorithm.update(batch, C + D, D)
    assert np.abs(policy.actor.parameters - start).max() > 0.1
    assert logged(metrics, "weight") == pytest.approx(norms**-2, rel=2 * GRADIENT)


# ---------------------------------------------------------------- memory and settings


def trained(epochs: int) -> tuple[CSPOPaper, Any, list[dict[str, float]]]:
    """Return the algorithm after some epochs on a learner that moves, and what it logged."""
    policy = small_policy(costs=2)
    learner = make_learner(policy, passes=2, minibatch_size=32, actor_lr=3e-3, target_kl=1e9)
    algorithm = CSPOPaper(Config(weight_max=100.0), learner, 2, Discount(0.99, 0.95))
    return algorithm, learner, [train_on(algorithm, learner, epoch) for epoch in range(epochs)]


def train_on(algorithm: CSPOPaper, learner: Any, epoch: int) -> dict[str, float]:
    batch = random_batch(learner.policy, ROWS, 2, seed=10 + epoch)
    batch = replace(batch, adv_c=batch.adv_c * np.float32(1.0 + epoch))
    return algorithm.update(batch, D + C + epoch, D)


@pytest.mark.parametrize("epochs", [0, 2], ids=["before the first epoch", "after two"])
def test_a_resumed_run_goes_on_exactly(epochs: int, tmp_path: Path) -> None:
    algorithm, learner, _ = trained(epochs)
    path = checkpoint.save(tmp_path, epochs, {"epoch": epochs, "own": algorithm.state_dict()})
    expected = [train_on(algorithm, learner, epoch) for epoch in (epochs, epochs + 1)]

    _, again, _ = trained(epochs)  # the learner's own state is its own business
    resumed = CSPOPaper(Config(weight_max=100.0), again, 2, Discount(0.99, 0.95))
    resumed.load_state_dict(checkpoint.load(path)["own"])
    assert [train_on(resumed, again, epoch) for epoch in (epochs, epochs + 1)] == expected
    np.testing.assert_array_equal(again.policy.actor.parameters, learner.policy.actor.parameters)
    np.testing.assert_array_equal(resumed.multiplier, algorithm.multiplier)

    if epochs:  # without the state it would not
        _, forgetful, _ = trained(epochs)
        fresh = CSPOPaper(Config(weight_max=100.0), forgetful, 2, Discount(0.99, 0.95))
        lost = train_on(fresh, forgetful, epochs)
        for name in ("weight_0", "effective_multiplier_0"):
            assert lost[name] != expected[0][name]


def test_a_kept_state_does_not_move_with_the_run() -> None:
    algorithm, learner, _ = trained(1)
    state = algorithm.state_dict()
    before = state["weight"].copy(), state["dual"]["lam"].copy()
    train_on(algorithm, learner, 1)
    np.testing.assert_array_equal((state["weight"], state["dual"]["lam"]), before)


def test_one_alpha_serves_all_constraints_and_several_are_kept_apart() -> None:
    for alpha, each in (((0.5,), [0.5, 0.5]), ((0.1, 0.9), [0.1, 0.9])):
        algorithm, _, batch = prepare(alpha=alpha, multiplier_init=0.0)
        metrics = algorithm.update(batch, D + 2.0, D)
        price = np.array(each) * logged(metrics, "weight") * 2.0
        assert logged(metrics, "effective_multiplier") == pytest.approx(price, rel=1e-12)


def test_settings_say_which_constants_the_paper_does_not_print() -> None:
    silent = {name for name, text in explanations(PaperSettings).items() if "prints none" in text}
    assert silent == {"weight_min", "weight_max", "weight_epsilon", "weight_memory"}
    assert (PaperSettings().multiplier_init, PaperSettings().multiplier_lr) == (0.001, 0.035)


def test_what_cannot_be_computed_is_refused_in_words() -> None:
    with pytest.raises(CspoError, match="1 - gamma"):
        prepare(gamma=1.0)
    with pytest.raises(CspoError, match="--weight-min is above"):
        prepare(weight_min=2.0, weight_max=1.0)
    for wrong in ({"weight_epsilon": 0.0}, {"weight_memory": 1.0}, {"multiplier_init": -1.0}):
        with pytest.raises(CspoError):
            prepare(**wrong)
