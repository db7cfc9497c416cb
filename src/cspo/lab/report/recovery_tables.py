"""The tables of recovery metrics: per algorithm, and by the sensitivity of the constraint."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cspo.lab.metrics import Spread, sensitivity_split
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Entry, Table, Value
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.wording import display, named, notes_of, number, with_std

# name: digits, and where it is
METRICS: dict[str, tuple[int, Callable[[Cell], Spread]]] = {
    "TTS": (2, lambda cell: cell.recovery.tts),
    "RP": (3, lambda cell: cell.recovery.rp),
    "#V": (1, lambda cell: cell.recovery.violating_epochs),
    "VF": (3, lambda cell: cell.recovery.vf),
}


def recovery_table(results: Results) -> Table:
    """TTS, RP, #V and VF of every algorithm on every task; the lowest TTS is bold."""
    rows: list[tuple[Entry, ...]] = []
    for task in results.tasks:
        cells = [results.cell(task, label) for label in results.labels]
        known = [cell.recovery.tts.mean for cell in cells if cell is not None]
        fastest = min((value for value in known if not math.isnan(value)), default=math.nan)
        for name, (digits, pick) in METRICS.items():
            rows.append(
                (
                    Entry(paper.task_name(task) if name == "TTS" else ""),
                    Entry(name),
                    *(
                        _spread_entry(cell, pick, digits, fastest if name == "TTS" else math.nan)
                        for cell in cells
                    ),
                )
            )
    return Table(
        name="recovery",
        title="Recovery metrics, mean and standard deviation over seeds",
        header=("Task", "", *(display(label) for label in results.labels)),
        rows=tuple(rows),
        records=tuple(recovery_record(cell) for cell in results.cells),
        notes=(*recovery_notes(results.cells), "Bold: the lowest TTS.", *notes_of(results)),
        group=len(METRICS),
        text_columns=2,
    )


def _spread_entry(
    cell: Cell | None, pick: Callable[[Cell], Spread], digits: int, best: float
) -> Entry:
    if cell is None:
        return Entry(UNDEFINED)
    value = pick(cell)
    return Entry(with_std(value, digits, cell.seeds), value.mean == best)


def recovery_record(cell: Cell) -> dict[str, Value]:
    """Return the metrics of a cell with the counts of the corner cases."""
    found = cell.recovery
    measured = {
        "tts": found.tts,
        "rp": found.rp,
        "violating_epochs": found.violating_epochs,
        "vf": found.vf,
    }
    measured["worst_violation"] = found.worst
    record = named(cell)
    for name, value in measured.items():
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


def recovery_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what was left out of TTS and RP, and over how many epochs the metrics are."""
    found = [cell.recovery for cell in cells]
    widths = sorted(
        {run.recovery.window[1] - run.recovery.window[0] for cell in cells for run in cell.runs}
    )
    length = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}"
    notes = [
        "TTS: epochs until a violated limit is kept again. RP: return then, over return when the violation began. "
        f"#V: violating epochs, of the {length} after the first 30 % of training. VF: their share. "
        "(2/3): two of three seeds have a value.",
        f"Violations: {sum(item.violations for item in found)}. Left out of TTS and RP: "
        f"{sum(item.open_at_start for item in found)} under way when the window began, "
        f"{sum(item.open_at_end for item in found)} still open at the end. "
        f"Left out of RP: {sum(item.rp_undefined for item in found)} that began at a return of zero or less. "
        f"Runs without a violation that ended: {sum(item.without_violation for item in found)}.",
    ]
    if unknown := sum(item.unknown_epochs for item in found):
        notes.append(f"Epochs without a known cost, left out: {unknown}.")
    return notes


def split_table(results: Results) -> Table:
    """TTS and RP of the violations where the constraint is flat, and where it is steep."""
    rows, records = [], []
    for cell in results.cells:
        parts = sensitivity_split([run.recovery for run in cell.runs])
        if not any(
            v.gradient_norm is not None for run in cell.runs for v in run.recovery.violations
        ):
            continue  # an algorithm that does not log the norm, or a cell without violations
        for geometry, part in parts.items():
            texts = [paper.task_name(cell.task), display(cell.label), geometry.capitalize()]
            texts += [number(part.tts, 2), number(part.rp, 3), str(part.violations)]
            rows.append(tuple(map(Entry, texts)))
            records.append(
                named(cell)
                | {
                    "geometry": geometry,
                    "tts": part.tts,
                    "rp": part.rp,
                    "violations": part.violations,
                }
                | {"rp_violations": part.rp_violations, "gradient_norm_bound": part.gradient_norm}
            )
    return Table(
        name="split",
        title="Recovery where the constraint is flat and where it is steep",
        header=("Task", "Algorithm", "Geometry", "TTS", "RP", "Violations"),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Flat and steep: the violations with the lowest and the highest 30 % of the gradient norm logged when they "
            "began, over all runs of the row. Groups of a few violations say little.",
            *notes_of(results),
        ),
        group=2,
        text_columns=3,
    )
