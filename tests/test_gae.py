"""Advantages: closed forms, and a loop over single paths that shares nothing with the real code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Array, float64
from probe_envs import ScriptedBatch

from cspo.experience.advantages import estimate, gae
from cspo.experience.rollout import collect
from cspo.experience.settings import AdvantageSettings
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings

ENDS = {
    (2, 0): "terminated",
    (3, 1): "truncated",
    (6, 0): "truncated",
    (11, 1): "truncated",  # coincides with the end of the epoch
    (11, 2): "terminated",  # likewise
    (0, 3): "terminated",  # a path of one step
    (1, 3): "truncated",  # and another
}
STEPS, ENVS, COSTS = 12, 5, 2


def policy_for(num_costs: int, hidden_sizes: tuple[int, ...] = (8,)) -> Policy:
    """Return a fresh policy for scripted environments."""
    settings = PolicySettings(hidden_sizes=hidden_sizes)
    return Policy(3, 2, num_costs, settings, np.random.default_rng(0))


def run(num_costs: int = COSTS, **settings: Any) -> tuple[ScriptedBatch, Policy, Any, Any]:
    """Collect an epoch and estimate its advantages."""
    env = ScriptedBatch(STEPS, ENVS, ENDS, num_costs=num_costs)
    policy = policy_for(num_costs, (8, 8))
    policy.critics.parameters *= 3.0  # values of order one
    rollout = collect(env, policy, STEPS, np.random.default_rng(1))
    defaults = {"gamma": 0.99, "gae_lambda": 0.95, "cost_gamma": 0.99, "cost_gae_lambda": 0.95}
    batch = estimate(
        rollout, policy, AdvantageSettings(**(defaults | settings)), np.zeros(num_costs)
    )
    return env, policy, rollout, batch


def one_path(signal: Array, value: Array, last: float, gamma: float, lam: float) -> Array:
    """Sum (gamma lambda)^k (x_{t+k} + gamma V(s_{t+k+1}) - V(s_{t+k})) over k, for every t."""
    following = np.append(value[1:], last)
    delta = signal + gamma * following - value
    length = len(signal)
    return np.array(
        [sum((gamma * lam) ** k * delta[t + k] for k in range(length - t)) for t in range(length)]
    )


def by_paths(
    env: ScriptedBatch, policy: Policy, rollout: Any, channel: int, gamma: float, lam: float
) -> Array:
    """Cut the epoch into paths and treat each by itself; channel 0 is the reward."""
    signal = env.reward[:STEPS] if channel == 0 else env.cost[:STEPS, :, channel - 1]
    value = float64(policy.values(rollout.observation.reshape(STEPS * ENVS, -1))[channel]).reshape(
        STEPS, ENVS
    )
    end = dict(
        zip(map(tuple, rollout.path_end.tolist()), rollout.path_end_observation, strict=True)
    )
    result = np.full((STEPS, ENVS), np.nan)
    for n in range(ENVS):
        start = 0
        for t in range(STEPS):
            if (t, n) not in ENDS and t < STEPS - 1:
                continue
            terminated = ENDS.get((t, n)) == "terminated"
            last = 0.0 if terminated else float(policy.values(end[t, n][None])[channel, 0])
            path = slice(start, t + 1)
            result[path, n] = one_path(signal[path, n], value[path, n], last, gamma, lam)
            start = t + 1
    return result


@pytest.mark.parametrize("num_costs", [1, 3])
@pytest.mark.parametrize(("gamma", "lam", "cost_gamma", "cost_lam"), [
    (0.99, 0.95, 0.99, 0.95), (0.9, 0.8, 0.99, 0.95), (0.99, 0.95, 1.0, 0.5), (0.9, 1.0, 0.0, 0.0),
])  # fmt: skip
def test_advantages_equal_a_loop_over_paths(
    num_costs: int, gamma: float, lam: float, cost_gamma: float, cost_lam: float
) -> None:
    env, policy, rollout, batch = run(
        num_costs, gamma=gamma, gae_lambda=lam, cost_gamma=cost_gamma, cost_gae_lambda=cost_lam
    )
    A_r = by_paths(env, policy, rollout, 0, gamma, lam).reshape(-1)
    A_c = np.stack([
        by_paths(env, policy, rollout, 1 + k, cost_gamma, cost_lam).reshape(-1)
        for k in range(num_costs)
    ])  # fmt: skip
    standardised = (A_r - A_r.mean()) / (np.sqrt(np.mean((A_r - A_r.mean()) ** 2)) + 1e-8)
    np.testing.assert_allclose(float64(batch.adv_r), standardised, atol=1e-6)
    np.testing.assert_allclose(
        float64(batch.adv_c).T, A_c - A_c.mean(axis=1, keepdims=True), atol=1e-6
    )
    values = float64(policy.values(batch.observation))
    np.testing.assert_allclose(
        float64(batch.value_target), np.vstack([A_r, A_c]) + values, atol=2e-6
    )


def test_reward_advantages_are_standardised_and_cost_advantages_only_centred() -> None:
    env, policy, rollout, batch = run()
    assert float(batch.adv_r.mean()) == pytest.approx(0.0, abs=1e-7)
    assert float(batch.adv_r.std()) == pytest.approx(1.0, abs=1e-6)
    for k in range(COSTS):
        raw = by_paths(env, policy, rollout, 1 + k, 0.99, 0.95)
        assert float(batch.adv_c[:, k].mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(batch.adv_c[:, k].std()) == pytest.approx(raw.std(), rel=1e-6)
        assert abs(raw.std() - 1.0) > 0.1, "the scale must be one that standardising would change"


def test_constant_rewards_give_zero_advantages_and_not_nan() -> None:
    env = ScriptedBatch(4, 2, {(t, n): "terminated" for t in range(4) for n in range(2)})
    env.reward[:], env.cost[:] = 1.0, 0.0
    policy = policy_for(1)
    policy.critics.parameters[:] = 0.0
    rollout = collect(env, policy, 4, np.random.default_rng(0))
    batch = estimate(rollout, policy, AdvantageSettings(), np.zeros(1))
    assert np.array_equal(batch.adv_r, np.zeros(8))
    assert np.array_equal(batch.adv_c, np.zeros((8, 1)))
    assert batch.any_cost.tolist() == [False]


def test_any_cost_tells_each_constraint_apart() -> None:
    env = ScriptedBatch(4, 2, {}, num_costs=3)
    env.cost[:] = 0.0
    env.cost[3, 1, 1] = 1e-9
    policy = policy_for(3)
    rollout = collect(env, policy, 4, np.random.default_rng(0))
    batch = estimate(rollout, policy, AdvantageSettings(), np.array([1.0, 2.0, 3.0]))
    assert batch.any_cost.tolist() == [False, True, False]
    assert batch.epoch_cost.tolist() == [1.0, 2.0, 3.0]


def test_batch_is_flattened_with_time_first() -> None:
    _, policy, rollout, batch = run()
    assert np.array_equal(batch.observation[ENVS + 2], rollout.observation[1, 2])
    assert np.array_equal(batch.action[3 * ENVS], rollout.action[3, 0])
    np.testing.assert_array_equal(batch.log_std, policy.actor.log_std)
    mean = float64(policy.actor.outputs(rollout.observation[1]))
    np.testing.assert_allclose(float64(batch.output[ENVS : 2 * ENVS]), mean, atol=1e-6)


def test_costs_are_credited_as_rewards_are_unless_told_otherwise() -> None:
    env, policy, rollout, batch = run(gamma=0.9, gae_lambda=0.8, cost_gamma=None)
    A_c = by_paths(env, policy, rollout, 1, 0.9, 0.95).reshape(-1)
    np.testing.assert_allclose(float64(batch.adv_c)[:, 0], A_c - A_c.mean(), atol=1e-6)
    env, policy, rollout, batch = run(gamma=0.9, gae_lambda=0.8, cost_gae_lambda=None)
    A_c = by_paths(env, policy, rollout, 1, 0.99, 0.8).reshape(-1)
    np.testing.assert_allclose(float64(batch.adv_c)[:, 0], A_c - A_c.mean(), atol=1e-6)


# ---------------------------------------------------------------- closed forms

G, L = 0.9, 0.8


def advantages(signal: Any, value: Any, next_value: Any, ends: Any) -> Array:
    """Return the advantages of one environment and one channel."""
    columns = [np.array(x, dtype=float).reshape(-1, 1, 1) for x in (signal, value, next_value)]
    path_end = np.array(ends, dtype=bool).reshape(-1, 1)
    return gae(*columns, path_end, np.array([G]), np.array([L]))[:, 0, 0]


def test_zero_values_give_discounted_sums() -> None:
    n = 6
    expected = [(1 - (G * L) ** (n - t)) / (1 - G * L) for t in range(n)]
    result = advantages([1.0] * n, [0.0] * n, [0.0] * n, [0] * (n - 1) + [1])
    np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_true_values_give_zero_advantage_when_the_time_limit_bootstraps() -> None:
    v = 1.0 / (1.0 - G)  # the value of a reward of one for ever
    np.testing.assert_allclose(
        advantages([1.0] * 5, [v] * 5, [v] * 5, [0, 0, 0, 0, 1]), 0.0, atol=1e-14
    )


def test_termination_costs_the_value_that_was_expected() -> None:
    v = 1.0 / (1.0 - G)
    result = advantages([1.0] * 3, [v] * 3, [v, v, 0.0], [0, 0, 1])
    np.testing.assert_allclose(result, [-G * v * (G * L) ** k for k in (2, 1, 0)], rtol=1e-13)


def test_lambda_zero_and_one_are_temporal_difference_and_monte_carlo() -> None:
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(7, 1, 2)), rng.normal(size=(7, 1, 2))
    last = rng.normal(size=(1, 1, 2))
    following = np.concatenate([v[1:], last])
    path_end = np.zeros((7, 1), dtype=bool)
    path_end[-1] = True
    result = gae(x, v, following, path_end, np.array([G, G]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(result[:, 0, 0], (x + G * following - v)[:, 0, 0], rtol=1e-14)
    returns = [
        sum(G**k * x[t + k, 0, 1] for k in range(7 - t)) + G ** (7 - t) * last[0, 0, 1]
        for t in range(7)
    ]
    np.testing.assert_allclose(result[:, 0, 1], np.array(returns) - v[:, 0, 1], rtol=1e-12)


def test_nothing_leaks_over_the_end_of_a_path() -> None:
    ends = [0, 0, 1, 0, 0, 1]
    quiet = advantages([1.0] * 6, [0.5] * 6, [0.5] * 6, ends)
    loud = advantages([1.0] * 3 + [1e6] * 3, [0.5] * 6, [0.5] * 6, ends)
    np.testing.assert_array_equal(quiet[:3], loud[:3])
