"""Every algorithm on Hopper and PointGoal1, 1e6 steps, one seed: does each train and act on it?

    python benchmarks/health_check.py            # train what is missing, then write the table
    python benchmarks/health_check.py --table    # only the table, from results/health-check

A health check, not a ranking: one seed and a tenth of the paper's steps. Stopped at any moment, the
same command goes on where it was. Writes results/health-check/*.csv and
results/health-check/README.md.
"""

from __future__ import annotations

import argparse

from many_runs import ROOT, Job, read, train_all

from cspo.algorithms.registry import algorithm_names

TASKS = ("SafetyPointGoal1-v0", "SafetyHopperVelocity-v1")
SEED, STEPS, LIMIT = 0, 1_000_000, 25.0
LATE = 10  # epochs at the end that return and cost are averaged over
HEAD = """# Health check of all algorithms

One seed, a million steps, default settings: this shows that every algorithm trains and reacts to
its limit of 25. It is **not a ranking**: a tenth of the paper's steps and a single seed decide
nothing. Return and cost are means over the last ten of fifty epochs; "above" is the share of all
epochs with a cost above the limit; steps per second are those of single-threaded runs, two at a
time, some beside other work: docs/algorithms/README.md compares times properly. CSPO ran with the
defaults of before docs/evidence/choosing-cspo-defaults.md. `python benchmarks/health_check.py`
writes this page.
"""


def job(task: str, algo: str) -> Job:
    return Job("health-check", task, algo, SEED, STEPS)


def table(task: str) -> str:
    lines = [
        f"## {task}",
        "",
        "| algorithm | return | cost | above | steps/s |",
        "|---|---|---|---|---|",
    ]
    for algo in algorithm_names():
        if not job(task, algo).result.exists():
            continue
        curve = read(job(task, algo).result)
        late = slice(-LATE, None)
        above = 100 * (curve["cost"] > LIMIT).mean()
        returned, cost = curve["return"][late].mean(), curve["cost"][late].mean()
        lines.append(
            f"| {algo} | {returned:.1f} | {cost:.1f} | {above:.0f} % "
            f"| {curve['steps_per_second'].mean():,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--table", action="store_true", help="only write the table of results that exist"
    )
    parser.add_argument("--algo", nargs="*", help="train these algorithms only")
    options = parser.parse_args()
    if not options.table:
        train_all(job(task, algo) for task in TASKS for algo in options.algo or algorithm_names())
    page = "\n".join([HEAD, *(table(task) + "\n" for task in TASKS)])
    (ROOT / "results" / "health-check" / "README.md").write_text(page, encoding="utf-8")
    print(page)
