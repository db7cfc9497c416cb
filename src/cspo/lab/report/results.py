"""The runs of a study, grouped into cells: all seeds of one algorithm on one task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.metrics import Estimate, RecoverySummary, Spread, iqm, iqm_estimate, spread, summarise
from cspo.lab.report import paper
from cspo.lab.report.reading import RunResult, few, fingerprint, read_folder
from cspo.types import FloatArray

__all__ = ["Cell", "Results", "RunResult", "collect", "label_of", "on_shared_seeds"]


@dataclass(frozen=True)
class Cell:
    """All seeds of one algorithm, or of one variant of it, on one task."""

    task: str
    algo: str
    variant: str
    runs: tuple[RunResult, ...]  # the finished ones; all of them as long as none is finished
    label: str  # "cspo", or "cspo alpha-0.1"
    returns: Estimate  # interquartile mean over the last epochs and seeds
    cost: Estimate  # of the constraint that is violated most
    limit: float  # of that constraint
    epochs: int  # how many last epochs the two are over
    feasible: bool  # whether the cost is within the limit
    recovery: RecoverySummary
    constraint: int = 0  # number of the constraint whose cost it is

    @property
    def seeds(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def steps(self) -> int:
        """Environment steps of each run; the least of them if they differ."""
        return int(min(run.series.steps[-1] for run in self.runs))

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
        return spread(
            [spread(run.series.cost[-self.epochs :, self.constraint]).mean for run in self.runs]
        )


@dataclass(frozen=True)
class Results:
    """Everything a report is made from; tasks and labels are in the order of the paper's table."""

    name: str
    runs: tuple[RunResult, ...]
    cells: tuple[Cell, ...]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    notes: tuple[
        str, ...
    ] = ()  # what a reader must know: runs that are missing or not finished, settings that differ

    description: str = ""  # of the studies, in their own words

    def cell(self, task: str, label: str) -> Cell | None:
        """Return one cell, or None if there is no such run."""
        return next((cell for cell in self.cells if (cell.task, cell.label) == (task, label)), None)


def collect(folders: Sequence[Path | str]) -> Results:
    """Read the runs of studies.

    Args:
        folders: Study folders, folders of run folders, single run folders, or folders of CSV files
            that are named TASK-ALGO-seedN.csv or TASK-ALGO-VARIANT-seedN.csv.
    """
    runs: list[RunResult] = []
    names: list[str] = []
    notes: list[str] = []
    descriptions: list[str] = []
    for folder in map(Path, folders):
        found = read_folder(folder)
        names.append(found.name)
        runs += found.runs
        notes += found.notes
        descriptions.append(found.description)
    if not runs:
        raise CspoError(
            " ".join(
                [
                    "There is nothing to report: name a study's folder, as in `cspo report DIR`.",
                    *notes,
                ]
            )
        )
    runs.sort(key=lambda run: (paper.task_rank(run.task), _label_rank(run), run.seed))
    _refuse_duplicates(runs)
    cells = tuple(_cell(group) for group in _grouped(runs))
    return Results(
        name=", ".join(dict.fromkeys(names)),
        runs=tuple(runs),
        cells=cells,
        tasks=tuple(dict.fromkeys(run.task for run in runs)),
        labels=tuple(dict.fromkeys(label_of(run) for run in sorted(runs, key=_label_rank))),
        notes=tuple(notes + _notes_on(runs, cells)),
        description=" ".join(dict.fromkeys(filter(None, descriptions))),
    )


def label_of(run: RunResult) -> str:
    """Return what the run's algorithm is called in tables: its name, and its variant's."""
    return f"{run.algo} {run.variant}".rstrip()


def _label_rank(run: RunResult) -> tuple[Any, ...]:
    return (paper.algorithm_rank(run.algo), _natural(run.variant))


def _natural(text: str) -> list[tuple[int, float, str]]:
    """Return a sort key that puts alpha-0.5 before alpha-0.85 and limit-5 before limit-25."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts)]


def _refuse_duplicates(runs: Sequence[RunResult]) -> None:
    seen: dict[tuple[str, str, int], RunResult] = {}
    for run in runs:
        key = (run.task, label_of(run), run.seed)
        if key in seen:
            raise CspoError(
                f"{seen[key].id} and {run.id} are both {run.task}, {label_of(run)}, seed {run.seed}. "
                "Report them one by one, or name the runs to compare."
            )
        seen[key] = run


def _grouped(runs: Sequence[RunResult]) -> list[list[RunResult]]:
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for run in runs:
        groups.setdefault((run.task, label_of(run)), []).append(run)
    return list(groups.values())


def last_epochs(epochs: int) -> int:
    """Return how many epochs at the end of a run its results are over: the last fifth, at most 100, as in the paper."""
    return max(1, min(paper.LAST_EPOCHS, round(epochs / 5)))


def on_shared_seeds(first: Cell, second: Cell) -> tuple[Cell, Cell]:
    """Return two cells without the runs whose seed the other lacks; unchanged if they share none."""
    shared = {run.seed for run in first.runs} & {run.seed for run in second.runs}
    if not shared:
        return first, second
    kept = [[run for run in cell.runs if run.seed in shared] for cell in (first, second)]
    return _cell(kept[0]), _cell(kept[1])


def _cell(group: Sequence[RunResult]) -> Cell:
    runs = [run for run in group if run.finished] or list(group)
    epochs = last_epochs(min(len(run.series) for run in runs))
    returns = np.stack([run.series.returns[-epochs:] for run in runs])  # (seeds, epochs)
    constraints = min(run.series.cost.shape[1] for run in runs)
    costs = [np.stack([run.series.cost[-epochs:, k] for run in runs]) for k in range(constraints)]
    limits = [float(runs[0].series.limit[-1, k]) for k in range(constraints)]
    worst = int(np.argmax([iqm(cost) - limit for cost, limit in zip(costs, limits, strict=True)]))
    cost = iqm_estimate(costs[worst])
    return Cell(
        task=runs[0].task,
        algo=runs[0].algo,
        variant=runs[0].variant,
        runs=tuple(runs),
        label=label_of(runs[0]),
        returns=iqm_estimate(returns),
        cost=cost,
        limit=limits[worst],
        epochs=epochs,
        feasible=cost.value <= limits[worst],
        recovery=summarise([run.recovery for run in runs]),
        constraint=worst,
    )


def _notes_on(runs: Sequence[RunResult], cells: Sequence[Cell]) -> list[str]:
    notes = []
    if unfinished := [run for run in runs if not run.finished]:
        used = {id(run) for cell in cells for run in cell.runs}
        shown, hidden = (
            [run for run in unfinished if (id(run) in used) is state] for state in (True, False)
        )
        if hidden:
            notes.append(f"Not finished, and left out: {few(list(map(_progress_of, hidden)))}.")
        if shown:
            listed = few(list(map(_progress_of, shown)))
            notes.append(f"Not finished, but shown, since no run of their kind is: {listed}.")
    for cell in cells:
        if len({_settings_of(run) for run in cell.runs}) > 1:
            notes.append(f"The runs of {cell.label} on {cell.task} differ in more than their seed.")
        if len({float(run.series.limit[-1, 0]) for run in cell.runs}) > 1:
            notes.append(f"The runs of {cell.label} on {cell.task} have different cost limits.")
    return notes


def _progress_of(run: RunResult) -> str:
    return f"{run.id} ({len(run.series)} of {run.series.planned_epochs} epochs)"


def _settings_of(run: RunResult) -> str:
    return "" if run.config is None else fingerprint(to_dict(run.config))
