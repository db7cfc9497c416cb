"""The tables in the layout of the paper: return and cost, recovery, its split, variants."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cspo.lab.metrics import Spread, spread
from cspo.lab.report import paper
from cspo.lab.report.formats import (
    UNDEFINED,
    Bold,
    Record,
    Table,
    fields,
    fixed,
    span,
    with_interval,
    with_std,
    yes_no,
)
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results

METRICS = {"TTS": ("tts", 2), "RP": ("rp", 3), "#V": ("violating_epochs", 1), "VF": ("vf", 3)}
COUNTS = ("violations", "open_at_start", "open_at_end", "rp_undefined", "unknown_epochs")
WORST = "Worst: the greatest cost of an epoch after the first 30 % of training, mean over seeds."


def metric(cell: Cell, name: str) -> tuple[Spread, str]:
    """Return a recovery metric of a cell, and how it is written."""
    field, digits = METRICS[name]
    found: Spread = getattr(cell.recovery, field)
    return found, with_std(found, digits, cell.seeds)


def identity(cell: Cell) -> Record:
    """Return the first fields of every record."""
    named = {"task": cell.task, "algorithm": cell.algo, "variant": cell.variant}
    return {**named, "seeds": cell.seeds, "steps": cell.steps}


def list_of(
    name: str,
    title: str,
    rows: Sequence[dict[str, str]],
    records: Sequence[Record],
    notes: Sequence[str],
    group: int = 1,
) -> Table:
    """Return a table from rows by the titles of their columns; the first three hold names."""
    header, texts = tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows]
    return Table(name, title, header, texts, records, notes, group, text_columns=3)


def notes_of(results: Results) -> list[str]:
    """Return what stands under every table: how runs differ from the paper's, what is missing."""
    steps = {cell.steps for cell in results.cells}
    seeds = {cell.seeds for cell in results.cells}
    notes = []
    if steps != {paper.STEPS}:
        theirs = f"where the paper's have {paper.STEPS:,}: these numbers do not reproduce it"
        notes.append(f"Runs of {span(steps)} steps, {theirs}.")
    if seeds != {paper.SEEDS}:
        one = " One seed has no interval." if 1 in seeds else ""
        notes.append(f"Seeds: {span(seeds)}, where the paper has {paper.SEEDS}.{one}")
    return [*notes, *results.notes]


def _averaged(cells: Sequence[Cell]) -> str:
    """Return over how many epochs return and cost are averaged, and what ± means."""
    epochs = {cell.epochs for cell in cells}
    width = "After ± stands half the width of the interval; the CSV file has its bounds."
    if epochs <= {paper.LAST_EPOCHS}:
        return f"Over the last {paper.LAST_EPOCHS} epochs. {width}"
    theirs = f"where the paper takes {paper.LAST_EPOCHS}: the last fifth of a run"
    return f"Over the last {span(epochs)} epochs, {theirs}. {width}"


def main_table(results: Results) -> Table:
    """Return and cost of every algorithm on every task; the best return that is safe is bold."""
    rows = []
    for task in results.tasks:
        returns, costs = [paper.task_name(task)], ["C (limit)"]
        limits = {cell.limit for cell in results.of_task(task)}
        if len(limits) == 1:
            costs = [f"C ({min(limits):g})"]
        for cell in (results.cell(task, label) for label in results.labels):
            if cell is None:
                returns.append(UNDEFINED)
                costs.append(UNDEFINED)
                continue
            text = with_interval(cell.returns, 2)
            returns.append(Bold(text) if results.is_best(cell) else text)
            limit = f" ({cell.limit:g})" if len(limits) > 1 else ""
            costs.append(with_interval(cell.cost, 1) + limit)
        rows += [returns, costs]
    bold = "Bold: the best return among those that keep the limit."
    return Table(
        name="main",
        title="Interquartile mean of return and cost, with 95 % bootstrap intervals over seeds",
        header=("Task", *map(name_of, results.labels)),
        rows=rows,
        records=[_main_record(cell) for cell in results.cells],
        notes=[_averaged(results.cells), bold, *notes_of(results)],
        group=2,
    )


def _main_record(cell: Cell) -> Record:
    record = identity(cell) | fields("return", cell.returns) | fields("cost", cell.cost)
    record |= {"cost_limit": cell.limit, "feasible": cell.feasible}
    for name, last in (("return", cell.last_returns), ("cost", cell.last_costs)):
        mean = spread([spread(epochs).mean for epochs in last])  # over epochs, then over seeds
        record |= {f"{name}_mean": mean.mean, f"{name}_std": mean.std}
    return record | {"epochs_averaged": cell.epochs}


def recovery_table(results: Results) -> Table:
    """TTS, RP, #V and VF of every algorithm on every task; the lowest TTS is bold."""
    rows = []
    for task in results.tasks:
        known = [cell.recovery.tts.mean for cell in results.of_task(task)]
        fastest = min((value for value in known if not math.isnan(value)), default=math.nan)
        for name in METRICS:
            row = [paper.task_name(task) if name == "TTS" else "", name]
            for cell in (results.cell(task, label) for label in results.labels):
                found, text = metric(cell, name) if cell else (None, UNDEFINED)
                best = found and name == "TTS" and found.mean == fastest
                row.append(Bold(text) if best else text)
            rows.append(row)
    return Table(
        name="recovery",
        title="Recovery metrics, mean and standard deviation over seeds",
        header=("Task", "", *map(name_of, results.labels)),
        rows=rows,
        records=[_recovery_record(cell) for cell in results.cells],
        notes=[*_recovery_notes(results.cells), "Bold: the lowest TTS.", *notes_of(results)],
        group=len(METRICS),
        text_columns=2,
    )


def _recovery_record(cell: Cell) -> Record:
    """Return the metrics of a cell with the counts of the corner cases."""
    found, record = cell.recovery, identity(cell)
    spreads = {field: getattr(found, field) for field, _ in METRICS.values()}
    for name, value in (spreads | {"worst_violation": found.worst}).items():
        record |= {name: value.mean, f"{name}_std": value.std, f"{name}_seeds": value.count}
    first, stop = cell.runs[0].recovery.window
    record |= {"window_first_epoch": first, "window_epochs": stop - first}
    record |= {name: getattr(found, name) for name in COUNTS}
    return record | {"seeds_without_violation": found.without_violation}


def _recovery_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what was left out of TTS and RP, and over how many epochs the metrics are."""
    windows = (run.recovery.window for cell in cells for run in cell.runs)
    length = span(stop - first for first, stop in windows).replace(",", "")
    violations, at_start, at_end, no_rp, unknown, without = (
        sum(getattr(cell.recovery, name) for cell in cells)
        for name in (*COUNTS, "without_violation")
    )
    notes = [
        "TTS: epochs until a violated limit is kept again. RP: return then, over return when the "
        f"violation began. #V: violating epochs, of the {length} after the first 30 % of training. "
        "VF: their share. (2/3): two of three seeds have a value.",
        f"Violations: {violations}. Left out of TTS and RP: {at_start} under way when the window "
        f"began, {at_end} still open at the end. Left out of RP: {no_rp} that began at a return of "
        f"zero or less. Runs without a violation that ended: {without}.",
    ]
    if unknown:
        notes.append(f"Epochs without a known cost, left out: {unknown}.")
    return notes


def split_table(results: Results) -> Table:
    """TTS and RP of the violations where the constraint is flat, and where it is steep."""
    rows, records = [], []
    for cell in results.cells:
        violations = [item for run in cell.runs for item in run.recovery.violations]
        if all(item.gradient_norm is None for item in violations):
            continue  # an algorithm that does not log the norm, or a cell without violations
        for geometry, part in cell.split.items():
            row = {"Task": paper.task_name(cell.task), "Algorithm": name_of(cell.label)}
            row |= {"Geometry": geometry.capitalize(), "TTS": fixed(part.tts, 2)}
            rows.append(row | {"RP": fixed(part.rp, 3), "Violations": str(part.violations)})
            record = {"geometry": geometry, "tts": part.tts, "rp": part.rp}
            record |= {"violations": part.violations, "rp_violations": part.rp_violations}
            records.append(identity(cell) | record | {"gradient_norm_bound": part.gradient_norm})
    explained = (
        "Flat and steep: the violations with the lowest and the highest 30 % of the gradient norm "
        "logged when they began, over all runs of the row. Groups of a few violations say little."
    )
    title = "Recovery where the constraint is flat and where it is steep"
    return list_of("split", title, rows, records, [explained, *notes_of(results)], group=2)


def variants_table(results: Results) -> Table:
    """Every variant of every algorithm beside the algorithm itself: return, cost and recovery."""
    varied = {cell.algo for cell in results.cells if cell.variant}
    cells = [cell for cell in results.cells if cell.algo in varied]
    rows = [
        {
            "Task": paper.task_name(cell.task),
            "Algorithm": name_of(cell.algo),
            "Variant": cell.variant or "default",
            "Return": with_interval(cell.returns, 2),
            "Cost": with_interval(cell.cost, 1),
            "Limit": f"{cell.limit:g}",
            "Kept": yes_no(cell.feasible),
            **{name: metric(cell, name)[1] for name in METRICS},
            "Worst": fixed(cell.limit + cell.recovery.worst.mean, 1),
        }
        for cell in cells
    ]
    title = (
        "Variants: interquartile mean of return and cost with 95 % intervals, "
        "recovery with standard deviations"
    )
    records = [_main_record(cell) | _recovery_record(cell) for cell in cells]
    notes = [_averaged(cells), *_recovery_notes(cells), WORST] if cells else []
    return list_of("variants", title, rows, records, [*notes, *notes_of(results)])
