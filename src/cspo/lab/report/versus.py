"""One algorithm against each other one, task by task: what differs, by how much, and whether seeds explain it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cspo.lab.metrics import Estimate, difference_of_means
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Entry, Table, Value
from cspo.lab.report.results import Cell, Results, on_shared_seeds
from cspo.lab.report.wording import BETTER, display, named, notes_of
from cspo.types import FloatArray


@dataclass(frozen=True)
class _Quantity:
    name: str
    digits: int
    seeds: Callable[[Cell], FloatArray | list[float]]


QUANTITIES = (
    _Quantity("return", 2, lambda cell: cell.seed_returns),
    _Quantity("VF", 3, lambda cell: [run.recovery.vf for run in cell.runs]),
    _Quantity("TTS", 2, lambda cell: [run.recovery.tts for run in cell.runs]),
    _Quantity("worst cost", 1, lambda cell: [run.recovery.worst for run in cell.runs]),
)


def versus_table(results: Results, label: str = "cspo") -> Table:
    """Return, violation frequency, time to safety and worst cost of `label` minus those of every other algorithm."""
    rows, records = [], []
    for task in results.tasks:
        all_of_ours = results.cell(task, label)
        for other in results.labels:
            all_of_theirs = results.cell(task, other)
            if all_of_ours is None or all_of_theirs is None or other == label:
                continue
            ours, theirs = on_shared_seeds(all_of_ours, all_of_theirs)
            paired = [run.seed for run in ours.runs] == [run.seed for run in theirs.runs]
            row = [paper.task_name(task), display(other), _kept(ours, theirs)]
            for quantity in QUANTITIES:
                found = difference_of_means(
                    quantity.seeds(ours), quantity.seeds(theirs), paired=paired
                )
                word = verdict(found, BETTER[quantity.name])
                row.append(_text(found, quantity.digits, word))
                records.append(_record(ours, theirs, quantity.name, found, word))
            rows.append(tuple(map(Entry, row)))
    others = sum(label != one for one in results.labels)
    return Table(
        name="versus",
        title=f"{display(label)} minus every other algorithm",
        header=("Task", "Against", "Limit kept", *(quantity.name for quantity in QUANTITIES)),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            f"Limit kept: by {display(label)} / by the other, over the last epochs. Mean of the differences "
            "seed by seed, in brackets its 95 % interval (Student's t); better or worse where it leaves zero out. Only "
            "seeds that both have run are compared; where they share none, the means are (Welch's t).",
            "TTS leaves out violations that never end; VF counts their epochs.",
            *notes_of(results),
        ),
        group=max(1, others),
        text_columns=3,
    )


def verdict(difference: Estimate, sign: float) -> str:
    """Return "better" or "worse" if the interval leaves zero out, "equal" where nothing differs, "" otherwise."""
    if math.isnan(difference.low):
        return ""
    if difference.low == difference.high == 0.0:
        return "equal"
    if difference.low > 0.0 or difference.high < 0.0:
        return "better" if sign * difference.value > 0.0 else "worse"
    return ""


def _kept(ours: Cell, theirs: Cell) -> str:
    return " / ".join("yes" if cell.feasible else "no" for cell in (ours, theirs))


def _text(found: Estimate, digits: int, word: str) -> str:
    if math.isnan(found.value):
        return UNDEFINED
    bounds = (
        "" if math.isnan(found.low) else f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    )
    return f"{found.value:+.{digits}f}{bounds} {word}".rstrip()


def _record(
    ours: Cell, theirs: Cell, quantity: str, found: Estimate, word: str
) -> dict[str, Value]:
    return named(ours) | {
        "against": theirs.label,
        "against_seeds": theirs.seeds,
        "quantity": quantity,
        "difference": found.value,
        "low": found.low,
        "high": found.high,
        "verdict": word,
        "feasible": ours.feasible,
        "against_feasible": theirs.feasible,
    }
