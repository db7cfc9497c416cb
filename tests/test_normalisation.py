"""Standardised rewards and costs: what critics see changes, what is reported does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Array, float64
from probe_envs import ScriptedBatch
from run_helpers import SMALL, TASK, TwoCosts, assert_same_run

import cspo
from cspo.commands.train import read_arguments
from cspo.experience.advantages import estimate
from cspo.experience.rollout import collect, finished_episodes
from cspo.experience.settings import AdvantageSettings
from cspo.policy.normaliser import SignalNormaliser
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.use.load import load

BOTH = {"normalise_rewards": True, "normalise_costs": True}
ENDS = {(5, 0): "terminated", (9, 1): "truncated", (3, 2): "truncated"}
STEPS, ENVS, COSTS = 12, 3, 2


def standardised(steps: Array, seen: list[float]) -> Array:
    """At every step remember its values, then (x - mean) / std over all of them, within [-5, 5]."""
    result = np.empty_like(steps)
    for t, values in enumerate(steps):
        seen.extend(values)
        if len(seen) == 1:
            result[t] = values
            continue
        deviation = max(float(np.std(seen, ddof=1)), 0.01)
        result[t] = np.clip((values - np.mean(seen)) / deviation, -5.0, 5.0)
    return result


def make_policy(rewards: bool, costs: bool) -> Policy:
    settings = PolicySettings(hidden_sizes=(8, 8), normalise_rewards=rewards, normalise_costs=costs)
    policy = Policy(3, 2, COSTS, settings, np.random.default_rng(0))
    policy.critics.parameters[:] = 0.0  # advantages are then discounted sums of the signals
    return policy


@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("costs", [False, True])
def test_advantages_come_from_standardised_signals(rewards: bool, costs: bool) -> None:
    policy = make_policy(rewards=rewards, costs=costs)
    seen: list[list[float]] = [[] for _ in range(1 + COSTS)]
    for epoch in range(2):  # the statistics go on from epoch to epoch
        env = ScriptedBatch(STEPS, ENVS, ENDS, num_costs=COSTS)
        env.reward[:] = 40.0 + 3.0 * env.reward + epoch
        env.reward[STEPS - 1, 1] = 1e4 * (1 + 99 * epoch)  # beyond the clip
        rollout = collect(env, policy, STEPS, np.random.default_rng(1))
        batch = estimate(rollout, policy, AdvantageSettings(0.0, 0.0, 0.0, 0.0), np.zeros(COSTS))
        raw = np.concatenate([env.reward[:STEPS, :, None], env.cost[:STEPS]], axis=2)
        for channel in range(1 + COSTS):
            on = rewards if channel == 0 else costs
            expected = standardised(raw[..., channel], seen[channel]) if on else raw[..., channel]
            np.testing.assert_allclose(
                float64(batch.value_target[channel]), expected.reshape(-1), rtol=2e-6, atol=2e-6
            )
        if rewards:
            assert float(batch.value_target[0].max()) == 5.0


def test_the_rollout_keeps_raw_values() -> None:
    policy = make_policy(rewards=True, costs=True)
    env = ScriptedBatch(STEPS, ENVS, ENDS, num_costs=COSTS)
    rollout = collect(env, policy, STEPS, np.random.default_rng(1))
    before = finished_episodes(rollout)
    batch = estimate(rollout, policy, AdvantageSettings(), np.zeros(COSTS))
    after = finished_episodes(rollout)
    np.testing.assert_array_equal(rollout.reward, env.reward[:STEPS])
    np.testing.assert_array_equal(rollout.cost, env.cost[:STEPS])
    np.testing.assert_array_equal(before.returns, after.returns)
    assert batch.any_cost.all()


def test_a_cost_that_never_occurs_stays_zero() -> None:
    signals = SignalNormaliser(1, costs=True)
    result = signals(np.ones((4, 2)), np.zeros((4, 2, 1)))
    np.testing.assert_array_equal(result, np.broadcast_to([1.0, 0.0], (4, 2, 2)))


def test_one_environment_passes_its_first_value_raw() -> None:
    signals = SignalNormaliser(1, rewards=True)
    result = signals(np.array([[7.0], [9.0]]), np.zeros((2, 1, 1)))[:, 0, 0]
    np.testing.assert_allclose(result, [7.0, (9.0 - 8.0) / np.sqrt(2.0)], rtol=1e-6)


def test_state_is_kept_and_only_of_what_is_on() -> None:
    assert SignalNormaliser(2).state_dict() == {}
    ours, theirs = SignalNormaliser(2, costs=True), SignalNormaliser(2, costs=True)
    rng = np.random.default_rng(0)
    ours(rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 2)))
    assert set(ours.state_dict()) == {"cost"}
    theirs.load_state_dict(ours.state_dict())
    more = rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 2))
    np.testing.assert_array_equal(ours(*more), theirs(*more))


def test_first_epoch_reports_the_same_raw_numbers() -> None:
    """The first epoch's policy is the same, so its episodes are, whatever the critics are told."""
    reports = []
    for switches in ({}, BOTH):
        trainer = cspo.Trainer(cspo.make_config(TASK, "ppo-lag", **SMALL, **switches))
        reports.append(next(iter(trainer)))
        trainer.env.close()
    plain, normalised = reports
    assert plain.episode_return == normalised.episode_return
    assert plain.cost == normalised.cost and plain.multiplier == normalised.multiplier
    assert plain.metrics["critic_loss_reward"] != normalised.metrics["critic_loss_reward"]


def make_two_costs() -> TwoCosts:
    return TwoCosts()


@pytest.mark.parametrize("algo", ["cspo", "ppo-lag"])
def test_resume_is_exact(algo: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SMALL, "total_steps": 1600, "cost_limit": (3.0, 4.0), **BOTH}
    cspo.train(make_two_costs, algo, run_dir=tmp_path / "whole", quiet=True, **settings)
    config = cspo.make_config("<make_two_costs>", algo, **settings)
    trainer = cspo.Trainer(config, env=make_two_costs, run_dir=tmp_path / "cut")
    for report in trainer:
        if report.epoch == 1:
            break
    assert trainer.run is not None
    trainer.run.close()
    cspo.resume(tmp_path / "cut", env=make_two_costs, quiet=True)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    assert load(tmp_path / "cut").networks.signals.parts["cost"].count == 1600


def test_settings_are_flags() -> None:
    config, _, _ = read_arguments([TASK, "--normalise-costs"])
    assert config.normalise_costs and not config.normalise_rewards
