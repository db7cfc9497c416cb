"""What a person sees while a run is under way: a live line on a terminal, plain rows elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic
from typing import IO, Any, Protocol

from cspo.config import TrainConfig
from cspo.runs.summary import duration, number
from cspo.types import EpochReport, cost_labels

MAX_ROWS = 60  # of a run whose output goes to a file


class Console(Protocol):
    """Shows one report per epoch."""

    def start(self, title: str) -> None:
        """Begin; `title` names the run."""
        ...

    def epoch(self, report: EpochReport) -> None:
        """Show an epoch that is done."""
        ...

    def note(self, text: str) -> None:
        """Say something beside the progress, on the error stream."""
        ...

    def stop(self) -> None:
        """Leave the terminal as it was; may be called twice."""
        ...


def make_console(
    config: TrainConfig,
    cost_names: Sequence[str],
    done: int,
    quiet: bool = False,
    stream: IO[str] | None = None,
) -> Console:
    """Return what fits the stream: live progress on a terminal, rows in a file or a pipe, nothing if quiet.

    Args:
        config: Settings of the run.
        cost_names: Names of its constraints.
        done: Epochs done before this process.
        quiet: Show no progress; notes are shown all the same.
        stream: Where to write; standard output by default.
    """
    stream = stream or sys.stdout
    if quiet:
        return QuietConsole()
    if stream.isatty():
        return LiveConsole(config, cost_names, done, stream)
    return PlainConsole(config, cost_names, done, stream)


class _Clock:
    """Estimates the time left from the epochs this process has done."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.first, self.started = total, done, monotonic()

    def left(self, done: int) -> float:
        elapsed = monotonic() - self.started
        return elapsed / max(done - self.first, 1) * (self.total - done)


def costs_against_limits(report: EpochReport) -> list[tuple[str, bool]]:
    """Return "27.1/25" and whether it is violated, for every constraint; "~" marks an estimate."""
    mark = "~" if report.metrics.get("cost_estimated") else ""
    pairs = zip(report.cost, report.cost_limit, strict=True)
    return [(f"{mark}{number(c)}/{d:g}", c > d) for c, d in pairs]


def multipliers(report: EpochReport) -> str:
    """Return the multipliers, separated by spaces."""
    return " ".join(f"{value:.3f}" for value in report.multiplier)


class QuietConsole:
    """Shows notes only."""

    def start(self, title: str) -> None:
        """See `Console`."""

    def epoch(self, report: EpochReport) -> None:
        """See `Console`."""

    def note(self, text: str) -> None:
        """See `Console`."""
        print(f"cspo: {text}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """See `Console`."""


class PlainConsole(QuietConsole):
    """Rows without control characters, at most about `MAX_ROWS` of them."""

    def __init__(
        self, config: TrainConfig, cost_names: Sequence[str], done: int, stream: IO[str]
    ) -> None:
        """See `make_console`."""
        self.total, self.stream = config.epochs, stream
        labels = cost_labels(cost_names)
        self.costs = [f"{label}/limit" if len(labels) == 1 else label for label in labels]
        self.widths = [max(13, len(label)) for label in self.costs]
        self.multiplier_width = 5 + 6 * len(labels)
        self.clock = _Clock(config.epochs, done)

    def start(self, title: str) -> None:
        """See `Console`."""
        print(title, file=self.stream)
        constrained = f"{self._in_columns(self.costs)} {'multiplier':>{self.multiplier_width}}"
        header = f"{'epoch':>11} {'steps':>11} {'return':>9} {constrained}"
        print(f"{header} {'kl':>8} {'steps/s':>8} {'left':>8}", file=self.stream, flush=True)

    def epoch(self, report: EpochReport) -> None:
        """See `Console`."""
        done = report.epoch + 1
        rows = min(MAX_ROWS, self.total)
        if done > 1 and done * rows // self.total == (done - 1) * rows // self.total:
            return  # rows are spread evenly over the run; the last epoch always has one
        cost = self._in_columns(
            [text + "!" * violated for text, violated in costs_against_limits(report)]
        )
        left = duration(self.clock.left(done))
        print(
            f"{f'{done}/{self.total}':>11} {report.steps:>11} {number(report.episode_return):>9} "
            f"{cost} {multipliers(report):>{self.multiplier_width}} "
            f"{report.kl:>8.4f} {report.steps_per_second:>8.0f} {left:>8}",
            file=self.stream,
            flush=True,
        )

    def _in_columns(self, texts: Sequence[str]) -> str:
        return " ".join(f"{text:>{width}}" for text, width in zip(texts, self.widths, strict=True))


class LiveConsole:
    """A progress bar and the newest numbers, redrawn in place."""

    def __init__(
        self, config: TrainConfig, cost_names: Sequence[str], done: int, stream: IO[str]
    ) -> None:
        """See `make_console`."""
        from rich.console import Console as RichConsole
        from rich.live import Live
        from rich.progress_bar import ProgressBar

        self.total, self.done, self.labels = config.epochs, done, cost_labels(cost_names)
        self.clock = _Clock(config.epochs, done)
        self.console = RichConsole(file=stream, highlight=False)
        # Not the default colours: red is for a violated limit.
        self.bar = ProgressBar(
            total=config.epochs,
            completed=done,
            width=32,
            complete_style="blue",
            finished_style="blue",
        )
        self.live = Live(console=self.console, auto_refresh=False, transient=True)

    def start(self, title: str) -> None:
        """See `Console`."""
        self.console.print(title, markup=False)
        self.live.start()
        self.live.update(self._view(None), refresh=True)

    def epoch(self, report: EpochReport) -> None:
        """See `Console`."""
        self.done = report.epoch + 1
        self.bar.update(completed=self.done)
        self.live.update(self._view(report), refresh=True)

    def note(self, text: str) -> None:
        """See `Console`."""
        self.stop()
        print(f"cspo: {text}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        """See `Console`."""
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
        left = duration(self.clock.left(self.done))
        first.add_row(*row, f"{report.steps_per_second:,.0f} steps/s", f"{left} left")
        line = Text(f"return {number(report.episode_return)}   ")
        for label, (text, violated) in zip(self.labels, costs_against_limits(report), strict=True):
            line.append(f"{label} ")
            line.append(text, "bold red" if violated else "green")
            line.append("   ")
        line.append(f"multiplier {multipliers(report)}   kl {report.kl:.4f}")
        return Group(first, line)
