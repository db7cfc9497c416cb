"""Does CSPO foresee what an update does to the cost? One panel per task, and a table.

    python benchmarks/prediction.py studies/main/runs/*-cspo-seed* --out prediction.png

Row k of a progress.csv has the level at which the filter saw the cost of epoch k (`cost_level`) and
the cost it expected of epoch k + 1 (`cost_predicted`); row k + 1 has what came (`cost_epoch`). So

    predicted change = cost_predicted[k] - cost_level[k]
    realised change  = cost_epoch[k + 1] - cost_level[k]

both from the level, since the noise of one epoch's cost, which the level has filtered, would move
both the same way. Some of it is left in the level, and lends a little to the correlation. Epochs
before the first price are left out. The slope is that of the realised on the predicted change: 1
where a prediction is of the right size. "error" is the root mean square of what was not predicted,
"no change" that of expecting the level itself. "successive errors" is the correlation of an error
with that of the epoch after it, past the first 30 % of a run: below zero where the filter's gain is
larger than the noise is worth, above where it is smaller. Runs may be archived ones. Beside
FILE.png a table is written, FILE.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cspo.config import read_settings
from cspo.errors import CspoError
from cspo.lab.metrics.recovery import SKIP
from cspo.lab.report.figures import render
from cspo.lab.report.looks import look_of, name_of
from cspo.lab.report.panels import LIMIT_LINE, STYLE, new_figure, wrapped
from cspo.runs.files import write_bytes, write_text
from cspo.runs.progress import constraint_columns, progress_file, read_progress
from cspo.types import FloatArray

COLUMNS = ("cost_epoch", "cost_level", "cost_predicted", "sensitivity")
HEADER = (
    "| task | algorithm | epochs | correlation | slope | error | no change | successive errors |",
    "|---|---|---|---|---|---|---|---|",
)
SHOWN, SPARE = 99.0, 1.1  # percent of the changes that a panel has room for, and some more


class Changes(NamedTuple):
    """Changes of the cost from one epoch to the next, in the cost's own unit."""

    predicted: FloatArray  # (n,)
    realised: FloatArray  # (n,)
    errors: FloatArray  # (m, 2) of two epochs in a row, late in a run

    @property
    def correlation(self) -> float:
        """Pearson's, NaN where one of the two does not vary."""
        if len(self.predicted) < 2 or 0.0 in (self.predicted.std(), self.realised.std()):
            return float("nan")
        return float(np.corrcoef(self.predicted, self.realised)[0, 1])

    @property
    def slope(self) -> float:
        """Least squares, with an intercept."""
        if np.isnan(self.correlation):
            return float("nan")
        return self.correlation * float(self.realised.std() / self.predicted.std())

    @property
    def error(self) -> float:
        """Root mean square of what was not predicted."""
        return float(np.sqrt(np.mean((self.realised - self.predicted) ** 2)))

    @property
    def successive(self) -> float:
        """Correlation of an error with the next one, NaN where there are too few."""
        alike, squares = (self.errors[:, 0] * self.errors[:, 1]).sum(), (self.errors**2).sum()
        return float(2.0 * alike / squares) if squares > 0.0 else float("nan")

    @property
    def error_of_no_change(self) -> float:
        """The same for the prediction that nothing changes."""
        return float(np.sqrt(np.mean(self.realised**2)))


def changes_of(run: Path) -> Changes:
    """Return the changes of all constraints of a run."""
    table = {name: np.array(values) for name, values in read_progress(progress_file(run)).items()}
    columns = [constraint_columns(table, name) for name in COLUMNS]
    if not all(columns):
        raise CspoError(f"{run} has no column {COLUMNS[[*map(bool, columns)].index(False)]!r}.")
    found = []
    for cost, level, expected, steepness in zip(*columns, strict=True):
        priced = steepness[:-1] > 0.0
        predicted, realised = (expected - level)[:-1], cost[1:] - level[:-1]
        errors = (realised - predicted)[int(SKIP * len(cost)) :]
        pairs = np.column_stack([errors[:-1], errors[1:]])
        found.append(Changes(predicted[priced], realised[priced], pairs))
    return pooled(found)


def pooled(parts: Sequence[Changes]) -> Changes:
    """Return the changes of several constraints or runs as one."""
    return Changes(*map(np.concatenate, zip(*parts, strict=True)))


def collect(runs: Sequence[Path]) -> dict[tuple[str, str], Changes]:
    """Return the changes of all runs of a task and an algorithm together."""
    found: dict[tuple[str, str], list[Changes]] = {}
    for run in runs:
        settings = read_settings(run / "config.toml")
        found.setdefault((settings["task"], settings["algo"]), []).append(changes_of(run))
    together = {key: pooled(parts) for key, parts in found.items()}
    return {key: changes for key, changes in together.items() if len(changes.predicted)}


def draw(found: Mapping[tuple[str, str], Changes]) -> Any:
    """Return a figure with the predicted change across and the realised one up."""
    from matplotlib import rc_context

    columns = min(3, len(found))
    with rc_context(STYLE):
        figure, panels = new_figure(-(-len(found) // columns), columns, 3.4, 3.2)
        for panel in panels.flat[len(found) :]:
            panel.set_visible(False)
        for ((task, algo), changes), panel in zip(found.items(), panels.flat, strict=False):
            colour = look_of(algo).colour
            across, up = (SPARE * np.percentile(np.abs(one), SHOWN) or 1.0 for one in changes[:2])
            ends = np.array([-across, across])
            fitted = changes.realised.mean() + changes.slope * (ends - changes.predicted.mean())
            panel.plot(ends, ends, **LIMIT_LINE, zorder=2)
            panel.plot(ends, fitted, color=colour, linewidth=1.5, zorder=4)
            panel.scatter(*changes[:2], s=9, alpha=0.45, linewidth=0, color=colour, zorder=3)
            panel.set_xlim(-across, across)
            panel.set_ylim(-up, up)
            panel.set_title(wrapped(f"{task}, {name_of(algo)}", 34))
            said = f"correlation {changes.correlation:.2f}\nslope {changes.slope:.2f}"
            panel.text(0.04, 0.96, said, transform=panel.transAxes, va="top", fontsize=9)
        figure.suptitle(
            "Change of the epoch's cost; dashed: as predicted, solid: fitted", fontsize=10
        )
        figure.supxlabel("predicted change", fontsize=9.5)
        figure.supylabel("realised change", fontsize=9.5)
    return figure


def table(found: Mapping[tuple[str, str], Changes]) -> str:
    """Return the same in numbers, as Markdown."""
    rows = [
        f"| {task} | {name_of(algo)} | {len(changes.predicted)} | {changes.correlation:.2f} "
        f"| {changes.slope:.2f} | {changes.error:.2f} | {changes.error_of_no_change:.2f} "
        f"| {changes.successive:.2f} |"
        for (task, algo), changes in found.items()
    ]
    return "\n".join([*HEADER, *rows]) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Write the picture and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    options = parser.parse_args(words)
    try:
        found = collect(options.runs)
    except CspoError as error:
        parser.error(str(error))
    if not found:
        parser.error("no run has had a price on its cost.")
    write_bytes(options.out, render(draw(found), "png"))
    write_text(options.out.with_suffix(".md"), table(found))
    print(table(found), end="")


if __name__ == "__main__":
    main()
