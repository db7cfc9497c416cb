"""Our numbers beside the paper's: the difference, and whether the intervals overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cspo.lab.metrics import sensitivity_split
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Entry, Table, Value
from cspo.lab.report.paper import Printed
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.wording import (
    BETTER,
    display,
    named,
    notes_of,
    number,
    span,
    with_bounds,
    with_std,
)

INTERVALS = (
    "Ours: 95 % bootstrap interval in brackets. The paper's interval is its value minus and plus what it prints "
    "after ±."
)
HEADER = (
    "Task",
    "Algorithm",
    "Quantity",
    "Ours",
    "Paper",
    "Difference",
    "Beside its interval",
    "Intervals overlap",
)
LIMIT = 25.0  # of every task of the paper
WINDOW = 350  # epochs in which the paper counts violations


@dataclass(frozen=True)
class _Pair:
    """One number of ours with its interval, and the paper's."""

    cell: Cell
    quantity: str
    digits: int
    ours: str  # as it is printed
    value: float
    low: float  # nan without an interval
    high: float
    paper: Printed
    count: int  # seeds, or violations, behind the value
    obstacle: str = ""  # why the two numbers cannot be compared

    @property
    def difference(self) -> float:
        """Ours minus the paper's; nan where that says nothing."""
        return math.nan if self.obstacle else self.value - self.paper.value

    @property
    def overlap(self) -> str:
        """Whether the intervals overlap, in words."""
        if self.obstacle:
            return self.obstacle
        if math.isnan(self.value):
            return UNDEFINED
        if self.paper.spread is None:
            return "the paper prints none"
        if math.isnan(self.low):
            return "one seed: no interval"
        low, high = self.paper.value - self.paper.spread, self.paper.value + self.paper.spread
        return "yes" if self.low <= high and low <= self.high else "no"

    @property
    def place(self) -> str:
        """Where our value lies: inside the paper's interval, or on its better or worse side."""
        if math.isnan(self.difference) or self.paper.spread is None:
            return UNDEFINED
        if abs(self.difference) <= self.paper.spread:
            return "inside"
        sign = BETTER.get(self.quantity)
        if sign is None:
            return "higher" if self.difference > 0 else "lower"
        return "better" if sign * self.difference > 0 else "worse"

    @property
    def theirs(self) -> str:
        """The paper's number as it is printed."""
        shown = number(self.paper.value, self.digits)
        return (
            shown if self.paper.spread is None else f"{shown} ± {self.paper.spread:.{self.digits}f}"
        )


def main_comparison(results: Results) -> Table:
    """Return and cost beside the paper's."""
    pairs = []
    for cell in _comparable(results):
        entry = paper.main_results().get(_key(cell))
        if entry is not None:
            r, c = cell.returns, cell.cost
            pairs.append(
                _Pair(
                    cell,
                    "return",
                    2,
                    with_bounds(r, 2),
                    r.value,
                    r.low,
                    r.high,
                    entry.returns,
                    cell.seeds,
                )
            )
            pairs.append(
                _Pair(
                    cell,
                    "cost",
                    1,
                    with_bounds(c, 1),
                    c.value,
                    c.low,
                    c.high,
                    entry.cost,
                    cell.seeds,
                )
            )
    return _table(
        results, "main-comparison", "Return and cost beside the paper's", pairs, 2, [INTERVALS]
    )


def recovery_comparison(results: Results) -> Table:
    """Recovery metrics beside the paper's; its VF is its #V over 350."""
    pairs = []
    for cell in _comparable(results):
        entry = paper.recovery_metrics().get(_key(cell))
        if entry is None:
            continue
        count, found = entry.violating_epochs, cell.recovery
        share = Printed(
            count.value / WINDOW, None if count.spread is None else count.spread / WINDOW
        )
        for name, digits, ours, theirs in (
            ("TTS", 2, found.tts, entry.tts),
            ("RP", 3, found.rp, entry.rp),
            ("#V", 1, found.violating_epochs, count),
            ("VF", 3, found.vf, share),
        ):
            low, high = ours.mean - ours.std, ours.mean + ours.std
            obstacle = _other_window(cell) if name == "#V" else ""
            shown = with_std(ours, digits, cell.seeds)
            pairs.append(
                _Pair(cell, name, digits, shown, ours.mean, low, high, theirs, ours.count, obstacle)
            )
    notes = [
        "Intervals: mean minus and plus one standard deviation over seeds, on both sides.",
        f"#V counts epochs, of {WINDOW} in the paper. The paper's VF is its #V over {WINDOW}.",
    ]
    return _table(
        results, "recovery-comparison", "Recovery metrics beside the paper's", pairs, 4, notes
    )


def split_comparison(results: Results) -> Table:
    """The sensitivity split of CSPO beside the paper's."""
    pairs = []
    for cell in _comparable(results):
        if cell.algo != "cspo":
            continue
        for geometry, part in sensitivity_split([run.recovery for run in cell.runs]).items():
            entry = paper.sensitivity_split().get((paper.task_name(cell.task), geometry))
            if entry is None:
                continue
            for name, value, theirs in (("TTS", part.tts, entry.tts), ("RP", part.rp, entry.rp)):
                count = part.violations if name == "TTS" else part.rp_violations
                shown = f"{number(value, 2)} ({count})" if count else number(value, 2)
                nan = math.nan
                pairs.append(
                    _Pair(cell, f"{geometry} {name}", 2, shown, value, nan, nan, theirs, count)
                )
    notes = [
        "In brackets the number of violations. The paper prints neither an interval nor that number."
    ]
    return _table(
        results, "split-comparison", "Sensitivity split beside the paper's", pairs, 4, notes
    )


def _other_window(cell: Cell) -> str:
    """Return why #V cannot be compared: it counts epochs, so only windows of equal length can."""
    first, stop = cell.runs[0].recovery.window
    return "" if stop - first == WINDOW else f"not comparable: of {stop - first} epochs"


def _key(cell: Cell) -> tuple[str, str]:
    return paper.task_name(cell.task), paper.algorithm_name(cell.algo)


def _comparable(results: Results) -> Iterator[Cell]:
    """Yield the cells that ask the paper's question: no variant, one constraint, its limit."""
    for cell in results.cells:
        one = all(run.series.cost.shape[1] == 1 for run in cell.runs)
        if not cell.variant and one and cell.limit == LIMIT:
            yield cell


def _table(
    results: Results, name: str, title: str, pairs: list[_Pair], group: int, notes: list[str]
) -> Table:
    rows = []
    for pair in pairs:
        signed = UNDEFINED if math.isnan(pair.difference) else f"{pair.difference:+.{pair.digits}f}"
        texts = (paper.task_name(pair.cell.task), display(pair.cell.label), pair.quantity)
        rows.append(
            tuple(map(Entry, (*texts, pair.ours, pair.theirs, signed, pair.place, pair.overlap)))
        )
    return Table(
        name=name,
        title=f"{title}{_length(pairs)}",  # in the title too: a table is often copied without its notes
        header=HEADER,
        rows=tuple(rows),
        records=tuple(_record(pair) for pair in pairs),
        notes=(*notes, *notes_of(results)),
        group=group,
        text_columns=3,
    )


def _length(pairs: list[_Pair]) -> str:
    """Return how long the runs are, where they are not as long as the paper's."""
    steps = sorted({pair.cell.steps for pair in pairs})
    return (
        ""
        if steps in ([], [paper.STEPS])
        else f" (runs of {span(steps)} steps beside the paper's {paper.STEPS:,})"
    )


def _record(pair: _Pair) -> dict[str, Value]:
    return named(pair.cell) | {
        "quantity": pair.quantity,
        "ours": pair.value,
        "ours_low": pair.low,
        "ours_high": pair.high,
        "ours_count": pair.count,
        "paper": pair.paper.value,
        "paper_half_width": pair.paper.spread,
        "paper_steps": paper.STEPS,
        "difference": pair.difference,
        "beside_its_interval": pair.place if pair.place != UNDEFINED else "",
        "intervals_overlap": pair.overlap if pair.overlap != UNDEFINED else "",
    }
