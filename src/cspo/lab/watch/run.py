"""One run as the page shows it: what is in its folder, read as it grows."""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from cspo.errors import CspoError
from cspo.lab.study.state import RunStatus
from cspo.lab.watch.charts import Chart, as_data, charts_of, columns_of
from cspo.lab.watch.video import Video, newest_video
from cspo.runs.files import is_locked
from cspo.runs.folder import holds_run, load_settings
from cspo.runs.follow import Follower
from cspo.runs.plain import read_json_table, without_nan
from cspo.runs.progress import constraint_columns
from cspo.runs.settings import RunSettings
from cspo.settings import build

POINTS = 2000  # rows that are drawn, or up to twice as many; of a longer run, one of every so many
ANSWER = 500  # rows in one answer
NEWEST = 20  # epochs whose speed tells the time left
Stamp = tuple[int, ...] | None


def stamp(path: Path) -> Stamp:
    """Return what changes whenever a file does; None if there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def page_key(*told: Any) -> str:
    """Return a short text that differs wherever what is told differs."""
    return hashlib.sha256(repr(told).encode("utf-8", "backslashreplace")).hexdigest()[:16]


class RunFacts(NamedTuple):
    """What a run is, from its config.toml."""

    task: str
    algo: str
    seed: int
    epochs: int  # planned
    steps_per_epoch: int
    cost_terms: tuple[str, ...]


def facts_of(settings: dict[str, Any]) -> RunFacts:
    """Return what a run is; numbers that make no sense are those of the defaults."""
    length = RunSettings()
    names = ("total_steps", "steps_per_epoch", "seed")
    with suppress(CspoError):
        length = build(RunSettings, {name: settings[name] for name in names if name in settings})
    terms = settings.get("cost_terms")
    texts = tuple(map(str, terms)) if isinstance(terms, list) else ()
    per_epoch = max(1, length.steps_per_epoch)
    epochs = max(0, length.total_steps) // per_epoch
    return RunFacts(settings["task"], settings["algo"], length.seed, epochs, per_epoch, texts)


class RunWatch:
    """Follows the folder of one run; `update` reads what is new, `answer` tells it."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read the run as far as it is.

        Args:
            folder: The run's folder.
            name: What the page calls it.

        Raises:
            CspoError: If there is no run in the folder.
        """
        self.folder, self.name = folder, name
        self.facts = facts_of(load_settings(folder))
        self._stamps: dict[str, Stamp] = {"config.toml": stamp(folder / "config.toml")}
        self._summary: dict[str, Any] = {}
        self._follower = Follower(folder)
        self.video: Video | None = None
        self._present = self._held = True
        # Told apart from what another server, or this one before, called the same.
        self._birth = time.time_ns()
        self._begin()
        self.update()

    def _begin(self) -> None:
        """Forget all rows: those of a file that was replaced, or drawn at other distances."""
        self._known = self._follower.generation, tuple(self._follower.header)
        self._charts: list[Chart] = charts_of(self._follower.header, self._cost_names())
        self._columns = columns_of(self._charts)
        self._stride = max(1, math.ceil(self.facts.epochs / POINTS))
        self._rows: list[list[float]] = []  # one of every `_stride`, the columns that are drawn
        self._latest: list[float] = []  # all columns of the newest row
        self._speeds: deque[float] = deque(maxlen=NEWEST)
        self._seen = self._violated = 0

    def update(self) -> bool:
        """Read what is new; returns whether there is more to read at once."""
        self._present = holds_run(self.folder)
        if self._present and self._is_new("config.toml"):
            with suppress(CspoError):  # cut short just now: what was known stays
                facts = facts_of(load_settings(self.folder))
                if facts != self.facts:  # trained for longer, say
                    self.facts = facts
                    self._follower.restart()
        if self._is_new("summary.json"):
            self._summary = read_json_table(self.folder / "summary.json")
        self._held = is_locked(self.folder / ".lock")
        self.video = newest_video(self.folder)
        rows = self._follower.read()
        if (self._follower.generation, tuple(self._follower.header)) != self._known:
            self._begin()
        for row in rows:
            self._add(row)
        return self._follower.behind

    def _is_new(self, name: str) -> bool:
        now = stamp(self.folder / name)
        before, self._stamps[name] = self._stamps.get(name), now
        return now != before

    def _cost_names(self) -> Sequence[str]:
        names = self._summary.get("cost_names")
        told = tuple(map(str, names)) if isinstance(names, list) else ()
        return self.facts.cost_terms or told

    def _add(self, row: list[float]) -> None:
        values = dict(zip(self._follower.header, row, strict=True))
        self._latest = row
        costs, limits = (constraint_columns(values, name) for name in ("cost", "cost_limit"))
        self._violated += any(c > d for c, d in zip(costs, limits, strict=False))
        if (speed := values.get("steps_per_second", math.nan)) > 0:
            self._speeds.append(speed)
        if self._seen % self._stride == 0:
            self._rows.append([values.get(name, math.nan) for name in self._columns])
        self._seen += 1
        if len(self._rows) > 2 * POINTS:  # longer than its settings say
            self._rows, self._stride = self._rows[::2], 2 * self._stride

    @property
    def key(self) -> str:
        """What the head of the page tells, in short: another run needs another page."""
        return page_key(self.name, self.facts.task, self.facts.algo, self.facts.seed)

    @property
    def _version(self) -> str:
        return f"{self._birth:x}-{self._follower.generation}-{self._stride}-{len(self._columns)}"

    @property
    def _done(self) -> int:
        """Epochs done."""
        newest = dict(zip(self._follower.header, self._latest, strict=False))
        return int(newest.get("epoch", -1)) + 1

    def _state(self, status: RunStatus | None) -> str:
        """Return how the run is; its study may know more than its folder."""
        known = "" if status is None else status.state
        if not self._present:
            return "removed"
        if self._held or known == "running":
            return "running"
        if known == "failed":
            return known
        # The summary may be an older one: of a run that was then trained for longer, and stopped.
        if self._summary.get("finished") is True and self._summary.get("epochs") == self._done > 0:
            return "finished"
        return "stopped" if self._done else "waiting"

    def answer(
        self, version: str = "", since: int = 0, status: RunStatus | None = None
    ) -> dict[str, Any]:
        """Return what the page does not have yet.

        Args:
            version: What the page has rows of.
            since: How many rows it has.
            status: How the run is, as its study knows it.
        """
        if version != self._version or not 0 <= since <= len(self._rows):
            since = 0
        rows = self._rows[since : since + ANSWER]
        latest = dict(zip(self._follower.header, self._latest, strict=False))
        done, state = self._done, self._state(status)
        rule = self._summary.get("stopped_by") if state == "finished" else None
        epochs = self.facts.epochs if rule is None else done
        speed = fmean(self._speeds) if self._speeds else math.nan
        steps_left = max(0, epochs - done) * self.facts.steps_per_epoch
        age = time.time() - self._follower.changed if self._follower.changed else math.nan
        film = self.video
        told: dict[str, Any] = {
            "key": self.key,
            "name": self.name,
            "state": state,
            "error": status.error if status is not None and state == "failed" else "",
            "stopped_by": "" if rule is None else str(rule),
            "done": done,
            "epochs": epochs,
            "steps": latest.get("steps", 0),
            "total_steps": epochs * self.facts.steps_per_epoch,
            "speed": speed,
            "seconds_left": steps_left / speed if state == "running" else math.nan,
            "age": max(0.0, age),
            "violated": self._violated / self._seen if self._seen else math.nan,
            "version": self._version,
            "since": since,
            "more": since + len(rows) < len(self._rows) or self._follower.behind,
            "stride": self._stride,
            "rows": rows,
            "newest": [latest.get(name, math.nan) for name in self._columns] if latest else [],
            "latest": list(latest.items()),
            "video": None if film is None else film.as_data(),
        }
        if since == 0:
            told |= {"columns": self._columns, "charts": as_data(self._charts)}
        plain: dict[str, Any] = without_nan(told)
        return plain
