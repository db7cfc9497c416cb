"""Our numbers beside the paper's: the difference, and whether the intervals overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cspo.lab.metrics import Estimate
from cspo.lab.report import paper
from cspo.lab.report.formats import (
    UNDEFINED,
    Record,
    Table,
    fields,
    fixed,
    plus_minus,
    span,
    with_bounds,
)
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.tables import METRICS, identity, list_of, metric, notes_of, seeds_apart
from cspo.lab.report.versus import BETTER

Line = tuple[dict[str, str], Record]  # one number of ours and the paper's, for readers and programs


def main_comparison(results: Results) -> Table:
    """Return and cost beside the paper's."""
    lines, compared = [], []
    for cell, key in _comparable(results):
        ours = {
            "return": (cell.returns, 2, cell.mean_return),
            "cost": (cell.cost, 1, cell.mean_cost),
        }
        for name, theirs in paper.main_results().get(key, {}).items():
            value, digits, mean = ours[name]
            text = with_bounds(value, digits)
            row, record = _line(cell, name, digits, text, value, theirs, cell.seeds)
            lines.append((row, record | {"ours_mean": mean.mean}))
            compared.append(cell)
    intervals = (
        "Ours: 95 % bootstrap interval in brackets. The paper's interval is its value minus and "
        "plus what it prints after ±."
    )
    notes = [intervals, *seeds_apart(list(dict.fromkeys(compared)))]
    return _table(results, "main", "Return and cost", lines, 2, notes)


def recovery_comparison(results: Results) -> Table:
    """Recovery metrics beside the paper's; its VF is its #V over 350."""
    lines = []
    for cell, key in _comparable(results):
        first, stop = cell.runs[0].recovery.window
        for name, theirs in paper.recovery_metrics().get(key, {}).items():
            found, text = metric(cell, name)
            ours = Estimate(found.mean, found.mean - found.std, found.mean + found.std)
            counts_other = name == "#V" and stop - first != paper.WINDOW  # it counts epochs
            obstacle = f"not comparable: of {stop - first} epochs" if counts_other else ""
            digits = METRICS[name][1]
            lines.append(_line(cell, name, digits, text, ours, theirs, found.count, obstacle))
    notes = [
        "Intervals: mean minus and plus one standard deviation over seeds, on both sides.",
        f"#V counts epochs, of {paper.WINDOW} in the paper. "
        f"The paper's VF is its #V over {paper.WINDOW}.",
    ]
    return _table(results, "recovery", "Recovery metrics", lines, 4, notes)


def split_comparison(results: Results) -> Table:
    """The sensitivity split of CSPO beside the paper's."""
    lines = []
    for cell, (task, _) in _comparable(results):
        for geometry, part in cell.split.items() if cell.algo == "cspo" else ():
            ours = {"TTS": (part.tts, part.violations), "RP": (part.rp, part.rp_violations)}
            for name, theirs in (
                paper.sensitivity_split().get((task, geometry.capitalize()), {}).items()
            ):
                value, count = ours[name]
                text = fixed(value, 2) + (f" ({count})" if count else "")
                said = f"{geometry} {name}"
                lines.append(_line(cell, said, 2, text, Estimate(value), theirs, count))
    note = (
        "In brackets the number of violations. The paper prints neither an interval nor that "
        "number."
    )
    return _table(results, "split", "Sensitivity split", lines, 4, [note])


def _comparable(results: Results) -> Iterator[tuple[Cell, tuple[str, str]]]:
    """Yield the cells that ask the paper's question, and what it calls their task and algorithm.

    They have no variant, and one constraint with the paper's limit from first to last.
    """
    for cell in results.cells:
        one = all(run.series.cost.shape[1] == 1 for run in cell.runs)
        if not cell.variant and one and cell.limit == paper.LIMIT and not cell.limit_moves:
            yield cell, (paper.task_name(cell.task), name_of(cell.algo))


def _line(
    cell: Cell,
    quantity: str,
    digits: int,
    text: str,  # ours, as it is printed
    ours: Estimate,
    theirs: paper.Printed,
    count: int,  # seeds, or violations, behind ours
    obstacle: str = "",  # why the two numbers cannot be compared
) -> Line:
    difference = math.nan if obstacle else ours.value - theirs.value
    place = _place(quantity, difference, theirs.spread)
    overlap = obstacle or _overlap(ours, theirs)
    row = {
        "Task": paper.task_name(cell.task),
        "Algorithm": name_of(cell.label),
        "Quantity": quantity,
        "Ours": text,
        "Paper": plus_minus(theirs.value, theirs.spread, digits),
        "Difference": fixed(difference, digits, sign="+"),
        "Beside its interval": place or UNDEFINED,
        "Intervals overlap": overlap or UNDEFINED,
    }
    record = identity(cell) | {"quantity": quantity, **fields("ours", ours), "ours_count": count}
    record |= {"paper": theirs.value, "paper_half_width": theirs.spread, "paper_steps": paper.STEPS}
    record |= {"difference": difference, "beside_its_interval": place}
    return row, record | {"intervals_overlap": overlap}


def _overlap(ours: Estimate, theirs: paper.Printed) -> str:
    """Return whether the intervals overlap, in words; "" where nothing can be said."""
    if math.isnan(ours.value):
        return ""
    if theirs.spread is None:
        return "the paper prints none"
    if math.isnan(ours.low):
        return "one seed: no interval"
    low, high = theirs.value - theirs.spread, theirs.value + theirs.spread
    return "yes" if ours.low <= high and low <= ours.high else "no"


def _place(quantity: str, difference: float, spread: float | None) -> str:
    """Return where ours lies: inside the paper's interval, or on its better or worse side."""
    if math.isnan(difference) or spread is None:
        return ""
    if abs(difference) <= spread:
        return "inside"
    if quantity not in BETTER:
        return "higher" if difference > 0 else "lower"
    return "better" if BETTER[quantity] * difference > 0 else "worse"


def _table(
    results: Results, name: str, title: str, lines: Sequence[Line], group: int, notes: list[str]
) -> Table:
    rows, records = [row for row, _ in lines], [record for _, record in lines]
    steps = {record["steps"] for record in records}
    length = ""  # in the title too: a table is often copied without its notes
    if not steps <= {paper.STEPS}:
        length = f" (runs of {span(steps)} steps beside the paper's {paper.STEPS:,})"
    title = f"{title} beside the paper's{length}"
    return list_of(f"{name}-comparison", title, rows, records, [*notes, *notes_of(results)], group)
