"""One algorithm against each other one: what differs, and whether seeds explain it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cspo.lab.metrics import Estimate, difference_of_means, probability_of_improvement
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Table, Value, row_of, with_bounds
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results, on_shared_seeds
from cspo.lab.report.tables import identity, notes_of
from cspo.types import FloatArray

# +1 where more is better, -1 where less is; of a cost within its limit neither is.
BETTER = {"return": 1.0, "RP": 1.0, "TTS": -1.0, "#V": -1.0, "VF": -1.0, "worst cost": -1.0}


class Quantity(NamedTuple):
    """Something of which every run has one number."""

    name: str
    digits: int
    of_seeds: Callable[[Cell], FloatArray | list[float]]


QUANTITIES = (
    Quantity("return", 2, lambda cell: cell.seed_returns),
    Quantity("VF", 3, lambda cell: [run.recovery.vf for run in cell.runs]),
    Quantity("TTS", 2, lambda cell: [run.recovery.tts for run in cell.runs]),
    Quantity("worst cost", 1, lambda cell: [run.recovery.worst for run in cell.runs]),
)


def versus_table(results: Results, label: str = "cspo") -> Table:
    """Return, VF, TTS and worst cost of `label` minus those of every other algorithm."""
    rows, records = [], []
    for all_of_ours, all_of_theirs in _pairs(results, label):
        ours, theirs = on_shared_seeds(all_of_ours, all_of_theirs)
        paired = [run.seed for run in ours.runs] == [run.seed for run in theirs.runs]
        texts = []
        for name, digits, of_seeds in QUANTITIES:
            found = difference_of_means(of_seeds(ours), of_seeds(theirs), paired=paired)
            word = verdict(found, BETTER[name])
            texts.append(f"{with_bounds(found, digits, sign='+')} {word}".rstrip())
            records.append(_record(ours, theirs, name, found, word))
        kept = " / ".join("yes" if cell.feasible else "no" for cell in (ours, theirs))
        rows.append(row_of(paper.task_name(ours.task), name_of(theirs.label), kept, *texts))
    explained = (
        f"Limit kept: by {name_of(label)} / by the other, over the last epochs. Mean of the "
        "differences seed by seed, in brackets its 95 % interval (Student's t); better or worse "
        "where it leaves zero out. Only seeds that both have run are compared; where they share "
        "none, the means are (Welch's t)."
    )
    open_ended = "TTS leaves out violations that never end; VF counts their epochs."
    return Table(
        name="versus",
        title=f"{name_of(label)} minus every other algorithm",
        header=("Task", "Against", "Limit kept", *(quantity.name for quantity in QUANTITIES)),
        rows=rows,
        records=records,
        notes=[explained, open_ended, *notes_of(results)],
        group=max(1, sum(label != one for one in results.labels)),
        text_columns=3,
    )


def _pairs(results: Results, label: str) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cell of `label` and that of another algorithm, for every task that has both."""
    for task in results.tasks:
        ours = results.cell(task, label)
        for other in results.labels:
            theirs = results.cell(task, other)
            if ours is not None and theirs is not None and other != label:
                yield ours, theirs


def verdict(difference: Estimate, sign: float) -> str:
    """Return "better" or "worse" if the interval leaves zero out, "equal" where nothing differs."""
    if math.isnan(difference.low):
        return ""
    if difference.low == difference.high == 0.0:
        return "equal"
    if difference.low > 0.0 or difference.high < 0.0:
        return "better" if sign * difference.value > 0.0 else "worse"
    return ""


def _record(
    ours: Cell, theirs: Cell, quantity: str, found: Estimate, word: str
) -> dict[str, Value]:
    return identity(ours) | {
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


def improvement_table(results: Results, label: str = "cspo") -> Table:
    """The probability that a run of `label` has a higher return than one of each other label."""
    others = [other for other in results.labels if other != label]
    rows: dict[str, dict[str, str]] = {}  # task: algorithm: text
    if others:
        rows = {task: {} for task in results.tasks if results.cell(task, label) is not None}
    records = []
    for ours, theirs in _pairs(results, label):
        share = probability_of_improvement(ours.seed_returns, theirs.seed_returns)
        rows[ours.task][theirs.label] = with_bounds(share, 2)
        records.append(
            identity(ours)
            | {"against": theirs.label, "probability": share.value}
            | {"low": share.low, "high": share.high, "feasible": ours.feasible}
            | {"against_feasible": theirs.feasible, "against_seeds": theirs.seeds}
        )
    explained = (
        "Mann and Whitney's U over the number of pairs of seeds, each seed with the interquartile "
        "mean of its last epochs; in brackets the 95 % bootstrap interval. It does not ask whether "
        "the limits are kept."
    )
    texts = {task: [row.get(other, UNDEFINED) for other in others] for task, row in rows.items()}
    return Table(
        name="improvement",
        title=f"Probability that {name_of(label)} has a higher return than another algorithm",
        header=("Task", *(f"{name_of(label)} > {name_of(other)}" for other in others)),
        rows=[row_of(paper.task_name(task), *shares) for task, shares in texts.items()],
        records=records,
        notes=[explained, *notes_of(results)],
    )
