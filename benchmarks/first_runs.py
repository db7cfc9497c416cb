"""CSPO and PPO-Lag on two tasks of a family, 1e6 steps, three seeds, beside OmniSafe's PPO-Lag.

    python benchmarks/first_runs.py velocity  # train what is missing, write results
    python benchmarks/first_runs.py navigation --draw   # only the picture, from results/first-runs

Two runs at a time, one thread each. Stopped at any moment, the same command goes on where it was.
Writes results/first-runs/*.csv and docs/first-runs-FAMILY.png and prints a table of
docs/first-runs.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from many_runs import ROOT, Job, read, train_all

REFERENCE = ROOT / "results" / "reference"
TASKS = {
    "velocity": ("SafetyHopperVelocity-v1", "SafetyHalfCheetahVelocity-v1"),
    "navigation": ("SafetyPointGoal1-v0", "SafetyPointButton1-v0"),
}
ALGORITHMS = ("cspo", "ppo-lag")
SEEDS = (0, 1, 2)
STEPS = 1_000_000
COLOURS = {"cspo": "#0b6e4f", "ppo-lag": "#c8553d", "omnisafe": "#6b7280"}
LABELS = {"cspo": "CSPO", "ppo-lag": "PPO-Lag", "omnisafe": "PPO-Lag, OmniSafe 0.5.0 (one seed)"}


def job(task: str, algo: str, seed: int) -> Job:
    return Job("first-runs", task, algo, seed, STEPS)


def curves(task: str, algo: str) -> list[dict[str, np.ndarray]]:
    if algo == "omnisafe":
        recorded = REFERENCE / f"omnisafe-ppo-lag-{task}.csv"
        return [read(recorded)] if recorded.exists() else []
    return [read(job(task, algo, seed).result) for seed in SEEDS]


def draw(tasks: tuple[str, ...], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    axes = figure.subplots(2, len(tasks), sharex=True)
    for column, task in enumerate(tasks):
        for algo in ("omnisafe", "ppo-lag", "cspo"):
            for i, curve in enumerate(curves(task, algo)):
                style = {
                    "color": COLOURS[algo],
                    "label": LABELS[algo] if i == 0 else None,
                    "linewidth": 1.3,
                }
                style |= {"linestyle": ":"} if algo == "omnisafe" else {"alpha": 0.85}
                axes[0][column].plot(curve["steps"] / 1e6, curve["return"], **style)
                axes[1][column].plot(curve["steps"] / 1e6, curve["cost"], **style)
        axes[0][column].set_title(task)
        axes[1][column].axhline(25, color="black", linestyle="--", linewidth=1)
        axes[1][column].annotate(
            "limit 25", (0.0, 25), xytext=(2, 3), textcoords="offset points", fontsize=8
        )
        axes[1][column].set_xlabel("environment steps (millions)")
    axes[0][0].set_ylabel("episode return")
    axes[1][0].set_ylabel("episode cost $J_c$")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    figure.savefig(path, dpi=130)


def table(tasks: tuple[str, ...]) -> str:
    lines = [
        "| task | algorithm | seed | return | cost | epochs above the limit | largest cost |",
        "|---|---|---|---|---|---|---|",
    ]
    digits = 0 if tasks == TASKS["velocity"] else 1
    for task in tasks:
        for algo in ("cspo", "ppo-lag", "omnisafe"):
            for seed, curve in zip(
                SEEDS if algo != "omnisafe" else ("-",), curves(task, algo), strict=False
            ):
                late = slice(-10, None)  # the last 10 of 50 epochs
                above = int((curve["cost"] > 25).sum())
                name, returned = LABELS[algo].split(" (")[0], curve["return"][late].mean()
                lines.append(
                    f"| {task} | {name} | {seed} | {returned:.{digits}f} "
                    f"| {curve['cost'][late].mean():.1f} | {above} of {len(curve['cost'])} "
                    f"| {curve['cost'].max():.0f} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", choices=TASKS, help="which tasks")
    parser.add_argument("--draw", action="store_true", help="only draw from results that exist")
    options = parser.parse_args()
    if not options.draw:
        train_all(
            job(task, algo, seed)
            for task in TASKS[options.family]
            for algo in ALGORITHMS
            for seed in SEEDS
        )
    draw(TASKS[options.family], ROOT / "docs" / f"first-runs-{options.family}.png")
    print(table(TASKS[options.family]))
