"""The example scripts run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_helpers import SMALL, assert_same_run

import cspo

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
    """One process for all: most of the time is spent on importing."""
    pytest.importorskip(
        "stable_baselines3", reason="pip install -e '.[examples]' brings Stable-Baselines3"
    )
    short = ["--num-envs", "2", "--rollout", "512", "--steps", "1024"]
    runs = [
        ["--task", "cspo/SafetyHopperVelocity-v1", *short],
        ["SafetyRacecarCircle1-v0", *short],  # its episodes have 500 steps
        ["SafetyAntPush2-v0", *short],
        ["cspo/SafetyDoggoRun0-v0", *short],
    ]
    code = (
        "import runpy, sys\n"
        f"for words in {runs!r}:\n"
        "    sys.argv = ['sb3_ppo.py', *words]\n"
        f"    runpy.run_path({str(EXAMPLES / 'sb3_ppo.py')!r}, run_name='__main__')\n"
        "    print('trained on', words[-7])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *parts, rest = done.stdout.split("trained on ")
    assert len(parts) == len(runs) and rest.startswith("cspo/SafetyDoggoRun0-v0")
    assert all("return" in part and "cost" in part for part in parts)


def test_a_network_of_ones_own_trains_and_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="pip install 'cspo[torch]' brings PyTorch")
    monkeypatch.syspath_prepend(EXAMPLES)
    import my_network

    whole, part = tmp_path / "whole", tmp_path / "part"
    settings: Any = {**SMALL, "total_steps": 1200, "cost_limit": (2.0,)}
    named = {"network": "my_network:SetNetwork", **settings}
    summary = cspo.train("my_network:Field", run_dir=whole, quiet=True, **named)
    assert summary.finished
    config = cspo.make_config("my_network:Field", **named)
    with cspo.Trainer(config, run_dir=part) as trainer:
        next(iter(trainer))
    cspo.resume(part, quiet=True)
    assert_same_run(part, whole)
    policy, field = cspo.load(part), my_network.Field()
    seen, _ = field.reset(seed=0)
    assert policy(seen).shape == (2,)
    network = my_network.SetNetwork(seen.shape, 2)
    turned = torch.from_numpy(seen[[0, *range(my_network.OBSTACLES, 0, -1)]])[None]
    assert torch.allclose(network(torch.from_numpy(seen)[None]), network(turned), atol=1e-6)


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
