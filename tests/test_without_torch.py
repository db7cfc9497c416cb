"""Everything but losses written in PyTorch works where PyTorch cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_helpers import PYTHONPATH, TESTS

EXAMPLE = TESTS.parent / "examples" / "my_algorithm.py"
TASK = "SafetyHopperVelocity-v1"
SMALL = ["--steps-per-epoch", "400", "--num-envs", "2", "--quiet"]
STUDY = f"""
name = "small"
tasks = ["{TASK}"]
algorithms = ["cspo", "cpo"]
seeds = 1
total_steps = 800
[settings]
steps_per_epoch = 400
num_envs = 2
"""
IN_TORCH = """
import cspo
from cspo.optim.autograd import AutogradObjective
try:
    AutogradObjective(lambda new, columns: new.ratio.mean(), {})
except cspo.CspoError as error:
    print(error)
"""
IMAGE = """
import gymnasium, numpy as np, sys, cspo
class Dark(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((8, 8, 3), np.uint8), {}
    def step(self, action):
        return np.zeros((8, 8, 3), np.uint8), 0.0, False, True, {"cost": 0.0}
sizes = {"num_envs": 2, "steps_per_epoch": 20, "total_steps": 20}
for network in ("auto", "mlp"):
    try:
        config = cspo.make_config("<Dark>", network=network, **sizes)
        print(len(list(cspo.Trainer(config, env=Dark))))
    except cspo.CspoError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `import torch` fails, in every process that is started there."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "torch").mkdir()
    blocked = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    (folder / "torch" / "__init__.py").write_text(blocked)
    return folder


def python(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), PYTHONPATH])}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def run(folder: Path, *words: object) -> str:
    """Run the command line there; it must succeed."""
    done = python(folder, "-m", "cspo.cli", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_really_missing_there(folder: Path) -> None:
    done = python(folder, "-c", "import torch")
    assert done.returncode == 1 and "No module named 'torch'" in done.stderr


def test_training_resuming_and_evaluating(folder: Path) -> None:
    run(folder, "train", TASK, "--total-steps", 800, "--run-dir", "run", *SMALL)
    run(folder, "train", "--resume", "run", "--total-steps", 1200, "--quiet")
    assert len((folder / "run" / "progress.csv").read_text().splitlines()) == 4
    assert list((folder / "run" / "tensorboard").iterdir())
    assert "deterministic" in run(folder, "eval", "run", "--episodes", 2)
    run(folder, "plot", "run")
    run(folder, "metrics", "run")


def test_an_algorithm_of_a_user(folder: Path) -> None:
    plugin = ["--plugin", EXAMPLE, "--algo", "step-price", "--run-dir", "own"]
    run(folder, "train", TASK, "--total-steps", 800, *plugin, *SMALL)
    assert "step-price" in run(folder, "algos", "--plugin", EXAMPLE)


def test_studies_and_reports(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    run(folder, "study", "run", "study.toml", "--out", "out")
    run(folder, "report", "out")
    assert (folder / "out" / "report" / "index.html").is_file()


def test_parity(folder: Path) -> None:
    traces = TESTS.parent.parent / "shared" / "reference" / "traces"
    recordings = sorted(traces.rglob(f"*{TASK}*.npz"))
    if not recordings:
        pytest.skip("the recorded transitions are not beside this checkout")
    assert TASK in run(folder, "parity", recordings[0])


def test_what_needs_torch_says_how_to_install_it(folder: Path) -> None:
    done = python(folder, "-c", IN_TORCH)
    assert "pip install 'cspo[torch]'" in done.stdout and done.returncode == 0
    (folder / "in_torch.py").write_text("import torch\n")
    done = python(folder, "-m", "cspo.cli", "algos", "--plugin", "in_torch.py")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "needs PyTorch: pip install 'cspo[torch]'" in done.stderr


def test_images_say_what_they_need_and_train_flattened(folder: Path) -> None:
    done = python(folder, "-c", IMAGE)
    said, trained = done.stdout.splitlines()
    assert "--network mlp" in said and said.endswith("pip install 'cspo[torch]'")
    assert trained == "1", done.stderr
