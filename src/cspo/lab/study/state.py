"""What is on disk of a study: its files, who is running it, and how far every run is. Reading never disturbs a run."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cspo.errors import CspoError
from cspo.lab.study.grid import RunSpec, Study, read_study
from cspo.lab.study.repair import difference, is_finished
from cspo.runs.files import try_lock, write_text
from cspo.runs.progress import constraint_columns, progress_file, read_progress

State = Literal["waiting", "stopped", "running", "finished", "failed"]
TAIL = 16_384  # bytes of progress.csv that are read to know how far a run is: about its last twenty epochs


@dataclass(frozen=True)
class RunStatus:
    """How far a run is; nan and empty where nothing is known yet."""

    id: str
    task: str
    state: State
    epochs_done: int
    epochs: int
    steps: int  # of the whole run
    episode_return: float
    cost: tuple[float, ...]  # K
    limit: tuple[float, ...]  # K
    steps_per_second: float  # mean over the newest epochs
    error: str = ""  # of a failed run

    @property
    def share(self) -> float:
        """Share of the run that is done."""
        return self.epochs_done / self.epochs

    @property
    def steps_left(self) -> float:
        """Environment steps that remain."""
        return self.steps * (1.0 - self.share)

    @property
    def seconds_left(self) -> float:
        """Time left at the speed of the newest epochs."""
        return self.steps_left / self.steps_per_second if self.steps_per_second > 0 else math.nan


class StudyFolder:
    """The files of one study."""

    def __init__(self, path: Path | str) -> None:
        """Open nothing yet."""
        self.path = Path(path)

    def run(self, spec: RunSpec) -> Path:
        """Return the folder of a run."""
        return self.path / "runs" / spec.id

    def read(self) -> Study:
        """Return the study that was started here."""
        file = self.path / "study.toml"
        if not file.is_file():
            raise CspoError(f"{self.path} holds no study (there is no {file}).")
        return read_study(file)

    def check(self, study: Study) -> list[str]:
        """Refuse to continue another study than the one that is here; returns a note if study.toml is damaged."""
        notes = []
        if (self.path / "study.toml").exists():
            try:
                before = self.read()
            except CspoError:
                notes.append(f"{self.path / 'study.toml'} could not be read: it is written again.")
            else:
                _check_same(before, study, self.path)
        for spec in study.runs:
            if (found := difference(spec.config, self.run(spec))) is not None:
                raise CspoError(
                    f"{found}.\nA study keeps its settings: choose another --out, or change that back."
                )
        return notes

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the study for this process; a second one is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = open(self.path / ".lock", "a")  # noqa: SIM115 (held while the study goes on)
        deadline = (
            time.monotonic() + 1.0
        )  # somebody may be looking at the lock just now, see `is_running`
        while not try_lock(file):
            if time.monotonic() > deadline:
                file.close()
                raise CspoError(
                    f"Another process is running the study in {self.path}: wait for it, or stop it first."
                )
            time.sleep(0.02)
        try:
            yield
        finally:
            self.set_running([])
            file.close()

    def is_running(self) -> bool:
        """Whether a process is running the study."""
        try:
            with open(self.path / ".lock") as file:
                return not try_lock(file, exclusive=False)
        except OSError:
            return False

    def running(self) -> set[str]:
        """Return the ids of the runs that are going on."""
        return set(_json(self.path / "running.json", [])) if self.is_running() else set()

    def set_running(self, ids: Iterable[str]) -> None:
        """Say which runs are going on."""
        with contextlib.suppress(OSError):  # on a full disk the table is wrong, and nothing else
            write_text(self.path / "running.json", json.dumps(sorted(ids)) + "\n")

    def failures(self) -> dict[str, dict[str, Any]]:
        """Return what is recorded of the runs that failed in the last start, by id."""
        found = {path.stem: _json(path, {}) for path in (self.path / "failures").glob("*.json")}
        return {name: record for name, record in found.items() if isinstance(record, dict)}

    def record_failure(self, name: str, attempts: int, error: str) -> None:
        """Keep the error of a run that failed."""
        with contextlib.suppress(OSError):  # it is printed as well
            (self.path / "failures").mkdir(exist_ok=True)
            data = {"attempts": attempts, "error": error}
            write_text(self.path / "failures" / f"{name}.json", json.dumps(data, indent=2) + "\n")

    def forget_failures(self) -> None:
        """Remove the records of an earlier start."""
        for path in (self.path / "failures").glob("*.json"):
            path.unlink()

    def status(self, study: Study) -> list[RunStatus]:
        """Return how far every run is."""
        running, failures = self.running(), self.failures()
        return [self._status(spec, running, failures) for spec in study.runs]

    def _status(self, spec: RunSpec, running: set[str], failures: dict[str, Any]) -> RunStatus:
        if spec.id in running:
            return status_of(spec, self.run(spec), "running")
        if spec.id in failures:
            return status_of(
                spec, self.run(spec), "failed", str(failures[spec.id].get("error", ""))
            )
        return status_of(spec, self.run(spec))


def _check_same(before: Study, study: Study, path: Path) -> None:
    if before.name != study.name:
        raise CspoError(
            f"{path} holds the study {before.name!r}, not {study.name!r}: choose another --out."
        )
    names = {spec.id for spec in study.runs}
    for spec in before.runs:
        if spec.id not in names:
            raise CspoError(
                f"{path} has the run {spec.id}, which this study has not: runs can be added to a study, but not taken "
                "away. Choose another --out."
            )


def _json(path: Path, otherwise: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return otherwise


def status_of(
    spec: RunSpec, folder: Path, state: State | None = None, error: str = ""
) -> RunStatus:
    """Return how far a run is, from the end of its progress.csv; `state` if that is known already."""
    epochs = progress_file(folder)
    columns = _newest(epochs)
    done = int(columns["epoch"][-1]) + 1 if columns else 0
    if state is None:
        archived = epochs.suffix == ".gz"  # only finished runs are
        finished = done == spec.config.epochs and (archived or is_finished(spec.config, folder))
        state = "finished" if finished else "stopped" if done else "waiting"
    speeds = [speed for speed in columns.get("steps_per_second", []) if speed > 0]
    return RunStatus(
        id=spec.id,
        task=spec.task,
        state=state,
        epochs_done=done,
        epochs=spec.config.epochs,
        steps=spec.config.epochs * spec.config.steps_per_epoch,
        episode_return=columns["return"][-1] if columns else math.nan,
        cost=tuple(column[-1] for column in constraint_columns(columns, "cost")),
        limit=tuple(column[-1] for column in constraint_columns(columns, "cost_limit"))
        or spec.config.cost_limit,
        steps_per_second=sum(speeds) / len(speeds) if speeds else math.nan,
        error=error,
    )


def _newest(file: Path) -> dict[str, list[float]]:
    """Return the newest complete rows of a progress.csv as columns; nothing if there is none."""
    try:
        columns = read_progress(file, tail=TAIL)
    except CspoError:  # an archive that was cut short or altered
        return {}
    return columns if columns.get("return") else {}
