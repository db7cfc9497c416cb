"""Drives the runs of a study through any engine: starts and polls them, tries failed ones again."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cspo.errors import CspoError
from cspo.lab.study.archive import take_over
from cspo.lab.study.engine import Engine, Handle, in_one_line
from cspo.lab.study.grid import RunSpec, Study
from cspo.lab.study.repair import is_finished, prepare
from cspo.lab.study.state import RunStatus, State, StudyFolder, status_of
from cspo.lab.study.view import PlainView, Statuses
from cspo.runs.files import write_text, writes_to
from cspo.runs.session import Interrupted, StopRequest
from cspo.runs.summary import duration

POLL = 0.02  # seconds between two looks at the engine
LOOK = 0.5  # seconds between two looks at the files of the runs under way
REST = 10.0  # seconds before a run is tried again that could not be started: a store may come back


@dataclass
class Result:
    """What a start of a study came to."""

    finished: list[str]
    failed: dict[str, str]  # id: error of the last attempt


def run_study(
    study: Study,
    out: StudyFolder,
    engine: Engine,
    view: PlainView,
    *,
    chosen: Sequence[RunSpec] | None = None,
    archive: Path | str | None = None,
) -> Result:
    """Train every run of a study that is not finished; the study may have been started here before.

    Args:
        study: The whole study: what the folder is checked against.
        out: Where it is.
        engine: What trains.
        view: What a person sees.
        chosen: The runs to train now, if not all.
        archive: Where finished runs are taken from, those that are not in the folder.

    Raises:
        Interrupted: On Ctrl-C, when the epochs under way are done and kept; a second Ctrl-C stops
            at once.
        CspoError: If the folder holds another study, or another process runs it.
    """
    with writes_to(f"study folder {out.path}"), contextlib.ExitStack() as stack:
        try:
            stack.enter_context(out.held())
        except BaseException:
            engine.close()
            raise
        stack.callback(engine.close)  # while the study is still held: no run outlives that
        notes = out.check(study)
        out.forget_failures()
        file = out.path / "study.toml"
        if not file.exists() or file.read_bytes() != study.text.encode():
            write_text(file, study.text)
        if archive is not None:
            taken = take_over(study, archive, out)
            view.say(f"{len(taken)} finished runs are taken from {archive}.")
        runs = study.runs if chosen is None else chosen
        return _Scheduler(study, out, engine, view, runs).run(notes)


@dataclass
class _Scheduler:
    study: Study
    out: StudyFolder
    engine: Engine
    view: PlainView
    chosen: Sequence[RunSpec]
    waiting: deque[RunSpec] = field(default_factory=deque)
    running: dict[str, tuple[RunSpec, Handle]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)  # id: when it may be tried again
    statuses: Statuses = field(default_factory=Statuses)

    def run(self, notes: list[str]) -> Result:
        for spec in self.chosen:
            finished = is_finished(spec.epochs, self.out.run(spec))
            status = self._look(spec, "finished" if finished else "stopped")
            if not finished:
                self.waiting.append(spec)
                if status.epochs_done == 0:
                    self._look(spec, "waiting")
        self.view.start(self.study, self.out.path, self.engine.slots, self.statuses)
        for note in notes:
            self.view.event("repaired", note)
        started = time.monotonic()
        try:
            with StopRequest() as stop:
                self._loop(stop)
        finally:
            self.view.stop()
        seconds = time.monotonic() - started
        ended = self.statuses.values()
        done = [status.id for status in ended if status.state == "finished"]
        failed = {status.id: status.error for status in ended if status.state == "failed"}
        if stop.requested and len(done) < len(self.chosen):
            self.view.say(f"stopped after {duration(seconds)}; the same command continues.")
            raise Interrupted("The study was stopped.")
        share = f"{len(done)} of {len(ended)} runs are finished"
        self.view.say(f"{share}, {duration(seconds)} in this start.")
        for name, error in failed.items():
            tries = f"{self.attempts[name]} attempt{'s' if self.attempts[name] > 1 else ''}"
            self.view.say(f"failed after {tries}: {name}: {error}")
        again = "The same command tries the failed ones again; their output is in"
        folder = self.out.path
        self.view.say(f"{again} {folder / 'logs'}." if failed else f"next: cspo report {folder}")
        return Result(done, failed)

    def _loop(self, stop: StopRequest) -> None:
        asked, looked, told = False, 0.0, set[str]()
        while self.waiting or self.running:
            if stop.requested and not asked:
                asked = True
                self.waiting.clear()
                for _, handle in self.running.values():
                    handle.interrupt()
            while len(self.running) < self.engine.slots and self._is_next_ready():
                self._start(self.waiting.popleft())
            if self.running.keys() != told:
                told = set(self.running)
                self.out.set_running(told)
            polled = [(spec, handle.poll()) for spec, handle in self.running.values()]
            ended = [(spec, outcome) for spec, outcome in polled if outcome is not None]
            for spec, outcome in ended:
                del self.running[spec.id]
                self._ended(spec, outcome.error, stopping=asked)
            if time.monotonic() - looked > LOOK:
                looked = time.monotonic()
                for spec, _ in self.running.values():
                    self._look(spec, "running")
                self.view.update()
            if not ended:
                time.sleep(POLL)

    def _is_next_ready(self) -> bool:
        """Whether a run can be started now; those behind one that rests rest longer."""
        return bool(self.waiting) and (
            self.resting.get(self.waiting[0].id, 0.0) <= time.monotonic()
        )

    def _start(self, spec: RunSpec) -> None:
        folder = self.out.run(spec)
        self.attempts[spec.id] = self.attempts.get(spec.id, 0) + 1
        try:
            for note in prepare(spec.config, folder):
                self.view.event("repaired", f"{spec.id}: {note}")
            done = self._look(spec, "running").epochs_done
            begun = f" after epoch {done} of {spec.epochs}" if done else ""
            self.view.event("started", f"{spec.id}{begun}")
            handle = self.engine.start(spec, folder)
        except (CspoError, OSError) as error:
            self.resting[spec.id] = time.monotonic() + REST
            self._failed(spec, in_one_line(error))
            return
        self.running[spec.id] = (spec, handle)

    def _ended(self, spec: RunSpec, error: str | None, *, stopping: bool) -> None:
        finished = error is None and is_finished(spec.epochs, self.out.run(spec))
        if not (finished or stopping):
            self._failed(spec, error or "it ended, but its files are not complete")
            return
        self.view.ended(self._look(spec, "finished" if finished else "stopped"))

    def _failed(self, spec: RunSpec, error: str) -> None:
        """Try a run again, or give it up and keep its error."""
        attempt, attempts = self.attempts[spec.id], self.study.retries + 1
        self.view.event("failed", f"{spec.id} (attempt {attempt} of {attempts}): {error}")
        if attempt < attempts:
            # Last in the queue: what is short of disk or memory now may not be then.
            self.waiting.append(spec)
            self._look(spec, "waiting")
            return
        self.out.record_failure(spec, attempt, error)
        self._look(spec, "failed", error)

    def _look(self, spec: RunSpec, state: State, error: str = "") -> RunStatus:
        status = self.statuses[spec.id] = status_of(spec, self.out.run(spec), state, error)
        return status
