"""A run is a folder: config.toml, progress.csv, TensorBoard events, checkpoints, summary.json, curve.png."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import IO, Any

import tomli_w

from cspo import __version__, checkpoint
from cspo.config import TrainConfig, from_dict, read_toml, to_dict, validate
from cspo.errors import CspoError
from cspo.log.progress import ProgressFile
from cspo.log.tensorboard import EventWriter
from cspo.types import EpochReport

CHANGEABLE = {"total_steps", "threads"}  # what a resumed run may change


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
        if holds_run(path):
            raise CspoError(
                f"{path} already holds a run. Continue it with `cspo train --resume {path}`, or choose another "
                "--run-dir."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, _lock(path))
            run._write_config()
        except OSError as error:
            raise CspoError(f"Cannot write to run folder {path}: {error.strerror}.") from error
        return run

    @classmethod
    def reopen(cls, path: Path | str, changes: dict[str, Any]) -> tuple[RunFolder, TrainConfig, dict[str, Any]]:
        """Open a run to continue it; returns the folder, its settings and its newest readable state."""
        path = Path(path)
        config = load_config(path)
        unknown = set(changes) - CHANGEABLE
        if unknown:
            raise CspoError(
                f"A resumed run keeps its settings; only {', '.join(sorted(CHANGEABLE))} can change, not "
                f"{', '.join(sorted(unknown))}."
            )
        lock = _lock(path)
        state, notes = checkpoint.load_newest(path / "checkpoints")
        if changes:
            config = dataclasses.replace(config, **changes)
            validate(config)
        run = cls(path, config, lock)
        run.notes = notes
        if changes:
            run._write_config()
        run.notes += run._progress.rewind(int(state["epoch"]))
        return run, config, state

    def _write_config(self) -> None:
        data = {"cspo_version": __version__, **to_dict(self.config)}
        checkpoint.write_text(self.path / "config.toml", tomli_w.dumps(data))

    def log(self, report: EpochReport) -> None:
        """Append one epoch to progress.csv and to the TensorBoard events."""
        if self.config.tensorboard:
            if self._events is None:
                self._events = EventWriter(self.path / "tensorboard", report.steps)
            self._events.log(report)
        self._progress.append(report)

    def save(self, epochs_done: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; progress.csv is on disk before it, so that no row can be missing after a crash."""
        self._progress.sync()
        return checkpoint.save(self.path / "checkpoints", epochs_done, state, self.config.keep_checkpoints)

    def close(self) -> None:
        """Flush and release the files."""
        if self._events is not None:
            self._events.close()
            self._events = None
        self._progress.close()
        self._lock.close()


def holds_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / "config.toml").exists()


def load_config(path: Path | str) -> TrainConfig:
    """Return the settings of a run."""
    path = Path(path)
    if not holds_run(path):
        raise CspoError(f"{path} holds no run (there is no {path / 'config.toml'}).")
    data = read_toml(path / "config.toml")
    data.pop("cspo_version", None)
    return from_dict(data)


def free_folder(root: Path, name: str) -> Path:
    """Return root/name, or root/name-2, -3, ... if that already holds a run."""
    path, number = root / name, 2
    while path.exists():
        path, number = root / f"{name}-{number}", number + 1
    return path


def _lock(path: Path) -> IO[str]:
    """Hold the folder for this process; released when the process ends, however it ends."""
    file = open(path / ".lock", "w")  # noqa: SIM115 (held for the life of the run)
    try:
        import fcntl
    except ImportError:  # Windows: no lock, the folder is simply not protected
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise CspoError(f"Another process is training in {path}. Wait for it, or stop it first.") from error
    return file
