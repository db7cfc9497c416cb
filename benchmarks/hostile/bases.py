"""What cases damage: small runs and a small study, trained once."""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

TASK = "SafetyHopperVelocity-v1"
EPOCHS = 4
SIZES = {
    "num_envs": 4,
    "steps_per_epoch": 200,
    "passes": 1,
    "minibatch_size": 100,
    "hidden_sizes": "8,8",
    "threads": 1,
}
WORDS = tuple(
    word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))
)
# The words of a short training, for cases that are about something else.
SHORT = (*WORDS, "--total-steps", "400", "--no-tensorboard", "--quiet")
RUN_ID = f"{TASK}-ppo-lag-seed0"
STUDY = f"""name = "small"
tasks = ["{TASK}"]
algorithms = ["ppo-lag"]
seeds = 2
total_steps = {200 * EPOCHS}

[settings]
num_envs = 4
steps_per_epoch = 200
passes = 1
minibatch_size = 100
hidden_sizes = [8, 8]
tensorboard = false
"""
TINY = '''"""A point on a line: moving right is rewarded, being right costs."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Make(gymnasium.Env):
    num_costs = 1

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action):
        self.t += 1
        self.x = 0.9 * self.x + float(action[0]) + 0.1 * self.np_random.normal(size=2)
        return self.x.copy(), float(self.x[0]), False, self.t == 20, {"cost": float(self.x[1] > 0)}
'''


def make_bases(folder: Path, names: Collection[str] = ()) -> None:
    """Train what cases damage into `folder`, as far as it is named, and load all that is needed.

    run: a finished run of a native task, trained here, so that this process has loaded whatever a
    command may need. The others in processes of their own, for this one must stay without threads.
    home: where the program remembers what it remembers about its user.
    """
    (folder / "home").mkdir(parents=True)
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(folder / "home")
    try:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            _train(folder / "run", TASK, "--no-tensorboard")
            _warm_up(folder)
        for name, make in BASES.items():
            if name in names or (name == "study" and "archive" in names):
                _apart(make, folder)
    finally:
        if before is not None:
            os.environ["HOME"] = before
    assert threading.active_count() == 1, "a process with threads cannot be forked safely"


def _train(run: Path, task: str, *words: str) -> None:
    from cspo.cli import main

    long = (*WORDS, "--total-steps", str(200 * EPOCHS), "--keep-checkpoints", "3", "--quiet")
    if main(["train", task, *long, *words, "--run-dir", str(run)]):
        raise SystemExit(f"training {task} into {run} failed")


def _make_study(folder: Path) -> None:
    from cspo.config import to_dict
    from cspo.lab.study.grid import read_study
    from cspo.lab.study.worker import work

    (folder / "study" / "runs").mkdir(parents=True)
    file = folder / "study" / "study.toml"
    file.write_text(STUDY, encoding="utf-8")
    for spec in read_study(file).runs:
        work(to_dict(spec.config), str(folder / "study" / "runs" / spec.id))
    (folder / "study" / "running.json").write_text("[]\n", encoding="utf-8")


def _make_archive(folder: Path) -> None:
    from cspo.lab.study.archive import archive

    archive(folder / "study", folder / "archive")


BASES: dict[str, Callable[[Path], None]] = {
    "events": lambda folder: _train(folder / "events", TASK),
    "study": _make_study,
    "archive": _make_archive,
    "empty": lambda folder: (folder / "empty").mkdir(),
}


def _apart(make: Callable[[Path], None], folder: Path) -> None:
    """Make a base in a process that ends with it."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.chdir(folder)
            make(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(process, 0)[1]:
        raise SystemExit("the runs that cases damage could not be made")


def _warm_up(folder: Path) -> None:
    """Import what commands import when they need it, and load the compiled code of evaluation."""
    import cspo.lab.report.write
    import cspo.lab.study.schedule
    import cspo.use.record  # noqa: F401
    from cspo.cli import main

    main(["eval", str(folder / "run"), "--episodes", "1"])
    main(["metrics", str(folder / "run")])
