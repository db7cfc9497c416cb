"""CPPO-PID, P3O, APPO, IPO, FOCOPS and CUP against second transcriptions of what they define.

These are in NumPy and float64. The losses are driven through `update` with a learner that only
records them; their gradients, on a real float32 actor away from the policy that collected the data,
are compared with central differences of the NumPy loss over all parameters. Achieved on x86: 5e-7
(Euclidean norm, relative). The tolerance leaves a factor of twenty for other processors and for the
compiled tanh, which is exact to 5e-7."""

from __future__ import annotations

from collections import deque
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
    reference_mlp,
    relative_error,
    small_policy,
    unpack,
)
from probe_envs import RandomWalk

import cspo
from cspo.algorithms import get_algorithm
from cspo.algorithms.duals import PIDDual
from cspo.algorithms.learner import Loss
from cspo.algorithms.surrogates import divergence
from cspo.errors import CspoError
from cspo.optim.minibatch import MinibatchLearner
from cspo.runs import checkpoint
from cspo.settings import check_fields
from cspo.types import Batch, Discount

NAMES = ("cppo-pid", "p3o", "appo", "ipo", "focops", "cup")
GRADIENT, GAMMA, EPS, ROWS = 1e-5, 0.99, 0.2, 96
MINIBATCH = range(5, 42)  # its A_c is not centred
D = {1: np.array([25.0]), 2: np.array([25.0, 40.0])}
C = {1: np.array([8.0]), 2: np.array([8.0, -15.0])}  # violations: the second limit is kept


class Stages(RecordingLearner):
    """Lets the improvement arrive somewhere else, and records the projection that starts there."""

    step = 0.0

    def fit(self, batch: Batch, loss: Any) -> Any:
        perturb(self.policy, self.step, seed=7)
        return super().fit(batch, loss)

    def fit_actor(self, batch: Batch, loss: Any, reference: Any) -> Any:
        self.improvement, self.loss, self.reference = self.loss, loss, reference
        return super().fit_actor(batch, loss, reference)


def setup(algo: str, costs: int = 1, **settings: Any) -> tuple[Any, Stages, Batch]:
    policy = small_policy(costs=costs)
    learner, kind = Stages(policy, ROWS), get_algorithm(algo)
    config = kind.Config(**settings)
    check_fields(config)
    if hasattr(config, "validate"):
        config.validate(costs)
    return (
        kind(config, learner, costs, Discount(GAMMA, 0.95)),
        learner,
        random_batch(policy, ROWS, costs),
    )


def ratio(flat: Array, learner: Stages, rows: Any = slice(None)) -> Array:
    batch, sizes = learner.batch, learner.policy.actor.mlp.sizes
    x, action, old = (
        float64(column)[rows] for column in (batch.observation, batch.action, batch.log_prob)
    )
    return np.exp(reference_log_prob(flat, sizes, x, action) - old)


def kl(
    flat: Array, learner: Stages, mean_ref: Array, log_std_ref: Array, rows: Any = slice(None)
) -> Array:
    """KL(new || reference) of each sample, dimension by dimension: the textbook formula."""
    layers, log_std = unpack(flat, learner.policy.actor.mlp.sizes)
    mean, total = reference_mlp(layers, float64(learner.batch.observation)[rows]), 0.0
    for a, (s_new, s_ref) in enumerate(zip(np.exp(log_std), np.exp(log_std_ref), strict=True)):
        square = (mean[:, a] - mean_ref[rows][:, a]) ** 2
        total = total + np.log(s_ref / s_new) + (s_new**2 + square) / (2.0 * s_ref**2) - 0.5
    return np.asarray(total)


def clipped_mean(r: Array, A: Array, pick: Any = np.minimum) -> float:
    return float(pick(r * A, np.clip(r, 1.0 - EPS, 1.0 + EPS) * A).mean())


def combined(batch: Batch, prices: Array) -> Array:
    """(A_r - sum p_i A_c_i) / (1 + sum p_i)."""
    return (float64(batch.adv_r) - float64(batch.adv_c) @ prices) / (1.0 + prices.sum())


def assert_gradient(learner: Stages, loss: Any, away: float = 0.08) -> None:
    """Compare on the whole batch and on a minibatch; loss(flat, rows) is the transcription."""
    perturb(learner.policy, away)
    theta = float64(learner.policy.actor.parameters)
    for rows in (range(ROWS), MINIBATCH):
        expected = central_differences(lambda flat, rows=rows: loss(flat, list(rows)), theta)
        assert relative_error(learner.gradient(rows), expected) < GRADIENT


def logged(metrics: dict[str, float], name: str, costs: int) -> list[float]:
    return [metrics[name if costs == 1 else f"{name}_{k}"] for k in range(costs)]


# ---------------------------------------------------------------- CPPO-PID


def test_pid_terms_under_a_constant_violation_of_ten() -> None:
    dual = PIDDual(1)
    seen = []
    for _ in range(3):
        dual.step(np.array([35.0]), np.array([25.0]))
        seen.append((dual.I[0], dual.error[0]))
    np.testing.assert_allclose(seen, [(0.101, 0.5), (0.201, 0.975), (0.301, 1.42625)], atol=1e-12)


def test_pid_multiplier_follows_the_controller_step_by_step() -> None:
    rng, limit = np.random.default_rng(0), np.array([25.0, 5.0])
    J_c = np.abs(rng.normal(20.0, 25.0, (80, 2)))
    J_c[30:50] = 0.0  # long enough for the integral to reach zero
    zeros = 0
    for k in range(2):
        integral, D_p, D_c, history, expected = 0.001, 0.0, 0.0, deque([0.0], maxlen=10), []
        for cost in J_c[:, k]:
            delta = cost - limit[k]
            integral = max(0.0, integral + 0.01 * delta)
            D_p = 0.95 * D_p + 0.05 * delta
            D_c = 0.95 * D_c + 0.05 * cost
            P = max(0.0, D_c - history[0])
            expected.append(max(0.0, 0.1 * D_p + integral + 0.01 * P))
            history.append(D_c)
        dual = PIDDual(2)
        np.testing.assert_allclose([dual.step(row, limit)[k] for row in J_c], expected, atol=1e-13)
        zeros += expected.count(0.0)
    assert zeros > 5, "the clamp at zero has to be exercised"


def test_pid_derivative_is_measured_from_zero_for_ten_epochs() -> None:
    """With K_P = K_I = 0 and cost 20, D_c rises to 20; P is D_c, then its rise over ten epochs."""
    dual = PIDDual(1, 0.0, 0.0, 0.0, 1.0)
    lam = [dual.step(np.array([20.0]), np.array([25.0]))[0] for _ in range(12)]
    D_c = [20.0 * (1.0 - 0.95**n) for n in range(13)]
    assert lam[:10] == pytest.approx(D_c[1:11])
    assert lam[10:] == pytest.approx([D_c[11] - D_c[1], D_c[12] - D_c[2]])


@pytest.mark.parametrize("done", [0, 4, 25], ids=["unused", "history filling", "history full"])
def test_restored_pid_goes_on_exactly(done: int, tmp_path: Any) -> None:
    costs, limit = np.random.default_rng(1).uniform(0.0, 60.0, (40, 2)), np.array([25.0, 40.0])
    dual = PIDDual(2)
    for row in costs[:done]:
        dual.step(row, limit)
    path = checkpoint.save(tmp_path, 1, {"epoch": 1, "dual": dual.state_dict()})
    expected = [dual.step(row, limit).tolist() for row in costs[done:]]
    restored = PIDDual(2, 0.7)
    restored.load_state_dict(checkpoint.load(path)["dual"])
    assert [restored.step(row, limit).tolist() for row in costs[done:]] == expected


@pytest.mark.parametrize("costs", [1, 2])
def test_cppo_pid_clips_the_combined_advantage_with_the_fresh_multiplier(costs: int) -> None:
    algorithm, learner, batch = setup("cppo-pid", costs)
    c = C[costs]
    metrics = algorithm.update(batch, D[costs] + c, D[costs])
    integral = np.maximum(0.0, 0.001 + 0.01 * c)
    lam = np.maximum(0.0, 0.1 * 0.05 * c + integral + 0.01 * 0.05 * (D[costs] + c))
    np.testing.assert_allclose(algorithm.multiplier, lam, atol=1e-14)
    assert logged(metrics, "integral", costs) == pytest.approx(integral.tolist())
    A = combined(batch, lam)
    assert_gradient(learner, lambda flat, rows: -clipped_mean(ratio(flat, learner, rows), A[rows]))


# ---------------------------------------------------------------- P3O


@pytest.mark.parametrize("variant", ["paper", "corrected"])
@pytest.mark.parametrize("costs", [1, 2])
def test_p3o_loss(costs: int, variant: Any) -> None:
    algorithm, learner, batch = setup("p3o", costs, variant=variant)
    c = C[costs]
    metrics = algorithm.update(batch, D[costs] + c, D[costs])
    offset = c if variant == "paper" else (1.0 - GAMMA) * c
    A_r, A_c = float64(batch.adv_r), float64(batch.adv_c)

    def loss(flat: Array, rows: Any) -> float:
        r = ratio(flat, learner, rows)
        hinges = [max(float((r * A_c[rows, k]).mean()) + offset[k], 0.0) for k in range(costs)]
        return -clipped_mean(r, A_r[rows]) + 20.0 * sum(hinges)

    assert_gradient(learner, loss)
    assert logged(metrics, "violation", costs) == pytest.approx(c.tolist())
    # The actor stood still during the recorded update: mean(r A_c) was zero.
    assert logged(metrics, "hinge", costs) == pytest.approx(
        np.maximum(offset, 0.0).tolist(), abs=1e-6
    )


@pytest.mark.parametrize(("variant", "opens"), [("paper", False), ("corrected", True)])
def test_p3o_variants_differ_in_what_opens_the_hinge(variant: Any, opens: bool) -> None:
    """A cost surrogate of 0.05 stands against a slack of 3 per episode, or of 0.03 per step."""
    algorithm, learner, batch = setup("p3o", variant=variant)
    algorithm.update(batch, np.array([22.0]), np.array([25.0]))
    actor = learner.policy.actor
    actor.parameters += 0.3 * actor.score_gradient(
        batch.observation, batch.action, batch.adv_c[:, 0]
    )
    A_r, A_c = float64(batch.adv_r), float64(batch.adv_c[:, 0])
    assert 0.03 < (ratio(float64(actor.parameters), learner) * A_c).mean() < 3.0

    def loss(flat: Array, rows: Any) -> float:
        r = ratio(flat, learner, rows)
        return -clipped_mean(r, A_r[rows]) + 20.0 * opens * float((r * A_c[rows]).mean())

    theta, rows = float64(actor.parameters), list(range(ROWS))
    assert (
        relative_error(
            learner.gradient(), central_differences(lambda flat: loss(flat, rows), theta)
        )
        < GRADIENT
    )


# ---------------------------------------------------------------- APPO


@pytest.mark.parametrize("costs", [1, 2])
def test_appo_loss(costs: int) -> None:
    algorithm, learner, batch = setup("appo", costs, multiplier_init=0.5)
    c = C[costs]
    metrics = algorithm.update(batch, D[costs] + c, D[costs])
    lam = 0.5 + 0.035 * np.sign(c)  # the first Adam step, taken before the policy update
    f = np.array([lam[k] + 0.2 * c[k] if c[k] + lam[k] / 0.2 > 0.0 else 0.0 for k in range(costs)])
    assert logged(metrics, "effective_multiplier", costs) == pytest.approx(f.tolist(), abs=1e-8)
    A_r, A_c = float64(batch.adv_r), float64(batch.adv_c)

    def loss(flat: Array, rows: Any) -> float:
        r = ratio(flat, learner, rows)
        cost = sum(f[k] * clipped_mean(r, A_c[rows, k], np.maximum) for k in range(costs))
        return (-clipped_mean(r, A_r[rows]) + cost) / (1.0 + f.sum())

    assert_gradient(learner, loss)


@pytest.mark.parametrize(
    ("J_c", "f"), [(15.0, 0.0), (21.9, 0.0), (24.0, 0.4), (25.0, 0.6), (35.0, 2.6)]
)
def test_appo_penalty_starts_before_the_limit(J_c: float, f: float) -> None:
    """lam / sigma = 0.6 / 0.2 = 3 below it; f is the slope of the augmented Lagrangian by phi."""
    algorithm, _, batch = setup("appo", multiplier_init=0.6, multiplier_lr=1e-12)
    metrics = algorithm.update(batch, np.array([J_c]), np.array([25.0]))
    assert metrics["effective_multiplier"] == pytest.approx(f, abs=1e-9)

    def augmented(phi: float) -> float:
        return 0.1 * (max(0.6 / 0.2 + phi, 0.0) ** 2 - 0.6**2 / 0.2**2)

    slope = (augmented(J_c - 25.0 + 1e-6) - augmented(J_c - 25.0 - 1e-6)) / 2e-6
    assert slope == pytest.approx(f, abs=1e-7)


# ---------------------------------------------------------------- IPO


@pytest.mark.parametrize("kappa", [0.01, 0.1, 10.0])
def test_ipo_price_is_the_barriers_slope_and_constant_near_the_limit_and_beyond(
    kappa: float,
) -> None:
    algorithm, _, batch = setup("ipo", barrier=kappa)
    for d in (0.0, 25.0):
        for J_c in (0.0, 10.0, 24.0, 24.89, 24.9, 24.95, 25.0 - 1e-9, 25.0, 25.0 + 1e-8, 26.0, 1e6):
            slack = d - J_c + 1e-8
            price = kappa / slack if slack != 0.0 else np.inf
            expected = 1.0 if price < 0.0 or price > 1.0 else price
            metrics = algorithm.update(batch, np.array([J_c]), np.array([d]))
            assert metrics["penalty"] == pytest.approx(expected, rel=1e-9)


def test_ipo_loss_with_one_limit_kept_and_one_violated() -> None:
    algorithm, learner, batch = setup("ipo", 2)
    metrics = algorithm.update(batch, np.array([24.6, 50.0]), D[2])
    assert logged(metrics, "penalty", 2) == pytest.approx([0.25, 1.0])
    assert logged(metrics, "violation", 2) == pytest.approx([-0.4, 10.0])
    A = combined(batch, np.array([0.1 / (0.4 + 1e-8), 1.0]))
    assert_gradient(learner, lambda flat, rows: -clipped_mean(ratio(flat, learner, rows), A[rows]))


@pytest.mark.parametrize(
    "task", ["SafetyHopperVelocity-v1", "SafetyPointGoal1-v0", "my.module:factory"]
)
def test_ipo_trains_on_normalised_rewards_and_costs_everywhere(task: str) -> None:
    config = cspo.make_config(task, "ipo")
    assert (config.normalise_rewards, config.normalise_costs) == (True, True)
    assert not cspo.make_config(task, "ipo", normalise_costs=False).normalise_costs
    assert not cspo.make_config(task, "p3o").normalise_costs


# ---------------------------------------------------------------- FOCOPS


def focops_terms(costs: int, variant: Any) -> tuple[Stages, Array, Array]:
    """Return the learner, the advantage and the fixed mask of an update away from pi_k."""
    algorithm, learner, batch = setup("focops", costs, variant=variant, trust=0.05)
    algorithm.update(batch, D[costs] + C[costs], D[costs])
    lam = 1.0 + 0.01 * np.sign(C[costs])
    np.testing.assert_allclose(algorithm.multiplier, lam, atol=1e-9)
    perturb(learner.policy, 0.08)
    k = kl(
        float64(learner.policy.actor.parameters),
        learner,
        float64(batch.output),
        float64(batch.log_std),
    )
    mask = (k <= 0.05).astype(float)
    assert np.abs(k - 0.05).min() > 1e-5, "no sample may sit on the border"
    assert 0.2 < mask[list(MINIBATCH)].mean() < 0.8, (
        "both sides of the trust region have to be exercised"
    )
    return learner, combined(batch, lam), mask


@pytest.mark.parametrize("costs", [1, 2])
def test_focops_paper_loss_is_the_mean_over_all_pairs(costs: int) -> None:
    learner, A, mask = focops_terms(costs, "paper")
    mean, log_std = float64(learner.batch.output), float64(learner.batch.log_std)

    def all_pairs(flat: Array, rows: Any) -> float:
        column = kl(flat, learner, mean, log_std, rows)[:, None]
        row = (ratio(flat, learner, rows) * A[rows])[None, :]
        return float(((column - row / 1.5) * mask[rows][:, None]).mean())

    def closed_form(flat: Array, rows: Any) -> float:
        inside = mask[rows]
        rA = ratio(flat, learner, rows) * A[rows]
        return float(
            (inside * kl(flat, learner, mean, log_std, rows)).mean()
            - inside.mean() * rA.mean() / 1.5
        )

    theta = float64(learner.policy.actor.parameters)
    assert all_pairs(theta, list(MINIBATCH)) == pytest.approx(
        closed_form(theta, list(MINIBATCH)), rel=1e-12
    )
    assert_gradient(learner, all_pairs, away=0.0)
    L, KL, share = learner.surrogates(MINIBATCH)
    assert float(KL - share * L / 1.5) == pytest.approx(all_pairs(theta, list(MINIBATCH)), abs=1e-6)


@pytest.mark.parametrize("costs", [1, 2])
def test_focops_corrected_loss_masks_sample_by_sample(costs: int) -> None:
    learner, A, mask = focops_terms(costs, "corrected")
    mean, log_std = float64(learner.batch.output), float64(learner.batch.log_std)

    def loss(flat: Array, rows: Any) -> float:
        terms = kl(flat, learner, mean, log_std, rows) - ratio(flat, learner, rows) * A[rows] / 1.5
        return float((mask[rows] * terms).mean())

    assert_gradient(learner, loss, away=0.0)
    own = learner.gradient(MINIBATCH)
    other, _, _ = focops_terms(costs, "paper")
    assert relative_error(own, other.gradient(MINIBATCH)) > 0.1, "the variants are different losses"


@pytest.mark.parametrize("variant", ["paper", "corrected"])
def test_focops_has_no_gradient_once_every_sample_left_the_trust_region(variant: Any) -> None:
    algorithm, learner, batch = setup("focops", variant=variant, trust=1e-6)
    metrics = algorithm.update(batch, np.array([30.0]), np.array([25.0]))
    assert metrics["share_inside"] == pytest.approx(1.0)  # at theta_k
    perturb(learner.policy, 0.3)
    assert not learner.gradient().any()


def test_focops_multiplier_stays_within_zero_and_two() -> None:
    algorithm, _, _ = setup("focops")
    for _ in range(120):
        algorithm.dual.step(np.array([99.0]), np.array([25.0]))
    assert algorithm.multiplier.tolist() == [2.0]


# ---------------------------------------------------------------- CUP


@pytest.mark.parametrize("costs", [1, 2])
def test_cup_improves_on_the_reward_and_projects_with_the_cost(costs: int) -> None:
    algorithm, learner, batch = setup("cup", costs, multiplier_init=0.3)
    learner.step = 0.05
    metrics = algorithm.update(batch, D[costs] + C[costs], D[costs])
    lam = 0.3 + 0.01 * np.sign(C[costs])
    np.testing.assert_allclose(algorithm.multiplier, lam, atol=1e-9)
    half = float64(learner.policy.actor.parameters)
    layers, log_std = unpack(half, learner.policy.actor.mlp.sizes)
    mean, A_c = reference_mlp(layers, float64(batch.observation)), float64(batch.adv_c)
    np.testing.assert_allclose(float64(learner.reference.output), mean, atol=1e-5)
    assert metrics["kl_projection"] == pytest.approx(
        0.0, abs=1e-6
    )  # the recorded actor stood still in stage 2
    assert metrics["kl"] == pytest.approx(metrics["kl_improvement"], abs=1e-6)
    assert metrics["kl"] > 1e-3

    def projection(flat: Array, rows: Any) -> float:
        r = ratio(flat, learner, rows)
        cost = sum(lam[k] * 5.95 * (r * A_c[rows, k]).mean() for k in range(costs))
        return float(cost + kl(flat, learner, mean, log_std, rows).mean())

    assert_gradient(learner, projection)
    learner.loss = learner.improvement
    A_r = float64(batch.adv_r)
    assert_gradient(
        learner, lambda flat, rows: -clipped_mean(ratio(flat, learner, rows), A_r[rows]), away=0.0
    )


def test_cup_without_a_multiplier_has_nothing_to_project() -> None:
    algorithm, learner, batch = setup("cup", multiplier_init=0.0)
    learner.step = 0.05
    algorithm.update(batch, np.array([10.0]), np.array([25.0]))
    assert algorithm.multiplier.tolist() == [0.0]
    assert np.abs(learner.gradient()).max() < 1e-6


def real_cup(**options: Any) -> tuple[Any, MinibatchLearner, Batch]:
    policy = small_policy()
    learner = make_learner(policy, minibatch_size=40, **options)
    kind = get_algorithm("cup")
    return (
        kind(kind.Config(), learner, 1, Discount(GAMMA, 0.95)),
        learner,
        random_batch(policy, ROWS),
    )


def test_cup_stages_share_the_actors_adam_and_leave_the_critics_to_the_first() -> None:
    algorithm, learner, batch = real_cup(passes=4, target_kl=np.inf)
    metrics = algorithm.update(batch, np.array([30.0]), np.array([25.0]))
    assert (metrics["passes"], metrics["passes_projection"]) == (4, 4)
    assert learner.actor_optimiser.count == 2 * 4 * 3  # 96 samples are three minibatches of 40
    assert learner.critic_optimiser.count == 4 * 3
    assert {"critic_loss_reward", "critic_loss_cost"} <= set(metrics)


def test_cup_stops_the_projection_by_its_distance_from_the_improved_policy() -> None:
    algorithm, _, batch = real_cup(passes=50, target_kl=1e-4, actor_lr=3e-3)
    metrics = algorithm.update(batch, np.array([30.0]), np.array([25.0]))
    assert metrics["passes"] < 50
    assert metrics["passes_projection"] < 50
    assert min(metrics["kl_improvement"], metrics["kl_projection"]) > 1e-4
    assert metrics["kl"] != metrics["kl_projection"]


def test_cup_measures_the_projection_from_a_policy_that_stays_where_it_was() -> None:
    algorithm, learner, batch = real_cup(passes=6, target_kl=np.inf, actor_lr=3e-3)
    seen: dict[str, Any] = {}
    original = learner.fit_actor

    def spy(batch: Batch, loss: Any, reference: Any) -> Any:
        seen["half"], seen["reference"] = learner.policy.actor.parameters.copy(), reference
        return original(batch, loss, reference)

    learner.fit_actor = spy  # type: ignore[method-assign]
    metrics = algorithm.update(batch, np.array([30.0]), np.array([25.0]))
    layers, log_std = unpack(float64(seen["half"]), learner.policy.actor.mlp.sizes)
    np.testing.assert_allclose(
        float64(seen["reference"].output),
        reference_mlp(layers, float64(batch.observation)),
        atol=1e-5,
    )
    np.testing.assert_allclose(float64(seen["reference"].log_std), log_std, atol=1e-7)
    assert metrics["kl_projection"] > 1e-4


def test_cup_checks_a_minibatch_against_the_improved_policy_too() -> None:
    algorithm, learner, batch = real_cup(
        passes=50, target_kl=1e-4, actor_lr=3e-3, kl_check="minibatch"
    )
    metrics = algorithm.update(batch, np.array([30.0]), np.array([25.0]))
    assert learner.actor_optimiser.count < 20  # of 2 * 50 * 3
    assert learner.critic_optimiser.count < learner.actor_optimiser.count
    assert metrics["passes_projection"] < 50


def test_cup_needs_a_discount_of_costs_below_one() -> None:
    with pytest.raises(CspoError, match="below 1"):
        get_algorithm("cup")(get_algorithm("cup").Config(), None, 1, Discount(1.0, 0.95))


def test_cup_weighs_the_cost_by_the_lambda_its_advantages_were_made_with() -> None:
    kind = get_algorithm("cup")
    for lam, rho in ((0.95, 5.95), (0.5, 50.5), (1.0, 1.0)):
        assert kind(kind.Config(), None, 1, Discount(0.99, lam)).rho == pytest.approx(rho)
    config = cspo.make_config("SafetyHopperVelocity-v1", "cup", cost_gae_lambda=0.5)
    assert cspo.Trainer(config).algorithm.rho == pytest.approx(50.5)


# ---------------------------------------------------------------- the learner's halves


@pytest.mark.parametrize("kl_check", ["pass", "minibatch"])
def test_training_critics_alone_does_the_same_to_them_and_nothing_to_the_actor(
    kl_check: Any,
) -> None:
    results = []
    for alone in (True, False):
        policy = small_policy(costs=2)
        batch, start = random_batch(policy, ROWS, 2), policy.actor.parameters.copy()
        learner = make_learner(policy, minibatch_size=40, target_kl=np.inf, kl_check=kl_check)
        if alone:
            metrics = learner.fit_critics(batch)
            assert np.array_equal(policy.actor.parameters, start)
            assert learner.actor_optimiser.count == 0
            assert "actor_lr" not in metrics
        else:
            kind = get_algorithm("ppo")
            metrics = kind(kind.Config(), learner, 2, Discount(GAMMA, 0.95)).update(
                batch, D[2], D[2]
            )
        results.append(
            (
                policy.critics.parameters.tolist(),
                metrics["critic_loss_reward"],
                metrics["critic_loss_cost_1"],
            )
        )
    assert results[0] == results[1]


def test_a_divergence_without_a_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="reference"):
        Loss(lambda KL: KL, divergence(np.ones(3, np.float32)), clip=EPS)


# ---------------------------------------------------------------- all of them


DEFAULTS: dict[str, dict[str, Any]] = {
    "cppo-pid": {
        "multiplier_init": 0.001, "proportional": 0.1, "integral": 0.01, "derivative": 0.01,
        "clip": 0.2,
    },
    "p3o": {"penalty": 20.0, "clip": 0.2, "variant": "paper"},
    "appo": {
        "penalty": 0.2, "multiplier_init": 0.001, "multiplier_lr": 0.035, "dual": "adam",
        "clip": 0.2,
    },
    "ipo": {"barrier": 0.1, "penalty_max": 1.0, "clip": 0.2},
    "focops": {
        "multiplier_init": 1.0, "multiplier_lr": 0.01, "multiplier_max": 2.0,
        "temperature": 1.5, "trust": 0.02, "variant": "paper",
    },
    "cup": {"multiplier_init": 0.001, "multiplier_lr": 0.01, "multiplier_max": 2.0, "clip": 0.2},
}  # fmt: skip


@pytest.mark.parametrize("algo", NAMES)
def test_defaults_are_those_of_the_experiments(algo: str) -> None:
    config = cspo.make_config("SafetyPointGoal1-v0", algo)
    assert {name: getattr(config.algorithm, name) for name in DEFAULTS[algo]} == DEFAULTS[algo]
    common = (
        config.actor_lr,
        config.critic_lr,
        config.minibatch_size,
        config.passes,
        config.target_kl,
    )
    assert common == (3e-4, 3e-4, 512, 10, 0.02)


@pytest.mark.parametrize(
    ("algo", "setting", "value"),
    [
        *(
            ("cppo-pid", name, -0.1)
            for name in ("proportional", "integral", "derivative", "multiplier_init", "memory")
        ),
        ("cppo-pid", "delay", 0),
        ("cppo-pid", "memory", 1.0),
        ("p3o", "penalty", -1.0),
        ("appo", "penalty", float("nan")),
        ("appo", "multiplier_max", 0.0001),
        ("ipo", "barrier", 0.0),
        ("ipo", "penalty_max", float("inf")),
        ("focops", "temperature", 0.0),
        ("focops", "trust", -0.02),
        ("focops", "multiplier_max", 0.5),
        ("cup", "multiplier_lr", 0.0),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(
    algo: str, setting: str, value: Any
) -> None:
    with pytest.raises(CspoError, match="--" + setting.replace("_", "-")):
        cspo.make_config("SafetyPointGoal1-v0", algo, **{setting: value})


VARIANTS = [
    *((algo, {}) for algo in NAMES),
    *((algo, {"variant": "corrected"}) for algo in ("p3o", "focops")),
]


@pytest.mark.parametrize(("algo", "settings"), VARIANTS)
@pytest.mark.parametrize(
    "case", ["infeasible", "zero limit kept", "zero limit violated", "no gradient", "huge costs"]
)
def test_edge_cases_stay_finite_and_log_finite_numbers(algo: str, settings: Any, case: str) -> None:
    policy = small_policy(costs=2)
    learner = make_learner(policy, passes=3, minibatch_size=40)
    batch = random_batch(policy, ROWS, 2)
    J_c, d = {
        "infeasible": (np.array([1e4, 300.0]), np.array([25.0, 0.1])),
        "zero limit kept": (np.zeros(2), np.zeros(2)),
        "zero limit violated": (np.array([0.5, 0.0]), np.zeros(2)),
        "no gradient": (np.array([30.0, 10.0]), np.array([25.0, 25.0])),
        "huge costs": (np.array([1e9, 1e9]), np.array([25.0, 25.0])),
    }[case]
    if case == "no gradient":
        batch.adv_r[:] = 0.0
        batch.adv_c[:] = 0.0
    kind, start = get_algorithm(algo), policy.actor.parameters.copy()
    algorithm = kind(kind.Config(**settings), learner, 2, Discount(GAMMA, 0.95))
    with np.errstate(all="raise"):
        for _ in range(3):
            metrics = algorithm.update(batch, J_c, d)
            assert all(np.isfinite(value) for value in metrics.values())
            assert {type(value) for value in metrics.values()} <= {float, int}
    assert np.isfinite(algorithm.multiplier).all()
    assert algorithm.multiplier.shape == (2,)
    if (
        case == "no gradient"
    ):  # rounding alone moves it: Adam makes steps of the learning rate out of anything
        assert np.abs(policy.actor.parameters - start).max() < (
            1e-7 if algo not in ("focops", "cup") else 1e-2
        )


@pytest.mark.parametrize(("algo", "settings"), VARIANTS)
def test_interrupted_run_ends_exactly_like_an_uninterrupted_one(
    algo: str, settings: Any, tmp_path: Any
) -> None:
    def trainer() -> cspo.Trainer:
        options: dict[str, Any] = {
            "cost_limit": (2.0, 3.0), "steps_per_epoch": 220, "total_steps": 14 * 220,
            "num_envs": 4, "hidden_sizes": (16, 16), "minibatch_size": 64, "passes": 3,
            "actor_lr": 3e-3, "critic_lr": 3e-3, "episode_window": 30, "threads": 1,
            "tensorboard": False,
        }  # fmt: skip
        return cspo.Trainer(cspo.make_config("walk", algo, **options, **settings), env=RandomWalk)

    whole, broken = trainer(), trainer()
    reports = list(whole)
    iterator = iter(broken)
    for _ in range(12):  # more epochs than CPPO-PID's delay
        next(iterator)
    path = checkpoint.save(tmp_path, 12, broken.state_dict())
    resumed = trainer()
    resumed.load_state_dict(checkpoint.load(path))
    rest = list(resumed)
    assert [(r.cost, r.multiplier, r.kl, r.metrics) for r in rest] == [
        (r.cost, r.multiplier, r.kl, r.metrics) for r in reports[12:]
    ]
    assert resumed.parameter_hash() == whole.parameter_hash()
