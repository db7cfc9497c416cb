"""Draw docs/algorithms/curves/*.svg: return and cost of every algorithm, from archived runs.

python docs/make_curves.py

The runs are those of results/health-check, one seed; CSPO's there are older than its default, so it
has those of results/delta-confirm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.lab.report.figures import render
from cspo.lab.report.panels import STYLE, new_figure
from cspo.runs.files import write_bytes
from cspo.runs.progress import progress_file, read_progress

ROOT = Path(__file__).resolve().parents[1]
CURVES = ROOT / "docs" / "algorithms" / "curves"
HEALTH = ROOT / "results" / "health-check"
CONFIRM = ROOT / "results" / "delta-confirm" / "runs"
TASKS = {"SafetyHopperVelocity-v1": "Hopper", "SafetyPointGoal1-v0": "PointGoal1"}
GREY = "#999999"


def main() -> None:
    """Draw the curves of all algorithms that come with the package."""
    CURVES.mkdir(exist_ok=True)
    for name in algorithm_names():
        write_bytes(CURVES / f"{name}.svg", picture(name))


def runs_of(name: str, task: str) -> list[Path]:
    """Return the tables of progress of an algorithm on a task."""
    if name == "cspo":
        return [progress_file(run) for run in sorted(CONFIRM.glob(f"{task}-cspo-seed*"))]
    return [HEALTH / f"{task}-{name}-seed0.csv"]


def picture(name: str) -> bytes:
    """Return the picture of an algorithm: return and cost on both tasks, PPO in grey."""
    import matplotlib as mpl

    look = get_algorithm(name).look
    with mpl.rc_context({**STYLE, "path.simplify_threshold": 0.5}):
        figure, panels = new_figure(1, 4, 2.3, 1.9)
        for column, (task, title) in enumerate(TASKS.items()):
            pair = panels[0, 2 * column : 2 * column + 2]
            if name != "ppo":
                _draw(pair, runs_of("ppo", task), GREY)
            _draw(pair, runs_of(name, task), look.colour)
            pair[0].set_title(f"{title}: return")
            pair[1].set_title(f"{title}: cost")
            pair[1].axhline(25.0, color="black", linestyle="--", linewidth=1.0)
            pair[1].set_ylim(0.0, 125.0)
            for panel in pair:
                panel.set_xlabel("million steps")
        return render(figure, "svg")


def _draw(pair: Any, files: list[Path], colour: str) -> None:
    assert files, "no runs to draw"
    for file in files:
        table = {key: np.array(values) for key, values in read_progress(file).items()}
        for panel, column in zip(pair, ("return", "cost"), strict=True):
            panel.plot(table["steps"] / 1e6, table[column], color=colour, linewidth=1.2)


if __name__ == "__main__":
    main()
