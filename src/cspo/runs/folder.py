"""A run is a folder: config.toml, progress.csv, TensorBoard events, checkpoints, summary, curve."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import tomli_w

from cspo import __version__
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
from cspo.runs import checkpoint, trust
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.claim import hold
from cspo.runs.files import (
    refuse_link,
    remove_partial_files,
    write_text,
    writes_to,
)
from cspo.runs.logs import check_logs, open_logs
from cspo.runs.mend import read_lines
from cspo.runs.plain import read_json_table
from cspo.runs.progress import ProgressFile, progress_file
from cspo.runs.schema import check_state
from cspo.runs.sinks import Sink
from cspo.types import EpochReport

if TYPE_CHECKING:
    from cspo.train import Trainer

CHANGEABLE = {"total_steps", "stop_when", *FREE}  # what a resumed run may change


class RunFolder:
    """The files of one run.

    Attributes:
        path: Where they are, from the root: an environment may change the current directory.
        config: The settings of the run.
        notes: What was repaired when the run was reopened.
        sinks: Further places for the numbers of every epoch, besides the files of the folder.
    """

    def __init__(self, path: Path, config: TrainConfig, lock: IO[str], named: Path) -> None:
        """Use `create` or `reopen`."""
        self.path, self.config, self._named = path.absolute(), config, named
        self._before = config  # the settings it stopped with
        self._changed = False  # whether config.toml is to say something else
        self._agreed: dict[str, bool] = {}  # to what its task and its network import; see `trust`
        self.notes: list[str] = []
        self.sinks: list[Sink] = []
        self._lock = lock
        self._progress = ProgressFile(self.path / "progress.csv")
        self._files = open_logs(self.path, config, self._progress)

    @property
    def shown(self) -> Path:
        """Return where they are as the user wrote it, as long as that leads here."""
        try:
            return self._named if self._named.absolute() == self.path else self.path
        except OSError:  # the current directory is gone
            return self.path

    @classmethod
    def create(
        cls, path: Path | str, config: TrainConfig, named: Path | str | None = None
    ) -> RunFolder:
        """Start a new run; a folder that already holds one is refused.

        Args:
            path: The folder.
            config: The settings of the run.
            named: What the user calls the folder, if not by that path.
        """
        path = Path(path)
        check_logs(config)
        with writes_to(f"run folder {path}"):
            path.mkdir(parents=True, exist_ok=True)
            run = cls(path, config, hold(path), Path(named or path))
            try:
                if holds_run(path):
                    _clear_unused(path)
                write_config(path, config)
            except BaseException:
                run.close()
                raise
        trust.remember(path, config)
        return run

    @classmethod
    def reopen(
        cls,
        path: Path | str,
        changes: dict[str, Any],
        *,
        env: Any = None,
        policy: Any = None,
        trusted: bool = False,
    ) -> RunFolder:
        """Open a run to continue it, with some settings changed; `restore` goes on from here.

        Args:
            path: The folder.
            changes: Settings that change from here on.
            env: The environment, or its name, if the caller has one.
            policy: The same of its network.
            trusted: Whether the code that the folder names may be imported, whosever it is.

        Raises:
            Untrusted: If the folder names code that the user neither trusts nor has used for it.
        """
        path = Path(path)
        plugin = changes.get("plugin")
        read = load_config(path, plugin)
        kept = trust.agreed_plugin(path, read, plugin, trusted)
        trust.allowed_network(read, policy, trusted)
        config = _checked(load_settings(path) | {"plugin": kept}, path, None)
        if env is None:  # after the plugin, which may hold the task
            trust.require(path, trust.task_code(read), trusted)
        if unknown := set(changes) - CHANGEABLE:
            allowed, refused = (", ".join(sorted(names)) for names in (CHANGEABLE, unknown))
            raise CspoError(
                f"A resumed run keeps its settings; only {allowed} can change, not {refused}."
            )
        after = with_settings(config, **changes) if changes else config
        check_logs(after)
        run = cls(path, after, hold(path), path)
        run._before, run._changed = config, bool(changes)
        run._agreed["with_task"] = env is None or env == config.task
        run._agreed["with_network"] = policy is None or policy == config.network
        return run

    def restore(self, trainer: Trainer, policy: Any = None) -> None:
        """Put a trainer where the run stopped, and bring the files back to that epoch.

        Where the run stopped before its first checkpoint, the trainer stays at its beginning: being
        the same settings and the same seed, it becomes the run it would have been. Nothing is
        written before a state has been found and loaded. `policy` is the network the user gave.
        """
        folder, rows = self.path / "checkpoints", self._progress.complete_rows()
        with writes_to(f"run folder {self.shown}"):
            refuse_link(folder)

        def accept(state: dict[str, Any]) -> None:
            check_state(state, self._before, policy)
            try:
                trainer.load_state_dict(state)
            except CspoError:
                raise  # the environment is another one
            except Exception as fault:  # of the environment, or of an algorithm of the user
                what = f"it cannot be put back ({type(fault).__name__}: {fault})"
                raise checkpoint.DamagedCheckpoint(what) from fault

        state, self.notes = checkpoint.load_newest(folder, rows, accept)
        archived = progress_file(self.path).suffix == ".gz"
        if state is None and (archived or rows > self._before.checkpoint_every):
            done = "as archives do not" if archived else f"though {rows} epochs were done"
            raise CspoError(f"{folder} holds no checkpoint, {done}: start the run again.")
        if self.config.epochs < trainer.epoch:
            done = f"The run has done {trainer.epoch * self.config.steps_per_epoch} steps already"
            raise CspoError(f"{done}: --total-steps must not be less.")
        with writes_to(f"run folder {self.shown}"):
            remove_partial_files(self.path)
            remove_partial_files(folder)
            self.notes += self._progress.rewind(trainer.epoch, (state or {}).get("progress"))
            if self._changed:
                write_config(self.path, self.config)
        trust.remember(self.path, self.config, **self._agreed)

    def keep(self, report: EpochReport, trainer: Trainer, last: bool = False) -> None:
        """Keep an epoch that is done: its numbers, and a checkpoint if one is due, or at the last.

        The sinks that were added come last: whatever happens in one of them, the epoch is on disk.
        """
        self._check_open()
        with writes_to(f"run folder {self.shown}"):
            for file in self._files:
                file.write(report)
        last = last or trainer.epoch == self.config.epochs
        if trainer.epoch % self.config.checkpoint_every == 0 or last:
            self.save(trainer)
        for sink in self.sinks:
            sink.write(report)

    def save(self, trainer: Trainer) -> Path:
        """Write a checkpoint; progress.csv is on disk before it, so that a crash loses no row."""
        self._check_open()
        folder = self.path / "checkpoints"
        state = trainer.state_dict() | {"progress": self._progress.numbers.state_dict()}
        with writes_to(f"run folder {self.shown}"):
            self._progress.sync()
            return checkpoint.save(folder, trainer.epoch, state, self.config.keep_checkpoints)

    def close(self) -> None:
        """Close the sinks and release the folder; safe to call twice."""
        if self._lock.closed:
            return
        with ExitStack() as stack:  # which goes on where one of them fails
            stack.callback(self._lock.close)
            for file in self._files:
                stack.callback(self._close_file, file)
            for sink in self.sinks:
                stack.callback(sink.close)

    def _check_open(self) -> None:
        """Refuse to write without the lock: the run may be another's by now."""
        if self._lock.closed:
            again = f'cspo.Trainer.resume("{self.path}")'
            raise CspoError(f"The run in {self.path} is closed: go on with {again}.")

    def _close_file(self, file: Sink) -> None:
        with writes_to(f"run folder {self.shown}"):
            file.close()


def write_config(path: Path, config: TrainConfig) -> None:
    """Write the settings of a run into its folder."""
    data = {"cspo_version": __version__, **to_dict(config)}
    write_text(path / "config.toml", tomli_w.dumps(data))


def holds_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return os.path.lexists(path / "config.toml")


def has_results(path: Path) -> bool:
    """Whether a run has anything to show: a line below the header, a summary or a checkpoint."""
    lines = read_lines(path / "progress.csv")[1]
    left = any(map(os.path.lexists, (path / "summary.json", path / "progress.csv.gz")))
    return bool(lines.rows or lines.fault or left or list_checkpoints(path / "checkpoints"))


def _clear_unused(path: Path) -> None:
    """Make room for a new run where one ended before its first epoch; refuse any other."""
    if has_results(path):
        raise CspoError(
            f"{path} already holds a run. Continue it with `cspo train --resume {path}`, "
            "or choose another --run-dir."
        )
    (path / "progress.csv").unlink(missing_ok=True)


def load_settings(path: Path | str) -> dict[str, Any]:
    """Return the settings of a run as plain data; its algorithm need not be known here."""
    path = Path(path)
    if not holds_run(path):
        raise CspoError(f"{path} holds no run (there is no {path / 'config.toml'}).")
    settings = read_settings(path / "config.toml")
    for name in ("task", "algo"):
        if not isinstance(settings.get(name), str):
            what = f"does not say {name}" if settings else "is empty"
            lost = "the settings of the run are lost, in part or all"
            raise CspoError(f"{path / 'config.toml'} {what}: {lost}. Put a copy of it back.")
    return settings


def load_config(path: Path | str, plugin: str | None = None) -> TrainConfig:
    """Return the settings of a run, as data: nothing that they name is imported.

    Args:
        path: The run's folder.
        plugin: A plugin to load for the run's algorithm: one that the caller names.
    """
    path, settings = Path(path), load_settings(path)
    if plugin is not None:
        settings |= use_plugin({"plugin": plugin})
    return _checked(settings, path, path.absolute())


def _checked(settings: dict[str, Any], path: Path, folder: Path | None) -> TrainConfig:
    """Return validated settings; one that only another version knows is told as that."""
    try:
        return from_dict(settings, folder)
    except UnknownSetting as fault:
        made = f"{path} was made by another version ({_maker(path)})"
        lacking = f"with a setting that this one does not have: {fault.written}"
        advice = "Use that version for it; `cspo report`, `metrics` and `plot` read it as it is"
        said = f"{made}, {lacking}. {advice}."
        raise CspoError(said) from None


def _maker(path: Path) -> str:
    """Return which version trained a run, with its commit if the run has a summary that knows."""
    version = read_toml(path / "config.toml").get("cspo_version", "of unknown version")
    commit = read_json_table(path / "summary.json").get("commit")
    return f"cspo {version}" + (f", commit {commit}" if commit else "")
