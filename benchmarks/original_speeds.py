"""Measure Safety-Gymnasium's own tasks, for the last column of the table in benchmarks/README.md.

Runs where Safety-Gymnasium is installed, which is not where `cspo` is: its pins of 2023 have no
wheels for Python 3.11 and later.

    python3.10 -m venv original
    original/bin/pip install safety-gymnasium
    original/bin/python benchmarks/original_speeds.py     # what is not measured yet
    python benchmarks/env_speeds.py --table

One environment in one process, random actions; the time of resets is left out. Numbers are kept in
benchmarks/env_speeds_original.json task by task.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from statistics import median

NUMBERS = Path(__file__).parent / "env_speeds_original.json"
OURS = Path(__file__).parent / "env_speeds.jsonl"  # which tasks there are
ROUND = 25  # steps; the speed is that of the median round, as in `cspo bench env`


def main() -> None:
    parser = argparse.ArgumentParser(description="speeds of Safety-Gymnasium's tasks")
    parser.add_argument("tasks", nargs="*", help="these, again; by default what is missing")
    parser.add_argument("--seconds", type=float, default=2.0, help="per task")
    arguments = parser.parse_args()
    known = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.exists() else {}
    names = [json.loads(line)["task"] for line in OURS.read_text(encoding="utf-8").splitlines()]
    for name in arguments.tasks or [name for name in names if name not in known]:
        known[name] = round(steps_per_second(name, arguments.seconds), 1)
        print(f"{name:<30} {known[name]:>10,.0f}", flush=True)
        ordered = {one: known[one] for one in names if one in known}
        fresh = NUMBERS.with_suffix(".new")
        fresh.write_text(json.dumps(ordered, indent=0) + "\n", encoding="utf-8")
        os.replace(fresh, NUMBERS)


def steps_per_second(name: str, seconds: float) -> float:
    import safety_gymnasium

    env = safety_gymnasium.make(name)
    env.action_space.seed(0)
    env.reset(seed=0)
    rounds: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(rounds) < 4:
        actions = [env.action_space.sample() for _ in range(ROUND)]
        before, resetting = time.perf_counter(), 0.0
        for action in actions:
            ended = env.step(action)[3:5]
            if any(ended):  # a reset builds its world anew for up to seconds: not a step
                began = time.perf_counter()
                env.reset()
                resetting += time.perf_counter() - began
        rounds.append(time.perf_counter() - before - resetting)
    env.close()
    return ROUND / median(rounds[1:])


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
