"""What a person sees of a study: a live table on a terminal, one line per event elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from cspo.lab.study.grid import Study
from cspo.lab.study.state import RunStatus
from cspo.runs.summary import duration, short_number

ORDER = (
    "running",
    "failed",
    "stopped",
    "waiting",
    "finished",
)  # of the rows, where not all can be shown
STYLES = {
    "running": "bold",
    "failed": "bold red",
    "finished": "green",
    "stopped": "yellow",
    "waiting": "dim",
}
PLAIN_WIDTH = 150  # of a table that goes to a file


class View(Protocol):
    """Shows a study while it goes on."""

    def start(
        self, study: Study, folder: Path, slots: int, statuses: Mapping[str, RunStatus]
    ) -> None:
        """Begin."""
        ...

    def event(self, kind: str, text: str, statuses: Mapping[str, RunStatus] | None = None) -> None:
        """Tell what happened to a run; `text` begins with its id."""
        ...

    def update(self, statuses: Mapping[str, RunStatus]) -> None:
        """Show how far the runs are."""
        ...

    def say(self, text: str) -> None:
        """Print some lines."""
        ...

    def stop(self, statuses: Mapping[str, RunStatus]) -> None:
        """Leave the terminal as it was."""
        ...


def make_view(stream: IO[str] | None = None) -> View:
    """Return what fits the stream: a live table on a terminal, lines in a file or a pipe."""
    stream = stream or sys.stdout
    return LiveView(stream) if stream.isatty() else PlainView(stream)


def opening(study: Study, folder: Path, slots: int, statuses: Mapping[str, RunStatus]) -> str:
    """Return the line a study begins with."""
    states = [status.state for status in statuses.values()]
    kept = f", {states.count('finished')} finished already" if "finished" in states else ""
    begun = f", {states.count('stopped')} to continue" if "stopped" in states else ""
    total = (
        f"{len(states)} of {len(study.runs)}" if len(states) < len(study.runs) else f"{len(states)}"
    )
    return f"study {study.name}: {total} runs{kept}{begun}, {slots} at a time, in {folder}"


def ending(
    finished: Sequence[str],
    failed: Mapping[str, str],
    attempts: Mapping[str, int],
    seconds: float,
    folder: Path,
) -> str:
    """Return the lines a study ends with: how many runs there are, and the errors of those that failed."""
    total = len(finished) + len(failed)
    lines = [f"{len(finished)} of {total} runs are finished, {duration(seconds)} in this start."]
    for name, error in failed.items():
        tries = f"{attempts[name]} attempt{'s' if attempts[name] > 1 else ''}"
        lines.append(f"failed after {tries}: {name}: {error}")
    if failed:
        lines.append(
            "The same command tries the failed ones again; their output is in "
            + str(folder / "logs")
            + "."
        )
    elif not failed:
        lines.append(f"next: cspo report {folder}")
    return "\n".join(lines)


def seconds_left(statuses: Sequence[RunStatus], slots: int) -> float:
    """Return the time left of a study, at the speeds seen so far on the same task, or on any; nan if none is known."""
    speeds: dict[str, list[float]] = {}
    for status in statuses:
        if status.steps_per_second > 0:
            speeds.setdefault(status.task, []).append(status.steps_per_second)
    if not speeds:
        return math.nan
    seen = [speed for group in speeds.values() for speed in group]
    left = [
        status.steps_left * len(group) / sum(group)
        for status in statuses
        if status.state not in ("finished", "failed")
        for group in [speeds.get(status.task, seen)]
    ]
    return max(sum(left) / max(slots, 1), max(left, default=0.0))


def cost_text(status: RunStatus) -> str:
    """Return "27.1/25" for every constraint."""
    pairs = zip(status.cost, status.limit, strict=False)
    return " ".join(f"{short_number(c)}/{d:g}" for c, d in pairs) or "-"


class PlainView:
    """One line per event, without control characters."""

    def __init__(self, stream: IO[str]) -> None:
        """See `make_view`."""
        self.stream, self.slots = stream, 1

    def start(
        self, study: Study, folder: Path, slots: int, statuses: Mapping[str, RunStatus]
    ) -> None:
        """See `View`."""
        self.slots = slots
        self.say(opening(study, folder, slots, statuses))

    def event(self, kind: str, text: str, statuses: Mapping[str, RunStatus] | None = None) -> None:
        """See `View`."""
        self.say(f"{kind:<8}  {text}{'' if statuses is None else self._numbers(text, statuses)}")

    def _numbers(self, name: str, statuses: Mapping[str, RunStatus]) -> str:
        status, everyone = statuses[name], list(statuses.values())
        done = sum(one.state == "finished" for one in everyone)
        left = duration(seconds_left(everyone, self.slots))
        numbers = f"return {short_number(status.episode_return)}, cost {cost_text(status)}"
        return f": {numbers}  ({done} of {len(everyone)} finished, {left} left)"

    def update(self, statuses: Mapping[str, RunStatus]) -> None:
        """See `View`."""

    def say(self, text: str) -> None:
        """See `View`."""
        print(text, file=self.stream, flush=True)

    def stop(self, statuses: Mapping[str, RunStatus]) -> None:
        """See `View`."""


class LiveView:
    """A table that is redrawn in place; what went wrong is printed above it."""

    def __init__(self, stream: IO[str]) -> None:
        """See `make_view`."""
        from rich.console import Console
        from rich.live import Live

        self.slots = 1
        self.console = Console(file=stream, highlight=False)
        self.live = Live(
            console=self.console, auto_refresh=False, transient=True, redirect_stderr=False
        )

    def start(
        self, study: Study, folder: Path, slots: int, statuses: Mapping[str, RunStatus]
    ) -> None:
        """See `View`."""
        self.slots = slots
        self.console.print(opening(study, folder, slots, statuses), markup=False)
        self.live.start()
        self.update(statuses)

    def event(self, kind: str, text: str, statuses: Mapping[str, RunStatus] | None = None) -> None:
        """See `View`."""
        if kind in ("repaired", "failed"):
            self.console.print(f"{kind}  {text}", markup=False, style=STYLES.get(kind, "yellow"))

    def update(self, statuses: Mapping[str, RunStatus]) -> None:
        """See `View`."""
        everyone = list(statuses.values())
        room = max(self.console.height - 6, 3)
        self.live.update(table(everyone, self.slots, self.console.width, room), refresh=True)

    def say(self, text: str) -> None:
        """See `View`."""
        self.console.print(text, markup=False)

    def stop(self, statuses: Mapping[str, RunStatus]) -> None:
        """See `View`."""
        self.live.stop()
        everyone = list(statuses.values())
        self.console.print(table(everyone, self.slots, self.console.width, len(everyone)))


def table(statuses: Sequence[RunStatus], slots: int, width: int, rows: int) -> Any:
    """Return the table of a study, of at most so many rows, and the line under it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = list(statuses)
    if len(shown) > rows:
        first = sorted(shown, key=lambda status: ORDER.index(status.state))[:rows]
        shown = [status for status in shown if status in first]
    gap = 2 if width >= 100 else 1
    drawn = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    costs = max([10, *(len(cost_text(status)) for status in shown)])
    names = max(20, width - (8 + 5 + 8 + costs + 7 + 8) - 6 * gap)  # what the other columns leave
    drawn.add_column("run", no_wrap=True)
    drawn.add_column("state", no_wrap=True)
    for name in ("done", "return", "cost/limit", "steps/s", "left"):
        drawn.add_column(name, justify="right", no_wrap=True)
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


def count(statuses: Sequence[RunStatus], slots: int, shown: int) -> str:
    """Return the line under the table: how many runs are in which state, and the time left of them all."""
    states = [status.state for status in statuses]
    parts = [
        f"{states.count(state)} {state}" for state in ("finished", *ORDER[:-1]) if state in states
    ]
    left = seconds_left(statuses, slots)
    time_left = f"; {duration(left)} left in all" if left > 0 else ""
    hidden = f"; {len(states) - shown} not shown" if shown < len(states) else ""
    return f"{len(states)} runs: {', '.join(parts)}{time_left}{hidden}"


def _shortened(name: str, width: int) -> str:
    """Return a name that fits; what tells runs apart is at its ends."""
    if len(name) <= width:
        return name
    tail = (width - 1) * 2 // 3
    return f"{name[: width - 1 - tail]}…{name[-tail:]}"
