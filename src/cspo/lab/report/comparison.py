"""Our numbers beside the paper's: the difference, and whether the intervals overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cspo.lab.metrics import Estimate, sensitivity_split
from cspo.lab.report import paper
from cspo.lab.report.formats import (
    UNDEFINED,
    Table,
    Value,
    fixed,
    plus_minus,
    row_of,
    with_bounds,
    with_std,
)
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.tables import METRICS, identity, notes_of, span
from cspo.lab.report.versus import BETTER

HEADER = (
    *("Task", "Algorithm", "Quantity", "Ours", "Paper", "Difference"),
    *("Beside its interval", "Intervals overlap"),
)


@dataclass(frozen=True)
class _Pair:
    """One number of ours with its interval, and the paper's."""

    cell: Cell
    quantity: str
    digits: int
    text: str  # ours, as it is printed
    ours: Estimate
    theirs: paper.Printed
    count: int  # seeds, or violations, behind ours
    obstacle: str = ""  # why the two numbers cannot be compared

    @property
    def difference(self) -> float:
        """Ours minus the paper's; nan where that says nothing."""
        return math.nan if self.obstacle else self.ours.value - self.theirs.value

    @property
    def overlap(self) -> str:
        """Whether the intervals overlap, in words; "" where nothing can be said."""
        if self.obstacle or math.isnan(self.ours.value):
            return self.obstacle
        if self.theirs.spread is None:
            return "the paper prints none"
        if math.isnan(self.ours.low):
            return "one seed: no interval"
        low, high = self.theirs.value - self.theirs.spread, self.theirs.value + self.theirs.spread
        return "yes" if self.ours.low <= high and low <= self.ours.high else "no"

    @property
    def place(self) -> str:
        """Where ours lies: inside the paper's interval, or on its better or worse side."""
        if math.isnan(self.difference) or self.theirs.spread is None:
            return ""
        if abs(self.difference) <= self.theirs.spread:
            return "inside"
        sign = BETTER.get(self.quantity)
        if sign is None:
            return "higher" if self.difference > 0 else "lower"
        return "better" if sign * self.difference > 0 else "worse"


def main_comparison(results: Results) -> Table:
    """Return and cost beside the paper's."""
    pairs = []
    for cell in _comparable(results):
        printed = paper.main_results().get(_key(cell), {})
        for name, digits, ours in (("return", 2, cell.returns), ("cost", 1, cell.cost)):
            if name in printed:
                text, theirs = with_bounds(ours, digits), printed[name]
                pairs.append(_Pair(cell, name, digits, text, ours, theirs, cell.seeds))
    intervals = (
        "Ours: 95 % bootstrap interval in brackets. The paper's interval is its value minus and "
        "plus what it prints after ±."
    )
    return _table(results, "main", "Return and cost", pairs, 2, [intervals])


def recovery_comparison(results: Results) -> Table:
    """Recovery metrics beside the paper's; its VF is its #V over 350."""
    pairs = []
    for cell in _comparable(results):
        for name, theirs in paper.recovery_metrics().get(_key(cell), {}).items():
            digits, pick = METRICS[name]
            found = pick(cell)
            ours = Estimate(found.mean, found.mean - found.std, found.mean + found.std)
            text, obstacle = with_std(found, digits, cell.seeds), ""
            first, stop = cell.runs[0].recovery.window
            if name == "#V" and stop - first != paper.WINDOW:  # it counts epochs
                obstacle = f"not comparable: of {stop - first} epochs"
            pairs.append(_Pair(cell, name, digits, text, ours, theirs, found.count, obstacle))
    notes = [
        "Intervals: mean minus and plus one standard deviation over seeds, on both sides.",
        f"#V counts epochs, of {paper.WINDOW} in the paper. "
        f"The paper's VF is its #V over {paper.WINDOW}.",
    ]
    return _table(results, "recovery", "Recovery metrics", pairs, 4, notes)


def split_comparison(results: Results) -> Table:
    """The sensitivity split of CSPO beside the paper's."""
    pairs = []
    for cell in _comparable(results):
        if cell.algo != "cspo":
            continue
        for geometry, part in sensitivity_split([run.recovery for run in cell.runs]).items():
            key = paper.task_name(cell.task), geometry.capitalize()
            ours = {"TTS": (part.tts, part.violations), "RP": (part.rp, part.rp_violations)}
            for name, theirs in paper.sensitivity_split().get(key, {}).items():
                value, count = ours[name]
                text = f"{fixed(value, 2)} ({count})" if count else fixed(value, 2)
                quantity = f"{geometry} {name}"
                pairs.append(_Pair(cell, quantity, 2, text, Estimate(value), theirs, count))
    note = (
        "In brackets the number of violations. The paper prints neither an interval nor that "
        "number."
    )
    return _table(results, "split", "Sensitivity split", pairs, 4, [note])


def _key(cell: Cell) -> tuple[str, str]:
    return paper.task_name(cell.task), name_of(cell.algo)


def _comparable(results: Results) -> Iterator[Cell]:
    """Yield the cells that ask the paper's question: no variant, one constraint, its limit."""
    for cell in results.cells:
        one = all(run.series.cost.shape[1] == 1 for run in cell.runs)
        if not cell.variant and one and cell.limit == paper.LIMIT:
            yield cell


def _table(
    results: Results, name: str, title: str, pairs: Sequence[_Pair], group: int, notes: list[str]
) -> Table:
    rows = []
    for pair in pairs:
        names = (paper.task_name(pair.cell.task), name_of(pair.cell.label), pair.quantity)
        theirs = plus_minus(pair.theirs.value, pair.theirs.spread, pair.digits)
        signed = fixed(pair.difference, pair.digits, sign="+")
        words = (pair.place or UNDEFINED, pair.overlap or UNDEFINED)
        rows.append(row_of(*names, pair.text, theirs, signed, *words))
    steps = sorted({pair.cell.steps for pair in pairs})
    length = ""  # in the title too: a table is often copied without its notes
    if steps not in ([], [paper.STEPS]):
        length = f" (runs of {span(steps)} steps beside the paper's {paper.STEPS:,})"
    return Table(
        name=f"{name}-comparison",
        title=f"{title} beside the paper's{length}",
        header=HEADER,
        rows=rows,
        records=[_record(pair) for pair in pairs],
        notes=[*notes, *notes_of(results)],
        group=group,
        text_columns=3,
    )


def _record(pair: _Pair) -> dict[str, Value]:
    return identity(pair.cell) | {
        "quantity": pair.quantity,
        "ours": pair.ours.value,
        "ours_low": pair.ours.low,
        "ours_high": pair.ours.high,
        "ours_count": pair.count,
        "paper": pair.theirs.value,
        "paper_half_width": pair.theirs.spread,
        "paper_steps": paper.STEPS,
        "difference": pair.difference,
        "beside_its_interval": pair.place,
        "intervals_overlap": pair.overlap,
    }
