"""One seed, one result: bit for bit, whatever the number of threads, and across an interruption."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_envs import RandomWalk, ScriptedBatch

import cspo
from cspo.runs import checkpoint
from cspo.streams import set_stream_state, stream, stream_state

ALGORITHMS = ("cspo", "ppo-lag", "ppo")
OTHER_OPTIONS: dict[str, dict[str, Any]] = {
    "cspo defaults": {"algo": "cspo"},
    "cspo, every other option": {
        "algo": "cspo",
        "alpha": (0.3, 0.9),
        "patience": 2.0,
        "metric": "fisher",
        "clip": 0.1,
        "margin": "on",
        "violation_rate": 0.3,
        "kl_check": "minibatch",
        "cost_gamma": 0.9,
    },
    "cspo, no margin": {"algo": "cspo", "margin": "off", "entropy_coefficient": 0.01},
    "cspo, paper, two alphas": {"algo": "cspo", "form": "paper", "alpha": (0.3, 0.9)},
    "cspo, paper, with a margin": {"algo": "cspo", "form": "paper", "margin": "on"},
    "ppo-lag": {"algo": "ppo-lag"},
    "ppo-lag, projected": {"algo": "ppo-lag", "dual": "projected", "multiplier_max": 0.5},
    "ppo-lag, with a margin": {"algo": "ppo-lag", "margin": "on"},
    "ppo": {"algo": "ppo"},
    "ppo, raw observations": {
        "algo": "ppo",
        "normalise_observations": False,
        "actor_lr_decay": False,
    },
}


def trainer(seed: int = 0, **settings: Any) -> cspo.Trainer:
    options: dict[str, Any] = {
        "cost_limit": (2.0, 3.0),
        "steps_per_epoch": 220,  # episodes of at most 15 steps: the last ones are cut
        "total_steps": 6 * 220,
        "num_envs": 4,
        "hidden_sizes": (16, 16),
        "minibatch_size": 64,
        "passes": 3,
        "actor_lr": 3e-3,
        "critic_lr": 3e-3,
        "episode_window": 30,
        "threads": 1,
        "tensorboard": False,
        "seed": seed,
    }
    algo = settings.pop("algo", "cspo")
    config = cspo.make_config("walk", algo, **(options | settings))
    return cspo.Trainer(config, env=RandomWalk)


def numbers(reports: list[Any]) -> list[Any]:
    """Everything in the reports except the clock."""
    return [
        (
            report.epoch,
            report.episode_return,
            report.cost,
            report.multiplier,
            report.kl,
            report.metrics,
        )
        for report in reports
    ]


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_same_seed_gives_the_same_parameters_and_reports(algo: str) -> None:
    first, second = trainer(algo=algo), trainer(algo=algo)
    assert first.parameter_hash() == second.parameter_hash()
    start = first.parameter_hash()
    assert numbers(list(first)) == numbers(list(second))
    assert first.parameter_hash() == second.parameter_hash() != start


def test_number_of_threads_does_not_change_the_result() -> None:
    hashes = set()
    for threads in (1, 2, 5):
        run = trainer(threads=threads)
        for _ in run:
            pass
        hashes.add(run.parameter_hash())
    assert len(hashes) == 1


def test_another_seed_gives_other_networks_actions_and_starts() -> None:
    rollouts = []
    for seed in (0, 1):
        env = ScriptedBatch(
            11, 4, {}, low=[-3.0, 0.0], high=[7.0, 1.0], num_costs=2, observation_size=2
        )
        options = {
            "cost_limit": (2.0, 3.0),
            "steps_per_epoch": 40,
            "total_steps": 40,
            "num_envs": 4,
        }
        run = cspo.Trainer(
            cspo.make_config("scripted", "ppo", seed=seed, tensorboard=False, **options), env=env
        )
        parameters = run.policy.actor.parameters.copy()
        list(run)
        rollouts.append((parameters, env.actions[0], env.seeds))
    assert (rollouts[0][0] != rollouts[1][0]).sum() > 1000
    assert (rollouts[0][1] != rollouts[1][1]).all()
    assert [seeds for *_, seeds in rollouts] == [[0], [1]]
    assert trainer(0).env.reset(0).tolist() != trainer(1).env.reset(1).tolist()


@pytest.mark.parametrize("name", OTHER_OPTIONS)
@pytest.mark.parametrize("after", [1, 3])
def test_interrupted_run_ends_exactly_like_an_uninterrupted_one(
    name: str, after: int, tmp_path: Any
) -> None:
    whole = trainer(**OTHER_OPTIONS[name])
    expected = list(whole)

    broken = trainer(**OTHER_OPTIONS[name])
    iterator = iter(broken)
    reports = [next(iterator) for _ in range(after)]
    state = broken.state_dict()
    path = checkpoint.save(tmp_path, after, state)
    list(iterator)  # going on must not change the state that was taken

    resumed = trainer(**OTHER_OPTIONS[name])
    resumed.load_state_dict(checkpoint.load(path))
    reports += list(resumed)
    assert numbers(reports) == numbers(expected)
    assert resumed.parameter_hash() == whole.parameter_hash()

    in_memory = trainer(**OTHER_OPTIONS[name])
    in_memory.load_state_dict(state)
    list(in_memory)
    assert in_memory.parameter_hash() == whole.parameter_hash()


def test_two_trainers_can_take_turns() -> None:
    """No hidden global state: interleaved runs do not disturb each other."""
    alone = {algo: trainer(algo=algo) for algo in ("cspo", "ppo")}
    for run in alone.values():
        list(run)
    together = {algo: trainer(algo=algo) for algo in ("cspo", "ppo")}
    for _ in zip(*together.values(), strict=True):
        np.random.random()  # noqa: NPY002 (somebody else uses the global generator)
    for algo, run in together.items():
        assert run.parameter_hash() == alone[algo].parameter_hash()


def test_streams_of_a_seed_are_independent_and_can_be_restored() -> None:
    a, b, c = stream(0, "action"), stream(0, "minibatch"), stream(1, "action")
    first = a.standard_normal(5)
    assert not set(first) & set(b.standard_normal(5))
    assert not set(first) & set(c.standard_normal(5))
    np.testing.assert_array_equal(stream(0, "action").standard_normal(5), first)
    state = stream_state(a)
    following = a.standard_normal(5)
    set_stream_state(c, state)
    np.testing.assert_array_equal(c.standard_normal(5), following)


def test_hash_sees_every_trained_number() -> None:
    run = trainer()
    list(run)
    before = run.parameter_hash()
    for array in (
        run.policy.actor.parameters,
        run.policy.critics.parameters,
        run.policy.normaliser.mean,
    ):
        flat = array.reshape(-1)
        kept = flat[-1].item()
        flat[-1] = kept + 1e-3
        assert run.parameter_hash() != before
        flat[-1] = kept
    assert run.parameter_hash() == before
