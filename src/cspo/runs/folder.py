"""A run is a folder: config.toml, progress.csv, TensorBoard events, checkpoints, summary, curve."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tomli_w

from cspo import __version__
from cspo.algorithms import algorithm_names
from cspo.config import (
    FREE,
    TrainConfig,
    from_dict,
    read_settings,
    read_toml,
    to_dict,
    use_plugin,
    with_settings,
)
from cspo.errors import CspoError, UnknownSetting
from cspo.plugins import MissingPlugin
from cspo.runs import checkpoint
from cspo.runs.files import remove_partial_files, try_lock, write_text, writes_to
from cspo.runs.progress import ProgressFile
from cspo.runs.sinks import Sink
from cspo.runs.tensorboard import TensorBoard
from cspo.types import EpochReport

if TYPE_CHECKING:
    from cspo.train import Trainer

CHANGEABLE = {"total_steps", *FREE}  # what a resumed run may change


class RunInUse(CspoError):
    """A run that another process is training."""


class RunFolder:
    """The files of one run.

    Attributes:
        path: Where they are.
        config: The settings of the run.
        notes: What was repaired when the run was reopened.
        sinks: Further places for the numbers of every epoch, besides the files of the folder.
    """

    def __init__(self, path: Path, config: TrainConfig, lock: IO[str]) -> None:
        """Use `create` or `reopen`."""
        self.path, self.config = path, config
        self.notes: list[str] = []
        self.sinks: list[Sink] = []
        self._lock = lock
        self._progress = ProgressFile(path / "progress.csv")
        self._files = self._file_sinks()

    def _file_sinks(self) -> list[Sink]:
        """Return what writes the folder's own files of numbers."""
        events = TensorBoard(self.path / "tensorboard")
        return [events, self._progress] if self.config.tensorboard else [self._progress]

    @classmethod
    def create(cls, path: Path | str, config: TrainConfig) -> RunFolder:
        """Start a new run; a folder that already holds one is refused."""
        path = Path(path)
        with writes_to(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, hold(path))
            if holds_run(path):
                run.close()
                raise CspoError(
                    f"{path} already holds a run. Continue it with `cspo train --resume {path}`, "
                    "or choose another --run-dir."
                )
            write_config(path, config)
        return run

    @classmethod
    def reopen(
        cls, path: Path | str, changes: dict[str, Any]
    ) -> tuple[RunFolder, dict[str, Any] | None]:
        """Open a run to continue it; returns the folder and its newest readable state.

        The state is None for a run that stopped before its first checkpoint: it starts anew, and
        being the same settings and the same seed, it becomes the run it would have been.
        """
        path = Path(path)
        config = load_config(path, changes.get("plugin"))
        if unknown := set(changes) - CHANGEABLE:
            allowed, refused = (", ".join(sorted(names)) for names in (CHANGEABLE, unknown))
            raise CspoError(
                f"A resumed run keeps its settings; only {allowed} can change, not {refused}."
            )
        run = cls(path, config, hold(path))
        try:
            state, epochs = run._recover()
            if changes:
                run.config = with_settings(config, **changes)
                run._files = run._file_sinks()
                if run.config.epochs < epochs:
                    done = f"The run has done {epochs * config.steps_per_epoch} steps already"
                    raise CspoError(f"{done}: --total-steps must not be less.")
                write_config(path, run.config)
        except BaseException:
            run.close()
            raise
        return run, state

    def _recover(self) -> tuple[dict[str, Any] | None, int]:
        """Return the newest state that fits progress.csv; bring the files back to its epochs."""
        folder = self.path / "checkpoints"
        remove_partial_files(self.path)
        remove_partial_files(folder)
        rows = self._progress.complete_rows()
        state, self.notes = checkpoint.load_newest(folder, rows)
        if state is None and rows > self.config.checkpoint_every:
            done = f"though {rows} epochs were done"
            raise CspoError(f"{folder} holds no checkpoint, {done}: start the run again.")
        epochs = 0 if state is None else int(state["epoch"])
        self.notes += self._progress.rewind(epochs)
        return state, epochs

    def keep(self, report: EpochReport, trainer: Trainer) -> None:
        """Keep an epoch that is done: its numbers, and a checkpoint if one is due.

        The sinks that were added come last: whatever happens in one of them, the epoch is on disk.
        """
        with writes_to(f"run folder {self.path}"):
            for file in self._files:
                file.write(report)
        if trainer.epoch % self.config.checkpoint_every == 0 or trainer.epoch == self.config.epochs:
            self.save(trainer)
        for sink in self.sinks:
            sink.write(report)

    def save(self, trainer: Trainer) -> Path:
        """Write a checkpoint; progress.csv is on disk before it, so that a crash loses no row."""
        folder, state = self.path / "checkpoints", trainer.state_dict()
        with writes_to(f"run folder {self.path}"):
            self._progress.sync()
            return checkpoint.save(folder, trainer.epoch, state, self.config.keep_checkpoints)

    def close(self) -> None:
        """Close the sinks and release the folder."""
        with ExitStack() as stack:  # which goes on where one of them fails
            stack.callback(self._lock.close)
            for sink in (*self._files, *self.sinks):
                stack.callback(sink.close)


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
        del settings["plugin"]  # not needed: built in, or registered by this program
    if "plugin" not in settings and algo not in algorithm_names():
        what = f"The algorithm {algo!r} of {path} is not built in"
        raise CspoError(f"{what}: pass --plugin with the file that has it.")
    try:
        return from_dict(settings)
    except UnknownSetting as fault:
        made = f"{path} was made by another version ({_maker(Path(path))})"
        lacking = f"with a setting that this one does not have: {fault.written}"
        advice = "Use that version for it; `cspo report`, `metrics` and `plot` read it as it is"
        said = f"{made}, {lacking}. {advice}."
        raise CspoError(said) from None


def _maker(path: Path) -> str:
    """Return which version trained a run, with its commit if the run has a summary that knows."""
    version = read_toml(path / "config.toml").get("cspo_version", "of unknown version")
    try:
        commit = json.loads((path / "summary.json").read_text(encoding="utf-8")).get("commit")
    except (OSError, ValueError, AttributeError):  # not there yet, or damaged
        commit = None
    return f"cspo {version}" + (f", commit {commit}" if commit else "")


def free_folder(root: Path, name: str) -> Path:
    """Create and return root/name, or root/name-2, -3, ... if that is taken."""
    path, number = root / name, 2
    while True:
        try:
            path.mkdir(parents=True)  # what claims a name when several runs start together
            return path
        except FileExistsError:
            path, number = root / f"{name}-{number}", number + 1
        except OSError as error:
            fault = f"Cannot create run folder {path}: {error.strerror}. Try --run-dir."
            raise CspoError(fault) from error


def hold(path: Path) -> IO[str]:
    """Hold the folder for this process; released when the process ends, however it ends."""
    with writes_to(f"run folder {path}"):
        file = open(path / ".lock", "w")  # noqa: SIM115 (held for the life of the run)
    if not try_lock(file):
        file.close()
        raise RunInUse(f"Another process is training in {path}. Wait for it, or stop it first.")
    return file
