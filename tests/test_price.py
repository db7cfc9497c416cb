"""The price of CSPO's default form: its equations, its optima, its units, its memory.

Equations are compared with `price_helpers.WrittenPrice`, an independent transcription in float64
whose gradients are differences of log-densities. Closed loops run on problems whose optimum is
known. Where an outcome is random, the comment beside the tolerance gives the range seen over other
seeds.
"""

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
from price_helpers import (
    LinearPlant,
    Scaled,
    TwoActions,
    WrittenPrice,
    late,
    price_of,
    probe_trainer,
    quadratic,
    settle,
)
from probe_envs import Probe, RandomWalk

from cspo.algorithms.forecast import BOUNDS, LIMIT
from cspo.algorithms.sensitivity import Sensitivity
from cspo.algorithms.surrogates import clipped_cost, clipped_reward
from cspo.runs import checkpoint
from cspo.types import Batch

pytestmark = pytest.mark.usefixtures("no_runtime_warnings")
ROWS, ENVS, H = 240, 6, 40.0


# ---------------------------------------------------------------- the equations, transcribed


def epoch_of(policy: Any, K: int, epoch: int, cost: Array, live: Any) -> Batch:
    """Return an epoch whose advantages depend on the action, so that gradients have a signal."""
    batch = random_batch(policy, ROWS, K, seed=10 + epoch)
    z, noise = float64(batch.action) - float64(batch.output), np.random.default_rng(20 + epoch)
    A_r = z[:, 0] + 0.4 * z[:, 1] + 0.5 * noise.standard_normal(ROWS)
    A_c = np.column_stack([0.8 * z[:, 0] - 0.2 * z[:, 1], 0.3 * z[:, 0] + 0.6 * z[:, 1]])[:, :K]
    A_c = (A_c + 0.5 * noise.standard_normal((ROWS, K))) * np.where(
        live, 1.0, 0.1
    )  # the critic's noise
    return replace(
        batch,
        adv_r=((A_r - A_r.mean()) / A_r.std()).astype(np.float32),
        adv_c=(A_c - A_c.mean(0)).astype(np.float32),
        any_cost=np.array(live),
        epoch_cost=cost,
        cost_error=np.array([2.0, 1.0])[:K],
        episode_length=H,
        num_envs=ENVS,
    )


def log_density(flat: Array, policy: Any, batch: Batch) -> Array:
    x, action = float64(batch.observation), float64(batch.action)
    return reference_log_prob(flat, policy.actor.mlp.sizes, x, action)


def half_gradients(policy: Any, batch: Batch) -> list[Array]:
    """Return the gradients (1 + K, P) on even and on odd environments, by differences."""
    A = np.column_stack([float64(batch.adv_r), float64(batch.adv_c)])
    theta, env = float64(policy.actor.parameters), np.arange(ROWS) % ENVS

    def gradient(rows: Any, k: int) -> Array:
        return central_differences(
            lambda flat: float((A[rows, k] * log_density(flat, policy, batch)[rows]).mean()), theta
        )

    return [np.array([gradient(env % 2 == h, k) for k in range(A.shape[1])]) for h in (0, 1)]


# Epoch costs that pass the limits of 25 and 4 in both directions; what is live in each epoch. The
# second constraint has its first cost in the second epoch, and none in the fourth.
COSTS = np.array([[30.0, 0.0], [34.0, 6.0], [27.0, 5.0], [23.0, 0.0], [24.0, 3.0]])
LIVE = COSTS > 0.0
LIMITS = np.array([25.0, 4.0])


@pytest.mark.parametrize("alpha", [(1.0,), (0.6,)])
@pytest.mark.parametrize("K", [1, 2])
def test_update_follows_the_equations_over_several_epochs(K: int, alpha: Any) -> None:
    """From float32 gradients: errors below 1e-6 with one limit, 9e-5 with two; 5e-4 is allowed."""
    policy = small_policy(costs=K)
    learner = make_learner(policy, minibatch_size=80, passes=3, actor_lr=3e-3, target_kl=1e9)
    algorithm = price_of(learner, K, alpha=alpha, patience=20.0)
    written = WrittenPrice(K, alpha * K, 20.0)
    stated: list[Any] = []
    fit = learner.fit
    learner.fit = lambda batch, loss: stated.append(loss) or fit(batch, loss)  # type: ignore
    d, prices = LIMITS[:K], []
    for epoch, (cost, live) in enumerate(zip(COSTS[:, :K], LIVE[:, :K], strict=True)):
        batch = epoch_of(policy, K, epoch, cost, live)
        theta = float64(policy.actor.parameters)
        gradients = half_gradients(policy, batch)
        expected = written.before(*gradients, cost, batch.cost_error, d, H, live)
        report = algorithm.update(batch, cost, d)

        ratio = np.exp(
            log_density(float64(policy.actor.parameters), policy, batch)
            - log_density(theta, policy, batch)
        )
        A = np.column_stack([float64(batch.adv_r), float64(batch.adv_c)])
        written.after(((ratio - 1.0)[:, None] * A).mean(0), expected["lam"])

        names = {"price_rho": "rho", "price_delta": "delta", "price_push": "push", "gain": "gain"}
        names |= {"price_natural": "natural", "sensitivity": "S"}
        for name, key in names.items():
            ours = [report[name if K == 1 else f"{name}_{k}"] for k in range(K)]
            np.testing.assert_allclose(ours, expected[key], rtol=5e-4, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(algorithm.multiplier, expected["lam"], rtol=5e-4, atol=1e-6)
        np.testing.assert_allclose(algorithm.forecast.J, expected["J"], rtol=5e-4, atol=1e-6)
        np.testing.assert_array_equal(algorithm.patience.held, written.held)
        prices.append(expected["lam"])

        # The loss, by its values: -L_R + lam L_C over 1 + lam / natural, of clipped surrogates.
        L_R, L_C = 0.3, np.array([0.7, -0.2])[:K]
        lam, natural = expected["lam"], expected["natural"]
        value = (-L_R + lam @ L_C) / (1.0 + (lam / natural).sum())
        assert stated[-1].function(L_R, L_C) == pytest.approx(value, rel=5e-4)
        kinds = [item.kind for item in stated[-1].surrogates]
        assert kinds == [clipped_reward(A).kind, clipped_cost(A).kind]
    prices = np.array(prices)
    assert (prices[0] == 0.0).all(), "nothing is known before the first update"
    assert (prices[1:3, 0] > 0.0).all() and (K == 1 or prices[2, 1] > 0.0)
    assert K == 1 or prices[3, 1] == 0.0, "an epoch without any cost has no price"


@pytest.mark.parametrize("K", [1, 2])
def test_gradient_of_the_loss_is_that_of_the_transcribed_loss(K: int) -> None:
    """At a distance from theta_k, where some samples are clipped: by differences."""
    policy = small_policy(costs=K)
    mover = make_learner(policy, minibatch_size=80, passes=3, actor_lr=3e-3, target_kl=1e9)
    moved = price_of(mover, K)
    for epoch in range(2):
        batch = epoch_of(policy, K, epoch, COSTS[1, :K], LIVE[1, :K])
        moved.update(batch, COSTS[1, :K], LIMITS[:K])
    recorder = RecordingLearner(policy, ROWS)
    algorithm = price_of(recorder, K)
    algorithm.load_state_dict(moved.state_dict())
    batch = epoch_of(policy, K, 2, COSTS[2, :K], LIVE[2, :K])
    report = algorithm.update(batch, COSTS[2, :K], LIMITS[:K])
    lam = algorithm.multiplier
    natural = [report["price_natural" if K == 1 else f"price_natural_{k}"] for k in range(K)]
    assert (lam > 0.1).all()
    perturb(policy, 0.05)
    start, A_r, A_c = float64(batch.log_prob), float64(batch.adv_r), float64(batch.adv_c)

    def loss(flat: Array) -> float:
        r = np.exp(log_density(flat, policy, batch) - start)
        clipped = np.clip(r, 0.8, 1.2)
        L_R = np.minimum(r * A_r, clipped * A_r).mean()
        L_C = np.maximum(r[:, None] * A_c, clipped[:, None] * A_c).mean(0)
        return float((-L_R + lam @ L_C) / (1.0 + (lam / np.array(natural)).sum()))

    expected = central_differences(loss, float64(policy.actor.parameters))
    assert relative_error(recorder.gradient(), expected) < 1e-4


# ---------------------------------------------------------------- KKT points


def test_multiplier_of_gradients_without_noise_is_the_kkt_multiplier() -> None:
    """a = sum_i lam_i b_i: the least-squares prices are lam, in whatever directions b_i point."""
    rng = np.random.default_rng(0)
    for lam in ([1.7], [0.4, 2.5], [1.0, 0.0], [0.3, 0.8, 1.1]):
        b = rng.standard_normal((len(lam), 12)) * np.array([[3.0], [0.2], [1.0]])[: len(lam)]
        sense = settle(Sensitivity(len(lam)), [np.array(lam) @ b, *b])
        np.testing.assert_allclose(sense.rho, lam, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(sense.bb, b @ b.T, rtol=1e-6)


def test_opposed_gradients_cost_nothing_and_a_price_never_exceeds_the_natural_one() -> None:
    b = np.array([1.0, 2.0])
    assert settle(Sensitivity(1), [-b, b]).rho == 0.0
    skew = settle(Sensitivity(1), [[3.0, 1.0], b])
    assert skew.natural == pytest.approx(np.sqrt(10.0 / 5.0))
    assert skew.rho == pytest.approx(5.0 / 5.0, rel=1e-6)
    # Two costs that nearly cancel would need endless prices to make up the reward's gradient.
    near = settle(Sensitivity(2), [[1.0, 0.0], [0.1, 1.0], [0.1, -1.0]])
    assert (near.rho <= near.natural).all()


def test_price_of_a_cost_at_its_limit_is_the_kkt_multiplier() -> None:
    """J = d, delta = 0, a = sum_i lam_i b_i: after the averages have settled the price is lam."""
    for lam in ([1.3], [0.9, 0.6]):
        b = np.array([[1.0, 0.5, 0.0], [0.4, -1.0, 0.7]])[: len(lam)]
        gradients, J = np.array([np.array(lam) @ b, *b]), np.full(len(lam), LIMIT)
        plant = LinearPlant(np.zeros(3), lambda _, g=gradients: g, lambda _, J=J: J / 10.0)
        algorithm = price_of(plant, len(lam))
        plant.train(algorithm, J, 60)
        np.testing.assert_allclose(algorithm.multiplier, lam, rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
@pytest.mark.parametrize(
    ("target", "B", "d"),
    [
        ([3.0, 1.0, 0.0], [[1.0, 0.5, 0.0]], [LIMIT]),
        ([6.0, 4.0, 1.0], [[1.0, 0.2, 0.0], [0.6, 1.0, 0.0]], [LIMIT, 30.0]),
        ([6.0, 4.0, 1.0], [[1.0, 0.2, 0.0], [-0.6, 1.0, 0.0]], [LIMIT, 300.0]),
        ([6.0, 4.0, 1.0], [[1.0, 0.2, 0.0], [0.6, 1.0, 0.0]], [0.3, 0.5]),
    ],
    ids=["one", "two, coupled", "two, one of them far away", "two, far from the start"],
)
def test_closed_loop_ends_at_the_constrained_optimum(
    target: Any, B: Any, d: Any, alpha: float
) -> None:
    """Maximise -|theta - target|^2 / 2 with linear costs: a projection, known in closed form."""
    plant, optimum = quadratic(target, B, constant=1.0)
    theta, lam = optimum(d)
    algorithm = price_of(plant, len(d), alpha=(alpha,))
    reports = plant.train(algorithm, d, 400)
    np.testing.assert_allclose(plant.theta, theta, rtol=1e-3, atol=1e-3)
    # A price is per unit of cost, in which the limit is 25.
    np.testing.assert_allclose(reports[-1]["lam"] / plant.unit, lam, rtol=1e-3, atol=1e-6)
    late, binds = np.array([report["J"] for report in reports[-50:]]), lam > 0.0
    np.testing.assert_allclose(late[:, binds] / np.array(d)[binds], 1.0, rtol=1e-3)
    prices = np.array([report["lam"] for report in reports[50:]])
    assert (prices[:, ~binds] == 0.0).all(), "a limit that does not bind costs nothing"


# A slope of the reward is divided by the standard deviation of its advantage: noise 1, summed by
# GAE to 1 / sqrt(1 - (0.9 * 0.95)^2).
STANDARDISED = np.sqrt(1.0 - (0.9 * 0.95) ** 2)


def test_training_settles_at_the_limit_and_its_price() -> None:
    """A limit of 40 asks for a = -0.2, where the reward's slope is 1.8 and the cost's 1."""
    reports = list(probe_trainer(Scaled, 40.0, 90, margin="off"))
    assert late(reports, "cost") == pytest.approx(40.0, abs=0.6)  # 39.97 to 40.18 over four seeds
    right = 1.8 * STANDARDISED * 40.0 / LIMIT  # 1.49
    assert late(reports, "multiplier") == pytest.approx(right, rel=0.25)  # 1.36 to 1.53


def test_training_settles_at_two_coupled_limits_and_their_prices() -> None:
    """a = (-0.2, 0.4): slopes (1.8, 0.6) of the reward are 1.2 (1, 0) + 0.6 (1, 1)."""
    reports = list(probe_trainer(TwoActions, (40.0, 110.0), 120, margin="off"))
    # Over four seeds 39.92 to 40.09 and 109.8 to 110.0; prices 0.90 to 1.09 and 1.15 to 1.86.
    assert late(reports, "cost") == pytest.approx([40.0, 110.0], abs=0.8)
    right = np.array([1.2 * 40.0, 0.6 * 110.0]) / LIMIT * STANDARDISED  # 1.00 and 1.37
    assert late(reports, "multiplier") == pytest.approx(right, rel=0.45)


# ---------------------------------------------------------------- units


class ScaledWalk(RandomWalk):
    """Two costs in other units; episodes that terminate, and some that the epoch's end cuts."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def step(self, action: Any) -> Any:
        *others, info = super().step(action)
        return *others, {"cost": tuple(self.factor * cost for cost in info["cost"])}


class LateCost(Probe):
    """Costs occur only late in long episodes, none of which ends within the first epochs."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(10**9, "truncated")
        self.factor = factor

    def step(self, action: Any) -> Any:
        self.steps += 1
        a, ended = float(action[0]), self.steps < 15 and self.np_random.random() < 0.07
        reward, cost = a + float(self.np_random.normal()), self.factor * (1.0 + a)
        timed_out = self.steps == 60
        return np.ones(1), reward, bool(ended), timed_out, {"cost": cost * (self.steps > 40)}


def in_unit(env: Any, limit: Any, factor: float, epochs: int, **settings: Any) -> tuple[Any, Any]:
    """Return a trained run with costs and limits times a factor, and its reports."""
    limits = tuple(factor * d for d in np.atleast_1d(limit))
    run = probe_trainer(lambda: env(factor), limits, epochs, **settings)
    return run, list(run)


@pytest.mark.parametrize(
    ("env", "limit", "settings"),
    [
        (Scaled, 40.0, {}),
        (Scaled, 40.0, {"margin": "off", "alpha": 0.3}),
        (Scaled, 0.0, {}),
        (ScaledWalk, (2.0, 3.0), {}),
        (ScaledWalk, (2.0, 3.0), {"metric": "fisher", "entropy_coefficient": 0.0}),
        (LateCost, 3.0, {}),
        (LateCost, 0.0, {}),
    ],
    ids=["margin", "no margin", "limit 0", "two", "fisher", "unfinished", "unfinished, limit 0"],
)
def test_unit_of_cost_changes_no_bit_of_the_training(env: Any, limit: Any, settings: Any) -> None:
    """Powers of two are exact in floating point: everything trained must be the same."""
    (run, reports), hashes = in_unit(env, limit, 1.0, 6, **settings), set()
    for factor in (2.0**-7, 2.0**10):
        other, others = in_unit(env, limit, factor, 6, **settings)
        hashes.add(other.parameter_hash())
        for ours, theirs in zip(reports, others, strict=True):
            np.testing.assert_array_equal(np.array(theirs.cost) / factor, ours.cost)
            assert theirs.multiplier == ours.multiplier and theirs.kl == ours.kl
            same = {key: ours.metrics[key] for key in ours.metrics if not in_costs(key)}
            assert {key: theirs.metrics[key] for key in same} == same
            for key in ours.metrics.keys() - same.keys():
                assert theirs.metrics[key] == ours.metrics[key] * factor, key
    assert hashes == {run.parameter_hash()}


def in_costs(name: str) -> bool:
    """Whether a reported number is in the cost's own unit."""
    return name.startswith(("cost_epoch", "cost_level", "cost_predicted", "margin"))


def test_any_other_unit_changes_training_no_more_than_rounding_does() -> None:
    """Factors that are not powers of two round in float64, before advantages become float32.

    Of these errors of 1e-16 few reach a float32: over 20 epochs, two seeds and eight factors no
    parameter differed at all. Where one does, training enlarges it: with this seed, networks that
    start one rounding error apart are 1.2e-6 apart after 20 epochs, and prices 3e-6. With others an
    update may stop one pass earlier for it, and parameters differ by 0.04; that is no bound.
    """
    run, reports = in_unit(Scaled, 40.0, 1.0, 20, seed=2)
    for factor in (0.01, 100.0, 3.0):
        other, others = in_unit(Scaled, 40.0, factor, 20, seed=2)
        for ours, theirs in zip(
            (run.policy.actor.parameters, run.policy.critics.parameters),
            (other.policy.actor.parameters, other.policy.critics.parameters),
            strict=True,
        ):
            np.testing.assert_allclose(theirs, ours, atol=1e-5)
        prices = [[report.multiplier[0] for report in both] for both in (others, reports)]
        np.testing.assert_allclose(*prices, rtol=1e-5)


@pytest.mark.parametrize("s", [0.01, 7.0])
def test_prices_grow_with_the_reward_and_fall_with_the_cost(s: float) -> None:
    """rho, natural, push and the price are in units of reward over cost; S in cost over price."""
    rng = np.random.default_rng(4)
    b = rng.standard_normal((2, 9))
    gradients = np.array([b[0] + 0.5 * b[1], *b]) + 0.2 * rng.standard_normal((5, 2, 3, 9))
    plain, richer, dearer = Sensitivity(2), Sensitivity(2), Sensitivity(2)
    for both in gradients:
        for sense, scale in ((plain, [1, 1, 1]), (richer, [s, 1, 1]), (dearer, [1, s, 1])):
            scaled = both * np.array(scale, dtype=float)[:, None]
            sense.average(scaled, scaled, np.ones(2, bool))
    push = np.array([0.3, -0.1])
    assert (plain.rho > 0.0).all()
    for name in ("rho", "natural"):
        ours = getattr(plain, name)
        np.testing.assert_allclose(getattr(richer, name), s * ours, rtol=1e-9)
        np.testing.assert_allclose(getattr(dearer, name), ours / [s, 1.0], rtol=1e-9)
    lam = plain.prices(plain.rho, push)
    np.testing.assert_allclose(richer.prices(richer.rho, s * push), s * lam, rtol=1e-9)
    in_units = dearer.prices(dearer.rho, push / [s, 1.0])
    np.testing.assert_allclose(in_units, lam / [s, 1.0], rtol=1e-9)
    np.testing.assert_allclose(np.diag(dearer.bb), np.diag(plain.bb) * [s**2, 1.0], rtol=1e-9)


# ---------------------------------------------------------------- limits near zero, no cost


@pytest.mark.parametrize("limit", [0.0, 1e-6])
def test_limits_near_zero_are_paid_for_in_finite_prices(limit: float) -> None:
    reports = list(probe_trainer(Scaled, limit, 25, margin="on"))
    prices = np.array([report.multiplier[0] for report in reports])
    numbers = [value for report in reports for value in report.metrics.values()]
    assert np.isfinite(prices).all() and np.isfinite(numbers).all()
    assert prices[0] == 0.0 and (prices[1:] > 0.0).all()
    # In natural prices it rises as patience allows, and the cost falls where it would rise to 85.
    natural = np.array([report.metrics["price_natural"] for report in reports])
    assert (prices / natural)[-5:].mean() > 1.5 * (prices / natural)[1:6].mean()
    assert reports[-1].cost[0] < reports[1].cost[0] - 5.0


def test_price_of_a_limit_that_cannot_be_met_rises_every_epoch() -> None:
    """A cost that stands still above a limit of 0, while its gradients promise that it falls."""
    gradients = np.array([[1.0, 0.2], [0.8, 0.3]])
    plant = LinearPlant(np.zeros(2), lambda _: gradients, lambda _: np.array([3.0]))
    algorithm = price_of(plant, patience=10.0)
    reports = plant.train(algorithm, [0.0], 60)
    prices = np.array([report["lam"][0] for report in reports])
    assert prices[0] == 0.0 and prices[1] > 0.0
    rising = np.diff(prices) > 1e-9
    top = int(rising.argmin())
    assert top > 20 and rising[:top].all()
    np.testing.assert_allclose(prices[top:], prices[top])
    assert prices[top] > BOUNDS[1] * reports[top]["price_natural"], "delta is at its highest"


def test_way_back_is_short_from_the_highest_price() -> None:
    """A cost that no price brings down for a hundred epochs, and then nearly none, as after a fall.

    Its gradient is a twelfth then, so that natural prices are twelve times as high, and the cost
    hardly answers to the price, so that the filter learns nothing of it.
    """
    phase = [2.0]
    plant = LinearPlant(
        np.zeros(2),
        lambda _: np.array([[1.0, 0.2], [0.0, phase[0]]]),
        lambda _: np.zeros(1),
        eta=1e-3,
    )
    algorithm, noise = price_of(plant), np.random.default_rng(0)

    def one(J: float) -> float:
        batch = plant.batch(J=[max(J + 8.0 * noise.standard_normal(), 0.1)], error=2.0)
        algorithm.update(batch, batch.epoch_cost, np.array([LIMIT]))
        return float(algorithm.multiplier[0] / algorithm.sensitivity.natural[0])

    assert max(one(LIMIT + 40.0) for _ in range(100)) > BOUNDS[1]
    phase[0] /= 12.0
    prices = [one(0.3) for _ in range(40)]
    assert prices[0] > 1.0 and max(prices[8:]) == 0.0


def test_nothing_is_paid_before_the_first_update_and_in_epochs_without_cost() -> None:
    plant, _ = quadratic([3.0, 1.0, 0.0], [[1.0, 0.5, 0.0]], constant=4.0)
    algorithm = price_of(plant)
    free = plant.train(algorithm, [LIMIT], 1)[0]
    assert free["J"] > LIMIT and free["lam"] == 0.0 and free["sensitivity"] == 0.0
    paid = plant.train(algorithm, [LIMIT], 3)
    assert all(report["lam"] > 0.0 for report in paid)
    algorithm.update(plant.batch(J=[0.0], live=False), np.zeros(1), np.array([LIMIT]))
    assert algorithm.multiplier == 0.0
    assert plant.loss.function(0.7, np.array([0.3])) == -0.7, "then the loss is PPO's"


def test_without_any_cost_training_is_unconstrained() -> None:
    class Free(Scaled):
        def outcome(self, a: float) -> tuple[float, Any]:
            return super().outcome(a)[0], 0.0

    run = probe_trainer(Free, 40.0, 5)
    reports = list(run)
    assert all(report.multiplier == (0.0,) and report.cost == (0.0,) for report in reports)
    assert not run.algorithm.sensitivity.known.any()
    ppo = probe_trainer(Free, 40.0, 5, "ppo")
    assert [report.episode_return for report in ppo] == [r.episode_return for r in reports]


class Blind(Probe):
    """A cost that nothing can change, or a reward; the other one is 1 + a."""

    def __init__(self, reward: bool = False) -> None:
        super().__init__(1)
        self.reward = reward

    def outcome(self, a: float) -> tuple[float, Any]:
        return (0.0, 1.0 + a) if self.reward else (1.0 + a, 1.0)


@pytest.mark.parametrize("reward", [False, True])
def test_a_signal_without_any_gradient_is_no_error(reward: bool) -> None:
    reports = list(probe_trainer(lambda: Blind(reward), 0.5, 4))
    assert all(np.isfinite(list(report.metrics.values())).all() for report in reports)


# ---------------------------------------------------------------- exact resume


@pytest.mark.parametrize("K", [1, 2])
def test_state_holds_everything_that_the_next_update_needs(K: int) -> None:
    """On noisy halves: a copy that loaded the state goes on bit for bit, part by part."""
    B, d = [[1.0, 0.2, 0.0], [0.6, 1.0, 0.0]][:K], np.array([LIMIT, 30.0])[:K]
    plant, _ = quadratic([6.0, 4.0, 1.0], B, constant=3.0, noise=0.3)
    algorithm, twin = price_of(plant, K), price_of(plant, K)
    plant.train(algorithm, d, 7, error=0.5)
    state = algorithm.state_dict()
    theta, rng = plant.theta.copy(), plant.rng.bit_generator.state
    expected = plant.train(algorithm, d, 5, error=0.5)
    twin.load_state_dict(state)
    plant.theta, plant.rng.bit_generator.state = theta, rng
    resumed = plant.train(twin, d, 5, error=0.5)
    for ours, theirs in zip(resumed, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    for part in ("sensitivity", "forecast"):
        ours, theirs = twin.state_dict()[part], algorithm.state_dict()[part]
        assert ours.keys() == theirs.keys() == state[part].keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert any((state["forecast"][name] != theirs[name]).any() for name in ("J", "delta", "P"))


@pytest.mark.parametrize("metric", ["euclidean", "fisher"])
@pytest.mark.parametrize("after", [1, 3])
def test_resumed_training_is_the_uninterrupted_one(after: int, metric: Any, tmp_path: Any) -> None:
    settings = {"metric": metric, "entropy_coefficient": 0.0, "episode_window": 60}

    def make() -> Any:
        return probe_trainer(ScaledWalk, (2.0, 3.0), 6, **settings)

    whole = make()
    expected = list(whole)
    broken = make()
    epochs = iter(broken)
    reports = [next(epochs) for _ in range(after)]
    path = checkpoint.save(tmp_path, after, broken.state_dict())
    resumed = make()
    resumed.load_state_dict(checkpoint.load(path))
    reports += list(resumed)
    assert [r.metrics for r in reports] == [r.metrics for r in expected]
    assert [r.multiplier for r in reports] == [r.multiplier for r in expected]
    assert resumed.parameter_hash() == whole.parameter_hash()
    assert any(sum(report.multiplier) > 0.0 for report in expected)
