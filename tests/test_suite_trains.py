"""CSPO, PPO-Lag and CPO train on one task of every robot and of every game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from run_helpers import SMALL
from task_names import DIAGONAL

import cspo
from cspo.envs.batch import StepResult
from cspo.envs.navigation.games import GAMES
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.physics.simulated import SimulatedEnv
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.progress import read_progress

pytestmark = pytest.mark.usefixtures("no_pictures")
EPISODE, EPOCHS = 10, 5
TASKS = (*DIAGONAL, "SafetyWalker2dVelocity-v1")
# Each epoch is one episode of each of four copies, short enough for all of them in half a minute.
SETTINGS: dict[str, Any] = SMALL | {
    "steps_per_epoch": 4 * EPISODE,
    "total_steps": 4 * EPISODE * EPOCHS,
    "minibatch_size": 20,
    "env_options": {"time_limit": EPISODE},
    "cost_limit": (0.5,),
    "keep_checkpoints": EPOCHS,
    "episode_window": 100,
}


def test_every_robot_and_every_game_is_among_the_tasks() -> None:
    assert len(TASKS) >= 12
    for one in (*ROBOTS, *GAMES):
        assert any(one.name in name for name in TASKS), one.name


@pytest.fixture
def episodes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Costs of the episodes that end, counted a second time where the environment gives them."""
    costs: list[float] = []
    running: dict[int, np.ndarray] = {}
    end_step = SimulatedEnv._end_step

    def counted(env: SimulatedEnv) -> StepResult:
        result = end_step(env)
        sums = running.setdefault(id(env), np.zeros(env.num_envs))
        sums += result.cost[:, 0]
        ended = result.terminated | result.truncated
        costs.extend(sums[ended])
        sums[ended] = 0.0
        return result

    monkeypatch.setattr(SimulatedEnv, "_end_step", counted)
    return costs


@pytest.mark.parametrize("algo", ["cspo", "ppo-lag", "cpo"])
@pytest.mark.parametrize("name", TASKS)
def test_an_algorithm_trains_on_a_task(
    name: str, algo: str, tmp_path: Path, episodes: list[float]
) -> None:
    run = tmp_path / "run"
    summary = cspo.train(name, algo, run_dir=run, quiet=True, **SETTINGS)
    assert summary.finished and summary.epochs == EPOCHS
    progress = {
        key: np.array(values) for key, values in read_progress(run / "progress.csv").items()
    }
    for key in ("return", "cost", "kl", "multiplier", "critic_loss_reward", "critic_loss_cost"):
        assert np.isfinite(progress[key]).all(), key
    assert (progress["kl"] > 0.0).any() and (progress["policy_std"] > 0.0).all()
    assert len(episodes) >= 4 * EPOCHS and progress["cost"][-1] == pytest.approx(
        np.mean(episodes[-SETTINGS["episode_window"] :])
    )
    first, *_, last = (
        safetensors.numpy.load_file(file) for file in list_checkpoints(run / "checkpoints")
    )
    changed = {key for key in first if not np.array_equal(first[key], last[key])}
    assert any("actor" in key for key in changed) and any("critic" in key for key in changed)
