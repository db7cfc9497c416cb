"""Draw docs/suite-curves.png and write docs/suite-runs.md, from the archived study suite-curves.

    cspo study run results/suite-curves/study.toml --out studies/suite-curves
    cspo study archive studies/suite-curves --out results/suite-curves
    python docs/make_suite_curves.py

Trains nothing. Another root than the checkout is for trials: python docs/make_suite_curves.py ROOT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from make_evidence import Tables, filled

from cspo.errors import CspoError
from cspo.lab.report import collect
from cspo.lab.report.figures import render
from cspo.lab.report.panels import STYLE, new_figure
from cspo.runs.files import write_bytes, write_text
from cspo.runs.progress import progress_file, read_progress

ROOT = Path(__file__).resolve().parents[1]
STUDY = "suite-curves"
COLUMNS = 5
ORANGE, BLUE = "#d55e00", "#0072b2"
Curves = dict[str, Any]  # a column of progress.csv each

PAGE = """# CSPO on the rest of the suite

What it is: the default settings, as they were
[before CSPO's weight had an epsilon](evidence/price-before.md), one run of {steps} steps on each of
ten tasks that differ most, to see what happens. What it is not: a ranking. One seed decides
nothing, and the paper trains ten times as long.

```
cspo study run results/suite-curves/study.toml --out studies/suite-curves
cspo study archive studies/suite-curves --out results/suite-curves
python docs/make_suite_curves.py
```

![Return and cost of CSPO on tasks of the suite](suite-curves.png)

Return above, cost below, means of the last episodes; the dashed line is the limit.

{rows}

{sentences}

**CarButton2, CarRun0 and PointGoal2 begin far outside their limit**, at a cost of 40 to 200, and
[patience](cspo.md#why-it-is-so) lets them learn there for ten epochs of the fifty. PointGoal2 is
within its limit in ten of the last twelve epochs, CarRun0 in one; CarButton2 comes down to 32. It
is paid for with the return: PointGoal2 and CarButton2 end with none. Before CSPO's
[patience ended](evidence/price-before.md#when-patience-ended) all three were above the limit in
every epoch, at 35, 57 and 95 in the last fifth, and RacecarCircle1 had a return of 6 where it has 1
now. Runs beside it with CPPO-PID and the same margin, same seed, stopped early and not archived: it
has PointGoal2 below its limit after 24 epochs, at a return of -2, and CarRun0 after 12, at a price
of 21; after 27 CarRun0 has a return of 30. PPO-Lag has, after 21 epochs of CarRun0, a return of 686
at a cost of 154.

**DoggoGoal1 crosses its limit at half time**, when it begins to walk, and the patience of a new
violation takes most of what is left. PointPush1 violates in 38 epochs at a return of 0.4.

The table of the study, over the last epochs:

<!-- table suite-curves/seeds -->
<!-- end -->
"""


def main(root: Path = ROOT) -> None:
    """Draw the picture and write the page."""
    runs = read_runs(root)
    write_bytes(root / "docs" / "suite-curves.png", picture(runs))
    text = PAGE.format(steps=steps_of(runs), rows=table(runs), sentences=sentences(runs))
    write_text(root / "docs" / "suite-runs.md", filled(text, Tables(root)))
    print(f"docs/suite-curves.png and docs/suite-runs.md: {len(runs)} runs")


def read_runs(root: Path) -> dict[str, Curves]:
    """Return the curves of the archived runs, by task."""
    folder = root / "results" / STUDY
    if not (folder / "runs").is_dir():
        raise CspoError(f"{folder} has no runs yet: see the top of {Path(__file__).name}.")
    found = {}
    for run in collect([folder]).runs:
        columns = read_progress(progress_file(folder / "runs" / run.id))
        curve = {key: np.array(values, float) for key, values in columns.items()}
        shown = np.isfinite(curve["return"])  # from the first episode that ended
        found[run.task] = {key: values[shown] for key, values in curve.items()}
        if not shown.any():
            raise CspoError(f"no episode of {run.id} has ended.")
    return found


def picture(runs: dict[str, Curves]) -> bytes:
    """Return two rows of panels for every five tasks: return, and cost with its limit."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        blocks = -(-len(runs) // COLUMNS)
        figure, panels = new_figure(2 * blocks, COLUMNS, 2.3, 1.5)
        for panel in panels.flat:
            panel.set_visible(False)
        for number, (task, curve) in enumerate(runs.items()):
            row, column = 2 * (number // COLUMNS), number % COLUMNS
            above, below = panels[row, column], panels[row + 1, column]
            millions = curve["steps"] / 1e6
            above.plot(millions, curve["return"], color=BLUE, linewidth=1.3)
            below.plot(millions, curve["cost"], color=ORANGE, linewidth=1.3)
            below.plot(millions, curve["cost_limit"], "--", color="black", linewidth=1)
            below.set_ylim(bottom=0.0)
            above.set_title(task.removeprefix("Safety"), fontsize=9)
            if column == 0:
                above.set_ylabel("return")
                below.set_ylabel("cost")
            if row == 2 * (blocks - 1):
                below.set_xlabel("million steps", fontsize=8)
            for panel in (above, below):
                panel.set_visible(True)
                panel.tick_params(labelsize=7)
        return render(figure, "png")


def table(runs: dict[str, Curves]) -> str:
    """Return what each run came to."""
    lines = [
        "| task | return, first to last epoch | best return | cost at the end | largest cost "
        "| epochs above the limit |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for task, curve in runs.items():
        cells = [
            task,
            f"{curve['return'][0]:.1f} to {curve['return'][-1]:.1f}",
            f"{curve['return'].max():.1f}",
            f"{curve['cost'][-1]:.1f}",
            f"{curve['cost'].max():.1f}",
            f"{int(above_limit(curve).sum())} of {len(curve['cost'])}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def sentences(runs: dict[str, Curves]) -> str:
    """Say which runs end above the limit, never come near it, or earn no more than at first."""
    ends = [task for task, curve in runs.items() if above_limit(curve)[-1]]
    costless = [task for task, c in runs.items() if (c["cost"] < 0.1 * c["cost_limit"]).all()]
    poor = [task for task, curve in runs.items() if not earns_more(curve)]
    return "\n".join(
        [
            f"- Above the limit in the last epoch: {listed(ends)}.",
            f"- Never above a tenth of the limit, so that it is not tested: {listed(costless)}.",
            f"- No more return in the last fifth than in the first: {listed(poor)}.",
        ]
    )


def earns_more(curve: Curves) -> bool:
    """Whether the mean return of the last fifth exceeds that of the first."""
    fifth = max(1, len(curve["return"]) // 5)
    return bool(curve["return"][-fifth:].mean() > curve["return"][:fifth].mean())


def above_limit(curve: Curves) -> Any:
    """Return in which epochs the cost was above the limit."""
    return curve["cost"] > curve["cost_limit"]


def steps_of(runs: dict[str, Curves]) -> str:
    """Return how long the runs were."""
    return " or ".join(sorted({f"{int(curve['steps'][-1]):,}" for curve in runs.values()}))


def listed(names: list[str]) -> str:
    """Return names in a row."""
    return ", ".join(names) or "none"


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except CspoError as error:
        sys.exit(f"make_suite_curves: {error}")
