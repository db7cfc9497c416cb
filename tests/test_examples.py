"""The example scripts run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "needs"), [("cartpole.py", "gymnasium"), ("point_maze.py", "gymnasium_robotics")]
)
def test_real_environments_train(script: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs, reason=f"{script} needs {needs}")
    words = ["--steps", "4000", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout and (tmp_path / "run" / "summary.json").exists()


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
