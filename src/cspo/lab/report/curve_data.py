"""The curves of the page as plain data: few enough numbers that the page stays a few megabytes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cspo.lab.report.bands import Band, Quantity, band, quantities
from cspo.lab.report.looks import looks_of
from cspo.lab.report.wording import display
from cspo.types import FloatArray

if TYPE_CHECKING:
    from cspo.lab.report.results import Cell, Results

IntArray = NDArray[np.int_]
NUMBERS = 300_000  # of the bands of all curves together, and again of all single seeds: about two megabytes each
FEWEST = 40  # points of a curve, however many curves there are
DIGITS = 5  # significant digits of a number on the page


def curve_data(results: Results) -> dict[str, Any]:
    """Return looks and curves by task, as `page/curves.js` reads them."""
    cells = [cell for cell in results.cells if cell.runs]
    shown = {task: _drawn([cell for cell in cells if cell.task == task]) for task in results.tasks}
    bands = [values for drawn in shown.values() for _, _, values in drawn]
    points = _points(sum(3 if len(values.seeds) > 1 else 1 for values in bands))
    seed_points = _points(sum(len(values.seeds) for values in bands if len(values.seeds) > 1))
    looks = looks_of(cells)
    return {
        "looks": {
            label: {
                "colour": look.colour,
                "dark": look.dark,
                "dash": list(look.dash),
                "bold": look.stands_out,
            }
            for label, look in looks.items()
        },
        "tasks": [
            _task(task, drawn, points, seed_points) for task, drawn in shown.items() if drawn
        ],
    }


def as_json(data: Any) -> str:
    """Return JSON that may stand inside a script element: no text in it can end the element or begin a comment."""
    text = json.dumps(
        data, separators=(",", ":"), allow_nan=False
    )  # ASCII only: other characters are \\u escapes
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def stride(epochs: int, points: int) -> IntArray:
    """Return the epochs that are shown: all of them, or every n-th and the last."""
    step = max(1, math.ceil(epochs / points))
    # Counted from the end, so that the last epoch, which people look at first, is always among
    # them.
    return np.arange(epochs - 1, -1, -step)[::-1]


def _points(curves: int) -> int:
    return max(FEWEST, NUMBERS // max(curves, 1))


def _drawn(cells: Sequence[Cell]) -> list[tuple[Cell, Quantity, Band]]:
    items = quantities(run for cell in cells for run in cell.runs)
    found = ((cell, item, band(cell, item)) for cell in cells for item in items)
    return [(cell, item, values) for cell, item, values in found if values is not None]


def _task(
    task: str, drawn: Sequence[tuple[Cell, Quantity, Band]], points: int, seed_points: int
) -> dict[str, Any]:
    grids: list[dict[str, Any]] = []
    cells: dict[str, dict[str, Any]] = {}
    for cell, item, values in drawn:
        epochs, seed_epochs = (
            stride(len(values.steps), points),
            stride(len(values.steps), min(points, seed_points)),
        )
        entry = cells.setdefault(
            cell.label,
            {
                "label": cell.label,
                "name": display(cell.label),
                "grid": _grid(grids, values.steps, epochs),
                "seed_grid": _grid(grids, values.steps, seed_epochs),
                "curves": {},
            },
        )
        curve: dict[str, Any] = {"mean": numbers(values.mean[epochs])}
        if len(values.seeds) > 1:
            curve |= {"low": numbers(values.low[epochs]), "high": numbers(values.high[epochs])}
            curve["seeds"] = [numbers(seed[seed_epochs]) for seed in values.seeds]
        if item.constraint is not None and math.isfinite(
            limit := float(cell.runs[0].series.limit[-1, item.constraint])
        ):
            curve["limit"] = limit
        entry["curves"][item.key] = curve
    items = dict.fromkeys(item for _, item, _ in drawn)
    described = [
        {"key": item.key, "title": item.title, "limited": item.constraint is not None}
        for item in items
    ]
    return {"name": task, "grids": grids, "quantities": described, "cells": list(cells.values())}


def _grid(grids: list[dict[str, Any]], steps: FloatArray, epochs: IntArray) -> int:
    """Return the place of a grid in the list; equal ones are kept once."""
    grid = {
        "steps": [int(value) for value in steps[epochs]],
        "epochs": [int(epoch) for epoch in epochs],
    }
    if grid not in grids:
        grids.append(grid)
    return grids.index(grid)


def numbers(values: FloatArray) -> list[float | None]:
    """Return values with a few digits; None where there is none, which JSON calls null."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
