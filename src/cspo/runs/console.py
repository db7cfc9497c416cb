"""What a person sees while a run is under way: a live line on a terminal, plain rows elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic
from typing import IO, Any

from cspo.config import TrainConfig
from cspo.runs.summary import duration, short_number
from cspo.types import EpochReport, cost_labels

MAX_ROWS = 60  # of a run whose output goes to a file


class Console:
    """The sink that a person reads; this one, of a quiet run, shows notes only."""

    def start(self, title: str) -> None:
        """Begin; `title` names the run."""

    def write(self, report: EpochReport) -> None:
        """Show an epoch that is done."""

    def note(self, text: str) -> None:
        """Say something beside the progress, on the error stream."""
        self.close()
        print(f"cspo: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was; may be called twice."""


def make_console(
    config: TrainConfig,
    cost_names: Sequence[str],
    done: int,
    quiet: bool = False,
    stream: IO[str] | None = None,
) -> Console:
    """Return live progress for a terminal, rows for a file or a pipe, nothing if quiet.

    Args:
        config: Settings of the run.
        cost_names: Names of its constraints.
        done: Epochs done before this process.
        quiet: Show no progress; notes are shown all the same.
        stream: Where to write; standard output by default.
    """
    stream = stream or sys.stdout
    if quiet:
        return Console()
    shown = LiveConsole if stream.isatty() else PlainConsole
    return shown(config.epochs, cost_labels(cost_names), done, stream)


def costs_against_limits(report: EpochReport) -> list[tuple[str, bool]]:
    """Return "27.1/25" and whether it is violated, for every constraint; "~" marks an estimate."""
    mark = "~" if report.metrics.get("cost_estimated") else ""
    pairs = zip(report.cost, report.cost_limit, strict=True)
    return [(f"{mark}{short_number(c)}/{d:g}", c > d) for c, d in pairs]


def multipliers(report: EpochReport) -> str:
    """Return the multipliers, separated by spaces."""
    return " ".join(f"{value:.3f}" for value in report.multiplier)


class ProgressConsole(Console):
    """What both kinds of progress know."""

    def __init__(self, epochs: int, labels: Sequence[str], done: int, stream: IO[str]) -> None:
        """Show a run of so many `epochs`, of which some are `done`, with these names of costs."""
        self.total, self.labels, self.stream = epochs, labels, stream
        self.first, self.started = done, monotonic()

    def left(self, done: int) -> str:
        """Return the time left, estimated from the epochs this process has done."""
        elapsed = monotonic() - self.started
        return duration(elapsed / max(done - self.first, 1) * (self.total - done))


class PlainConsole(ProgressConsole):
    """Rows without control characters, at most about `MAX_ROWS` of them."""

    def start(self, title: str) -> None:
        """Print the title and the names of the columns."""
        labels = self.labels
        costs = [f"{label}/limit" if len(labels) == 1 else label for label in labels]
        print(title, file=self.stream)
        self._print("epoch", "steps", "return", *costs, "multiplier", "kl", "steps/s", "left")

    def write(self, report: EpochReport) -> None:
        """Print a row, if one is due."""
        done = report.epoch + 1
        rows = min(MAX_ROWS, self.total)
        if done > 1 and done * rows // self.total == (done - 1) * rows // self.total:
            return  # rows are spread evenly over the run; the last epoch always has one
        costs = [text + "!" * violated for text, violated in costs_against_limits(report)]
        self._print(
            f"{done}/{self.total}",
            report.steps,
            short_number(report.episode_return),
            *costs,
            multipliers(report),
            f"{report.kl:.4f}",
            f"{report.steps_per_second:.0f}",
            self.left(done),
        )

    def _print(self, *cells: Any) -> None:
        costs = [max(13, len(label)) for label in self.labels]
        widths = (11, 11, 9, *costs, 5 + 6 * len(costs), 8, 8, 8)
        row = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        print(*row, file=self.stream, flush=True)


class LiveConsole(ProgressConsole):
    """A progress bar and the newest numbers, redrawn in place."""

    def __init__(self, epochs: int, labels: Sequence[str], done: int, stream: IO[str]) -> None:
        """Show a run of so many `epochs`, of which some are `done`, with these names of costs."""
        from rich.console import Console as Terminal
        from rich.live import Live
        from rich.progress_bar import ProgressBar

        super().__init__(epochs, labels, done, stream)
        self.terminal = Terminal(file=stream, highlight=False)
        # Not the default colours: red is for a violated limit.
        blue: Any = {"complete_style": "blue", "finished_style": "blue"}
        self.bar = ProgressBar(total=epochs, completed=done, width=32, **blue)
        self.live = Live(console=self.terminal, auto_refresh=False, transient=True)

    def start(self, title: str) -> None:
        """Print the title, and the bar below it."""
        self.terminal.print(title, markup=False)
        self.live.start()
        self.live.update(self._view(self.first, None), refresh=True)

    def write(self, report: EpochReport) -> None:
        """Draw the bar and the numbers anew."""
        done = report.epoch + 1
        self.bar.update(completed=done)
        self.live.update(self._view(done, report), refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        self.live.stop()

    def _view(self, done: int, report: EpochReport | None) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        first = Table.grid(padding=(0, 2))
        row: list[Any] = [Text(f"epoch {done}/{self.total}", "bold"), self.bar]
        if report is None:
            first.add_row(*row, Text("first epoch under way ...", "dim"))
            return first
        speed = f"{report.steps_per_second:,.0f} steps/s"
        first.add_row(*row, speed, f"{self.left(done)} left")
        line = Text(f"return {short_number(report.episode_return)}   ")
        for label, (text, violated) in zip(self.labels, costs_against_limits(report), strict=True):
            line.append(f"{label} ")
            line.append(text, "bold red" if violated else "green")
            line.append("   ")
        line.append(f"multiplier {multipliers(report)}   kl {report.kl:.4f}")
        return Group(first, line)
