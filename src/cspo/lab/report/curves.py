"""One quantity of all seeds of a cell, epoch by epoch: for the figures, and as the page's data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cspo.lab.metrics import Series
from cspo.lab.report.looks import looks_of, name_of
from cspo.lab.report.results import Cell, Results
from cspo.types import FloatArray

IntArray = NDArray[np.int_]
# Columns of progress.csv worth drawing beside return and cost; with several constraints each has a
# number behind it.
TRACES = {
    "multiplier": "multiplier",
    "effective_multiplier": "effective multiplier",
    "weight": "sensitivity weight",
    "gradient_norm": "constraint gradient norm",
}
# Of the bands of all curves together, and again of all single seeds: about two megabytes each.
NUMBERS = 300_000
FEWEST = 40  # points of a curve, however many curves there are
DIGITS = 5  # significant digits of a number on the page


@dataclass(frozen=True)
class Quantity:
    """Something that is drawn over steps."""

    key: str
    title: str
    constraint: int | None = None  # which limit it is held against, if any

    @property
    def is_result(self) -> bool:
        """Whether it is what training is about, rather than a trace of how."""
        return self.key == "return" or self.constraint is not None

    def of(self, series: Series) -> FloatArray | None:
        """Return its values in one run (n,), or None if it was not logged."""
        if self.key == "return":
            return series.returns
        if self.constraint is None:
            return series.columns.get(self.key)
        known = self.constraint < series.cost.shape[1]
        return series.cost[:, self.constraint] if known else None


class Band(NamedTuple):
    """A quantity of S seeds over n epochs; nan where a seed has no value."""

    steps: FloatArray  # (n,)
    seeds: FloatArray  # (S, n)
    mean: FloatArray  # (n,), over seeds
    low: FloatArray  # (n,), the smallest seed
    high: FloatArray  # (n,)


def quantities(cells: Iterable[Cell]) -> list[Quantity]:
    """Return what can be drawn: return, every cost, and the traces at least one of the runs has."""
    runs = [run for cell in cells for run in cell.runs]
    constraints = max((run.series.cost.shape[1] for run in runs), default=0)
    found = [Quantity("return", "return")]
    for k in range(constraints):
        name = "cost" if constraints == 1 else f"cost_{k}"
        found.append(Quantity(name, name.replace("_", " "), k))
    logged = {name for run in runs for name in run.series.columns}
    for name, title in TRACES.items():
        for key in [name, *(f"{name}_{k}" for k in range(constraints))]:
            if key in logged:
                found.append(Quantity(key, title + key[len(name) :].replace("_", " ")))
    return found


def band(cell: Cell, quantity: Quantity) -> Band | None:
    """Return a quantity of all seeds on the steps of the longest run, or None if no run has it."""
    rows = [(run.series.steps, quantity.of(run.series)) for run in cell.runs]
    given = [(steps, values) for steps, values in rows if values is not None]
    if not any(np.isfinite(values).any() for _, values in given):
        return None
    grid = max((steps for steps, _ in rows), key=len)  # the same for every quantity of the cell
    seeds = np.array([_onto(grid, steps, values) for steps, values in given])
    with warnings.catch_warnings():  # an epoch without any value is nan, as it should be
        warnings.simplefilter("ignore", RuntimeWarning)
        over_seeds = (f(seeds, axis=0) for f in (np.nanmean, np.nanmin, np.nanmax))
        return Band(grid, seeds, *over_seeds)


def _onto(grid: FloatArray, steps: FloatArray, values: FloatArray) -> FloatArray:
    """Return values at the steps of `grid`; nan where the run has ended or not begun."""
    if np.array_equal(grid[: len(steps)], steps):
        return np.pad(values, (0, len(grid) - len(values)), constant_values=np.nan)
    return np.interp(grid, steps, values, left=np.nan, right=np.nan)


def limits(cells: Sequence[Cell], constraint: int) -> list[float]:
    """Return the distinct limits of some cells that stay what they are."""
    found = {
        float(series.limit[-1, constraint])
        for series in _series_with(cells, constraint)
        if not series.limit_moves(constraint)
    }
    return sorted(value for value in found if math.isfinite(value))


def moving_limits(cells: Sequence[Cell], constraint: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return the distinct limits of some cells that move: steps and limit, (n + 1,) each.

    The limit of an epoch holds from the steps before it to its own; they begin at zero steps.
    """
    found: dict[bytes, tuple[FloatArray, FloatArray]] = {}
    for series in _series_with(cells, constraint):
        if series.limit_moves(constraint):
            values = series.limit[:, constraint]
            line = np.concatenate([[0.0], series.steps]), np.concatenate([values[:1], values])
            found.setdefault(line[0].tobytes() + line[1].tobytes(), line)
    return list(found.values())


def _series_with(cells: Sequence[Cell], constraint: int) -> Iterator[Series]:
    for run in (run for cell in cells for run in cell.runs):
        if constraint < run.series.limit.shape[1]:
            yield run.series


def curve_data(results: Results) -> dict[str, Any]:
    """Return looks and curves by task, as `page/curves.js` reads them.

    There are few enough numbers in it that the page stays a few megabytes.
    """
    drawn = {task: _drawn(results.of_task(task)) for task in results.tasks}
    counts = [len(values.seeds) for curves in drawn.values() for _, _, values in curves]
    points = _points(sum(3 if seeds > 1 else 1 for seeds in counts))
    seed_points = min(points, _points(sum(seeds for seeds in counts if seeds > 1)))
    looks = {
        label: {"colour": it.colour, "dark": it.dark, "dash": it.dash, "bold": it.stands_out}
        for label, it in looks_of(results.cells).items()
    }
    tasks = [_task(task, curves, points, seed_points) for task, curves in drawn.items() if curves]
    return {"looks": looks, "tasks": tasks}


def stride(epochs: int, points: int) -> IntArray:
    """Return the epochs that are shown: all of them, or every n-th and the last."""
    step = max(1, math.ceil(epochs / points))
    # Counted from the end: the last epoch, which people look at first, is always among them.
    return np.arange(epochs - 1, -1, -step)[::-1]


def _points(curves: int) -> int:
    return max(FEWEST, NUMBERS // max(curves, 1))


def _drawn(cells: Sequence[Cell]) -> list[tuple[Cell, Quantity, Band]]:
    items = quantities(cells)
    found = ((cell, item, band(cell, item)) for cell in cells for item in items)
    return [(cell, item, values) for cell, item, values in found if values is not None]


def _task(
    task: str, drawn: Sequence[tuple[Cell, Quantity, Band]], points: int, seed_points: int
) -> dict[str, Any]:
    grids: list[dict[str, Any]] = []
    cells: dict[str, dict[str, Any]] = {}
    for cell, item, values in drawn:
        epochs, seed_epochs = (stride(len(values.steps), most) for most in (points, seed_points))
        if cell.label not in cells:
            cells[cell.label] = {
                "label": cell.label,
                "name": name_of(cell.label),
                "grid": _grid(grids, values.steps, epochs),
                "seed_grid": _grid(grids, values.steps, seed_epochs),
                "curves": {},
            }
        curve: dict[str, Any] = {"mean": _rounded(values.mean[epochs])}
        if len(values.seeds) > 1:
            curve |= {"low": _rounded(values.low[epochs]), "high": _rounded(values.high[epochs])}
            curve["seeds"] = [_rounded(seed[seed_epochs]) for seed in values.seeds]
        if item.constraint is not None:
            curve |= _limit_of(cell, item.constraint, epochs)
        cells[cell.label]["curves"][item.key] = curve
    items = [
        {"key": item.key, "title": item.title, "limited": item.constraint is not None}
        for item in dict.fromkeys(item for _, item, _ in drawn)
    ]
    return {"name": task, "grids": grids, "quantities": items, "cells": list(cells.values())}


def _limit_of(cell: Cell, constraint: int, epochs: IntArray) -> dict[str, Any]:
    """Return the limit of a cost: a number, or one for each epoch shown if it moves."""
    series = max((run.series for run in cell.runs), key=len)  # the grid is of the longest
    if series.limit_moves(constraint):
        return {"limit": _rounded(series.limit[epochs, constraint])}
    limit = float(cell.runs[0].series.limit[-1, constraint])
    return {"limit": limit} if math.isfinite(limit) else {}


def _grid(grids: list[dict[str, Any]], steps: FloatArray, epochs: IntArray) -> int:
    """Return the place of a grid in the list; equal ones are kept once."""
    grid = {"steps": [int(value) for value in steps[epochs]], "epochs": epochs.tolist()}
    if grid not in grids:
        grids.append(grid)
    return grids.index(grid)


def _rounded(values: FloatArray) -> list[float | None]:
    """Return values with a few digits; None where there is none, which JSON calls null."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
