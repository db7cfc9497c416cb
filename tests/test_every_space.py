"""Every algorithm on every kind of action: it trains, and a stopped or killed run ends the same."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import as_flags, assert_same_run, start, wait_for_epochs
from space_envs import ACTION_SPACES, SpaceEnv

import cspo
import cspo.runs.curves
from cspo.algorithms.registry import BUILT_IN
from cspo.train import Trainer

ALGORITHMS = [name.replace("_", "-") for name in BUILT_IN]
TASK = "space_envs:make_space_env"
SETTINGS: dict[str, Any] = {
    "num_envs": 4,
    "steps_per_epoch": 400,
    "passes": 2,
    "minibatch_size": 128,
    "hidden_sizes": (8, 8),
    "seed": 3,
    "cost_limit": (1.0,),  # low enough to be violated
}


@pytest.mark.parametrize("space", ACTION_SPACES)
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_stopped_after_an_epoch_it_ends_where_the_undisturbed_run_does(
    algo: str, space: str
) -> None:
    sizes = SETTINGS | {"steps_per_epoch": 200, "total_steps": 400, "minibatch_size": 64}
    config = cspo.make_config("<SpaceEnv>", algo, threads=1, **sizes)

    def trainer() -> Trainer:
        return Trainer(config, env=lambda: SpaceEnv(space))

    whole, first, second = trainer(), trainer(), trainer()
    start = first.parameter_hash()
    reports = list(whole)
    next(iter(first))
    second.load_state_dict(first.state_dict())
    (last,) = list(second)
    assert whole.parameter_hash() == second.parameter_hash() != start
    assert (last.cost, last.kl) == (reports[-1].cost, reports[-1].kl)
    # A trust-region step may be refused once, a first-order fit always moves.
    assert max(report.kl for report in reports) > 0.0
    assert np.isfinite([report.kl for report in reports]).all()


@pytest.mark.parametrize(
    ("algo", "space"),
    list(zip(["cspo", "cpo", "focops", "trpo-pid", "cup"], ACTION_SPACES, strict=True)),
)
def test_killed_and_resumed_it_ends_where_the_undisturbed_run_does(
    algo: str, space: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)
    settings = SETTINGS | {"total_steps": 2400, "tensorboard": False}
    options = {"action_space": space}
    reference, run = tmp_path / "reference", tmp_path / "run"
    cspo.train(TASK, algo, run_dir=reference, quiet=True, env_options=options, **settings)
    words = ("--env-options", f'action_space="{space}"', "--run-dir", run, "--quiet")
    process = start("train", TASK, "--algo", algo, *words, *as_flags(settings))
    wait_for_epochs(run, 2, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was still running"
    cspo.resume(run, quiet=True, trust=True)
    assert_same_run(run, reference)
