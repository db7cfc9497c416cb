"""Several runs as the page shows them: those of a study, or those in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cspo.errors import CspoError
from cspo.lab.study.plan import Plan, PlannedRun
from cspo.lab.study.state import RunStatus, StudyFolder, status_of
from cspo.lab.study.view import Statuses
from cspo.lab.watch.run import Stamp, facts_of, page_key, stamp
from cspo.runs.files import is_locked
from cspo.runs.folder import load_settings
from cspo.runs.plain import without_nan
from cspo.runs.progress import progress_file

MOST_RUNS = 20_000  # that a page lists


class Shelf:
    """Runs in the folders below one, and how far each is; only what changed is read again.

    Attributes:
        name: What the page calls them.
        description: What they are for.
    """

    def __init__(self, path: Path) -> None:
        """Look at all runs once."""
        self.path, self.name, self.description = path, path.absolute().name, ""
        self._statuses = Statuses()
        self._stamps: dict[str, tuple[Any, ...]] = {}
        self._changed: dict[str, int] = {}  # the version that told of a run last
        # Above whatever a server before this one had, whose page may still be open.
        self._version = self._listed = time.time_ns() // 10**6
        self._runs: dict[str, PlannedRun] = {}
        self.update()

    def update(self) -> bool:
        """Read what is new; returns whether there is more to read at once."""
        found = {run.id: run for run in self._find()}
        self._version += 1
        if found.keys() != self._runs.keys():
            self._statuses = Statuses(
                status for name, status in self._statuses.items() if name in found
            )
            self._listed = self._version
        running = self._running(found)
        for name, run in found.items():
            stamps = (run, name in running, *self._stamps_of(run))
            if name in self._statuses and stamps == self._stamps.get(name):
                continue
            self._stamps[name] = stamps
            status = self._status(run, running)
            if self._statuses.get(name) != status:  # nan is not equal to itself: told once more
                self._statuses[name], self._changed[name] = status, self._version
        self._runs = found
        return False

    def folder_of(self, name: str) -> Path | None:
        """Return the folder of a run that is listed here, or None."""
        run = self._runs.get(name)
        return None if run is None else self._folder(run)

    def status_of(self, name: str) -> RunStatus | None:
        """Return how far a run is."""
        return self._statuses.get(name)

    @property
    def key(self) -> str:
        """What the head of the page tells, in short: another folder needs another page."""
        return page_key(self.name, self.description)

    def answer(self, version: int = -1) -> dict[str, Any]:
        """Return the runs that the page of this version does not know as they are."""
        new = 0 <= version <= self._version and version >= self._listed
        fresh = [
            one for name, one in self._statuses.items() if not new or self._changed[name] > version
        ]
        states = self._statuses.states
        shares = [status.share for status in self._statuses.values()]
        told = {
            "key": self.key,
            "name": self.name,
            "version": self._version,
            "whole": not new,
            "states": {state: count for state, count in states.items() if count},
            "runs": len(self._statuses),
            "share": sum(shares) / len(shares) if shares else 0.0,
            "seconds_left": self._statuses.seconds_left(states["running"]),
            "running": bool(states["running"]),
            "rows": [_row(status, self._runs[status.id]) for status in fresh],
        }
        plain: dict[str, Any] = without_nan(told)
        return plain

    def _folder(self, run: PlannedRun) -> Path:
        return self.path / run.id

    def _find(self) -> Iterator[PlannedRun]:
        """Yield the runs there are: every folder below with settings in it."""
        with suppress(OSError), os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and _is_text(entry))
            for name in names[:MOST_RUNS]:
                with suppress(CspoError, OSError):
                    yield self._planned(name)

    def _planned(self, name: str) -> PlannedRun:
        """Return what a run is; its settings are read again only if their file changed."""
        file = self.path / name / "config.toml"
        now, known = stamp(file), self._runs.get(name)
        if known is not None and self._stamps.get(name, ())[2:3] == (now,):
            return known
        facts = facts_of(load_settings(file.parent))
        steps = facts.epochs * facts.steps_per_epoch
        return PlannedRun(name, facts.task, facts.algo, "", facts.seed, facts.epochs, steps, ())

    def _running(self, runs: dict[str, PlannedRun]) -> set[str]:
        folders = {name: self._folder(run) for name, run in runs.items()}
        return {name for name, folder in folders.items() if is_locked(folder / ".lock")}

    def _stamps_of(self, run: PlannedRun) -> list[Stamp]:
        folder = self._folder(run)
        files = (folder / "config.toml", progress_file(folder), folder / "summary.json")
        return [stamp(file) for file in files]

    def _status(self, run: PlannedRun, running: set[str]) -> RunStatus:
        return status_of(run, self._folder(run), "running" if run.id in running else None)


class StudyShelf(Shelf):
    """The runs of a study, also those that wait."""

    def __init__(self, path: Path) -> None:
        """Read the study's file and look at all its runs once.

        Raises:
            CspoError: If there is no study, or its file cannot be read.
        """
        self._study = StudyFolder(path)
        self._plan: Plan = self._study.read()
        self._plan_stamp = self._stamp_of_plan()
        super().__init__(path)
        self.name, self.description = self._plan.name, self._plan.description

    def _stamp_of_plan(self) -> tuple[Stamp, Stamp]:
        return stamp(self.path_of_study / "study.toml"), stamp(self.path_of_study / "runs")

    @property
    def path_of_study(self) -> Path:
        """Where the study is."""
        return self._study.path

    def _find(self) -> Iterator[PlannedRun]:
        # A run that starts gets a folder: its own settings then say how long it is.
        if (now := self._stamp_of_plan()) != self._plan_stamp:
            with suppress(CspoError, OSError):  # removed, or being written: what was known stays
                self._plan = self._study.read()
            self._plan_stamp = now
        yield from self._plan.runs[:MOST_RUNS]

    def _folder(self, run: PlannedRun) -> Path:
        return self._study.run(run)

    def _running(self, runs: dict[str, PlannedRun]) -> set[str]:
        return self._study.running()

    def _stamps_of(self, run: PlannedRun) -> list[Stamp]:
        return [*super()._stamps_of(run), stamp(self._study.failure(run))]

    def _status(self, run: PlannedRun, running: set[str]) -> RunStatus:
        return self._study.status_of(run, running)


def _is_text(entry: os.DirEntry[str]) -> bool:
    """Whether a name can be part of an address."""
    with suppress(UnicodeEncodeError):
        return bool(entry.name.encode())
    return False


def _row(status: RunStatus, run: PlannedRun) -> dict[str, Any]:
    return {
        "id": status.id,
        "task": status.task,
        "algo": run.algo,
        "seed": run.seed,
        "state": status.state,
        "share": status.share,
        "done": status.epochs_done,
        "epochs": status.epochs,
        "return": status.episode_return,
        "cost": status.cost,
        "limit": status.limit,
        "speed": status.steps_per_second,
        "left": status.seconds_left if status.state == "running" else float("nan"),
        "error": status.error,
    }
