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


class _Clock:
    """Estimates the time left from the epochs this process has done."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.first, self.started = total, done, monotonic()

    def left(self, done: int) -> str:
        elapsed = monotonic() - self.started
        return duration(elapsed / max(done - self.first, 1) * (self.total - done))


def costs_against_limits(report: EpochReport) -> list[tuple[str, bool]]:
    """Return "27.1/25" and whether it is violated, for every constraint; "~" marks an estimate."""
    mark = "~" if report.metrics.get("cost_estimated") else ""
    pairs = zip(report.cost, report.cost_limit, strict=True)
    return [(f"{mark}{short_number(c)}/{d:g}", c > d) for c, d in pairs]


def multipliers(report: EpochReport) -> str:
    """Return the multipliers, separated by spaces."""
    return " ".join(f"{value:.3f}" for value in report.multiplier)


class PlainConsole(Console):
    """Rows without control characters, at most about `MAX_ROWS` of them."""

    def __init__(self, epochs: int, labels: Sequence[str], done: int, stream: IO[str]) -> None:
        """Show a run of so many `epochs`, of which some are `done`, with these names of costs."""
        self.total, self.stream, self.clock = epochs, stream, _Clock(epochs, done)
        self.costs = [f"{label}/limit" if len(labels) == 1 else label for label in labels]
        self.widths = [max(13, len(label)) for label in self.costs]
        self.multiplier_width = 5 + 6 * len(labels)

    def start(self, title: str) -> None:
        """Print the title and the names of the columns."""
        constrained = f"{self._in_columns(self.costs)} {'multiplier':>{self.multiplier_width}}"
        header = f"{'epoch':>11} {'steps':>11} {'return':>9} {constrained}"
        self._print(f"{title}\n{header} {'kl':>8} {'steps/s':>8} {'left':>8}")

    def write(self, report: EpochReport) -> None:
        """Print a row, if one is due."""
        done = report.epoch + 1
        rows = min(MAX_ROWS, self.total)
        if done > 1 and done * rows // self.total == (done - 1) * rows // self.total:
            return  # rows are spread evenly over the run; the last epoch always has one
        costs = [text + "!" * violated for text, violated in costs_against_limits(report)]
        self._print(
            f"{f'{done}/{self.total}':>11} {report.steps:>11} "
            f"{short_number(report.episode_return):>9} {self._in_columns(costs)} "
            f"{multipliers(report):>{self.multiplier_width}} {report.kl:>8.4f} "
            f"{report.steps_per_second:>8.0f} {self.clock.left(done):>8}"
        )

    def _print(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def _in_columns(self, texts: Sequence[str]) -> str:
        return " ".join(f"{text:>{width}}" for text, width in zip(texts, self.widths, strict=True))


class LiveConsole(Console):
    """A progress bar and the newest numbers, redrawn in place."""

    def __init__(self, epochs: int, labels: Sequence[str], done: int, stream: IO[str]) -> None:
        """Show a run of so many `epochs`, of which some are `done`, with these names of costs."""
        from rich.console import Console as Terminal
        from rich.live import Live
        from rich.progress_bar import ProgressBar

        self.total, self.done, self.labels = epochs, done, labels
        self.clock = _Clock(epochs, done)
        self.terminal = Terminal(file=stream, highlight=False)
        # Not the default colours: red is for a violated limit.
        blue: Any = {"complete_style": "blue", "finished_style": "blue"}
        self.bar = ProgressBar(total=epochs, completed=done, width=32, **blue)
        self.live = Live(console=self.terminal, auto_refresh=False, transient=True)

    def start(self, title: str) -> None:
        """Print the title, and the bar below it."""
        self.terminal.print(title, markup=False)
        self.live.start()
        self.live.update(self._view(None), refresh=True)

    def write(self, report: EpochReport) -> None:
        """Draw the bar and the numbers anew."""
        self.done = report.epoch + 1
        self.bar.update(completed=self.done)
        self.live.update(self._view(report), refresh=True)

    def close(self) -> None:
        """Remove the bar."""
        self.live.stop()

    def _view(self, report: EpochReport | None) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        first = Table.grid(padding=(0, 2))
        row: list[Any] = [Text(f"epoch {self.done}/{self.total}", "bold"), self.bar]
        if report is None:
            first.add_row(*row, Text("first epoch under way ...", "dim"))
            return first
        left = self.clock.left(self.done)
        first.add_row(*row, f"{report.steps_per_second:,.0f} steps/s", f"{left} left")
        line = Text(f"return {short_number(report.episode_return)}   ")
        for label, (text, violated) in zip(self.labels, costs_against_limits(report), strict=True):
            line.append(f"{label} ")
            line.append(text, "bold red" if violated else "green")
            line.append("   ")
        line.append(f"multiplier {multipliers(report)}   kl {report.kl:.4f}")
        return Group(first, line)
