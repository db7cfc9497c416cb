"""What the benchmarks of faults and of load share: a small environment, runs and studies of it.

A run takes a second or two and an epoch about 20 ms, most of it the writing of files, so that a
kill at a random moment often hits one.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import safetensors
import tomli_w
from gymnasium.spaces import Box

import cspo
from cspo.runs.checkpoint import list_checkpoints

BENCHMARKS = Path(__file__).resolve().parent
SOURCES = Path(cspo.__file__).resolve().parents[1]
TASK = "small_studies:PointOnALine"
ALGORITHMS = ("cspo", "ppo-lag", "cpo", "focops", "cppo-pid")  # of five different kinds
STEPS = 40  # of an epoch
EPOCHS = 30
SETTINGS: dict[str, Any] = {
    "num_envs": 2,
    "steps_per_epoch": STEPS,
    "passes": 2,
    "minibatch_size": 20,
    "hidden_sizes": [8],
    "cost_limit": 2.0,  # low enough to be violated, so that every part of an algorithm acts
    "tensorboard": False,
    "threads": 1,
}
# What may differ between two runs that are the same: times, and a commit made meanwhile.
FREE = ("steps_per_second", "seconds", "commit")
PATIENCE = 300.0  # seconds: far more than anything here takes


class PointOnALine(gymnasium.Env[Any, Any]):
    """Moving right is rewarded, being right costs; 20 steps per episode."""

    num_costs = 1

    def __init__(self, pause: float = 0.0) -> None:
        """`pause`: seconds that each step takes longer."""
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.pause = pause

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin somewhere."""
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move."""
        self.t += 1
        self.x = 0.9 * self.x + float(action[0]) + 0.1 * self.np_random.normal(size=2)
        if self.pause:
            time.sleep(self.pause)
        cost = float(self.x[1] > 0.0)
        return self.x.copy(), float(self.x[0]), False, self.t == 20, {"cost": cost}


def write_study(file: Path, **changes: Any) -> Path:
    """Write a study of this environment."""
    study = {
        "name": "small",
        "tasks": [TASK],
        "algorithms": ["cspo", "cpo"],
        "seeds": 2,
        "total_steps": STEPS * EPOCHS,
        "settings": SETTINGS,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tomli_w.dumps(study | changes))
    return file


def as_flags(settings: dict[str, Any]) -> list[str]:
    """Return settings as they are typed."""
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{flag}", text]
    return words


def start(*words: Any, also: str = "", **variables: str) -> subprocess.Popen[str]:
    """Start `cspo` as a process in a session of its own, without a terminal.

    Args:
        *words: Its arguments.
        also: A folder of modules that come before all others.
        **variables: Of its environment.
    """
    places = [*([also] if also else []), str(BENCHMARKS), str(SOURCES)]
    paths = {"PYTHONPATH": os.pathsep.join(places)}
    return subprocess.Popen(
        [sys.executable, "-m", "cspo.cli", *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **paths, **variables},
        start_new_session=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """Return what a process that ends well printed."""
    output, _ = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {output.strip()[-2000:]}")
    return output


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait, and return what was waited for."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(0.003)
    return value


def rows(folder: Path) -> int:
    """Return the epochs in progress.csv of the runs in a folder, at any depth."""
    found = 0
    for file in folder.rglob("progress.csv"):
        with contextlib.suppress(OSError):
            found += max(0, file.read_bytes().count(b"\n") - 1)
    return found


def kill(*processes: int) -> None:
    """Kill processes, those that are there."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def is_alive(process: int) -> bool:
    """Whether a process is there, and not only waiting to be buried."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes() -> Iterator[int]:
    """Return all processes of this machine."""
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def trainers_below(folder: Path) -> list[tuple[int, str]]:
    """Return the processes that hold a run below a folder, and the run's id."""
    found = []
    for process in processes():
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    path = Path(os.readlink(file))
                    if path.name == ".lock" and folder in path.parents and path.parent != folder:
                        found.append((process, path.parent.name))
    return found


def differences(run: Path, reference: Path) -> list[str]:
    """Return in what two runs differ, bit for bit, but for the time they took."""
    found = []
    ours, theirs = (_cells(folder / "progress.csv") for folder in (run, reference))
    if list(ours) != list(theirs):
        found.append("progress.csv: columns")
    found += [f"progress.csv: {name}" for name in theirs if ours.get(name) != theirs[name]]
    (plain, arrays), (plain_there, arrays_there) = _state(run), _state(reference)
    if plain != plain_there or arrays.keys() != arrays_there.keys():
        found.append("last checkpoint: state")
    found += [f"parameters: {name}" for name in arrays if arrays[name] != arrays_there.get(name)]
    one, other = (json.loads((path / "summary.json").read_text()) for path in (run, reference))
    found += [f"summary.json: {name}" for name in other if one.get(name) != other[name]]
    found = [text for text in found if not text.endswith(FREE)]
    if left := [path.name for path in run.rglob("*.partial")]:
        found.append(f"left behind: {left[0]}")
    return found


def _cells(file: Path) -> dict[str, tuple[str, ...]]:
    """Return the columns of a CSV file as text."""
    with open(file, newline="", encoding="utf-8") as source:
        header, *lines = csv.reader(source)
    return dict(zip(header, zip(*lines, strict=True), strict=True))


def _state(run: Path) -> tuple[str, dict[str, bytes]]:
    """Return what the newest checkpoint holds: plain values, and the bytes of arrays."""
    path = list_checkpoints(run / "checkpoints")[-1]
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        plain = json.loads(file.metadata()["state"])
    raw = {name: str(array.dtype).encode() + array.tobytes() for name, array in arrays.items()}
    return f"{path.name} {json.dumps(plain, sort_keys=True)}", raw


def all_differences(out: Path, reference: Path) -> list[str]:
    """Return in what the runs of two studies differ."""
    runs = sorted(path.name for path in (reference / "runs").iterdir())
    there = sorted(path.name for path in (out / "runs").iterdir() if path.name[0] != ".")
    if runs != there:
        return [f"runs: {len(there)} instead of {len(runs)}"]
    pairs = [(out / "runs" / name, reference / "runs" / name) for name in runs]
    return [f"{one.name}: {text}" for one, other in pairs for text in differences(one, other)]


def print_table(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for line in lines:
        print("| " + " | ".join(map(str, line)) + " |", flush=True)
