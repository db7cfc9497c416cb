"""One algorithm against each other one: what differs, and whether seeds explain it."""

from __future__ import annotations

from collections.abc import Iterator

from cspo.lab.metrics import Estimate, difference_of_means, probability_of_improvement
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Table, with_bounds, yes_no
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.tables import identity, list_of, notes_of

# +1 where more is better, -1 where less is; of a cost within its limit neither is.
BETTER = {"return": 1.0, "RP": 1.0, "TTS": -1.0, "#V": -1.0, "VF": -1.0, "worst cost": -1.0}
# What is compared: digits, and what a cell calls it.
COMPARED = {"return": (2, "return"), "VF": (3, "vf"), "TTS": (2, "tts"), "worst cost": (1, "worst")}


def versus_table(results: Results, label: str = "cspo") -> Table:
    """Return, VF, TTS and worst cost of `label` minus those of every other algorithm."""
    rows, records = [], []
    for one, other in _pairs(results, label):
        ours, theirs = one.on_seeds_of(other), other.on_seeds_of(one)
        paired = [run.seed for run in ours.runs] == [run.seed for run in theirs.runs]
        row = {"Task": paper.task_name(ours.task), "Against": name_of(theirs.label)}
        row["Limit kept"] = f"{yes_no(ours.feasible)} / {yes_no(theirs.feasible)}"
        for name, (digits, key) in COMPARED.items():
            found = difference_of_means(ours.of_seeds(key), theirs.of_seeds(key), paired=paired)
            word = verdict(found, BETTER[name])
            row[name] = f"{with_bounds(found, digits, sign='+')} {word}".rstrip()
            record = {"against": theirs.label, "against_seeds": theirs.seeds, "quantity": name}
            record |= {"difference": found.value, "low": found.low, "high": found.high}
            record |= {"verdict": word, "feasible": ours.feasible}
            records.append(identity(ours) | record | {"against_feasible": theirs.feasible})
        rows.append(row)
    explained = (
        f"Limit kept: by {name_of(label)} / by the other, over the last epochs. Mean of the "
        "differences seed by seed, in brackets its 95 % interval (Student's t); better or worse "
        "where it leaves zero out. Only seeds that both have run are compared; where they share "
        "none, the means are (Welch's t)."
    )
    open_ended = "TTS leaves out violations that never end; VF counts their epochs."
    title = f"{name_of(label)} minus every other algorithm"
    notes, others = [explained, open_ended, *notes_of(results)], {*results.labels} - {label}
    return list_of("versus", title, rows, records, notes, group=max(1, len(others)))


def _pairs(results: Results, label: str) -> Iterator[tuple[Cell, Cell]]:
    """Yield the cell of `label` and that of another algorithm, for every task that has both."""
    for theirs in results.cells:
        ours = results.cell(theirs.task, label)
        if ours is not None and ours is not theirs:
            yield ours, theirs


def verdict(difference: Estimate, sign: float) -> str:
    """Return "better" or "worse" if the interval leaves zero out, "equal" where nothing differs."""
    if difference.low == difference.high == 0.0:
        return "equal"
    if difference.low > 0.0 or difference.high < 0.0:
        return "better" if sign * difference.value > 0.0 else "worse"
    return ""


def improvement_table(results: Results, label: str = "cspo") -> Table:
    """The probability that a run of `label` has a higher return than one of each other label."""
    others = [other for other in results.labels if other != label]
    rows: dict[str, dict[str, str]] = {}  # task: algorithm: text
    if others:
        there = [task for task in results.tasks if results.cell(task, label)]
        rows = {task: dict.fromkeys(others, UNDEFINED) for task in there}
    records = []
    for ours, theirs in _pairs(results, label):
        share = probability_of_improvement(ours.of_seeds("return"), theirs.of_seeds("return"))
        rows[ours.task][theirs.label] = with_bounds(share, 2)
        record = {"against": theirs.label, "probability": share.value}
        record |= {"low": share.low, "high": share.high, "feasible": ours.feasible}
        record |= {"against_feasible": theirs.feasible, "against_seeds": theirs.seeds}
        records.append(identity(ours) | record)
    explained = (
        "Mann and Whitney's U over the number of pairs of seeds, each seed with the interquartile "
        "mean of its last epochs; in brackets the 95 % bootstrap interval. It does not ask whether "
        "the limits are kept."
    )
    return Table(
        name="improvement",
        title=f"Probability that {name_of(label)} has a higher return than another algorithm",
        header=("Task", *(f"{name_of(label)} > {name_of(other)}" for other in others)),
        rows=[(paper.task_name(task), *row.values()) for task, row in rows.items()],
        records=records,
        notes=[explained, *notes_of(results)],
    )
