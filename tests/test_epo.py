"""EPO against a second transcription in float64: the quadratic stream, the loss, its gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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
from probe_envs import ScriptedBatch
from run_helpers import SMALL, TASK, TwoCosts, assert_same_run

import cspo
from cspo.algorithms import get_algorithm
from cspo.errors import CspoError
from cspo.experience.advantages import estimate
from cspo.experience.rollout import collect
from cspo.experience.settings import AdvantageSettings
from cspo.optim.objective import SurrogateObjective
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.types import Batch, Discount

EPS, ROWS = 0.2, 96
ENDS = {
    (2, 0): "terminated",
    (3, 1): "truncated",
    (6, 0): "truncated",
    (11, 1): "truncated",
    (0, 2): "terminated",
}
STEPS, ENVS = 12, 4
EPO = get_algorithm("epo")
NETWORKS = PolicySettings(hidden_sizes=(8, 8))

# ---------------------------------------------------------------- the quadratic stream


def credit(gamma: float, lam: float) -> AdvantageSettings:
    """Return settings that tell the costs' discount from the rewards'."""
    return AdvantageSettings(gamma=0.9, gae_lambda=0.8, cost_gamma=gamma, cost_gae_lambda=lam)


def collected(
    costs: int, gamma: float, lam: float, centre: float = 0.0
) -> tuple[ScriptedBatch, Policy, Any, Batch]:
    env = ScriptedBatch(STEPS, ENVS, ENDS, num_costs=costs)
    policy = Policy(3, 2, costs, NETWORKS, np.random.default_rng(0), extra_critics=costs)
    policy.critics.parameters *= 3.0  # values of order one
    # The last bias: V_q everywhere higher or lower.
    policy.critics.parameters[1 + costs :, -1] += centre
    rollout = collect(env, policy, STEPS, np.random.default_rng(1))
    batch = estimate(rollout, policy, credit(gamma, lam), np.zeros(costs), EPO.extra_stream)
    return env, policy, rollout, batch


def quadratic_stream(
    env: ScriptedBatch, policy: Policy, rollout: Any, k: int, gamma: float, lam: float
) -> Array:
    """A_q of constraint k, path by path, as a double sum over the deltas; not centred."""
    costs = env.cost.shape[2]
    value = float64(policy.values(rollout.observation.reshape(STEPS * ENVS, -1))).reshape(
        -1, STEPS, ENVS
    )
    V_c, V_q = value[1 + k], value[1 + costs + k]
    last = dict(
        zip(map(tuple, rollout.path_end.tolist()), rollout.path_end_observation, strict=True)
    )
    result = np.full((STEPS, ENVS), np.nan)
    for n in range(ENVS):
        start = 0
        for t in range(STEPS):
            if (t, n) not in ENDS and t < STEPS - 1:
                continue
            V_c_end = V_q_end = 0.0
            if ENDS.get((t, n)) != "terminated":
                ahead = float64(policy.values(last[t, n][None])[:, 0])
                V_c_end, V_q_end = ahead[1 + k], ahead[1 + costs + k]
            deltas = []
            for s in range(start, t + 1):
                c_next, q_next = (V_c_end, V_q_end) if s == t else (V_c[s + 1, n], V_q[s + 1, n])
                squares = (env.cost[s, n, k] + gamma * c_next) ** 2 - V_c[s, n] ** 2
                deltas.append(squares + gamma**2 * q_next - V_q[s, n])
            for i, s in enumerate(range(start, t + 1)):
                result[s, n] = sum(
                    ((gamma * lam) ** 2) ** j * delta for j, delta in enumerate(deltas[i:])
                )
            start = t + 1
    return result.reshape(-1)


@pytest.mark.parametrize("costs", [1, 2])
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (0.9, 0.5), (1.0, 1.0), (0.9, 0.0)])
def test_quadratic_stream_equals_a_loop_over_paths(costs: int, gamma: float, lam: float) -> None:
    env, policy, rollout, batch = collected(costs, gamma, lam)
    assert batch.adv_extra is not None and batch.adv_extra.shape == (STEPS * ENVS, costs)
    assert batch.value_target.shape == (1 + 2 * costs, STEPS * ENVS)
    V_q = float64(policy.values(batch.observation))[1 + costs :]
    for k in range(costs):
        A_q = quadratic_stream(env, policy, rollout, k, gamma, lam)
        np.testing.assert_allclose(
            float64(batch.adv_extra[:, k]), A_q - A_q.mean(), rtol=1e-5, atol=1e-5
        )
        target = np.maximum(0.0, A_q + V_q[k])
        np.testing.assert_allclose(
            float64(batch.value_target[1 + costs + k]), target, rtol=1e-5, atol=1e-5
        )


def test_targets_of_the_quadratic_critic_are_not_negative() -> None:
    env, policy, rollout, batch = collected(1, 0.99, 0.95, centre=-60.0)
    A_q = quadratic_stream(env, policy, rollout, 0, 0.99, 0.95)
    raw = A_q + float64(policy.values(batch.observation))[2]
    assert (raw < 0.0).sum() >= 3, "the bound has to be exercised"
    assert float(batch.value_target[2].min()) == 0.0
    assert float(batch.value_target[:2].min()) < 0.0  # the ordinary critics have no such bound
    np.testing.assert_allclose(
        float64(batch.adv_extra[:, 0]), A_q - A_q.mean(), rtol=1e-5, atol=2e-5
    )  # nor A_q


def test_other_streams_do_not_notice_it() -> None:
    _, _, rollout, batch = collected(2, 0.99, 0.95)
    plain = Policy(3, 2, 2, NETWORKS, np.random.default_rng(0))
    plain.critics.parameters *= 3.0
    without = estimate(rollout, plain, credit(0.99, 0.95), np.zeros(2))
    assert without.adv_extra is None
    assert np.array_equal(without.adv_r, batch.adv_r) and np.array_equal(without.adv_c, batch.adv_c)
    assert np.array_equal(without.value_target, batch.value_target[:3])


def test_networks_start_the_same_with_and_without_extra_critics() -> None:
    settings = {**SMALL, "total_steps": 400}
    epo, ppo = (cspo.Trainer(cspo.make_config(TASK, algo, **settings)) for algo in ("epo", "ppo"))
    assert epo.policy.critics.count == 3 and ppo.policy.critics.count == 2
    assert np.array_equal(epo.policy.actor.parameters, ppo.policy.actor.parameters)
    assert np.array_equal(epo.policy.critics.parameters[:2], ppo.policy.critics.parameters)
    assert not np.array_equal(epo.policy.critics.parameters[2], epo.policy.critics.parameters[1])
    for trainer in (epo, ppo):
        trainer.env.close()


# ---------------------------------------------------------------- the loss


def setup(costs: int, scale: float = 1.0, **settings: Any) -> tuple[Any, RecordingLearner, Batch]:
    policy = small_policy(costs=costs)
    learner = RecordingLearner(policy, ROWS)
    batch = random_batch(policy, ROWS, costs)
    A_q = np.random.default_rng(7).standard_normal((ROWS, costs)).astype(np.float32) * 4.0 * scale
    batch = replace(batch, adv_extra=A_q - A_q.mean(0), adv_c=batch.adv_c * scale)
    return EPO(EPO.Config(**settings), learner, costs, Discount(0.99, 0.95)), learner, batch


def softplus(x: float) -> float:
    return max(x, 0.0) + float(np.log1p(np.exp(-abs(x))))


def loss(
    flat: Array,
    learner: RecordingLearner,
    J_c: Array,
    d: Array,
    *,
    p: float = 0.1,
    a: float = 0.5,
    M: float = 5.0,
    m: float = 10.0,
    divide: bool = True,
) -> float:
    """Spec 3.8: -L_R + relu(p E Psi), divided by 1 + E; over constraints both add up."""
    batch = learner.batch
    sizes = learner.policy.actor.mlp.sizes
    log_prob = reference_log_prob(flat, sizes, float64(batch.observation), float64(batch.action))
    r = np.exp(log_prob - float64(batch.log_prob))
    A_r, A_c, A_q = float64(batch.adv_r), float64(batch.adv_c), float64(batch.adv_extra)
    total, divisor = -float(np.minimum(r * A_r, np.clip(r, 1 - EPS, 1 + EPS) * A_r).mean()), 1.0
    for k in range(len(J_c)):
        E = float(np.exp(min(J_c[k] - d[k], M)))
        linear = softplus(min(float(np.mean(r * A_c[:, k])), m))
        quadratic = softplus(min(float(np.mean(r * A_q[:, k])), m))
        total += max(p * E * (a * linear + (1 - a) * quadratic), 0.0)
        divisor += E
    return total / divisor if divide else total


CASES = {
    "below the limit": (1, np.array([22.0]), {}),
    "at the limit": (1, np.array([25.0]), {}),
    "above it": (1, np.array([28.5]), {}),
    "above the cap M": (1, np.array([400.0]), {}),
    "another cap M": (1, np.array([400.0]), {"violation_cap": 1.5}),
    "not divided": (1, np.array([27.0]), {"divide": False}),
    "linear only": (1, np.array([29.0]), {"linear_share": 1.0}),
    "another p": (1, np.array([27.0]), {"penalty": 3.0, "linear_share": 0.2}),
    "two constraints": (2, np.array([27.0, 8.0]), {}),
    "two, not divided": (2, np.array([24.0, 12.0]), {"divide": False, "penalty": 1.0}),
}
LIMITS = {1: np.array([25.0]), 2: np.array([25.0, 10.0])}
LETTERS = {
    "penalty": "p",
    "linear_share": "a",
    "violation_cap": "M",
    "surrogate_cap": "m",
    "divide": "divide",
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("moved", [False, True])
def test_gradient_is_that_of_the_loss(case: str, moved: bool) -> None:
    costs, J_c, settings = CASES[case]
    algorithm, learner, batch = setup(costs, **settings)
    algorithm.update(batch, J_c, LIMITS[costs])
    if moved:
        perturb(learner.policy, 0.1)
    constants = {LETTERS[name]: value for name, value in settings.items()}
    point = float64(learner.policy.actor.parameters)
    expected = central_differences(
        lambda flat: loss(flat, learner, J_c, LIMITS[costs], **constants), point
    )
    assert relative_error(learner.gradient(), expected) < 1e-5


def test_above_the_cap_a_surrogate_gives_no_gradient() -> None:
    algorithm, learner, batch = setup(1, scale=5.0, surrogate_cap=0.3)
    shift = np.float32(2.0)  # both means well above the cap, at theta_k and around it
    batch = replace(batch, adv_c=batch.adv_c + shift, adv_extra=batch.adv_extra + shift)
    algorithm.update(batch, np.array([29.0]), LIMITS[1])
    capped = learner.gradient()
    point = float64(learner.policy.actor.parameters)
    expected = central_differences(
        lambda flat: loss(flat, learner, np.array([29.0]), LIMITS[1], m=0.3), point
    )
    assert relative_error(capped, expected) < 1e-5
    without = central_differences(
        lambda flat: loss(flat, learner, np.array([29.0]), LIMITS[1], p=0.0), point
    )
    assert relative_error(capped, without) < 1e-5, "only the reward is left"


@pytest.mark.parametrize("value", [-1e6, -800.0, 0.0, 9.9, 1e6])
def test_slopes_are_finite_whatever_the_surrogates(value: float) -> None:
    algorithm, _, batch = setup(1)
    objective = SurrogateObjective(algorithm.loss(batch, np.array([np.exp(5.0)])))
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(objective.weights(np.array([0.0, value, value]))).all()


def test_penalty_that_is_logged() -> None:
    algorithm, _, batch = setup(2)
    metrics = algorithm.update(batch, np.array([26.0, 500.0]), LIMITS[2])
    assert metrics["penalty_0"] == pytest.approx(0.1 * np.e)
    assert metrics["penalty_1"] == pytest.approx(0.1 * np.exp(5.0))


@pytest.mark.parametrize(
    "settings",
    [
        {"penalty": -1.0},
        {"linear_share": 1.5},
        {"violation_cap": 0.0},
        {"surrogate_cap": -1.0},
        {"clip": 0.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(CspoError, match="--"):
        cspo.make_config(TASK, "epo", **settings)


# ---------------------------------------------------------------- whole runs


def make_two_costs() -> TwoCosts:
    return TwoCosts()


@pytest.mark.parametrize(
    ("env", "limits"), [(TASK, (25.0,)), (make_two_costs, (3.0, 4.0))], ids=["one", "two"]
)
def test_resume_is_exact_and_the_policy_loads(
    env: Any, limits: tuple[float, ...], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {**SMALL, "total_steps": 1200, "cost_limit": limits}
    cspo.train(env, "epo", run_dir=tmp_path / "whole", quiet=True, **settings)
    given = None if isinstance(env, str) else env
    config = cspo.make_config(TASK if given is None else "<make_two_costs>", "epo", **settings)
    trainer = cspo.Trainer(config, env=given, run_dir=tmp_path / "cut")
    report = next(iter(trainer))
    names = (
        {"critic_loss_extra"}
        if len(limits) == 1
        else {"critic_loss_extra_0", "critic_loss_extra_1"}
    )
    assert names <= set(report.metrics)
    assert trainer.run is not None
    trainer.run.close()
    cspo.resume(tmp_path / "cut", env=given, quiet=True)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    policy = cspo.load(tmp_path / "cut")
    assert np.isfinite(policy(np.zeros(policy.observation_size))).all()
