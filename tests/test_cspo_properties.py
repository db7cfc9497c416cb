"""What the paper proves about CSPO, checked on real policies.

The gradient of CSPO's loss comes from the library, in float32; everything it is compared with is
computed here in float64 from the definitions. Achieved relative errors are below 1e-6; 1e-5 is
allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import (
    Array,
    RecordingLearner,
    central_differences,
    float64,
    perturb,
    random_batch,
    reference_log_prob,
    relative_error,
    small_policy,
)

from cspo.algorithms import get_algorithm
from cspo.types import Batch, Discount

GAMMA, EPS, ROWS, D = 0.99, 0.2, 200, np.array([25.0])
TOLERANCE = 1e-5
FREE = {
    "weight_min": 1e-9,
    "weight_max": 1e9,
    "weight_epsilon": 1e-12,
    "weight_memory": 0.0,
    "divide": False,
}


def prepare(
    seed: int = 0, batch: Batch | None = None, **settings: Any
) -> tuple[Any, RecordingLearner, Batch]:
    """Return CSPO on a small policy, with a learner that gives gradients instead of steps."""
    policy = small_policy(seed=seed)
    learner = RecordingLearner(policy, ROWS)
    kind = get_algorithm("cspo")
    algorithm = kind(kind.Config(**settings), learner, 1, Discount(GAMMA, 0.95))
    return algorithm, learner, random_batch(policy, ROWS, seed=seed + 1) if batch is None else batch


def gradient(
    J_c: float, away: float = 0.0, seed: int = 0, batch: Batch | None = None, **settings: Any
) -> Array:
    """Return the gradient of CSPO's loss for an episode cost J_c, at a distance from theta_k."""
    algorithm, learner, data = prepare(seed, batch, **settings)
    algorithm.update(data, np.array([J_c]), D)
    perturb(learner.policy, away, seed + 100)
    return learner.gradient()


def surrogate(flat: Array, learner: RecordingLearner, batch: Batch) -> float:
    """L_C(theta) in float64."""
    sizes = learner.policy.actor.mlp.sizes
    log_prob = reference_log_prob(flat, sizes, float64(batch.observation), float64(batch.action))
    r, A = np.exp(log_prob - float64(batch.log_prob)), float64(batch.adv_c[:, 0])
    return float(np.maximum(r * A, np.clip(r, 1 - EPS, 1 + EPS) * A).mean())


def reward(flat: Array, learner: RecordingLearner, batch: Batch) -> float:
    """L_R(theta) in float64."""
    sizes = learner.policy.actor.mlp.sizes
    log_prob = reference_log_prob(flat, sizes, float64(batch.observation), float64(batch.action))
    r, A = np.exp(log_prob - float64(batch.log_prob)), float64(batch.adv_r)
    return float(np.minimum(r * A, np.clip(r, 1 - EPS, 1 + EPS) * A).mean())


# ---------------------------------------------------------------- Proposition: same KKT points


@pytest.mark.parametrize("divide", [True, False])
@pytest.mark.parametrize("form", ["predictive", "direct", "scaled", "literal"])
@pytest.mark.parametrize("seed", range(4))
def test_penalty_and_its_gradient_vanish_where_the_surrogate_is_feasible(
    seed: int, form: Any, divide: bool
) -> None:
    """With g(theta) <= 0 the gradient is the Lagrangian's, to the last bit: the same KKT points."""
    # Just inside the limit at theta_k (by more than the rounding error of L_C), and further in
    # around it.
    for J_c, away in ((D[0] - 1e-3, 0.0), (D[0] - 20.0, 0.02), (D[0] - 20.0, 0.1)):
        settings = {"form": form, "divide": divide, "multiplier_init": 0.6, "weight_max": 1e9}
        with_penalty = gradient(J_c, away, seed, alpha=(0.85,), **settings)
        lagrangian = gradient(J_c, away, seed, alpha=(0.0,), **settings)
        np.testing.assert_array_equal(with_penalty, lagrangian)
    violated = gradient(D[0] + 1.0, 0.0, seed, alpha=(0.85,), **settings)
    assert (
        relative_error(violated, gradient(D[0] + 1.0, 0.0, seed, alpha=(0.0,), **settings)) > 0.01
    )


def test_a_violated_epoch_stops_being_penalised_once_the_surrogate_is_feasible_again() -> None:
    """J_c > d at theta_k, but g <= 0 after a step down the cost: only the Lagrangian is left."""
    results = []
    for alpha in (0.85, 0.0):
        algorithm, learner, batch = prepare(
            alpha=(alpha,), form="literal", multiplier_init=0.6, divide=False
        )
        metrics = algorithm.update(batch, D + 0.5, D)
        if alpha:
            assert metrics["effective_multiplier"] > 0.6 / (1 - GAMMA)
        descent = learner.policy.actor.score_gradient(
            batch.observation, batch.action, batch.adv_c[:, 0]
        )
        learner.policy.actor.parameters -= 0.1 * descent
        g = 0.5 + surrogate(float64(learner.policy.actor.parameters), learner, batch) / (1 - GAMMA)
        assert g < 0.0
        results.append(learner.gradient())
    np.testing.assert_array_equal(*results)


# ---------------------------------------------------------------- value and gradient from
# independent samples


def minibatch_gradients(choice: str, count: int) -> tuple[Array, Array, Array]:
    """Return penalty gradients of minibatches at the limit, the hinges, and each grad L_C."""
    free = {
        "form": "predictive",
        "divide": False,
        "weight_min": 5.0,
        "weight_max": 5.0,
        "multiplier_init": 0.0,
    }
    rng = np.random.default_rng(3)
    rows = [rng.choice(ROWS, 20, replace=False) for _ in range(count)]
    results = []
    for alpha in (1.0, 0.0):
        algorithm, learner, batch = prepare(hinge_minibatch=choice, alpha=(alpha,), **free)
        algorithm.update(batch, D, D)
        results.append(np.array([learner.gradient(chosen) for chosen in rows]))
    A = float64(batch.adv_c[:, 0])
    hinges = np.array(
        [max(A[chosen].mean(), 0.0) / (1 - GAMMA) for chosen in rows]
    )  # r = 1 at theta_k
    actor = learner.policy.actor
    slopes = [
        float64(
            actor.score_gradient(
                batch.observation[chosen], batch.action[chosen], batch.adv_c[chosen, 0]
            )
        )
        for chosen in rows
    ]
    return (results[0] - results[1]) / 5.0, hinges, np.array(slopes)


def test_hinge_takes_its_value_from_the_chosen_minibatch() -> None:
    for choice in ("same", "previous"):
        penalties, hinges, slopes = minibatch_gradients(choice, 6)
        values = hinges if choice == "same" else np.concatenate([[0.0], hinges[:-1]])
        for penalty, value, slope in zip(penalties, values, slopes, strict=True):
            np.testing.assert_allclose(
                penalty, value * slope, atol=2e-5 * max(value, 1.0) * np.linalg.norm(slope)
            )


def test_only_independent_minibatches_give_the_mean_penalty_the_direction_of_the_constraint() -> (
    None
):
    """Mean of [g]_+ grad g over 3000 minibatches beside the product of means: scatter or a bias."""
    distance = {}
    for choice in ("same", "previous"):
        penalties, hinges, slopes = minibatch_gradients(choice, 3000)
        error = penalties.mean(0) - hinges.mean() * slopes.mean(0)
        distance[choice] = np.linalg.norm(error) / np.sqrt(
            (penalties.var(0) / len(penalties)).sum()
        )
    assert distance["previous"] < 2.0, "within the scatter of a mean over so many minibatches"
    assert distance["same"] > 5.0


# ---------------------------------------------------------------- the shortest step back


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("form", ["direct", "scaled"])
@pytest.mark.parametrize("seed", range(3))
def test_penalty_gradient_is_the_shortest_step_to_the_linearised_boundary(
    seed: int, form: Any, alpha: float
) -> None:
    """min |step|^2 subject to g + grad g . step = (1 - alpha) g, solved as a least-norm problem."""
    c = 7.0
    settings: dict[str, Any] = {**FREE, "form": form}
    penalised = gradient(D[0] + c, seed=seed, alpha=(alpha,), **settings)
    penalty = penalised - gradient(D[0] + c, seed=seed, alpha=(0.0,), **settings)

    _, learner, batch = prepare(seed)
    theta_k = float64(learner.policy.actor.parameters)
    grad_g = central_differences(lambda flat: surrogate(flat, learner, batch), theta_k)
    g = c if form == "direct" else (1 - GAMMA) * c
    shortest, *_ = np.linalg.lstsq(grad_g[None], np.array([-alpha * g]), rcond=None)
    assert relative_error(penalty, -shortest) < TOLERANCE
    # And in closed form: -alpha g grad g / |grad g|^2, of length alpha g / |grad g|.
    assert relative_error(penalty, alpha * g * grad_g / (grad_g @ grad_g)) < TOLERANCE
    assert np.linalg.norm(penalty) == pytest.approx(
        alpha * g / np.linalg.norm(grad_g), rel=TOLERANCE
    )


@pytest.mark.parametrize(("form", "powers"), [("predictive", 1), ("literal", 2)])
def test_penalty_with_the_printed_surrogate_is_the_shortest_step_times_powers_of_the_horizon(
    form: str, powers: int
) -> None:
    """The printed equations mix units: g carries 1 / (1 - gamma), the weight does not."""
    settings: dict[str, Any] = {**FREE, "form": form}
    penalty = gradient(D[0] + 7.0, alpha=(0.5,), **settings) - gradient(
        D[0] + 7.0, alpha=(0.0,), **settings
    )
    _, learner, batch = prepare()
    theta_k = float64(learner.policy.actor.parameters)
    grad_L_C = central_differences(lambda flat: surrogate(flat, learner, batch), theta_k)
    grad_g = grad_L_C / (1 - GAMMA)
    shortest = 0.5 * 7.0 * grad_g / (grad_g @ grad_g)
    assert relative_error(penalty, shortest / (1 - GAMMA) ** powers) < TOLERANCE


@pytest.mark.parametrize("away", [0.0, 0.05])
@pytest.mark.parametrize("factor", [0.01, 30.0])
def test_scaled_penalty_does_not_depend_on_the_unit_of_cost(factor: float, away: float) -> None:
    """Costs in cents, not euros: A_c and J_c - d grow together, the penalty's gradient stays."""
    _, _, batch = prepare()
    in_cents = replace(batch, adv_c=batch.adv_c * factor)
    parts = []
    for data, c in ((batch, 7.0), (in_cents, 7.0 * factor)):
        both = [
            gradient(
                D[0] + c,
                away,
                batch=data,
                alpha=(alpha,),
                multiplier_init=0.0,
                **(FREE | {"form": "scaled"}),
            )
            for alpha in (0.6, 0.0)
        ]
        parts.append(both[0] - both[1])
    assert relative_error(parts[1], parts[0]) < 2 * TOLERANCE
    assert np.linalg.norm(parts[0]) > 0.01


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_flat_constraints_are_corrected_more_strongly_than_steep_ones(factor: float) -> None:
    """In the direct form the same violation asks for a step inversely proportional to the slope."""
    _, _, batch = prepare()
    steeper = replace(batch, adv_c=batch.adv_c * factor)
    sizes = []
    for data in (batch, steeper):
        pair = [
            gradient(D[0] + 7.0, batch=data, alpha=(a,), multiplier_init=0.0, **FREE)
            for a in (0.6, 0.0)
        ]
        sizes.append(np.linalg.norm(pair[0] - pair[1]))
    assert sizes[1] / sizes[0] == pytest.approx(1.0 / factor, rel=2 * TOLERANCE)


# ---------------------------------------------------------------- Proposition: local decrease


def one_step(
    c: float, lam: float, eta: float, batch: Batch | None, alpha: float = 0.5
) -> dict[str, float]:
    """Take one plain gradient step on CSPO's undivided loss and measure g in float64."""
    algorithm, learner, data = prepare(batch=batch, alpha=(alpha,), multiplier_init=lam, **FREE)
    w = algorithm.update(data, D + c, D)["weight"]
    actor = learner.policy.actor
    theta = float64(actor.parameters)
    actor.parameters -= (eta * learner.gradient()).astype(np.float32)
    grad_g = central_differences(lambda flat: surrogate(flat, learner, data), theta)
    grad_R = central_differences(lambda flat: reward(flat, learner, data), theta)
    return {
        "before": c + surrogate(theta, learner, data),
        "after": c + surrogate(float64(actor.parameters), learner, data),
        "gain": alpha * w * c * float(grad_g @ grad_g),  # alpha w g |grad g|^2
        "delta": float(
            np.linalg.norm(grad_R) * np.linalg.norm(grad_g)
        ),  # G_R G_g, the tightest bounds
        "inner": float(grad_R @ grad_g),
        "dual": lam * float(grad_g @ grad_g),
    }


def conflicting() -> Batch:
    """A batch on which reward and cost want opposite things: the worst case of the proposition."""
    _, _, batch = prepare()
    A_c = batch.adv_c[:, 0]
    return replace(batch, adv_r=A_c / A_c.std())


@pytest.mark.parametrize("lam", [0.0, 0.4])
@pytest.mark.parametrize("conflict", [True, False])
def test_one_small_step_decreases_the_constraint_as_much_as_the_paper_says(
    conflict: bool, lam: float
) -> None:
    """g_new <= g - eta (alpha w g |grad g|^2 - delta) + O(eta^2)."""
    remainders = []
    for eta in (4e-3, 2e-3, 1e-3):
        step = one_step(3.0, lam, eta, conflicting() if conflict else None)
        bound = step["before"] - eta * (step["gain"] - step["delta"])
        first_order = step["before"] + eta * (step["inner"] - step["dual"] - step["gain"])
        assert first_order <= bound + 1e-9
        remainders.append((step["after"] - first_order) / eta**2)
        assert step["after"] <= bound + abs(remainders[0]) * 1.5 * eta**2
        assert step["after"] < step["before"]
    # What is left is of second order: divided by eta^2 it tends to a constant.
    assert remainders[2] == pytest.approx(remainders[1], rel=0.2, abs=0.05)


@pytest.mark.parametrize(("share", "sign"), [(1.1, -1), (0.9, 1)])
def test_the_condition_for_decrease_is_sharp_where_reward_and_cost_conflict(
    share: float, sign: int
) -> None:
    """Just above g = delta / (alpha w |grad g|^2) the constraint falls, just below it rises."""
    batch = conflicting()
    probe = one_step(1.0, 0.0, 1e-3, batch)
    assert probe["inner"] == pytest.approx(probe["delta"], rel=1e-5), (
        "the gradients have to be parallel"
    )
    threshold = probe["delta"] / probe["gain"]  # gain is alpha w |grad g|^2 for g = 1
    step = one_step(share * threshold, 0.0, 1e-3, batch)
    assert np.sign(step["after"] - step["before"]) == sign


def test_a_larger_alpha_decreases_the_constraint_from_smaller_violations_on() -> None:
    batch = conflicting()
    thresholds = {}
    for alpha in (0.2, 0.4, 0.8):
        probe = one_step(1.0, 0.0, 1e-3, batch, alpha)
        thresholds[alpha] = probe["delta"] / probe["gain"]
    assert thresholds[0.2] == pytest.approx(2 * thresholds[0.4], rel=1e-6)
    assert thresholds[0.4] == pytest.approx(2 * thresholds[0.8], rel=1e-6)
    c = 1.5 * thresholds[0.8]  # enough for 0.8, too little for 0.4
    assert one_step(c, 0.0, 1e-3, batch, 0.8)["after"] < c
    assert one_step(c, 0.0, 1e-3, batch, 0.4)["after"] > c
