"""Collection: what is normalised, mapped, recorded and refused, step by step in scripted tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Array, float64, reference_log_prob, reference_mlp, unpack
from probe_envs import ScriptedBatch

from cspo.errors import EnvironmentFault
from cspo.experience.advantages import estimate
from cspo.experience.episodes import EpisodeWindow, cost_without_episodes
from cspo.experience.rollout import collect, finished_episodes
from cspo.experience.settings import AdvantageSettings
from cspo.optim.autograd import distribution
from cspo.policy.normaliser import Normaliser
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.types import Episodes

ENDS = {
    (2, 0): "terminated",
    (3, 1): "truncated",
    (3, 2): "terminated",
    (6, 0): "truncated",
    (7, 1): "truncated",
    (9, 2): "truncated",  # the time limit coincides with the end of the epoch
    (9, 3): "terminated",  # and so does a termination
}
STEPS, ENVS = 10, 5  # environment 4 runs through and is cut; 0 and 1 are cut in a later episode


def policy_for(env: Any, log_std: float = 0.0, **changes: Any) -> Policy:
    """Return a fresh policy for an environment."""
    settings = PolicySettings(hidden_sizes=(8, 8), log_std_init=log_std, **changes)
    sizes = env.observation_size, env.action_size, len(env.cost_names)
    return Policy(*sizes, settings, np.random.default_rng(0))


def scripted(**changes: Any) -> ScriptedBatch:
    return ScriptedBatch(STEPS, ENVS, ENDS, **changes)


class History:
    """The normaliser by definition: keep everything ever seen, take statistics over all of it."""

    def __init__(self) -> None:
        self.seen: list[Array] = []

    def push(self, rows: Array) -> None:
        self.seen.extend(rows)

    def normalise(self, x: Array) -> Array:
        if len(self.seen) == 1:
            return x
        everything = np.array(self.seen)
        std = np.maximum(everything.std(axis=0, ddof=1), 0.01)
        return np.clip((x - everything.mean(axis=0)) / std, -5.0, 5.0)


# ---------------------------------------------------------------- observations


@pytest.mark.parametrize(("num_envs", "steps"), [(1, STEPS), (1, 60), (ENVS, STEPS)])
def test_observations_are_normalised_with_everything_seen_up_to_then(
    num_envs: int, steps: int
) -> None:
    ends = {key: how for key, how in ENDS.items() if key[1] < num_envs}
    env = ScriptedBatch(steps, num_envs, ends)
    env.observation[-2, 0, 0] = (
        1e4  # an outlier among n is (n - 1) / sqrt(n) deviations away: clipped if n > 26
    )
    policy = policy_for(env)
    rollout = collect(env, policy, steps, np.random.default_rng(1))

    history, bootstrap = History(), {}
    history.push(env.observation[0])
    for t in range(steps):
        np.testing.assert_allclose(
            float64(rollout.observation[t]),
            history.normalise(env.observation[t]),
            rtol=2e-6,
            atol=2e-6,
        )
        history.push(env.observation[t + 1])
        ended = env.terminated[t] | env.truncated[t]
        history.push(env.final[t][ended])  # the true last observation counts as well
        for n in range(num_envs):
            if env.truncated[t, n]:
                bootstrap[t, n] = history.normalise(env.final[t, n])
            elif t == steps - 1 and not env.terminated[t, n]:
                bootstrap[t, n] = history.normalise(env.observation[t + 1, n])
    assert policy.normaliser.count == len(history.seen) == (steps + 1) * num_envs + len(ends)
    np.testing.assert_allclose(policy.normaliser.mean, np.mean(history.seen, axis=0), rtol=1e-12)
    assert sorted(map(tuple, rollout.path_end.tolist())) == sorted(bootstrap)
    for key, row in zip(rollout.path_end.tolist(), rollout.path_end_observation, strict=True):
        np.testing.assert_allclose(float64(row), bootstrap[tuple(key)], rtol=2e-6, atol=2e-6)
    assert (float(rollout.observation[-1, 0, 0]) == 5.0) == (num_envs * steps > 26)


def test_first_single_observation_passes_unchanged() -> None:
    env = ScriptedBatch(3, 1, {})
    env.observation[0] = [100.0, -200.0, 0.5]
    rollout = collect(env, policy_for(env), 3, np.random.default_rng(0))
    assert rollout.observation[0, 0].tolist() == [100.0, -200.0, 0.5]


def test_statistics_continue_over_epochs_and_every_reset_counts() -> None:
    env = ScriptedBatch(2 * STEPS, ENVS, {})
    policy = policy_for(env)
    collect(env, policy, STEPS, np.random.default_rng(0))
    assert policy.normaliser.count == ENVS * (STEPS + 1)
    collect(env, policy, STEPS, np.random.default_rng(0))
    assert policy.normaliser.count == 2 * ENVS * (STEPS + 1)
    # The scripted reset of the second epoch shows observation 10 again.
    seen = np.concatenate([env.observation[: STEPS + 1], env.observation[STEPS:]]).reshape(-1, 3)
    np.testing.assert_allclose(policy.normaliser.mean, seen.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        policy.normaliser.square_sum, ((seen - seen.mean(axis=0)) ** 2).sum(0), rtol=1e-10
    )


def test_standard_deviation_has_a_floor() -> None:
    normaliser = Normaliser(1)
    normaliser.push(np.array([[1.0], [1.0 + 1e-4]]))
    assert normaliser(np.array([[1.0 + 0.02]])).item() == pytest.approx(
        (0.02 - 5e-5) / 0.01, rel=1e-6
    )


def test_normaliser_can_be_switched_off_and_has_other_bounds() -> None:
    env = scripted()
    off = policy_for(env, normalise_observations=False)
    rollout = collect(env, off, STEPS, np.random.default_rng(0))
    np.testing.assert_array_equal(rollout.observation, env.observation[:STEPS].astype(np.float32))
    env = scripted()
    tight = policy_for(env, observation_clip=0.7)
    rollout = collect(env, tight, STEPS, np.random.default_rng(0))
    assert float(np.abs(rollout.observation).max()) == pytest.approx(0.7)


def test_restored_normaliser_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    original, restored = Normaliser(4), Normaliser(4)
    original.push(rng.normal(3.0, 2.0, (17, 4)))
    restored.load_state_dict(original.state_dict())
    rows = rng.normal(3.0, 2.0, (5, 4))
    np.testing.assert_array_equal(restored(rows), original(rows))
    original.push(rows)
    restored.push(rows)
    np.testing.assert_array_equal(restored(rows), original(rows))


# ---------------------------------------------------------------- actions


def test_actions_are_mapped_to_the_box_and_never_clipped() -> None:
    env = scripted(low=[0.0, -3.0], high=[1.0, 7.0])
    rollout = collect(env, policy_for(env), STEPS, np.random.default_rng(0))
    raw, seen = float64(rollout.action), np.array(env.actions)
    expected = env.action_low + (raw + 1.0) / 2.0 * (env.action_high - env.action_low)
    np.testing.assert_allclose(seen, expected, rtol=1e-6, atol=1e-6)
    assert (seen < env.action_low).any()
    assert (seen > env.action_high).any()


def test_actions_are_samples_of_the_policy_at_the_stored_observation() -> None:
    env = ScriptedBatch(400, 5, {})
    policy = policy_for(env, log_std=-0.7)
    rollout = collect(env, policy, 400, np.random.default_rng(3))
    layers, log_std = unpack(float64(policy.actor.parameters), policy.actor.mlp.sizes)
    z = (float64(rollout.action) - reference_mlp(layers, float64(rollout.observation))) / np.exp(
        log_std
    )
    # 4000 standard normal numbers: standard error 0.016 of the mean and 0.011 of the standard
    # deviation.
    assert abs(z.mean()) < 0.06
    assert z.std() == pytest.approx(1.0, abs=0.045)
    flat = z.reshape(-1)
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 0.06
    # The same stream gives the same noise: z does not depend on the network.
    expected = np.random.default_rng(3).standard_normal((400, 5, 2), dtype=np.float32)
    np.testing.assert_allclose(z, expected, atol=2e-6)


def test_ratio_is_one_before_the_first_step() -> None:
    env = scripted()
    policy = policy_for(env, log_std=-0.5)
    rollout = collect(env, policy, STEPS, np.random.default_rng(0))
    batch = estimate(rollout, policy, AdvantageSettings(), np.zeros(1))
    actor = policy.actor
    ratio = actor.distribution.ratio(batch.output, actor.log_std, batch.action, batch.log_prob)
    new = distribution(policy.actor, batch, np.arange(STEPS * ENVS))
    # A log-probability of size 5 has a rounding error of 2e-7 or so.
    for result in (ratio, float64(new.ratio)):
        assert result.shape == (STEPS * ENVS,)
        np.testing.assert_allclose(result, 1.0, rtol=0.0, atol=2e-6)
    expected = reference_log_prob(
        float64(policy.actor.parameters),
        policy.actor.mlp.sizes,
        float64(rollout.observation).reshape(-1, 3),
        float64(rollout.action).reshape(-1, 2),
    )
    np.testing.assert_allclose(float64(batch.log_prob), expected, rtol=1e-6, atol=2e-6)


# ---------------------------------------------------------------- records


def test_rewards_costs_and_endings_are_stored_as_given() -> None:
    env = scripted(num_costs=3)
    rollout = collect(env, policy_for(env), STEPS, np.random.default_rng(0))
    np.testing.assert_array_equal(rollout.reward, env.reward[:STEPS])
    np.testing.assert_array_equal(rollout.cost, env.cost[:STEPS])
    np.testing.assert_array_equal(rollout.terminated, env.terminated[:STEPS])
    np.testing.assert_array_equal(rollout.truncated, env.truncated[:STEPS])


def test_only_the_first_reset_of_a_run_is_seeded() -> None:
    env = ScriptedBatch(2 * STEPS, ENVS, {})
    policy = policy_for(env)
    collect(env, policy, STEPS, np.random.default_rng(0), seed=7)
    collect(env, policy, STEPS, np.random.default_rng(0))
    assert env.seeds == [7, None]


def test_only_finished_episodes_have_statistics() -> None:
    env = scripted(num_costs=2)
    rollout = collect(env, policy_for(env), STEPS, np.random.default_rng(0))
    expected = []
    for n in range(ENVS):
        start = 0
        for t in range(STEPS):
            if env.terminated[t, n] or env.truncated[t, n]:
                piece = slice(start, t + 1)
                cost = [sum(env.cost[piece, n, k]) for k in range(2)]
                expected.append((t, n, sum(env.reward[piece, n]), cost, t + 1 - start))
                start = t + 1
    expected.sort(key=lambda row: row[:2])  # in order of time
    episodes = finished_episodes(rollout)
    assert len(episodes) == len(expected) == len(ENDS)
    np.testing.assert_allclose(episodes.returns, [row[2] for row in expected], atol=1e-12)
    np.testing.assert_allclose(episodes.costs, [row[3] for row in expected], atol=1e-12)
    assert episodes.lengths.tolist() == [row[4] for row in expected]


def test_an_epoch_without_a_finished_episode_has_no_statistics() -> None:
    env = ScriptedBatch(STEPS, ENVS, {}, num_costs=2)
    episodes = finished_episodes(collect(env, policy_for(env), STEPS, np.random.default_rng(0)))
    assert len(episodes) == 0
    assert episodes.costs.shape == (0, 2)
    window = EpisodeWindow(100, 2)
    window.extend(episodes)
    assert len(window) == 0
    assert np.isnan(window.episode_return)
    assert np.isnan(window.episode_length)


# ---------------------------------------------------------------- the window


def numbered(first: int, count: int) -> Episodes:
    numbers = np.arange(first, first + count, dtype=float)
    return Episodes(numbers, np.stack([10.0 * numbers, -numbers], axis=1), numbers + 0.5)


def test_window_is_first_in_first_out_over_epochs() -> None:
    window = EpisodeWindow(5, 2)
    held: list[float] = []
    for first, count in [(0, 2), (2, 0), (2, 2), (4, 3), (7, 12), (19, 1)]:
        window.extend(numbered(first, count))
        held = (held + [float(i) for i in range(first, first + count)])[-5:]
        mean = sum(held) / len(held)
        assert len(window) == len(held)
        assert window.episode_return == pytest.approx(mean)
        assert window.J_c == pytest.approx([10.0 * mean, -mean])
        assert window.episode_length == pytest.approx(mean + 0.5)


def test_restored_window_goes_on_exactly() -> None:
    window, restored = EpisodeWindow(5, 2), EpisodeWindow(5, 2)
    window.extend(numbered(0, 4))
    restored.load_state_dict(window.state_dict())
    window.extend(numbered(4, 3))
    restored.extend(numbered(4, 3))
    np.testing.assert_array_equal(restored.J_c, window.J_c)
    assert restored.episode_return == window.episode_return


@pytest.mark.parametrize(("time_limit", "length"), [(1000, 1000), (None, STEPS)])
def test_cost_before_any_episode_is_the_rate_times_the_length(
    time_limit: int | None, length: int
) -> None:
    env = ScriptedBatch(STEPS, ENVS, {}, num_costs=2)
    rollout = collect(env, policy_for(env), STEPS, np.random.default_rng(0))
    rate = env.cost[:STEPS].reshape(-1, 2).mean(axis=0)
    np.testing.assert_allclose(
        cost_without_episodes(rollout, time_limit), rate * length, rtol=1e-12
    )


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["observation", "reward", "cost"])
def test_non_finite_values_are_named_with_environment_and_step(what: str, value: float) -> None:
    env = scripted(num_costs=2)
    array = getattr(env, what)
    if what == "observation":
        array[4 + 1, 3, 1] = value  # shown by the fifth step
    else:
        array[4, 3] = value
    with pytest.raises(EnvironmentFault, match=rf"(?i)environment 3 .*non-finite {what}.* step 5 "):
        collect(env, policy_for(env), STEPS, np.random.default_rng(0))


def test_non_finite_observation_at_reset_is_named() -> None:
    env = scripted()
    env.observation[0, 2, 1] = np.nan
    with pytest.raises(
        EnvironmentFault, match=r"(?i)environment 2 .*non-finite observation at reset"
    ):
        collect(env, policy_for(env), STEPS, np.random.default_rng(0))


@pytest.mark.parametrize(("step", "number"), [(2, 0), (6, 0)], ids=["terminated", "truncated"])
def test_non_finite_last_observation_is_refused_before_it_spoils_the_statistics(
    step: int, number: int
) -> None:
    env = scripted()
    env.final[step, number, 1] = np.nan
    policy = policy_for(env)
    with pytest.raises(
        EnvironmentFault, match=rf"(?i)environment {number} .*observation.* step {step + 1} "
    ):
        collect(env, policy, STEPS, np.random.default_rng(0))
    assert np.isfinite(policy.normaliser.mean).all()
