"""What a study of very many tiny runs costs besides its training: scheduler, status and report.

    python benchmarks/study_load.py [--sizes 200 1000 2000] [--jobs 2] [--json]

Every size is a study of its own, `cspo study run` from nothing: four algorithms in five variants,
and as many seeds as it takes. A run is a process of its own, as ever, but its training is replaced
by copying a finished run (`copied_runs.py`), which takes some milliseconds; with --train, one
epoch is trained, which takes half a second: a picture, and the loading of kernels. Measured are the
time and the memory of the scheduler's own process, without its workers, and then the same start
again, where everything is finished, `cspo study status` and `cspo report`. None of it should grow
faster than the number of runs: the table gives milliseconds of CPU per run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from small_studies import (
    BENCHMARKS,
    SETTINGS,
    SOURCES,
    STEPS,
    TASK,
    as_flags,
    print_table,
    write_study,
)

ALGORITHMS = ["cspo", "ppo-lag", "cpo", "focops"]
VARIANTS = [
    {"name": f"limit-{limit}", "settings": {"cost_limit": float(limit)}} for limit in range(1, 6)
]
COPIED_EPOCHS = 10
# Calls `cspo` and tells what this process alone needed, and the peak of its memory.
PROBE = """
import importlib, os, resource, sys, time
if "CSPO_COPIED_RUN" in os.environ and sys.argv[1:3] == ["study", "run"]:
    importlib.import_module("copied_runs")
from cspo.cli import main
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"\\nused {time.process_time()} {used.ru_maxrss / 1024}", file=sys.stderr)
sys.exit(code)
"""


def measure(*words: Any) -> dict[str, float]:
    """Run a command of `cspo` and return its seconds, CPU seconds and megabytes."""
    paths = os.pathsep.join([str(BENCHMARKS), str(SOURCES)])
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, words)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout[-500:]} {done.stderr[-500:]}")
    cpu, memory = map(float, done.stderr.split()[-2:])
    return {"seconds": seconds, "cpu_seconds": cpu, "megabytes": memory}


def train_model(folder: Path) -> Path:
    """Train the run that is copied."""
    words = as_flags({"total_steps": STEPS * COPIED_EPOCHS, **SETTINGS})
    measure("train", TASK, "--run-dir", folder, "--quiet", *words)
    return folder


def load(runs: int, jobs: int, epochs: int, folder: Path) -> dict[str, Any]:
    """Measure a study of so many runs."""
    seeds = runs // (len(ALGORITHMS) * len(VARIANTS))
    tiny = SETTINGS | {"passes": 1, "num_envs": 1, "steps_per_epoch": STEPS}
    del tiny["cost_limit"]
    file = write_study(
        folder / "study.toml",
        algorithms=ALGORITHMS,
        variants=VARIANTS,
        seeds=seeds,
        total_steps=STEPS * epochs,
        settings=tiny,
    )
    out = folder / "out"
    run = ("study", "run", file, "--out", out, "--jobs", jobs)
    return {
        "runs": len(ALGORITHMS) * len(VARIANTS) * seeds,
        "run": measure(*run),
        "again": measure(*run),
        "status": measure("study", "status", out),
        "report": measure("report", out, "--out", folder / "report"),
    }


def line(result: dict[str, Any]) -> list[str]:
    """Return what was measured, per run where that is what should not grow."""
    runs, run, again = result["runs"], result["run"], result["again"]
    status, report = result["status"], result["report"]
    return [
        f"{runs}",
        f"{run['seconds']:.0f} s",
        f"{1000 * run['cpu_seconds'] / runs:.1f} ms",
        f"{run['megabytes']:.0f} MB",
        f"{again['seconds']:.1f} s, {1000 * again['cpu_seconds'] / runs:.1f} ms",
        f"{status['seconds']:.1f} s, {1000 * status['cpu_seconds'] / runs:.1f} ms",
        f"{report['seconds']:.1f} s, {1000 * report['cpu_seconds'] / runs:.1f} ms",
        f"{report['megabytes']:.0f} MB",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="The load of a study of many tiny runs.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 2000])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder to keep the studies in")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", action="store_true", help="train the runs, an epoch each")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="cspo-load-"))
    results = []
    if not options.train:
        os.environ["CSPO_COPIED_RUN"] = str(train_model(folder / "model"))
    epochs = 1 if options.train else COPIED_EPOCHS
    for runs in options.sizes:
        results.append(load(runs, options.jobs, epochs, folder / str(runs)))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    if not options.keep:
        shutil.rmtree(folder)
    if options.json:
        print(json.dumps(results))
        return 0
    header = ["runs", "`study run`", "CPU of the scheduler per run", "its memory"]
    header += ["start when all are finished, CPU per run", "`study status`, CPU per run"]
    print_table([*header, "`report`, CPU per run", "its memory"], [line(one) for one in results])
    return 0


if __name__ == "__main__":
    sys.exit(main())
