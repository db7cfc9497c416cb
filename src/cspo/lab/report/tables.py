"""The tables in the layout of the paper: return and cost, recovery, its split, variants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cspo.lab.metrics import Spread, sensitivity_split
from cspo.lab.report import paper
from cspo.lab.report.formats import (
    UNDEFINED,
    Entry,
    Table,
    Value,
    fixed,
    row_of,
    with_interval,
    with_std,
)
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results

# name: digits, and where it is
METRICS: dict[str, tuple[int, Callable[[Cell], Spread]]] = {
    "TTS": (2, lambda cell: cell.recovery.tts),
    "RP": (3, lambda cell: cell.recovery.rp),
    "#V": (1, lambda cell: cell.recovery.violating_epochs),
    "VF": (3, lambda cell: cell.recovery.vf),
}
WORST = "Worst: the greatest cost of an epoch after the first 30 % of training, mean over seeds."


def identity(cell: Cell) -> dict[str, Value]:
    """Return the first fields of every record."""
    named = {"task": cell.task, "algorithm": cell.algo, "variant": cell.variant}
    return {**named, "seeds": cell.seeds, "steps": cell.steps}


def notes_of(results: Results) -> list[str]:
    """Return what stands under every table: how runs differ from the paper's, what is missing."""
    steps = sorted({cell.steps for cell in results.cells})
    seeds = sorted({cell.seeds for cell in results.cells})
    notes = []
    if steps != [paper.STEPS]:
        theirs = f"where the paper's have {paper.STEPS:,}: these numbers do not reproduce it"
        notes.append(f"Runs of {span(steps)} steps, {theirs}.")
    if seeds != [paper.SEEDS]:
        one = " One seed has no interval." if seeds[0] == 1 else ""
        notes.append(f"Seeds: {span(seeds)}, where the paper has {paper.SEEDS}.{one}")
    return [*notes, *results.notes]


def _averaged(cells: Sequence[Cell]) -> str:
    """Return over how many epochs return and cost are averaged, and what ± means."""
    epochs = sorted({cell.epochs for cell in cells})
    width = "After ± stands half the width of the interval; the CSV file has its bounds."
    if epochs in ([], [paper.LAST_EPOCHS]):
        return f"Over the last {paper.LAST_EPOCHS} epochs. {width}"
    theirs = f"where the paper takes {paper.LAST_EPOCHS}: the last fifth of a run"
    return f"Over the last {span(epochs)} epochs, {theirs}. {width}"


def span(values: Sequence[int]) -> str:
    """Return sorted whole numbers as "7" or "7 to 9"."""
    return " to ".join(f"{value:,}" for value in dict.fromkeys((values[0], values[-1])))


def main_table(results: Results) -> Table:
    """Return and cost of every algorithm on every task; the best return that is safe is bold."""
    rows: list[tuple[Entry, ...]] = []
    for task in results.tasks:
        cells = [results.cell(task, label) for label in results.labels]
        there = [cell for cell in cells if cell is not None]
        best = max((cell.returns.value for cell in there if cell.feasible), default=math.nan)
        limits = {cell.limit for cell in there}
        rows.append((Entry(paper.task_name(task)), *(_return(cell, best) for cell in cells)))
        differ = len(limits) > 1
        name = "C (limit)" if differ else f"C ({limits.pop():g})"
        rows.append((Entry(name), *(_cost(cell, with_limit=differ) for cell in cells)))
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


def _return(cell: Cell | None, best: float) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    return Entry(with_interval(cell.returns, 2), cell.feasible and cell.returns.value == best)


def _cost(cell: Cell | None, with_limit: bool) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    return Entry(with_interval(cell.cost, 1) + (f" ({cell.limit:g})" if with_limit else ""))


def _main_record(cell: Cell) -> dict[str, Value]:
    record = identity(cell)
    for name, value in (("return", cell.returns), ("cost", cell.cost)):
        record |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
    record |= {"cost_limit": cell.limit, "feasible": cell.feasible}
    for name, mean in (("return", cell.mean_return), ("cost", cell.mean_cost)):
        record |= {f"{name}_mean": mean.mean, f"{name}_std": mean.std}
    return record | {"epochs_averaged": cell.epochs}


def recovery_table(results: Results) -> Table:
    """TTS, RP, #V and VF of every algorithm on every task; the lowest TTS is bold."""
    rows: list[tuple[Entry, ...]] = []
    for task in results.tasks:
        cells = [results.cell(task, label) for label in results.labels]
        known = [cell.recovery.tts.mean for cell in cells if cell is not None]
        fastest = min((value for value in known if not math.isnan(value)), default=math.nan)
        for name, (digits, pick) in METRICS.items():
            best = fastest if name == "TTS" else math.nan
            entries = [_spread_entry(cell, pick, digits, best) for cell in cells]
            title = paper.task_name(task) if name == "TTS" else ""
            rows.append((Entry(title), Entry(name), *entries))
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


def _spread_entry(
    cell: Cell | None, pick: Callable[[Cell], Spread], digits: int, best: float
) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    return Entry(with_std(pick(cell), digits, cell.seeds), pick(cell).mean == best)


def _recovery_record(cell: Cell) -> dict[str, Value]:
    """Return the metrics of a cell with the counts of the corner cases."""
    found, record = cell.recovery, identity(cell)
    for name, value in (
        ("tts", found.tts),
        ("rp", found.rp),
        ("violating_epochs", found.violating_epochs),
        ("vf", found.vf),
        ("worst_violation", found.worst),
    ):
        record |= {name: value.mean, f"{name}_std": value.std, f"{name}_seeds": value.count}
    first, stop = cell.runs[0].recovery.window
    return record | {
        "window_first_epoch": first,
        "window_epochs": stop - first,
        "violations": found.violations,
        "open_at_start": found.open_at_start,
        "open_at_end": found.open_at_end,
        "rp_undefined": found.rp_undefined,
        "unknown_epochs": found.unknown_epochs,
        "seeds_without_violation": found.without_violation,
    }


def _recovery_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what was left out of TTS and RP, and over how many epochs the metrics are."""
    found = [cell.recovery for cell in cells]
    windows = (run.recovery.window for cell in cells for run in cell.runs)
    widths = sorted({stop - first for first, stop in windows})
    length = " to ".join(map(str, dict.fromkeys((widths[0], widths[-1]))))
    notes = [
        "TTS: epochs until a violated limit is kept again. RP: return then, over return when the "
        f"violation began. #V: violating epochs, of the {length} after the first 30 % of training. "
        "VF: their share. (2/3): two of three seeds have a value.",
        f"Violations: {sum(item.violations for item in found)}. Left out of TTS and RP: "
        f"{sum(item.open_at_start for item in found)} under way when the window began, "
        f"{sum(item.open_at_end for item in found)} still open at the end. Left out of RP: "
        f"{sum(item.rp_undefined for item in found)} that began at a return of zero or less. Runs "
        f"without a violation that ended: {sum(item.without_violation for item in found)}.",
    ]
    if unknown := sum(item.unknown_epochs for item in found):
        notes.append(f"Epochs without a known cost, left out: {unknown}.")
    return notes


def split_table(results: Results) -> Table:
    """TTS and RP of the violations where the constraint is flat, and where it is steep."""
    rows, records = [], []
    for cell in results.cells:
        violations = [item for run in cell.runs for item in run.recovery.violations]
        if all(item.gradient_norm is None for item in violations):
            continue  # an algorithm that does not log the norm, or a cell without violations
        names = (paper.task_name(cell.task), name_of(cell.label))
        parts = sensitivity_split([run.recovery for run in cell.runs])
        for geometry, part in parts.items():
            numbers = (fixed(part.tts, 2), fixed(part.rp, 3), str(part.violations))
            rows.append(row_of(*names, geometry.capitalize(), *numbers))
            records.append(
                identity(cell)
                | {"geometry": geometry, "tts": part.tts, "rp": part.rp}
                | {"violations": part.violations, "rp_violations": part.rp_violations}
                | {"gradient_norm_bound": part.gradient_norm}
            )
    explained = (
        "Flat and steep: the violations with the lowest and the highest 30 % of the gradient norm "
        "logged when they began, over all runs of the row. Groups of a few violations say little."
    )
    return Table(
        name="split",
        title="Recovery where the constraint is flat and where it is steep",
        header=("Task", "Algorithm", "Geometry", "TTS", "RP", "Violations"),
        rows=rows,
        records=records,
        notes=[explained, *notes_of(results)],
        group=2,
        text_columns=3,
    )


def variants_table(results: Results) -> Table:
    """Every variant of every algorithm beside the algorithm itself: return, cost and recovery."""
    varied = {cell.algo for cell in results.cells if cell.variant}
    cells = [cell for cell in results.cells if cell.algo in varied]
    rows = []
    for cell in cells:
        names = (paper.task_name(cell.task), name_of(cell.algo), cell.variant or "default")
        values = (with_interval(cell.returns, 2), with_interval(cell.cost, 1), f"{cell.limit:g}")
        metrics = [with_std(pick(cell), digits, cell.seeds) for digits, pick in METRICS.values()]
        worst = fixed(cell.limit + cell.recovery.worst.mean, 1)
        rows.append(row_of(*names, *values, "yes" if cell.feasible else "no", *metrics, worst))
    notes = [_averaged(cells), *_recovery_notes(cells), WORST] if cells else []
    return Table(
        name="variants",
        title="Variants: interquartile mean of return and cost with 95 % intervals, "
        "recovery with standard deviations",
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
        rows=rows,
        records=[_main_record(cell) | _recovery_record(cell) for cell in cells],
        notes=[*notes, *notes_of(results)],
        text_columns=3,
    )
