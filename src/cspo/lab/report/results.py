"""The runs of a study, grouped into cells: all seeds of one algorithm on one task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cspo.errors import CspoError
from cspo.lab.metrics import (
    SplitPart,
    iqm,
    iqm_estimate,
    mean_of_seeds,
    sensitivity_split,
    summarise,
)
from cspo.lab.report import paper
from cspo.lab.report.runs import RunResult, few, fingerprint, read_folder


class Cell:
    """All seeds of one algorithm, or of one variant of it, on one task."""

    def __init__(self, group: Iterable[RunResult]) -> None:
        """Take the finished runs; all of them as long as none is finished."""
        group = list(group)
        self.runs = runs = [run for run in group if run.finished] or group
        self.task, self.algo, self.variant = runs[0].task, runs[0].algo, runs[0].variant
        self.label = runs[0].label  # what it is called in tables: "cspo", or "cspo alpha-0.1"
        self.seeds, self.epochs = len(runs), last_epochs(min(len(run.series) for run in runs))
        self.last_returns = np.stack([run.series.returns[-self.epochs :] for run in runs])
        constraints = min(run.series.cost.shape[1] for run in runs)
        costs = [run.series.cost[-self.epochs :, :constraints] for run in runs]
        by_constraint = np.stack(costs).transpose(2, 0, 1)  # (K, seeds, epochs)
        limits = runs[0].series.limit[-1, :constraints]
        self.constraint = int(np.argmax([iqm(cost) for cost in by_constraint] - limits))
        self.limit = float(limits[self.constraint])  # of the constraint that is violated most
        self.last_costs = by_constraint[self.constraint]  # (seeds, epochs), as the returns
        last = self.last_returns, self.last_costs
        # Interquartile means over the last epochs and seeds together.
        self.returns, self.cost = map(iqm_estimate, last)
        # Means over seeds, to set beside them.
        self.mean_return, self.mean_cost = map(mean_of_seeds, last)
        self.recovery = summarise([run.recovery for run in runs])

    @property
    def steps(self) -> int:
        """Environment steps of each run; the least of them if they differ."""
        return int(min(run.series.steps[-1] for run in self.runs))

    @property
    def feasible(self) -> bool:
        """Whether the cost is within the limit."""
        return self.cost.value <= self.limit

    @property
    def limit_moves(self) -> bool:
        """Whether the limit of some run changed during training."""
        return any(run.series.limit_moves() for run in self.runs)

    @property
    def finished(self) -> bool:
        """Whether all its runs are."""
        return all(run.finished for run in self.runs)

    @property
    def split(self) -> dict[str, SplitPart]:
        """Its violations where the constraint is flat, and where it is steep."""
        return sensitivity_split([run.recovery for run in self.runs])

    def of_seeds(self, name: str) -> list[float]:
        """Return one number per run: "return" over the last epochs, or a recovery metric."""
        if name == "return":
            return [iqm(values) for values in self.last_returns]
        return [getattr(run.recovery, name) for run in self.runs]

    def on_seeds_of(self, other: Cell) -> Cell:
        """Return it without runs whose seed another cell lacks; unchanged if they share none."""
        seeds = {run.seed for run in other.runs}
        shared = [run for run in self.runs if run.seed in seeds]
        return Cell(shared) if shared else self


@dataclass(frozen=True)
class Results:
    """Everything a report is made from; tasks and labels are in the order of the paper's table."""

    name: str
    runs: list[RunResult]
    left_out: list[RunResult]  # of these: not finished, while others of their kind are
    cells: list[Cell]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    notes: list[str]  # runs that are missing or not finished, settings that differ
    description: str  # of the studies, in their own words

    def cell(self, task: str, label: str) -> Cell | None:
        """Return one cell, or None if there is no such run."""
        return next((cell for cell in self.of_task(task) if cell.label == label), None)

    def of_task(self, task: str) -> list[Cell]:
        """Return the cells of a task."""
        return [cell for cell in self.cells if cell.task == task]

    def is_best(self, cell: Cell) -> bool:
        """Return whether a cell has the highest return of those that keep the limit."""
        rivals = [one for one in self.of_task(cell.task) if one.feasible]
        return cell.feasible and cell.returns.value == max(one.returns.value for one in rivals)


def collect(folders: Sequence[Path | str]) -> Results:
    """Read the runs of studies.

    Args:
        folders: Study folders, folders of run folders, single run folders, or folders of CSV files
            that are named TASK-ALGO-seedN.csv or TASK-ALGO-VARIANT-seedN.csv.
    """
    read = [read_folder(Path(folder)) for folder in folders]
    notes = [note for folder in read for note in folder.notes]
    runs = sorted((run for folder in read for run in folder.runs), key=_rank)
    if not runs:
        said = "There is nothing to report: name a study's folder, as in `cspo report DIR`."
        raise CspoError(" ".join([said, *notes]))
    for one, other in pairwise(runs):
        if _rank(one) == _rank(other):
            raise CspoError(
                f"{one.id} and {other.id} are both {one.task}, {one.label}, seed {one.seed}. "
                "Report them one by one, or name the runs to compare."
            )
    cells = [Cell(group) for _, group in groupby(runs, lambda run: _rank(run)[:2])]
    used = {id(run) for cell in cells for run in cell.runs}
    left_out = [run for run in runs if id(run) not in used]
    return Results(
        name=", ".join(dict.fromkeys(folder.name for folder in read)),
        runs=runs,
        left_out=left_out,
        cells=cells,
        tasks=tuple(dict.fromkeys(run.task for run in runs)),
        labels=tuple(dict.fromkeys(run.label for run in sorted(runs, key=_label_rank))),
        notes=[*notes, *_notes_on(cells, left_out)],
        description=" ".join(dict.fromkeys(one.description for one in read if one.description)),
    )


def _rank(run: RunResult) -> tuple[Any, ...]:
    return paper.task_rank(run.task), _label_rank(run), run.seed


def _label_rank(run: RunResult) -> tuple[Any, ...]:
    """Return a sort key that puts alpha-0.5 before alpha-0.85 and limit-5 before limit-25."""
    parts = enumerate(re.split(r"(\d+(?:\.\d+)?)", run.variant))
    natural = [(0, float(part), part) if i % 2 else (1, 0.0, part) for i, part in parts]
    return paper.algorithm_rank(run.algo), natural


def last_epochs(epochs: int) -> int:
    """Return how many last epochs results are over: a fifth, at most 100, as in the paper."""
    return max(1, min(paper.LAST_EPOCHS, round(epochs / 5)))


def _notes_on(cells: Sequence[Cell], left_out: Sequence[RunResult]) -> list[str]:
    notes = []
    shown = [run for cell in cells for run in cell.runs if not run.finished]
    for said, runs in (
        ("Not finished, and left out", left_out),
        ("Not finished, but shown, since no run of their kind is", shown),
    ):
        listed = [f"{r.id} ({len(r.series)} of {r.series.planned_epochs} epochs)" for r in runs]
        if listed:
            notes.append(f"{said}: {few(listed)}.")
    for cell in cells:
        which = f"The runs of {cell.label} on {cell.task}"
        if len({fingerprint(run.settings) for run in cell.runs}) > 1:
            notes.append(f"{which} differ in more than their seed.")
        if len({float(run.series.limit[-1, 0]) for run in cell.runs}) > 1:
            notes.append(f"{which} have different cost limits.")
        if cell.limit_moves:
            told = "Limit is the last one, and Worst that plus the greatest excess"
            notes.append(
                f"{which} had a limit that moved: violations are of the epoch's own, {told}."
            )
    return notes
