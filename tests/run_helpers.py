"""What the tests of whole runs share: small settings and environments, exact comparison."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import safetensors
from gymnasium.spaces import Box

import cspo
from cspo.errors import flag
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.progress import read_progress

TESTS = Path(__file__).parent
# For processes that import from here; they run the library that this one runs.
PYTHONPATH = os.pathsep.join([str(TESTS), str(Path(cspo.__file__).parents[1])])
TASK = "SafetyHopperVelocity-v1"
EPOCHS = 6
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "steps_per_epoch": 400,
    "total_steps": 400 * EPOCHS,
    "passes": 2,
    "minibatch_size": 128,
    "hidden_sizes": (16, 16),
    "seed": 3,
    "tensorboard": False,
}


class TinyEnv(gymnasium.Env[Any, Any]):
    """A point on a line: moving right is rewarded, being right costs; 20 steps per episode."""

    num_costs = 1

    def __init__(self, faulty: bool = False) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-2.0, 1.0, (1,), np.float64)
        self.faulty, self.steps, self.closed = faulty, 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.x = self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.steps += 1
        self.x = 0.9 * self.x + float(action[0]) + 0.1 * self.np_random.normal(size=2)
        reward = float(self.x[0])
        if self.faulty and self.steps > 250 and "CSPO_TEST_MENDED" not in os.environ:
            reward = float("nan")
        return self.x.copy(), reward, False, self.t == 20, {"cost": self.costs()}

    def costs(self) -> Any:
        return float(self.x[1] > 0.0)

    def close(self) -> None:
        self.closed = True


class TwoCosts(TinyEnv):
    num_costs = 2

    def costs(self) -> Any:
        return np.array([self.x[1] > 0.0, abs(self.x[0])], dtype=float)


class NamedCosts(TinyEnv):
    """Tells the terms of its cost by name, and takes options."""

    num_costs = None

    def __init__(self, scale: float = 1.0, shape: str = "line", weights: Any = (1.0, 1.0)) -> None:
        super().__init__()
        self.scale, self.shape, self.weights = scale, shape, weights

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *others, info = super().step(action)
        heat, noise = self.weights[0] * self.scale, self.weights[1] * float(self.x[0] > 0.0)
        return *others, {**info, "cost_heat": heat, "cost_noise": noise}


def make_tiny() -> TinyEnv:
    return TinyEnv()


def make_hopper() -> gymnasium.Env[Any, Any]:
    return gymnasium.make(f"cspo/{TASK}")


def make_faulty() -> TinyEnv:
    return TinyEnv(faulty=True)


def as_flags(settings: dict[str, Any]) -> list[str]:
    """Return settings as they are typed."""
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(flag(name if value else f"no_{name}"))
        else:
            words += [
                flag(name),
                ",".join(map(str, value)) if isinstance(value, tuple) else str(value),
            ]
    return words


def start(*words: Any, **keywords: Any) -> subprocess.Popen[str]:
    """Start `cspo` as a real process."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **keywords.pop("variables", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "cspo.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **keywords,
    )


def wait_for_epochs(run: Path, epochs: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has started (0), has written so many epochs, or its process has ended."""
    deadline = time.monotonic() + 60
    file = run / ("progress.csv" if epochs else "config.toml")
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and (epochs == 0 or file.read_bytes().count(b"\n") > epochs):
            return
        time.sleep(0.005)


def final_state(run: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return everything in the newest checkpoint: plain values and arrays."""
    with safetensors.safe_open(
        list_checkpoints(run / "checkpoints")[-1], framework="numpy"
    ) as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["state"]), arrays


def assert_same_run(run: Path, reference: Path) -> None:
    """Every number of two runs is the same, bit for bit, but for the time it took."""
    ours, theirs = read_progress(run / "progress.csv"), read_progress(reference / "progress.csv")
    assert list(ours) == list(theirs)
    for name in ours:
        if name != "steps_per_second":
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    plain, arrays = final_state(run)
    reference_plain, reference_arrays = final_state(reference)
    assert json.dumps(plain) == json.dumps(reference_plain)
    assert set(arrays) == set(reference_arrays)
    for name, array in arrays.items():
        assert array.dtype == reference_arrays[name].dtype
        assert array.tobytes() == reference_arrays[name].tobytes(), name
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (run, reference)]
    assert summaries[0]["parameter_hash"] == summaries[1]["parameter_hash"]
