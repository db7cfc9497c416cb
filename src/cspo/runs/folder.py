"""A run is a folder: config.toml, progress.csv, TensorBoard events, checkpoints, summary.json, curve.png."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import tomli_w

from cspo import __version__
from cspo.algorithms import algorithm_names
from cspo.config import TrainConfig, from_dict, read_settings, to_dict, use_plugin
from cspo.envs import BatchEnv, make_batch
from cspo.errors import CspoError
from cspo.plugins import MissingPlugin
from cspo.runs import checkpoint
from cspo.runs.files import remove_partial_files, try_lock, write_text
from cspo.runs.progress import ProgressFile
from cspo.runs.tensorboard import EventWriter
from cspo.types import EpochReport, FloatArray

CHANGEABLE = {"total_steps", "threads"}  # what a resumed run may change


class RunInUse(CspoError):
    """A run that another process is training."""


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path, config: TrainConfig, lock: IO[str]) -> None:
        """Use `create` or `reopen`."""
        self.path, self.config = path, config
        self.notes: list[str] = []  # what was repaired when the run was reopened
        self._lock = lock
        self._progress = ProgressFile(path / "progress.csv")
        self._events: EventWriter | None = None

    @classmethod
    def create(cls, path: Path | str, config: TrainConfig) -> RunFolder:
        """Start a new run; a folder that already holds one is refused."""
        path = Path(path)
        with _explained(path):
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, hold(path))
            if holds_run(path):
                run.close()
                raise CspoError(
                    f"{path} already holds a run. Continue it with `cspo train --resume {path}`, or choose "
                    "another --run-dir."
                )
            run._write_config()
        return run

    @classmethod
    def reopen(
        cls, path: Path | str, changes: dict[str, Any]
    ) -> tuple[RunFolder, TrainConfig, dict[str, Any] | None]:
        """Open a run to continue it; returns the folder, its settings and its newest readable state.

        The state is None for a run that stopped before its first checkpoint: it starts anew, and
        being the same settings and the same seed, it becomes the run it would have been.
        """
        path = Path(path)
        config = load_config(path, changes.get("plugin"))
        unknown = (
            set(changes) - CHANGEABLE - {"plugin"}
        )  # where the algorithm is, and not what it does
        if unknown:
            raise CspoError(
                f"A resumed run keeps its settings; only {', '.join(sorted(CHANGEABLE))} can change, not "
                f"{', '.join(sorted(unknown))}."
            )
        run = cls(path, config, hold(path))
        try:
            state = run._recover()
            if changes:
                run.config = from_dict(to_dict(config) | changes)
                _check_not_shortened(run.config, 0 if state is None else int(state["epoch"]))
                run._write_config()
        except BaseException:
            run.close()
            raise
        return run, run.config, state

    def _recover(self) -> dict[str, Any] | None:
        """Return the newest state that fits progress.csv, and bring the files back to that epoch."""
        folder = self.path / "checkpoints"
        remove_partial_files(self.path)
        remove_partial_files(folder)
        rows = self._progress.complete_rows()
        state, self.notes = checkpoint.load_newest(folder, rows)
        if state is None and rows > self.config.checkpoint_every:
            raise CspoError(
                f"{folder} holds no checkpoint, though {rows} epochs were done: start the run again."
            )
        self.notes += self._progress.rewind(0 if state is None else int(state["epoch"]))
        return state

    def _write_config(self) -> None:
        write_config(self.path, self.config)

    def log(self, report: EpochReport) -> None:
        """Append one epoch to progress.csv and to the TensorBoard events."""
        with _explained(self.path):
            if self.config.tensorboard:
                if self._events is None:
                    self._events = EventWriter(self.path / "tensorboard", report.steps)
                self._events.log(report)
            self._progress.append(report)

    def save(self, epochs_done: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; progress.csv is on disk before it, so that no row can be missing after a crash."""
        with _explained(self.path):
            self._progress.sync()
            return checkpoint.save(
                self.path / "checkpoints", epochs_done, state, self.config.keep_checkpoints
            )

    def close(self) -> None:
        """Flush and release the files."""
        if self._events is not None:
            self._events.close()
            self._events = None
        self._progress.close()
        self._lock.close()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into a sentence."""
    try:
        yield
    except OSError as error:
        raise CspoError(f"Cannot write to run folder {path}: {error.strerror or error}.") from error


def write_config(path: Path, config: TrainConfig) -> None:
    """Write the settings of a run into its folder."""
    data = {"cspo_version": __version__, **to_dict(config)}
    write_text(path / "config.toml", tomli_w.dumps(data))


def holds_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / "config.toml").exists()


def load_settings(path: Path | str) -> dict[str, Any]:
    """Return the settings of a run as plain data; its algorithm need not be known here."""
    path = Path(path)
    if not holds_run(path):
        raise CspoError(f"{path} holds no run (there is no {path / 'config.toml'}).")
    return read_settings(path / "config.toml")


def load_config(path: Path | str, plugin: str | None = None) -> TrainConfig:
    """Return the settings of a run.

    Args:
        path: The run's folder.
        plugin: Where the plugin is that holds the run's algorithm, if it is not where it was.
    """
    settings = load_settings(path)
    if plugin is not None:
        settings["plugin"] = plugin
    algo = settings.get("algo")
    try:
        use_plugin(settings)
    except MissingPlugin as fault:
        if algo not in algorithm_names():
            where = f"It holds the algorithm {algo!r} of {path}: pass --plugin with where it is."
            raise CspoError(f"{fault} {where}") from None
        del settings[
            "plugin"
        ]  # not needed: the algorithm is built in, or this program has registered it
    if "plugin" not in settings and algo not in algorithm_names():
        raise CspoError(
            f"The algorithm {algo!r} of {path} is not built in: pass --plugin with the file that has it."
        )
    return from_dict(settings)


def free_folder(root: Path, name: str) -> Path:
    """Create and return root/name, or root/name-2, -3, ... if that is taken."""
    path, number = root / name, 2
    while True:
        try:
            path.mkdir(
                parents=True
            )  # creating is what claims a name when several runs start together
            return path
        except FileExistsError:
            path, number = root / f"{name}-{number}", number + 1
        except OSError as error:
            raise CspoError(
                f"Cannot create run folder {path}: {error.strerror}. Try --run-dir."
            ) from error


def object_label(env: Any) -> str:
    """Return what stands for an environment object in the settings: `<ClassName>` or `<function_name>`."""
    return f"<{getattr(env, '__name__', type(env).__name__).strip('<>')}>"


def environment_for(config: TrainConfig, env: Any) -> Any:
    """Return what to make the environment from: `env`, or what the settings name."""
    if env is None and config.task.startswith("<"):
        raise CspoError(
            f"This run was trained on the Python object {config.task}, which a run folder cannot hold: "
            "pass it again as env=, from Python."
        )
    return config.task if env is None else env


def make_environment(
    config: TrainConfig, env: Any, cost_fn: Any, num_envs: int | None = None
) -> BatchEnv:
    """Return copies of a run's environment, as many as it trains on unless `num_envs` says otherwise."""
    return make_batch(
        environment_for(config, env),
        config.num_envs if num_envs is None else num_envs,
        config.resolved_threads,
        cost_fn,
        config.cost_terms,
        config.env_options,
    )


def limits_for(config: TrainConfig, cost_names: tuple[str, ...]) -> FloatArray:
    """Return the limits (K,) or say how many are needed."""
    if len(config.cost_limit) != len(cost_names):
        raise CspoError(
            f"{config.task} has {len(cost_names)} cost(s) ({', '.join(cost_names)}), but --cost-limit gives "
            f"{len(config.cost_limit)} value(s). Give one limit per cost, separated by commas."
        )
    return np.array(config.cost_limit)


def environment_facts(env: Any, cost_fn: Any) -> dict[str, Any]:
    """Return what a checkpoint keeps of the environment: enough to act without it, and to recognise it."""
    return {
        "observation_size": int(env.observation_size),
        "action_size": int(env.action_size),
        "action_low": np.array(env.action_low, dtype=np.float64),
        "action_high": np.array(env.action_high, dtype=np.float64),
        "cost_names": list(env.cost_names),
        "cost_fn": cost_fn is not None,
        "time_limit": env.time_limit,
        "clip_actions": bool(getattr(env, "clip_actions", False)),
    }


def check_facts(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue a run on an environment that differs from the one it started on."""
    if saved["cost_fn"] != now["cost_fn"]:
        what = (
            "used a cost_fn: pass the same one again"
            if saved["cost_fn"]
            else "used no cost_fn: leave it out"
        )
        raise CspoError(f"This run {what}.")
    for name, value in now.items():
        if not np.array_equal(np.asarray(saved[name]), np.asarray(value)):
            raise CspoError(
                f"The environment has changed since the run started: {name.replace('_', ' ')} is {value}, and was "
                f"{np.asarray(saved[name]).tolist()}."
            )


def _check_not_shortened(config: TrainConfig, done: int) -> None:
    if config.epochs < done:
        steps = done * config.steps_per_epoch
        raise CspoError(f"The run has done {steps} steps already: --total-steps must not be less.")


def hold(path: Path) -> IO[str]:
    """Hold the folder for this process; released when the process ends, however it ends."""
    with _explained(path):
        file = open(path / ".lock", "w")  # noqa: SIM115 (held for the life of the run)
    if not try_lock(file):
        file.close()
        raise RunInUse(f"Another process is training in {path}. Wait for it, or stop it first.")
    return file
