"""Two single-threaded runs side by side, against one run with one thread and one with two.

    python benchmarks/two_runs.py [TASK ...] [--rounds 3] [--epochs 5] [--json]

Each round measures all three, one after another, with the paper's settings (`cspo bench train`);
the ratios are those of medians over the rounds, so what else the machine does in the meantime
touches all three. The exit code is 1 if two runs give less than 1.6 times the steps of one
single-threaded run.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median
from typing import Any

from cspo.lab.bench import bench_train

TASKS = ["SafetyHalfCheetahVelocity-v1", "SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"]
WAYS = {"one_thread": {"threads": 1}, "two_threads": {"threads": 2}, "two_runs": {"runs": 2}}
WANTED = 1.6


def measure(task: str, rounds: int, epochs: int, **settings: Any) -> dict[str, Any]:
    """Return the median steps per second of each way to train, and how two runs compare."""
    speeds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            result = bench_train(task, epochs=epochs, **way, **settings)
            speeds[name].append(result["steps_per_s"])
    medians = {name: median(values) for name, values in speeds.items()}
    return {
        "task": task,
        **medians,
        "against_one_thread": medians["two_runs"] / medians["one_thread"],
        "against_two_threads": medians["two_runs"] / medians["two_threads"],
        "of_the_rounds": [
            two / one for one, two in zip(speeds["one_thread"], speeds["two_runs"], strict=True)
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Two runs side by side against one.")
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--steps-per-epoch", type=int, help="fewer than the paper's, to try this program out"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = (
        {} if options.steps_per_epoch is None else {"steps_per_epoch": options.steps_per_epoch}
    )
    rows = []
    if not options.json:
        print(
            "| task | one run, one thread | one run, two threads | two runs | against one thread "
            "| two threads |"
        )
        print("|---|---|---|---|---|---|")
    for task in options.tasks:
        row = measure(task, options.rounds, options.epochs, **settings)
        rows.append(row)
        if not options.json:
            speeds = " | ".join(f"{row[name]:,.0f}" for name in WAYS)
            ratios = f"{row['against_one_thread']:.2f} | {row['against_two_threads']:.2f}"
            print(f"| {task} | {speeds} | {ratios} |", flush=True)
    if options.json:
        print(json.dumps(rows))
    return 0 if all(row["against_one_thread"] >= WANTED for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
