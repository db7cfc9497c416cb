"""The tables of a report, in the layout of the paper; `comparison.py` sets them beside the paper's numbers."""

from __future__ import annotations

import math

from cspo.lab.metrics import probability_of_improvement
from cspo.lab.report import comparison, paper
from cspo.lab.report.formats import UNDEFINED, Entry, Table, Value
from cspo.lab.report.recovery_tables import (
    METRICS,
    recovery_notes,
    recovery_record,
    recovery_table,
    split_table,
)
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.versus import versus_table
from cspo.lab.report.wording import (
    averaged,
    display,
    named,
    notes_of,
    number,
    with_bounds,
    with_interval,
    with_std,
)

__all__ = [
    "all_tables",
    "display",
    "improvement_table",
    "main_table",
    "notes_of",
    "number",
    "recovery_table",
    "split_table",
    "variants_table",
    "versus_table",
]


def all_tables(results: Results) -> list[Table]:
    """Return every table the results have something for."""
    made = (
        main_table(results),
        comparison.main_comparison(results),
        recovery_table(results),
        comparison.recovery_comparison(results),
        split_table(results),
        comparison.split_comparison(results),
        variants_table(results),
        versus_table(results),
        improvement_table(results),
    )
    return [table for table in made if table.rows]


def main_table(results: Results) -> Table:
    """Return and cost of every algorithm on every task; the best return that keeps the limit is bold."""
    rows: list[tuple[Entry, ...]] = []
    for task in results.tasks:
        cells = [results.cell(task, label) for label in results.labels]
        there = [cell for cell in cells if cell is not None]
        best = max((cell.returns.value for cell in there if cell.feasible), default=math.nan)
        limits = {cell.limit for cell in there}
        one_limit = len(limits) == 1
        rows.append((Entry(paper.task_name(task)), *(_return(cell, best) for cell in cells)))
        name = f"C ({limits.pop():g})" if one_limit else "C (limit)"
        rows.append((Entry(name), *(_cost(cell, with_limit=not one_limit) for cell in cells)))
    return Table(
        name="main",
        title="Interquartile mean of return and cost, with 95 % bootstrap intervals over seeds",
        header=("Task", *(display(label) for label in results.labels)),
        rows=tuple(rows),
        records=tuple(_main_record(cell) for cell in results.cells),
        notes=(
            *averaged(results.cells),
            "Bold: the best return among those that keep the limit.",
            *notes_of(results),
        ),
        group=2,
    )


def _return(cell: Cell | None, best: float) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    return Entry(with_interval(cell.returns, 2), cell.feasible and cell.returns.value == best)


def _cost(cell: Cell | None, with_limit: bool) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    return Entry(with_interval(cell.cost, 1) + (f" ({cell.limit:g})" if with_limit else ""))


def _main_record(cell: Cell) -> dict[str, Value]:
    return {
        **named(cell),
        "return": cell.returns.value,
        "return_low": cell.returns.low,
        "return_high": cell.returns.high,
        "cost": cell.cost.value,
        "cost_low": cell.cost.low,
        "cost_high": cell.cost.high,
        "cost_limit": cell.limit,
        "feasible": cell.feasible,
        "return_mean": cell.mean_return.mean,
        "return_std": cell.mean_return.std,
        "cost_mean": cell.mean_cost.mean,
        "cost_std": cell.mean_cost.std,
        "epochs_averaged": cell.epochs,
    }


WORST = "Worst: the greatest cost of an epoch after the first 30 % of training, mean over seeds."


def variants_table(results: Results) -> Table:
    """Every variant of every algorithm, and the algorithm itself beside them: return, cost and recovery."""
    varied = {cell.algo for cell in results.cells if cell.variant}
    cells = [cell for cell in results.cells if cell.algo in varied]
    rows = []
    for cell in cells:
        texts = [
            paper.task_name(cell.task),
            paper.algorithm_name(cell.algo),
            cell.variant or "default",
        ]
        texts += [with_interval(cell.returns, 2), with_interval(cell.cost, 1), f"{cell.limit:g}"]
        texts += ["yes" if cell.feasible else "no"]
        texts += [with_std(pick(cell), digits, cell.seeds) for digits, pick in METRICS.values()]
        texts.append(number(cell.limit + cell.recovery.worst.mean, 1))
        rows.append(tuple(map(Entry, texts)))
    return Table(
        name="variants",
        title="Variants: interquartile mean of return and cost with 95 % intervals, recovery with standard deviations",
        header=(
            "Task",
            "Algorithm",
            "Variant",
            "Return",
            "Cost",
            "Limit",
            "Kept",
            *METRICS,
            "Worst",
        ),
        rows=tuple(rows),
        records=tuple(_main_record(cell) | recovery_record(cell) for cell in cells),
        notes=(
            *averaged(cells),
            *(recovery_notes(cells) if cells else ()),
            WORST,
            *notes_of(results),
        ),
        text_columns=3,
    )


def improvement_table(results: Results, label: str = "cspo") -> Table:
    """The probability that a run of `label` has a higher return than one of each other algorithm."""
    others = [other for other in results.labels if other != label]
    rows, records = [], []
    for task in results.tasks:
        ours = results.cell(task, label)
        if ours is None or not others:
            continue
        row = [Entry(paper.task_name(task))]
        for other in others:
            theirs = results.cell(task, other)
            if theirs is None:
                row.append(Entry(UNDEFINED))
                continue
            share = probability_of_improvement(ours.seed_returns, theirs.seed_returns)
            row.append(Entry(with_bounds(share, 2)))
            records.append(
                named(ours)
                | {
                    "against": other,
                    "probability": share.value,
                    "low": share.low,
                    "high": share.high,
                }
                | {
                    "feasible": ours.feasible,
                    "against_feasible": theirs.feasible,
                    "against_seeds": theirs.seeds,
                }
            )
        rows.append(tuple(row))
    return Table(
        name="improvement",
        title=f"Probability that {display(label)} has a higher return than another algorithm",
        header=("Task", *(f"{display(label)} > {display(other)}" for other in others)),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Mann and Whitney's U over the number of pairs of seeds, each seed with the interquartile mean of its last "
            "epochs; in brackets the 95 % bootstrap interval. It does not ask whether the limits are kept.",
            *notes_of(results),
        ),
    )
