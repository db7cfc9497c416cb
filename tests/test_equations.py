"""Every loss and every weight against a second transcription of what the paper defines.

The transcription is in NumPy and float64. The losses are driven through `update` with a learner
that only records them, then evaluated on a real float32 actor at theta_k and away from it.
Gradients are compared with central differences of the NumPy loss over all parameters of the actor.
The derivatives of each loss by its surrogates are compared with differences of the loss itself.

Achieved on x86: surrogate means agree to 1e-7, gradients to 4e-7 (Euclidean norm). The tolerances
leave a factor of ten and more for other processors and for the compiled tanh, which is exact to
5e-7."""

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
    make_learner,
    perturb,
    random_batch,
    reference_log_prob,
    relative_error,
    small_policy,
)

from cspo.algorithms import get_algorithm
from cspo.algorithms.learner import Loss
from cspo.algorithms.registry import BUILT_IN
from cspo.algorithms.surrogates import (
    clip_fraction,
    clipped_cost,
    clipped_reward,
    lagrangian_advantage,
    softplus,
)
from cspo.errors import CspoError
from cspo.optim.objective import SurrogateObjective, derivatives
from cspo.types import Batch, Discount

VALUE, GRADIENT = 1e-6, 1e-5
GAMMA, EPS, ROWS = 0.99, 0.2, 96


def setup(
    algo: str, costs: int = 1, batch: Batch | None = None, seed: int = 0, **settings: Any
) -> tuple[Any, RecordingLearner, Batch]:
    """Return an algorithm, the learner that records its loss, and a batch."""
    policy = small_policy(costs=costs, seed=seed)
    learner = RecordingLearner(policy, ROWS)
    kind = get_algorithm(algo)
    algorithm = kind(kind.Config(**settings), learner, costs, Discount(GAMMA, 0.95))
    return (
        algorithm,
        learner,
        random_batch(policy, ROWS, costs, seed + 1) if batch is None else batch,
    )


def ratios(flat: Array, learner: RecordingLearner, rows: range = range(ROWS)) -> Array:
    """pi_theta(a|s) / pi_k(a|s)."""
    batch, sizes = learner.batch, learner.policy.actor.mlp.sizes
    observation, action, old = (
        float64(x)[rows] for x in (batch.observation, batch.action, batch.log_prob)
    )
    return np.exp(reference_log_prob(flat, sizes, observation, action) - old)


def reward_surrogate(r: Array, A: Array) -> float:
    """L_R = mean min(r A, clip(r, 1 - eps, 1 + eps) A)."""
    return float(
        np.mean([min(x * a, min(max(x, 1 - EPS), 1 + EPS) * a) for x, a in zip(r, A, strict=True)])
    )


def cost_surrogate(r: Array, A: Array) -> float:
    """L_C = mean max(r A, clip(r, 1 - eps, 1 + eps) A)."""
    return float(
        np.mean([max(x * a, min(max(x, 1 - EPS), 1 + EPS) * a) for x, a in zip(r, A, strict=True)])
    )


def surrogate_gradient_norms(learner: RecordingLearner, theta: Array) -> Array:
    """Return the norms (1 + K,) of grad mean(r A) at theta, of reward and costs, by differences."""
    norms = []
    for A in (float64(learner.batch.adv_r), *float64(learner.batch.adv_c).T):
        v = central_differences(lambda flat, A=A: float((ratios(flat, learner) * A).mean()), theta)
        norms.append(np.linalg.norm(v))
    return np.array(norms)


def logged(metrics: dict[str, float], name: str, costs: int) -> Array:
    """Collect a metric that has one value per constraint."""
    keys = [name] if costs == 1 else [f"{name}_{k}" for k in range(costs)]
    return np.array([metrics[key] for key in keys])


# ---------------------------------------------------------------- surrogates


@pytest.mark.parametrize("costs", [1, 3])
def test_surrogates_are_clipped_separately_and_pessimistically(costs: int) -> None:
    algorithm, learner, batch = setup("cspo", costs)
    algorithm.update(batch, LIMITS[costs], LIMITS[costs])
    perturb(learner.policy, 0.15)
    for rows in (range(ROWS), range(5, 42)):
        r = ratios(float64(learner.policy.actor.parameters), learner, rows)
        assert min((r > 1.3).sum(), (r < 0.7).sum()) >= 5, (
            "both sides of the clip have to be exercised"
        )
        A_r, A_c = float64(batch.adv_r)[rows], float64(batch.adv_c)[rows]
        L_R, L_C = learner.surrogates(rows)
        assert pytest.approx(reward_surrogate(r, A_r), abs=VALUE) == L_R
        assert pytest.approx([cost_surrogate(r, A_c[:, k]) for k in range(costs)], abs=VALUE) == L_C


SLOPES = {
    (clipped_reward, 1.0): [(0.5, 1), (0.81, 1), (1.0, 1), (1.19, 1), (1.5, 0)],
    (clipped_reward, -1.0): [(0.5, 0), (0.81, -1), (1.0, -1), (1.5, -1)],
    (clipped_cost, 1.0): [(0.5, 0), (0.81, 1), (1.0, 1), (1.19, 1), (1.5, 1)],
    (clipped_cost, -1.0): [(0.5, -1), (0.81, -1), (1.0, -1), (1.5, 0)],
}


@pytest.mark.parametrize(
    ("kind", "r", "A", "slope"),
    [(kind, r, A, slope) for (kind, A), rows in SLOPES.items() for r, slope in rows],
)
def test_clipping_removes_the_gradient_only_where_it_would_reward_going_further(
    kind: Any, r: float, A: float, slope: float
) -> None:
    policy = small_policy()
    learner, batch = RecordingLearner(policy, 1), random_batch(policy, 1)
    batch = replace(batch, log_prob=batch.log_prob - np.float32(np.log(r)))  # the ratio is r
    learner.fit(batch, Loss(lambda L: L, kind(np.array([A], np.float32)), clip=EPS))
    score = policy.actor.score_gradient(batch.observation, batch.action, np.ones(1, np.float32))
    np.testing.assert_allclose(learner.gradient(), slope * r * float64(score), rtol=2e-6, atol=1e-6)


def test_clip_fraction_counts_samples_without_gradient() -> None:
    r = np.array([0.5, 0.5, 1.0, 1.5, 1.5], np.float32)
    A = np.array([1.0, -1.0, 1.0, 1.0, -1.0], np.float32)
    assert clip_fraction(r, A, EPS) == pytest.approx(2 / 5)  # (0.5, -1) and (1.5, +1)
    assert clip_fraction(r[:4], A[:4], EPS, pessimistic_max=True) == pytest.approx(
        1 / 4
    )  # (0.5, +1)


def test_lagrangian_advantage_is_normalised_by_one_plus_all_multipliers() -> None:
    rng = np.random.default_rng(0)
    A_r, A_c, lam = rng.normal(size=50), rng.normal(size=(50, 3)), np.array([0.2, 0.0, 1.7])
    expected = (A_r - 0.2 * A_c[:, 0] - 1.7 * A_c[:, 2]) / (1.0 + 0.2 + 1.7)
    result = lagrangian_advantage(A_r, A_c, lam)  # float64 in, float64 out
    np.testing.assert_allclose(result, expected, atol=1e-14)


# ---------------------------------------------------------------- CSPO


VIOLATIONS = {1: np.array([8.0]), 3: np.array([8.0, -20.0, 2.5])}
LIMITS = {1: np.array([25.0]), 3: np.array([25.0, 40.0, 5.0])}
ANSWERING = 25.0  # a step size at which the violated limits have a price


def priced(costs: int, **settings: Any) -> tuple[Any, RecordingLearner, Batch, dict[str, float]]:
    """Return CSPO after an update in which it knows how the costs answer to their prices.

    The recording learner does not move, so there is no update to learn a step size from."""
    algorithm, learner, batch = setup("cspo", costs, **settings)
    algorithm.sensitivity.eta = np.full(costs, ANSWERING)
    d, c = LIMITS[costs], VIOLATIONS[costs]
    metrics = algorithm.update(replace(batch, epoch_cost=c + d), c + d, d)
    return algorithm, learner, learner.batch, metrics


@pytest.mark.parametrize("away", [0.0, 0.08], ids=["at theta_k", "away"])
@pytest.mark.parametrize("costs", [1, 3])
def test_cspo_loss_and_gradient(costs: int, away: float) -> None:
    """(-L_R + sum lam L_C) / (1 + sum lam / natural), natural = |grad L_R| / |grad L_C|."""
    algorithm, learner, batch, metrics = priced(costs)
    lam = algorithm.multiplier
    assert (lam > 0.0).tolist() == (VIOLATIONS[costs] > 0.0).tolist()
    norms = surrogate_gradient_norms(learner, float64(learner.policy.actor.parameters))
    natural = norms[0] / norms[1:]
    assert logged(metrics, "price_natural", costs) == pytest.approx(natural, rel=2 * GRADIENT)

    perturb(learner.policy, away)
    theta = float64(learner.policy.actor.parameters)
    if away:
        clipped = np.abs(ratios(theta, learner) - 1.0) > EPS
        assert clipped.mean() > 0.1, "clipping has to be exercised"

    def loss(flat: Array, rows: range) -> float:
        r, A_c = ratios(flat, learner, rows), float64(batch.adv_c)[rows]
        total, divisor = -reward_surrogate(r, float64(batch.adv_r)[rows]), 1.0
        for i in range(costs):
            total += lam[i] * cost_surrogate(r, A_c[:, i])
            divisor += lam[i] / natural[i]
        return total / divisor

    for rows in (range(ROWS), range(5, 42)):  # all, and a minibatch whose A_c is not centred
        differences = central_differences(lambda flat, rows=rows: loss(flat, rows), theta)
        assert relative_error(learner.gradient(rows), differences) < GRADIENT


def test_one_alpha_serves_all_constraints_and_several_are_kept_apart() -> None:
    whole = logged(priced(3, alpha=(1.0,))[3], "price_push", 3)
    assert np.abs(whole).min() > 0.0
    for alpha, each in (((0.5,), [0.5] * 3), ((0.1, 0.2, 0.3), [0.1, 0.2, 0.3])):
        push = logged(priced(3, alpha=alpha)[3], "price_push", 3)
        assert push == pytest.approx(np.array(each) * whole, rel=1e-12)
    with pytest.raises(CspoError, match="alpha"):
        get_algorithm("cspo").Config(alpha=(0.1, 0.2)).validate(3)


def test_cspo_survives_a_limit_of_zero() -> None:
    algorithm, learner, batch = setup("cspo")
    algorithm.sensitivity.eta = np.array([ANSWERING])
    algorithm.update(replace(batch, epoch_cost=np.array([3.0])), np.array([3.0]), np.array([0.0]))
    assert algorithm.multiplier[0] > 0.0
    assert np.isfinite(learner.gradient()).all()


# ---------------------------------------------------------------- PPO-Lag and PPO


@pytest.mark.parametrize("costs", [1, 3])
def test_ppo_lag_clips_the_combined_advantage_with_fresh_multipliers(costs: int) -> None:
    d, c = LIMITS[costs], VIOLATIONS[costs]
    algorithm, learner, batch = setup("ppo-lag", costs, multiplier_init=0.5)
    algorithm.update(batch, c + d, d)
    lam = 0.5 + 0.035 * np.sign(c)  # the first Adam step, taken before the policy update
    assert algorithm.multiplier == pytest.approx(lam, abs=1e-9)
    A = float64(batch.adv_r)
    for k in range(costs):
        A = A - lam[k] * float64(batch.adv_c[:, k])
    A = A / (1.0 + lam.sum())
    perturb(learner.policy, 0.08)
    theta = float64(learner.policy.actor.parameters)
    differences = central_differences(
        lambda flat: -reward_surrogate(ratios(flat, learner), A), theta
    )
    assert relative_error(learner.gradient(), differences) < GRADIENT


def test_ppo_ignores_costs() -> None:
    algorithm, learner, batch = setup("ppo", 3)
    algorithm.update(batch, np.full(3, 1e3), LIMITS[3])
    perturb(learner.policy, 0.08)
    theta, A = float64(learner.policy.actor.parameters), float64(batch.adv_r)
    differences = central_differences(
        lambda flat: -reward_surrogate(ratios(flat, learner), A), theta
    )
    assert relative_error(learner.gradient(), differences) < GRADIENT
    assert algorithm.multiplier.tolist() == [0.0, 0.0, 0.0]


def test_cspo_and_ppo_lag_agree_at_theta_k_up_to_their_divisors() -> None:
    """Clipping differs, separate or combined, but at theta_k nothing is clipped."""
    algorithm, cspo_learner, batch, metrics = priced(1)
    lam, natural = algorithm.multiplier[0], metrics["price_natural"]
    assert lam > 0.1
    lag, lag_learner, _ = setup("ppo-lag", multiplier_init=lam)
    lag.update(batch, LIMITS[1], LIMITS[1])  # at the limit the multiplier stays
    assert lag.multiplier[0] == lam
    factor = (1.0 + lam) / (1.0 + lam / natural)
    assert relative_error(cspo_learner.gradient(), factor * lag_learner.gradient()) < GRADIENT
    perturb(cspo_learner.policy, 0.08)
    perturb(lag_learner.policy, 0.08)
    assert relative_error(cspo_learner.gradient(), factor * lag_learner.gradient()) > 0.01


# ---------------------------------------------------------------- derivatives of a stated loss


class AllLosses(RecordingLearner):
    """Keeps every loss that an update hands over, those of a second stage too."""

    def __init__(self, policy: Any, samples: int) -> None:
        super().__init__(policy, samples)
        self.losses: list[Loss] = []

    def fit(self, batch: Batch, loss: Any) -> Any:
        self.losses.append(loss)
        return super().fit(batch, loss)

    def fit_actor(self, batch: Batch, loss: Any, reference: Any) -> Any:
        self.losses.append(loss)
        return super().fit_actor(batch, loss, reference)


def stated_losses(algo: str, costs: int, **settings: Any) -> list[Loss]:
    """Return the losses of one update, with a third of the limits kept."""
    policy = small_policy(costs=costs)
    learner, batch = AllLosses(policy, ROWS), random_batch(policy, ROWS, costs)
    batch = replace(batch, adv_extra=batch.adv_c[:, ::-1] * 2.0)
    kind = get_algorithm(algo)
    form = getattr(kind, "forms", {}).get(settings.get("form"), kind)
    algorithm = form(kind.Config(**settings), learner, costs, Discount(GAMMA, 0.95))
    if algo == "cspo" and form is kind:
        algorithm.sensitivity.eta = np.full(costs, ANSWERING)  # else its prices are zero
    algorithm.update(batch, LIMITS[costs] + VIOLATIONS[costs], LIMITS[costs])
    return learner.losses


def of_all_means(loss: Loss) -> Any:
    """Return the loss as a function of all its S means in one array."""
    widths = [1 if item.A.ndim == 1 else item.A.shape[1] for item in loss.surrogates]

    def function(means: Any) -> Any:
        parts = np.split(means, np.cumsum(widths)[:-1])
        return loss.function(
            *(
                part[0] if item.A.ndim == 1 else part
                for part, item in zip(parts, loss.surrogates, strict=True)
            )
        )

    return function


# Algorithm, settings, losses per update, spread of the random means, whether they meet a kink.
STATED: dict[str, tuple[str, dict[str, Any], int, float, bool]] = {
    "cspo": ("cspo", {}, 1, 1.0, False),
    "cspo paper": ("cspo", {"form": "paper", "multiplier_init": 0.4}, 1, 0.2, True),
    "ppo": ("ppo", {}, 1, 1.0, False),
    "ppo-lag": ("ppo-lag", {"multiplier_init": 0.5}, 1, 1.0, False),
    "cppo-pid": ("cppo-pid", {}, 1, 1.0, False),
    "appo": ("appo", {"multiplier_init": 0.5}, 1, 1.0, False),
    "p3o": ("p3o", {}, 1, 10.0, True),
    "p3o corrected": ("p3o", {"variant": "corrected"}, 1, 0.2, True),
    "ipo": ("ipo", {}, 1, 1.0, False),
    "focops": ("focops", {}, 1, 1.0, False),
    "focops corrected": ("focops", {"variant": "corrected"}, 1, 1.0, False),
    "cup": ("cup", {"multiplier_init": 0.3}, 2, 1.0, False),
    "epo": ("epo", {}, 1, 10.0, True),
    "epo undivided": ("epo", {"divide": False, "linear_share": 0.2}, 1, 10.0, True),
}


def test_every_first_order_algorithm_is_among_those_whose_derivatives_are_checked() -> None:
    built_in = [get_algorithm(module.replace("_", "-")) for module in BUILT_IN]
    first = {kind for kind in built_in if kind.traits.order == "first"}
    assert {get_algorithm(algo) for algo, *_ in STATED.values()} == first


def differences(function: Any, point: Array, step: float) -> tuple[Array, bool]:
    """Return the slopes by two central differences, extrapolated, and whether a kink is near.

    Where a kink lies within the step, the two differences disagree."""
    wide = central_differences(function, point, step)
    narrow = central_differences(function, point, step / 2.0)
    return (4.0 * narrow - wide) / 3.0, bool(np.abs(wide - narrow).max() > 1e-4)


@pytest.mark.parametrize("costs", [1, 3])
@pytest.mark.parametrize("case", STATED)
def test_derivatives_are_those_of_the_stated_loss(case: str, costs: int) -> None:
    algo, settings, count, spread, kinked = STATED[case]
    losses = stated_losses(algo, costs, **settings)
    assert len(losses) == count
    rng = np.random.default_rng(5)
    for loss in losses:
        objective, function = SurrogateObjective(loss), of_all_means(loss)
        seen, skipped = [], 0
        for _ in range(40):
            means = rng.normal(0.0, spread, len(objective.kinds))
            expected, near_kink = differences(function, means, 1e-3 * spread)
            exact = derivatives(function, means)
            used = objective.weights(means)
            assert used.dtype == np.float32
            np.testing.assert_array_equal(used, exact.astype(np.float32))
            if near_kink:
                skipped += 1
                continue
            np.testing.assert_allclose(exact, expected, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(used, expected, rtol=1e-6, atol=1e-8)
            seen.append(used)
        assert skipped <= 2
        if kinked:
            first_cost = np.array(seen)[:, 1]
            flat = (first_cost == first_cost.min()).sum()
            assert 2 <= flat <= len(seen) - 2, "both sides of the kink have to be exercised"


def test_columns_stand_in_the_order_of_the_surrogates() -> None:
    batch = random_batch(small_policy(costs=3), ROWS, 3)
    parts: list[Any] = []

    def function(L_R: Any, L_C: Any, share: Any) -> Any:
        parts[:] = [np.shape(L_R), np.shape(L_C), np.shape(share)]
        return 2.0 * L_R + (np.array([3.0, 4.0, 5.0]) * L_C).sum() - share

    surrogates = clipped_reward(batch.adv_r), clipped_cost(batch.adv_c), clipped_cost(batch.adv_r)
    objective = SurrogateObjective(Loss(function, *surrogates, clip=EPS))
    assert objective.weights(np.zeros(5)).tolist() == [2.0, 3.0, 4.0, 5.0, -1.0]
    assert parts == [(), (3,), ()]
    columns = np.column_stack([batch.adv_r, batch.adv_c, batch.adv_r])
    np.testing.assert_array_equal(objective.columns, columns)
    minimum, maximum = surrogates[0].kind, surrogates[1].kind
    assert objective.kinds.tolist() == [minimum, maximum, maximum, maximum, maximum]


# A function of an array, its derivatives, and the range of the points.
CLOSED_FORM: dict[str, tuple[Any, Any, tuple[float, float]]] = {
    "linear": (lambda x: 3.0 * x[0] - x[1] / 7.0 + 2.0, lambda x: [3.0, -1.0 / 7.0], (-3.0, 3.0)),
    "polynomial": (
        lambda x: 3.0 * x[0] ** 3 + 2.0 * x[0] * x[1] + x[1] ** 2 - 7.0,
        lambda x: [9.0 * x[0] ** 2 + 2.0 * x[1], 2.0 * x[0] + 2.0 * x[1]],
        (0.1, 3.0),
    ),
    "odd powers of both signs": (
        lambda x: x[0] ** 5 * x[1] ** 2,
        lambda x: [5.0 * x[0] ** 4 * x[1] ** 2, 2.0 * x[0] ** 5 * x[1]],
        (-3.0, 3.0),
    ),
    "scalar product": (
        lambda x: np.array([0.3, 1.7]) @ x + (x * x).sum(),
        lambda x: np.array([0.3, 1.7]) + 2.0 * x,
        (0.0, 3.0),
    ),
    "maximum": (
        lambda x: np.maximum(x, 0.0).sum() + 5.0 * np.maximum(-x[0], 0.0),
        lambda x: [float(x[0] > 0.0) - 5.0 * (x[0] < 0.0), float(x[1] > 0.0)],
        (-3.0, 3.0),
    ),
    "squared hinge": (
        lambda x: (np.maximum(x - 0.3, 0.0) ** 2).sum(),
        lambda x: 2.0 * np.maximum(x - 0.3, 0.0),
        (-3.0, 3.0),
    ),
    "minimum": (
        lambda x: np.minimum(x, 0.5).sum() * 4.0,
        lambda x: 4.0 * (x < 0.5),
        (-3.0, 3.0),
    ),
    "comparison": (
        lambda x: np.where(x > 0.0, x, -2.0 * x).sum(),
        lambda x: np.where(x > 0.0, 1.0, -2.0),
        (-3.0, 3.0),
    ),
    "exponential": (
        lambda x: np.exp(-2.0 * x[0]) + np.exp(x[1]),
        lambda x: [-2.0 * np.exp(-2.0 * x[0]), np.exp(x[1])],
        (-30.0, 30.0),
    ),
    "logarithm": (
        lambda x: x[1] * np.log(x[0]),
        lambda x: [x[1] / x[0], np.log(x[0])],
        (1e-3, 50.0),
    ),
    "division": (
        lambda x: x[0] / x[1],
        lambda x: [1.0 / x[1], -x[0] / x[1] ** 2],
        (0.01, 50.0),
    ),
    "root": (lambda x: np.sqrt(x).sum(), lambda x: 0.5 / np.sqrt(x), (1e-3, 50.0)),
    "softplus": (
        lambda x: softplus(x).sum(),
        lambda x: 1.0 / (1.0 + np.exp(-x)),
        (-300.0, 300.0),
    ),
    "softplus around zero": (
        lambda x: softplus(x[0]) - 3.0 * softplus(x[1]),
        lambda x: np.array([1.0, -3.0]) / (1.0 + np.exp(-x)),
        (-3.0, 3.0),
    ),
}


@pytest.mark.parametrize("name", CLOSED_FORM)
def test_complex_step_gives_closed_forms_to_rounding(name: str) -> None:
    function, expected, (low, high) = CLOSED_FORM[name]
    for point in np.random.default_rng(1).uniform(low, high, (200, 2)):
        with np.errstate(all="raise", under="ignore"):
            result = derivatives(function, point)
        np.testing.assert_allclose(result, expected(point), rtol=1e-14, atol=0.0)


def test_derivative_of_softplus_at_zero_is_one_half() -> None:
    """Where the two branches of its stable form meet there is no kink."""
    for value in (-1e-12, 0.0, -0.0, 1e-12):
        result = derivatives(lambda x: softplus(x[0]), np.array([value]))
        assert result[0] == pytest.approx(0.5, rel=1e-11)
    assert softplus(0.0) == pytest.approx(np.log(2.0), rel=1e-15)


def test_derivatives_leave_the_point_alone() -> None:
    point = np.array([0.5, -2.0])
    derivatives(lambda x: x.prod(), point)
    assert point.dtype == np.float64 and point.tolist() == [0.5, -2.0]


LOST: dict[str, Any] = {
    "float()": lambda L_R, L_C: float(-L_R + L_C.sum()),
    "real part": lambda L_R, L_C: float((-L_R + L_C.sum()).real),
    "np.abs": lambda L_R, L_C: np.abs(-L_R + L_C.sum()),
    "abs()": lambda L_R, L_C: abs(-L_R + L_C.sum()),
    "norm": lambda L_R, L_C: np.linalg.norm(L_C),
    "a number": lambda L_R, L_C: 1.0,
}
NOT_SUMMED: dict[str, Any] = {
    "one per constraint": lambda L_R, L_C: -L_R + 0.3 * L_C,
    "one in an array": lambda L_R, L_C: (-L_R + L_C.sum()).reshape(1),
    "real and an array": lambda L_R, L_C: np.abs(L_C),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("costs", [1, 2])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        *(
            pytest.param(function, "lost its derivative", id=name)
            for name, function in LOST.items()
        ),
        *(pytest.param(function, "shape", id=name) for name, function in NOT_SUMMED.items()),
    ],
)
def test_a_loss_without_a_derivative_or_with_a_shape_is_refused_in_words(
    function: Any, words: str, costs: int
) -> None:
    policy = small_policy(costs=costs)
    batch = random_batch(policy, ROWS, costs)
    start = policy.actor.parameters.copy()
    loss = Loss(function, clipped_reward(batch.adv_r), clipped_cost(batch.adv_c), clip=EPS)
    with pytest.raises(CspoError, match=words):
        SurrogateObjective(loss).weights(np.full(1 + costs, 0.1))
    with pytest.raises(CspoError, match=words):
        make_learner(policy, minibatch_size=ROWS).fit(batch, loss)
    np.testing.assert_array_equal(policy.actor.parameters, start)


@pytest.mark.parametrize("part", [np.abs, np.real, lambda x: np.abs(x - 0.2) ** 2])
def test_a_derivative_that_a_part_of_the_loss_lost_is_noticed_away_from_kinks(part: Any) -> None:
    batch = random_batch(small_policy(costs=2), ROWS, 2)
    surrogates = clipped_reward(batch.adv_r), clipped_cost(batch.adv_c)
    objective = SurrogateObjective(Loss(lambda L_R, L_C: -L_R + part(L_C).sum(), *surrogates))
    with pytest.raises(CspoError, match="lost its derivative"):
        for means in (np.zeros(3), np.array([0.1, 0.3, -0.4])):  # the first may be at a kink
            objective.weights(means)
