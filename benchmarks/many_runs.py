"""What the benchmarks of many runs share: train what is missing, and read the results back."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


class Job(NamedTuple):
    """One run of a benchmark."""

    benchmark: str  # name of its folder in runs/ and results/
    task: str
    algo: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """What its run and its result are called."""
        return f"{self.task}-{self.algo}-seed{self.seed}"

    @property
    def result(self) -> Path:
        """Where its progress.csv is kept."""
        return ROOT / "results" / self.benchmark / f"{self.name}.csv"


def train(job: Job) -> str:
    """Train, or go on where an earlier attempt stopped, and keep the run's progress.csv."""
    from cspo.config import make_config, to_dict
    from cspo.lab.study.worker import work

    folder = ROOT / "runs" / job.benchmark / job.name
    config = make_config(job.task, job.algo, seed=job.seed, total_steps=job.steps, threads=1)
    work(to_dict(config), str(folder))
    job.result.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "progress.csv", job.result)
    return job.name


def train_all(jobs: Iterable[Job]) -> None:
    """Train every job, two processes at a time; those whose results are there are left alone."""
    missing = [job for job in jobs if not job.result.exists()]
    with ProcessPoolExecutor(max_workers=2) as pool:
        for name in pool.map(train, missing):
            print("done", name, flush=True)


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a progress.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in rows[0]}
