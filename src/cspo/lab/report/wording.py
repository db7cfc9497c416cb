"""How numbers and names are put into words in every table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cspo.lab.metrics import Estimate, Spread
from cspo.lab.report import paper
from cspo.lab.report.formats import UNDEFINED, Value
from cspo.lab.report.results import Cell, Results

# +1 where more is better, -1 where less is; of a cost within its limit neither is.
BETTER = {"return": 1.0, "RP": 1.0, "TTS": -1.0, "#V": -1.0, "VF": -1.0, "worst cost": -1.0}


def named(cell: Cell) -> dict[str, Value]:
    """Return the first fields of every record."""
    return {
        "task": cell.task,
        "algorithm": cell.algo,
        "variant": cell.variant,
        "seeds": cell.seeds,
        "steps": cell.steps,
    }


def notes_of(results: Results) -> list[str]:
    """Return what has to stand under every table: how the runs differ from the paper's, and what is missing."""
    steps = sorted({cell.steps for cell in results.cells})
    seeds = sorted({cell.seeds for cell in results.cells})
    notes = []
    if steps != [paper.STEPS]:
        notes.append(
            f"Runs of {span(steps)} steps, where the paper's have {paper.STEPS:,}: these numbers do not reproduce it."
        )
    if seeds != [paper.SEEDS]:
        one = " One seed has no interval." if seeds[0] == 1 else ""
        notes.append(f"Seeds: {span(seeds)}, where the paper has {paper.SEEDS}.{one}")
    return notes + list(results.notes)


def averaged(cells: Sequence[Cell]) -> list[str]:
    """Return over how many epochs return and cost are averaged, and what stands after the plus-minus sign."""
    epochs = sorted({cell.epochs for cell in cells})
    width = "After ± stands half the width of the interval; the CSV file has its bounds."
    if epochs in ([], [paper.LAST_EPOCHS]):
        return [f"Over the last {paper.LAST_EPOCHS} epochs. {width}"]
    taken = f"Over the last {span(epochs)} epochs, where the paper takes {paper.LAST_EPOCHS}"
    return [f"{taken}: the last fifth of a run. {width}"]


def span(values: Sequence[int]) -> str:
    """Return sorted whole numbers as "7" or "7 to 9"."""
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def display(label: str) -> str:
    """Return a label with the algorithm's name as the paper writes it."""
    algo, _, variant = label.partition(" ")
    return f"{paper.algorithm_name(algo)} {variant}".rstrip()


def number(value: float, digits: int) -> str:
    """Return a number for people, or a dash."""
    return UNDEFINED if math.isnan(value) else f"{value:.{digits}f}"


def with_interval(value: Estimate, digits: int) -> str:
    """Return "value ± half-width", as the paper prints; the value alone where there is no interval."""
    return _plus_minus(value.value, value.half_width, digits)


def with_std(value: Spread, digits: int, seeds: int) -> str:
    """Return "mean ± std"; "(1/3)" follows where only one of three seeds has a value."""
    shown = _plus_minus(value.mean, value.std, digits)
    return f"{shown} ({value.count}/{seeds})" if 0 < value.count < seeds else shown


def _plus_minus(value: float, width: float, digits: int) -> str:
    shown = number(value, digits)
    return shown if math.isnan(width) else f"{shown} ± {width:.{digits}f}"


def with_bounds(value: Estimate, digits: int) -> str:
    """Return "value [low, high]"; the value alone where there is no interval."""
    shown = number(value.value, digits)
    return (
        shown
        if math.isnan(value.low)
        else f"{shown} [{value.low:.{digits}f}, {value.high:.{digits}f}]"
    )
