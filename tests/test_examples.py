"""The example scripts run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_stable_baselines3_trains_on_our_tasks() -> None:
    pytest.importorskip(
        "stable_baselines3", reason="pip install -e '.[examples]' brings Stable-Baselines3"
    )
    words = [
        "--task",
        "cspo/SafetyHopperVelocity-v1",
        "--steps",
        "256",
        "--num-envs",
        "2",
        "--rollout",
        "128",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / "sb3_ppo.py"), *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines and all("return" in line and "cost" in line for line in lines)


def test_the_task_of_a_users_own_trains(tmp_path: Path) -> None:
    code = (
        "import runpy, sys, cspo; train = cspo.train\n"
        "cspo.train = lambda *names, **settings: train(\n"
        "    *names, **(settings | dict(total_steps=400, steps_per_epoch=400, num_envs=2)))\n"
        f"runpy.run_path({str(EXAMPLES / 'my_task.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "SafetyPointSlow-v0" in done.stdout and "finished" in done.stdout
