"""The tables in the layout of the paper: return and cost, recovery, its split, variants."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cspo.lab.metrics import Estimate, Spread
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
APART = 0.1  # share of a pooled value from which on a mean of seeds is another number
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


def seeds_apart(cells: Sequence[Cell]) -> list[str]:
    """Return a note for every cell whose mean of seeds tells something else than its pooled value.

    That is where it lies outside the interval, or, since seeds of two kinds have an interval that
    holds both, where it is more than a tenth away. Numbers that are written alike need no note: an
    interval can be narrower than the last digit.
    """
    notes = []
    for cell in cells:
        pairs = (
            ("return", cell.returns, cell.mean_return.mean, 2),
            ("cost", cell.cost, cell.mean_cost.mean, 1),
        )
        means = []
        for name, pooled, mean, digits in pairs:
            shown, beside = fixed(mean, digits), fixed(pooled.value, digits)
            if shown != beside and (where := _place(cell, pooled, mean)):
                means.append(f"{name} {shown}, {where} the pooled {beside}")
        if means:
            row = f"{paper.task_name(cell.task)}, {name_of(cell.label)}"
            notes.append(f"{row}: mean of seeds {'; '.join(means)}.")
    return notes


def _place(cell: Cell, pooled: Estimate, mean: float) -> str:
    """Return in words where a mean of seeds lies beside the pooled value; "" if near it."""
    if pooled.leaves_out(mean):
        return "outside the interval of"
    if cell.seeds < 2 or not abs(mean - pooled.value) > APART * abs(pooled.value):
        return ""
    return f"more than {100 * APART:g} % {'above' if mean > pooled.value else 'below'}"


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
    notes = [_averaged(results.cells), bold, *seeds_apart(results.cells)]
    return Table(
        name="main",
        title="Interquartile mean of return and cost, with 95 % bootstrap intervals over seeds",
        header=("Task", *map(name_of, results.labels)),
        rows=rows,
        records=[_main_record(cell) for cell in results.cells],
        notes=[*notes, *notes_of(results)],
        group=2,
    )


def _main_record(cell: Cell) -> Record:
    record = identity(cell) | fields("return", cell.returns) | fields("cost", cell.cost)
    record |= {"cost_limit": cell.limit, "feasible": cell.feasible}
    for name, mean in (("return", cell.mean_return), ("cost", cell.mean_cost)):
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
    notes += [*seeds_apart(cells), *notes_of(results)]
    return list_of("variants", title, rows, records, notes)
