"""The runs of a study, grouped into cells: all seeds of one algorithm on one task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.metrics import Estimate, RecoverySummary, Spread, iqm, iqm_estimate, spread, summarise
from cspo.lab.report import paper
from cspo.lab.report.runs import RunResult, few, fingerprint, read_folder
from cspo.types import FloatArray


@dataclass(frozen=True)
class Cell:
    """All seeds of one algorithm, or of one variant of it, on one task."""

    task: str
    algo: str
    variant: str  # "" without variants
    label: str  # what it is called in tables: "cspo", or "cspo alpha-0.1"
    runs: tuple[RunResult, ...]  # the finished ones; all of them as long as none is finished
    returns: Estimate  # interquartile mean over the last epochs and seeds
    cost: Estimate  # of the constraint that is violated most
    limit: float  # of that constraint
    constraint: int  # its number
    epochs: int  # how many last epochs return and cost are over
    recovery: RecoverySummary

    @property
    def seeds(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def steps(self) -> int:
        """Environment steps of each run; the least of them if they differ."""
        return int(min(run.series.steps[-1] for run in self.runs))

    @property
    def feasible(self) -> bool:
        """Whether the cost is within the limit."""
        return self.cost.value <= self.limit

    @property
    def finished(self) -> bool:
        """Whether all its runs are."""
        return all(run.finished for run in self.runs)

    @property
    def seed_returns(self) -> FloatArray:
        """(seeds,): interquartile mean of the return over the last epochs of each run."""
        return np.array([iqm(run.series.returns[-self.epochs :]) for run in self.runs])

    @property
    def mean_return(self) -> Spread:
        """Mean over the last epochs of each run, then mean and standard deviation over seeds."""
        return spread([spread(run.series.returns[-self.epochs :]).mean for run in self.runs])

    @property
    def mean_cost(self) -> Spread:
        """The same of the cost."""
        costs = [run.series.cost[-self.epochs :, self.constraint] for run in self.runs]
        return spread([spread(cost).mean for cost in costs])


@dataclass(frozen=True)
class Results:
    """Everything a report is made from; tasks and labels are in the order of the paper's table."""

    name: str
    runs: tuple[RunResult, ...]
    left_out: tuple[RunResult, ...]  # of these: not finished, while others of their kind are
    cells: tuple[Cell, ...]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...]  # runs that are missing or not finished, settings that differ
    description: str  # of the studies, in their own words

    def cell(self, task: str, label: str) -> Cell | None:
        """Return one cell, or None if there is no such run."""
        return next((cell for cell in self.cells if (cell.task, cell.label) == (task, label)), None)


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
    cells = tuple(_cell(list(group)) for _, group in groupby(runs, lambda run: _rank(run)[:2]))
    used = {id(run) for cell in cells for run in cell.runs}
    left_out = tuple(run for run in runs if id(run) not in used)
    return Results(
        name=", ".join(dict.fromkeys(folder.name for folder in read)),
        runs=tuple(runs),
        left_out=left_out,
        cells=cells,
        tasks=tuple(dict.fromkeys(run.task for run in runs)),
        labels=tuple(dict.fromkeys(run.label for run in sorted(runs, key=_label_rank))),
        notes=(*notes, *_notes_on(cells, left_out)),
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


def on_shared_seeds(first: Cell, second: Cell) -> tuple[Cell, Cell]:
    """Return two cells without runs whose seed the other lacks; unchanged if they share none."""
    shared = {run.seed for run in first.runs} & {run.seed for run in second.runs}
    if not shared:
        return first, second
    kept = [[run for run in cell.runs if run.seed in shared] for cell in (first, second)]
    return _cell(kept[0]), _cell(kept[1])


def _cell(group: Sequence[RunResult]) -> Cell:
    runs = [run for run in group if run.finished] or list(group)
    epochs = last_epochs(min(len(run.series) for run in runs))
    constraints = min(run.series.cost.shape[1] for run in runs)
    # (seeds, epochs) each
    returns = np.stack([run.series.returns[-epochs:] for run in runs])
    costs = [np.stack([run.series.cost[-epochs:, k] for run in runs]) for k in range(constraints)]
    limits = [float(runs[0].series.limit[-1, k]) for k in range(constraints)]
    worst = int(np.argmax([iqm(cost) - limit for cost, limit in zip(costs, limits, strict=True)]))
    return Cell(
        task=runs[0].task,
        algo=runs[0].algo,
        variant=runs[0].variant,
        label=runs[0].label,
        runs=tuple(runs),
        returns=iqm_estimate(returns),
        cost=iqm_estimate(costs[worst]),
        limit=limits[worst],
        constraint=worst,
        epochs=epochs,
        recovery=summarise([run.recovery for run in runs]),
    )


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
        configs = [{} if run.config is None else to_dict(run.config) for run in cell.runs]
        if len(set(map(fingerprint, configs))) > 1:
            notes.append(f"{which} differ in more than their seed.")
        if len({float(run.series.limit[-1, 0]) for run in cell.runs}) > 1:
            notes.append(f"{which} have different cost limits.")
    return notes
