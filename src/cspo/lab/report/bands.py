"""One quantity of all seeds of a cell, epoch by epoch: what the figures and the page draw."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cspo.types import FloatArray

if TYPE_CHECKING:
    from cspo.lab.metrics.series import Series
    from cspo.lab.report.results import Cell, RunResult

# Columns of progress.csv worth drawing beside return and cost; with several constraints each has a
# number behind it.
TRACES = {
    "multiplier": "multiplier",
    "effective_multiplier": "effective multiplier",
    "weight": "sensitivity weight",
    "gradient_norm": "constraint gradient norm",
}


@dataclass(frozen=True)
class Quantity:
    """Something that is drawn over steps."""

    key: str
    title: str
    constraint: int | None = None  # which limit it is held against, if any


@dataclass(frozen=True)
class Band:
    """A quantity of S seeds over n epochs; nan where a seed has no value."""

    steps: FloatArray  # (n,)
    seeds: FloatArray  # (S, n)

    @property
    def mean(self) -> FloatArray:
        """Mean over seeds (n,)."""
        return self._over_seeds(np.nanmean)

    @property
    def low(self) -> FloatArray:
        """Smallest seed (n,)."""
        return self._over_seeds(np.nanmin)

    @property
    def high(self) -> FloatArray:
        """Largest seed (n,)."""
        return self._over_seeds(np.nanmax)

    def _over_seeds(self, function: object) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # an epoch without any value is nan, as it should be
            result: FloatArray = function(self.seeds, axis=0)  # type: ignore[operator]
        return result


def quantities(runs: Iterable[RunResult]) -> list[Quantity]:
    """Return what can be drawn of some runs: return, every cost, and the traces at least one of them has."""
    runs = list(runs)
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


def values_of(series: Series, quantity: Quantity) -> FloatArray | None:
    """Return a quantity of one run (n,), or None if it was not logged."""
    if quantity.key == "return":
        return series.returns
    if quantity.constraint is not None:
        return (
            series.cost[:, quantity.constraint]
            if quantity.constraint < series.cost.shape[1]
            else None
        )
    return series.columns.get(quantity.key)


def band(cell: Cell, quantity: Quantity) -> Band | None:
    """Return a quantity of all seeds of a cell on the steps of the longest run, or None if no run has it."""
    rows = [(run.series.steps, values_of(run.series, quantity)) for run in cell.runs]
    given = [(steps, values) for steps, values in rows if values is not None and len(steps)]
    if not given or not any(np.isfinite(values).any() for _, values in given):
        return None
    grid = max((steps for steps, _ in rows), key=len)  # the same for every quantity of the cell
    return Band(grid, np.array([_onto(grid, steps, values) for steps, values in given]))


def _onto(grid: FloatArray, steps: FloatArray, values: FloatArray) -> FloatArray:
    """Return values at the steps of `grid`; nan where the run has ended or not begun."""
    if np.array_equal(grid[: len(steps)], steps):
        result = np.full(len(grid), np.nan)
        result[: len(values)] = values
        return result
    return np.interp(grid, steps, values, left=np.nan, right=np.nan)


def limits(cells: Sequence[Cell], constraint: int) -> list[float]:
    """Return the distinct limits of some cells at the end of training."""
    found = {
        float(run.series.limit[-1, constraint])
        for cell in cells
        for run in cell.runs
        if len(run.series.limit) and constraint < run.series.limit.shape[1]
    }
    return sorted(value for value in found if np.isfinite(value))
