"""A loaded policy acts without an environment; an evaluation counts fairly and changes nothing."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import reference_mlp, unpack
from run_helpers import SMALL, TASK, TinyEnv, TwoCosts, make_tiny

import cspo
from cspo.errors import CspoError
from cspo.policy.scaling import ActionScaling
from cspo.runs import checkpoint
from cspo.use.intervals import Interval, mean_interval, share_interval

FAST = {**SMALL, "total_steps": 800}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    cspo.train(TASK, run_dir=folder, quiet=True, **FAST)
    return folder


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "run"
    cspo.train("run_helpers:make_tiny", run_dir=folder, quiet=True, **FAST)
    return folder


def newest(run: Path) -> dict:
    state, _ = checkpoint.load_newest(run / "checkpoints")
    assert state is not None
    return state


def test_policy_is_normaliser_actor_and_action_box(tiny_run: Path) -> None:
    policy, state = cspo.load(tiny_run), newest(tiny_run)
    observation = np.random.default_rng(0).normal(size=(7, 2)) * 3.0
    seen = state["policy"]["normaliser"]
    std = np.sqrt(seen["square_sum"] / (seen["count"] - 1))
    x = np.clip((observation - seen["mean"]) / np.maximum(std, 0.01), -5.0, 5.0)
    layers, log_std = unpack(state["policy"]["actor"].astype(np.float64), (2, 16, 16, 1))
    mean = reference_mlp(layers, x)
    expected = mean * 1.5 - 0.5  # the box is -2 .. 1
    np.testing.assert_allclose(policy(observation, clip=False), expected, rtol=1e-5, atol=1e-6)
    assert policy(observation[0]).shape == (1,)
    np.testing.assert_allclose(policy(observation[0]), policy(observation)[0], rtol=1e-6)

    policy.seed(1)
    draws = np.array([policy(observation[0], deterministic=False, clip=False) for _ in range(4000)])
    assert draws.mean() == pytest.approx(expected[0, 0], abs=0.1)
    assert draws.std() == pytest.approx(1.5 * np.exp(log_std[0]), rel=0.05)
    policy.seed(1)
    assert policy(observation[0], deterministic=False, clip=False) == draws[0]
    assert draws.min() < -2.0 and draws.max() > 1.0
    policy.seed(1)  # the environment was given clipped actions, so that is the default
    clipped = np.array([policy(observation[0], deterministic=False) for _ in range(4000)])
    np.testing.assert_array_equal(clipped, np.clip(draws, -2.0, 1.0))


def test_actions_are_scaled_in_one_place_as_training_does() -> None:
    low, high = np.array([-2.0, 0.0]), np.array([1.0, 0.5])
    scaling = ActionScaling(low, high)
    action = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    expected = action * (0.5 * (high - low)) + 0.5 * (high + low)
    assert scaling(action).dtype == np.float64
    assert scaling(action).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(scaling(action, clip=True), np.clip(expected, low, high))
    np.testing.assert_array_equal(scaling(np.array([[-1.0, -1.0], [1.0, 1.0]])), [low, high])


def test_actions_reach_the_environment_as_in_training(run: Path, tiny_run: Path) -> None:
    assert cspo.load(tiny_run).clip_actions and not cspo.load(run).clip_actions
    with pytest.raises(CspoError, match=r"observations of shape \(11,\) or \(B, 11\), not \(4,\)"):
        cspo.load(run)(np.zeros(4))


def test_checkpoints_by_number_and_path(run: Path) -> None:
    assert cspo.load(run).epoch == 2
    assert cspo.load(run, 1).epoch == 1
    assert cspo.load(run, run / "checkpoints" / "epoch-000001.safetensors").epoch == 1
    with pytest.raises(CspoError, match="keeps those of epochs: 1, 2"):
        cspo.load(run, 7)
    with pytest.raises(CspoError, match="holds no run"):
        cspo.load(run / "nothing")


def test_evaluation_changes_nothing_and_repeats_itself(tiny_run: Path) -> None:
    before = {file: file.read_bytes() for file in tiny_run.rglob("*") if file.is_file()}
    policy = cspo.load(tiny_run)
    rows = cspo.evaluate(policy, 12)
    assert [row.mode for row in rows] == ["stochastic", "deterministic"]
    assert all(
        row.episodes == 12 and len(row.cost) == 1 and row.episode_length == 20 for row in rows
    )
    assert cspo.evaluate(policy, 12) == rows == cspo.evaluate(tiny_run, 12)
    assert cspo.evaluate(tiny_run, 12, seed=99) != rows
    assert cspo.evaluate(tiny_run, 12, deterministic=True) == rows[1:]
    saved = newest(tiny_run)["policy"]["normaliser"]
    assert policy.networks.normaliser.count == saved["count"]
    np.testing.assert_array_equal(policy.networks.normaliser.mean, saved["mean"])
    assert {file: file.read_bytes() for file in tiny_run.rglob("*") if file.is_file()} == before


def test_native_task(run: Path) -> None:
    (row,) = cspo.evaluate(run, 3, deterministic=False)
    assert row.episodes == 3 and row.episode_length > 1 and row.cost_limit == (25.0,)


class TwoLengths(TinyEnv):
    """Episodes of 1 or 99 steps with equal chance; the return is the length."""

    def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
        answer = super().reset(seed=seed)
        self.length = int(self.np_random.choice([1, 99]))
        return answer

    def step(self, action):  # type: ignore[no-untyped-def]
        observation, _, _, _, info = super().step(action)
        return observation, 1.0, self.t == self.length, False, info


def test_short_episodes_are_not_favoured(tiny_run: Path) -> None:
    (row,) = cspo.evaluate(tiny_run, 400, deterministic=True, env=TwoLengths)
    assert row.episodes == 400
    assert row.episode_length == row.episode_return.mean == pytest.approx(50.0, abs=10.0)
    assert cspo.evaluate(tiny_run, 13, deterministic=False, env=TwoLengths)[0].episodes == 13


def test_run_on_a_python_object_asks_for_it(tmp_path: Path) -> None:
    env = TwoCosts()
    settings = {**FAST, "num_envs": 1, "cost_limit": (5.0, 0.0)}
    summary = cspo.train(env, "ppo", run_dir=tmp_path / "run", quiet=True, **settings)
    assert summary.task == "<TwoCosts>" and len(summary.cost) == 2
    assert "cost_1" in (tmp_path / "run" / "progress.csv").read_text().splitlines()[0]
    with pytest.raises(CspoError, match="pass it again as env="):
        cspo.evaluate(tmp_path / "run")
    rows = cspo.evaluate(tmp_path / "run", 5, env=env)
    assert rows[0].violation_rate.mean == 1.0 and len(rows[0].cost) == 2
    assert not env.closed
    with pytest.raises(CspoError, match="has sizes"):
        cspo.evaluate(tmp_path / "run", 5, env=make_tiny)


def test_intervals() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mean_interval(np.full(10, 3.0)) == Interval(3.0, 3.0, 3.0)
        assert np.isnan(mean_interval(np.array([2.0])).low)
        for values in (np.arange(20.0), np.array([0.0] * 19 + [1.0]), np.array([1.0, 2.0])):
            interval = mean_interval(values)
            assert interval.low <= interval.mean <= interval.high and interval.low < interval.high
            assert interval == mean_interval(values)
    normal = np.random.default_rng(0).normal(size=200)
    half = 1.96 * normal.std() / np.sqrt(200)
    assert mean_interval(normal).high - normal.mean() == pytest.approx(half, rel=0.15)
    none, all_ = share_interval(0, 20), share_interval(20, 20)
    assert none.low == pytest.approx(0.0, abs=1e-12) and none.high == pytest.approx(
        0.1611, abs=1e-3
    )
    assert all_.high == pytest.approx(1.0) and all_.mean == 1.0


def test_wrong_numbers_are_refused(run: Path) -> None:
    with pytest.raises(CspoError, match="--episodes must be at least 1"):
        cspo.evaluate(run, 0)
    with pytest.raises(CspoError, match="--seed must not be negative"):
        cspo.evaluate(run, 1, seed=-1)
