"""What a person sees of a study: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from cspo.lab.study.grid import Study
from cspo.lab.study.state import RunStatus
from cspo.runs.summary import duration, short_number

ORDER = ("running", "failed", "stopped", "waiting", "finished")  # where not all can be shown
STYLES = dict(zip(ORDER, ("bold", "bold red", "yellow", "dim", "green"), strict=True))
NUMBERS = ("done", "return", "cost/limit", "steps/s", "left")  # columns beside run and state
PLAIN_WIDTH = 150  # of a table that goes to a file


def make_view(stream: IO[str] | None = None) -> PlainView:
    """Return what fits the stream: a live table on a terminal, lines in a file or a pipe."""
    stream = stream or sys.stdout
    return LiveView(stream) if stream.isatty() else PlainView(stream)


class Statuses(dict[str, RunStatus]):
    """How far runs are, by id, with what is counted over all of them.

    The counts are kept up to date: a study of thousands of runs asks for them whenever one ends.
    """

    def __init__(self, statuses: Iterable[RunStatus] = ()) -> None:
        """Begin with some."""
        super().__init__()
        self.states: Counter[str] = Counter()
        self._left: Counter[tuple[str, float]] = Counter()  # (task, steps): runs not ended
        self._speeds: dict[str, tuple[float, int]] = {}  # task: sum of speeds seen, their number
        for status in statuses:
            self[status.id] = status

    def __setitem__(self, name: str, status: RunStatus) -> None:
        """Put a status in the place of the one before."""
        if name in self:
            self._count(self[name], -1)
        self._count(status, 1)
        super().__setitem__(name, status)

    def _count(self, status: RunStatus, change: int) -> None:
        self.states[status.state] += change
        if status.steps_per_second > 0:
            total, number = self._speeds.get(status.task, (0.0, 0))
            speed = change * status.steps_per_second
            self._speeds[status.task] = total + speed, number + change
        if status.state not in ("finished", "failed"):
            key = status.task, status.steps_left
            self._left[key] += change
            if not self._left[key]:
                del self._left[key]

    def seconds_left(self, slots: int) -> float:
        """Return the time left at the speeds seen on the same task, or on any; nan without any."""
        seen = {task: sums for task, sums in self._speeds.items() if sums[1]}
        if not seen:
            return math.nan
        anywhere = tuple(map(sum, zip(*seen.values(), strict=True)))
        longest, whole = 0.0, 0.0
        for (task, steps), runs in self._left.items():
            total, number = seen.get(task, anywhere)
            seconds = steps * number / total
            longest, whole = max(longest, seconds), whole + runs * seconds
        return max(whole / max(slots, 1), longest)


def cost_text(status: RunStatus) -> str:
    """Return "27.1/25" for every constraint."""
    pairs = zip(status.cost, status.limit, strict=False)
    return " ".join(f"{short_number(c)}/{d:g}" for c, d in pairs) or "-"


class PlainView:
    """Shows a study while it goes on: one line per event, without control characters."""

    def __init__(self, stream: IO[str]) -> None:
        """Write to a stream."""
        self.stream = stream

    def start(self, study: Study, folder: Path, slots: int, statuses: Statuses) -> None:
        """Begin; `statuses` are looked at again whenever something is shown."""
        self.slots, self.statuses = slots, statuses
        finished, stopped = statuses.states["finished"], statuses.states["stopped"]
        kept = f", {finished} finished already" if finished else ""
        begun = f", {stopped} to continue" if stopped else ""
        part = f" of {len(study.runs)}" if len(statuses) < len(study.runs) else ""
        runs = f"{len(statuses)}{part} runs{kept}{begun}"
        self.say(f"study {study.name}: {runs}, {slots} at a time, in {folder}")

    def event(self, kind: str, text: str) -> None:
        """Tell what happened to a run."""
        self.say(f"{kind:<8}  {text}")

    def ended(self, status: RunStatus) -> None:
        """Tell what a run came to, and how far the study is."""
        done, left = self.statuses.states["finished"], self.statuses.seconds_left(self.slots)
        numbers = f"return {short_number(status.episode_return)}, cost {cost_text(status)}"
        all_runs = f"{done} of {len(self.statuses)} finished, {duration(left)} left"
        self.event(status.state, f"{status.id}: {numbers}  ({all_runs})")

    def update(self) -> None:
        """Show how far the runs are: lines tell only what happens."""

    def say(self, text: str) -> None:
        """Print some lines."""
        print(text, file=self.stream, flush=True)

    def stop(self) -> None:
        """Leave the terminal as it was: lines change nothing about it."""


class LiveView(PlainView):
    """A table that is redrawn in place; what went wrong is printed above it."""

    def __init__(self, stream: IO[str]) -> None:
        """Draw on the terminal behind a stream."""
        super().__init__(stream)
        from rich.live import Live

        from cspo.runs.terminal import Terminal

        console = self.console = Terminal(file=stream, highlight=False)
        self.live = Live(console=console, auto_refresh=False, transient=True, redirect_stderr=False)

    def start(self, study: Study, folder: Path, slots: int, statuses: Statuses) -> None:
        """Draw the table for the first time."""
        super().start(study, folder, slots, statuses)
        self.live.start()
        self.update()

    def event(self, kind: str, text: str) -> None:
        """Print what the table does not tell."""
        if kind in ("repaired", "failed"):
            self.console.print(f"{kind}  {text}", markup=False, style=STYLES.get(kind, "yellow"))

    def update(self) -> None:
        """Draw the table again, as much of it as fits."""
        self.live.update(self._table(max(self.console.height - 6, 3)), refresh=True)

    def _table(self, rows: int) -> Any:
        return table(self.statuses, self.slots, self.console.width, rows)

    def say(self, text: str) -> None:
        """Print above the table."""
        self.console.print(text, markup=False)

    def stop(self) -> None:
        """Leave the whole table behind."""
        self.live.stop()
        self.console.print(self._table(len(self.statuses)))


def table(statuses: Statuses, slots: int, width: int, rows: int) -> Any:
    """Return the table of a study, of at most so many rows, and the line under it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    first = sorted(statuses.values(), key=lambda status: ORDER.index(status.state))
    fitting = {status.id for status in first[:rows]}
    shown = [status for status in statuses.values() if status.id in fitting]
    gap = 2 if width >= 100 else 1
    drawn = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    costs = max([10, *(len(cost_text(status)) for status in shown)])
    names = max(20, width - (8 + 5 + 8 + costs + 7 + 8) - 6 * gap)  # what the other columns leave
    for name in ("run", "state", *NUMBERS):
        drawn.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for status in shown:
        violated = any(c > d for c, d in zip(status.cost, status.limit, strict=False))
        going = status.state == "running"
        speed = "-" if math.isnan(status.steps_per_second) else f"{status.steps_per_second:,.0f}"
        drawn.add_row(
            Text(_shortened(status.id, names)),
            Text(status.state, STYLES[status.state]),
            f"{100 * status.share:.0f} %",
            short_number(status.episode_return),
            Text(cost_text(status), "bold red" if violated else ""),
            speed,
            duration(status.seconds_left) if going else "",
        )
    return Group(drawn, Text(count(statuses, slots, len(shown))))


def count(statuses: Statuses, slots: int, shown: int) -> str:
    """Return the line under the table: the number of runs in each state, the time left in all."""
    states = statuses.states
    known = [state for state in ("finished", *ORDER[:-1]) if states[state]]
    parts = ", ".join(f"{states[state]} {state}" for state in known)
    left = statuses.seconds_left(slots)
    time_left = f"; {duration(left)} left in all" if left > 0 else ""
    hidden = f"; {len(statuses) - shown} not shown" if shown < len(statuses) else ""
    return f"{len(statuses)} runs: {parts}{time_left}{hidden}"


def _shortened(name: str, width: int) -> str:
    """Return a name that fits; what tells runs apart is at its ends."""
    if len(name) <= width:
        return name
    tail = (width - 1) * 2 // 3
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"
