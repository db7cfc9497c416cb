"""What is on disk of a study: its files, who runs it, how far it is. Reading disturbs no run."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from cspo.errors import CspoError
from cspo.lab.study.grid import Study
from cspo.lab.study.plan import Plan, PlannedRun, read_plan
from cspo.lab.study.repair import difference, ended_early, is_finished
from cspo.runs.files import (
    is_locked,
    open_lock,
    own_folder,
    refuse_link,
    wait_for_lock,
    write_text,
)
from cspo.runs.plain import read_json, read_json_table
from cspo.runs.progress import constraint_columns, progress_file, read_progress

State = Literal["waiting", "stopped", "running", "finished", "failed"]
TAIL = 16_384  # bytes of progress.csv that tell how far a run is: about its last twenty epochs


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
        return self.epochs_done / max(1, self.epochs)

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

    def run(self, spec: PlannedRun) -> Path:
        """Return the folder of a run."""
        return self.path / "runs" / spec.id

    def read(self) -> Plan:
        """Return the study that was started here; this version need not be able to train it."""
        file = self.path / "study.toml"
        if not file.is_file():
            raise CspoError(f"{self.path} holds no study (there is no {file}).")
        return read_plan(self.path)

    def check(self, study: Study) -> list[str]:
        """Refuse to continue another study; returns a note if study.toml is damaged."""
        notes = []
        if (self.path / "study.toml").exists():
            try:
                before = self.read()
            except CspoError:
                notes.append(f"{self.path / 'study.toml'} could not be read: it is written again.")
            else:
                self._check_grown(before, study)
        for spec in study.runs:
            if (other := difference(spec.config, self.run(spec))) is not None:
                advice = "choose another --out, or change that back"
                raise CspoError(f"{other}.\nA study keeps its settings: {advice}.")
        return notes

    def _check_grown(self, before: Plan, study: Study) -> None:
        if before.name != study.name:
            held = f"{self.path} holds the study {before.name!r}, not {study.name!r}"
            raise CspoError(f"{held}: choose another --out.")
        kept = {spec.id for spec in study.runs}
        if lost := [spec.id for spec in before.runs if spec.id not in kept]:
            raise CspoError(
                f"{self.path} has the run {lost[0]}, which this study has not: runs can be added "
                "to a study, but not taken away. Choose another --out."
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the study for this process; a second one is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in ("runs", "logs", "failures", "damaged"):
            refuse_link(self.path / name)
        with open_lock(self.path / ".lock") as file:
            if not wait_for_lock(file, 1.0):  # `is_running` may be looking at the lock just now
                other = f"Another process is running the study in {self.path}"
                raise CspoError(f"{other}: wait for it, or stop it first.")
            try:
                yield
            finally:
                self.set_running([])

    def is_running(self) -> bool:
        """Whether a process is running the study."""
        return is_locked(self.path / ".lock")

    def set_running(self, ids: Iterable[str]) -> None:
        """Say which runs are going on."""
        with contextlib.suppress(OSError):  # on a full disk the table is wrong, and nothing else
            write_text(self.path / "running.json", json.dumps(sorted(ids)) + "\n")

    def failure(self, spec: PlannedRun) -> Path:
        """Return the file with the error of a run that failed."""
        return self.path / "failures" / f"{spec.id}.json"

    def record_failure(self, spec: PlannedRun, attempts: int, error: str) -> None:
        """Keep the error of a run that failed."""
        record = json.dumps({"attempts": attempts, "error": error}, indent=2)
        with contextlib.suppress(OSError):  # it is printed as well
            own_folder(self.path / "failures")
            write_text(self.failure(spec), record + "\n")

    def forget_failures(self) -> None:
        """Remove the records of an earlier start."""
        for path in (self.path / "failures").glob("*.json"):
            path.unlink()

    def status(self, study: Plan) -> list[RunStatus]:
        """Return how far every run is."""
        running = self.running()
        return [self.status_of(spec, running) for spec in study.runs]

    def running(self) -> set[str]:
        """Return which runs are going on."""
        listed = read_json(self.path / "running.json") if self.is_running() else None
        return {str(name) for name in listed} if isinstance(listed, list) else set()

    def status_of(self, spec: PlannedRun, running: set[str]) -> RunStatus:
        """Return how far one run is; `running` are those that go on."""
        run, failure = self.run(spec), self.failure(spec)
        if spec.id in running:
            return status_of(spec, run, "running")
        if not failure.exists():
            return status_of(spec, run)
        error = str(read_json_table(failure).get("error", ""))
        return status_of(spec, run, "failed", error)


def status_of(
    spec: PlannedRun, run: Path, state: State | None = None, error: str = ""
) -> RunStatus:
    """Return how far a run is, from the end of its progress.csv; `state` if it is known already."""
    file = progress_file(run)
    columns: dict[str, list[float]] = {}
    with contextlib.suppress(CspoError):  # an archive that was cut short or altered
        columns = read_progress(file, tail=TAIL)
    if not columns.get("return"):
        columns = {}  # no complete row yet
    done = int(columns["epoch"][-1]) + 1 if columns else 0
    epochs = done if done and ended_early(run) else spec.epochs
    if state is None:
        archived = file.suffix == ".gz"  # only finished runs are
        finished = done == epochs and (archived or is_finished(spec.epochs, run))
        state = "finished" if finished else "stopped" if done else "waiting"
    speeds = [speed for speed in columns.get("steps_per_second", []) if speed > 0]
    limits = tuple(column[-1] for column in constraint_columns(columns, "cost_limit"))
    return RunStatus(
        id=spec.id,
        task=spec.task,
        state=state,
        epochs_done=done,
        epochs=epochs,
        steps=spec.steps * epochs // max(1, spec.epochs),
        episode_return=columns["return"][-1] if columns else math.nan,
        cost=tuple(column[-1] for column in constraint_columns(columns, "cost")),
        limit=limits or spec.cost_limit,
        steps_per_second=fmean(speeds) if speeds else math.nan,
        error=error,
    )
