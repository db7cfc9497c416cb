"""Draw docs/tightening.png and write its table into docs/limits.md: a limit that is tightened.

python docs/make_tightening.py [STUDY]

STUDY holds runs whose limit steps down once, by default the archive results/tightening. What stands
between `<!-- tightening -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from cspo.errors import CspoError
from cspo.lab.metrics.series import Series
from cspo.lab.report.figures import render
from cspo.lab.report.formats import fixed
from cspo.lab.report.looks import look_of, name_of
from cspo.lab.report.panels import LIMIT_LINE, STYLE, label_steps, new_figure
from cspo.lab.report.results import Cell, collect
from cspo.runs.files import write_bytes, write_text

ROOT = Path(__file__).resolve().parents[1]
STUDY = ROOT / "results" / "tightening"
BLOCK = re.compile(r"(<!-- tightening -->\n).*?(<!-- end -->)", re.DOTALL)
LAST = 10  # epochs over which a return or a cost is averaged
HIGHEST = 3.0  # times the first limit: the top of the panels


@dataclass(frozen=True)
class Tightening:
    """What one run did about a limit that stepped down."""

    step: int  # the first epoch with the new limit
    old: float
    new: float
    epochs: int | None  # from the step to the first epoch within the new limit; None: never
    above: float  # share of the epochs from there on that are above it; nan if there are none
    worst: float  # greatest cost less limit in these
    return_before: float  # mean over the last epochs before the step
    return_end: float
    cost_before: float


def main(study: Path = STUDY, root: Path = ROOT) -> None:
    """Draw the picture and fill the page."""
    cells = collect([study]).cells
    write_bytes(root / "docs" / "tightening.png", picture(cells))
    page = root / "docs" / "limits.md"
    write_text(page, filled(page.read_text(encoding="utf-8"), cells))
    print(table(cells))


def measure(series: Series) -> Tightening:
    """Return what a run did, from the cost that it reports.

    Raises:
        CspoError: If its limit does not step down exactly once.
    """
    limit, cost = series.limit[:, 0], series.cost[:, 0]
    changes = np.flatnonzero(np.diff(limit))
    if len(changes) != 1 or np.diff(limit)[changes[0]] >= 0 or series.limit.shape[1] > 1:
        raise CspoError(f"{series.name}: its one limit does not step down exactly once.")
    step = int(changes[0]) + 1
    before, after = slice(max(0, step - LAST), step), cost[step:] - limit[step:]
    within = np.flatnonzero(after <= 0.0)
    rest = after[within[0] :] if len(within) else np.empty(0)
    return Tightening(
        step=step,
        old=float(limit[step - 1]),
        new=float(limit[step]),
        epochs=int(within[0]) if len(within) else None,
        above=float(np.mean(rest > 0.0)) if len(rest) else float("nan"),
        worst=float(np.max(rest)) if len(rest) else float("nan"),
        return_before=float(np.mean(series.returns[before])),
        return_end=float(np.mean(series.returns[-LAST:])),
        cost_before=float(np.mean(cost[before])),
    )


def table(cells: Sequence[Cell]) -> str:
    """Return the table as Markdown: a row per algorithm, the mean of its seeds and each of them."""
    heads = ["", "epochs until it is kept again", "then above it", "worst excess then"]
    heads += ["cost before", "return before", "return at the end"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for cell in cells:
        found = [measure(run.series) for run in cell.runs]
        waits = [one.epochs for one in found if one.epochs is not None]
        shares = [100 * one.above for one in found]
        each = ", ".join("never" if one.epochs is None else str(one.epochs) for one in found)
        epochs, above = f"({each})", f"({_each(shares, 0)}) %"
        if len(waits) == len(found):  # without all of them a mean would flatter
            epochs = f"{fmean(waits):.1f} {epochs}"
            above = f"{fmean(shares):.0f} ({_each(shares, 0)}) %"
        worst = fixed(max((one.worst for one in found), key=_known), 1)
        numbers = [
            f"{fmean(values):,.{digits}f} ({_each(values, digits)})"
            for values, digits in (
                ([one.cost_before for one in found], 1),
                ([one.return_before for one in found], 0),
                ([one.return_end for one in found], 0),
            )
        ]
        lines.append(
            f"| {name_of(cell.label)} | {epochs} | {above} | {worst} | {' | '.join(numbers)} |"
        )
    return "\n".join(lines)


def _known(value: float) -> float:
    return -np.inf if np.isnan(value) else value


def _each(values: Sequence[float], digits: int) -> str:
    return ", ".join(fixed(value, digits) for value in values)


def section(cells: Sequence[Cell]) -> str:
    """Return the whole section of the page."""
    first = cells[0].runs[0]
    known, settings = measure(first.series), first.settings
    steps, envs, window = (
        settings[name] for name in ("steps_per_epoch", "num_envs", "episode_window")
    )
    task, length = cells[0].task, f"{len(first.series)} epochs of {steps:,} steps"
    seeds = ", ".join(str(run.seed) for run in cells[0].runs)
    ended = f"{envs * _episodes(first.series, steps, envs):.0f}"
    return f"""## How long until a tighter limit is kept?

`cspo study run results/tightening/study.toml --out DIR`: {task}, {length},
seeds {seeds}; after {known.step} epochs the limit steps from {known.old:g} to {known.new:g}.
`python docs/make_tightening.py` draws and counts.

![Cost of every seed against the limit, a panel per algorithm](tightening.png)

{table(cells)}

Means over the seeds, and every seed in brackets. The first column counts from the step to the first
epoch whose reported cost is within the new limit; the next two are about the epochs from there to
the end, the excess that of the worst seed. "Before" is over the last {LAST} epochs before the step,
"at the end" over the last {LAST} of the run. The reported cost is the mean over the last {window}
episodes, of which an epoch ends about {ended}: a cost that falls at once is seen to fall with that
delay. CSPO keeps its margin below the limit, as by default; the others have none. Its runs are from
[before its weight had an epsilon](evidence/price-before.md). A run within the
new limit at the step counts 0 epochs, wherever its cost goes then. One task and at most
{max(len(cell.runs) for cell in cells)} seeds: what differs by less than the seeds do is no
difference.
"""


def _episodes(series: Series, steps: int, envs: int) -> float:
    """Return how many episodes each environment ends in an epoch."""
    length = series.columns.get("episode_length")
    return steps / envs / float(length[-1]) if length is not None else float("nan")


def filled(text: str, cells: Sequence[Cell]) -> str:
    """Return the page with its section replaced."""
    if not BLOCK.search(text):
        raise CspoError("docs/limits.md has no place for the table: <!-- tightening -->.")
    return BLOCK.sub(lambda block: f"{block[1]}\n{section(cells)}\n{block[2]}", text)


def picture(cells: Sequence[Cell]) -> bytes:
    """Return the picture as PNG: a panel per algorithm, a line per seed."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure, panels = new_figure(1, len(cells), 3.2, 2.6, sharey=True)
        for panel, cell in zip(panels[0], cells, strict=True):
            _draw(panel, cell)
        panels[0, 0].set_ylabel("cost")
        return render(figure, "png")


def _draw(panel: Any, cell: Cell) -> None:
    for run in cell.runs:
        colour = look_of(cell.algo).colour
        panel.plot(run.series.steps, run.series.cost[:, 0], color=colour, linewidth=1.0, alpha=0.8)
    series = cell.runs[0].series
    limit = series.limit[:, 0]
    panel.plot(series.steps, limit, drawstyle="steps-pre", **LIMIT_LINE, zorder=5)
    panel.axvline(series.steps[measure(series).step - 1], color="#bbbbbb", linewidth=0.9)
    panel.set_title(name_of(cell.label))
    label_steps(panel, [cell])
    panel.set_ylim(0.0, HIGHEST * float(limit[0]))


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:2]))
    except CspoError as error:
        sys.exit(f"docs/make_tightening.py: {error}")
