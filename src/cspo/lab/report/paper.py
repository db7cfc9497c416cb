"""The paper's own numbers, and the names it gives to tasks and algorithms."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cspo.envs.tasks import native_name

STEPS = 10_000_000  # of every run of the paper
SEEDS = 5
EPOCHS = 500
LAST_EPOCHS = 100  # over which its results are averaged, of 500

# In the order of the paper's main table.
TASKS = {
    "SafetyAntVelocity-v1": "Ant",
    "SafetyHumanoidVelocity-v1": "Humanoid",
    "SafetyHalfCheetahVelocity-v1": "HalfCheetah",
    "SafetyHopperVelocity-v1": "Hopper",
    "SafetySwimmerVelocity-v1": "Swimmer",
    "SafetyCarButton1-v0": "CarButton",
    "SafetyCarGoal1-v0": "CarGoal",
    "SafetyPointButton1-v0": "PointButton",
    "SafetyPointGoal1-v0": "PointGoal",
}
# In the order of the paper's main table, then those that are not in it.
ALGORITHMS = {
    "cspo": "CSPO",
    "appo": "APPO",
    "p3o": "P3O",
    "ppo-lag": "PPO-Lag",
    "cpo": "CPO",
    "cup": "CUP",
    "focops": "FOCOPS",
    "pcpo": "PCPO",
    "cppo-pid": "CPPO-PID",
    "c-trpo": "C-TRPO",
    "ipo": "IPO",
    "epo": "EPO",
    "trpo-pid": "TRPO-PID",
    "ppo": "PPO",
}


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it; `spread` is what follows its plus-minus sign, None where there is none."""

    value: float
    spread: float | None = None


@dataclass(frozen=True)
class MainEntry:
    """One cell of the main table: interquartile means with half the width of their 95 % intervals."""

    returns: Printed
    cost: Printed


@dataclass(frozen=True)
class RecoveryEntry:
    """One cell of the table of recovery metrics: means and standard deviations over seeds."""

    tts: Printed
    rp: Printed
    violating_epochs: Printed


@dataclass(frozen=True)
class SplitEntry:
    """One row of the sensitivity split of CSPO."""

    tts: Printed
    rp: Printed


def task_name(task: str) -> str:
    """Return what the paper calls a task; another task keeps its name."""
    return TASKS.get(native_name(task) or task, task)


def algorithm_name(algo: str) -> str:
    """Return what the paper calls an algorithm; another one keeps its name."""
    return ALGORITHMS.get(algo, algo)


def task_rank(task: str) -> tuple[int, str]:
    """Return a sort key: the paper's order, then the alphabet."""
    known = list(TASKS)
    name = native_name(task) or task
    return (known.index(name) if name in known else len(known), task)


def algorithm_rank(algo: str) -> tuple[int, str]:
    """Return a sort key: the paper's order, then the alphabet."""
    known = list(ALGORITHMS)
    return (known.index(algo) if algo in known else len(known), algo)


@cache
def main_results() -> dict[tuple[str, str], MainEntry]:
    """Return the main table by the paper's names of task and algorithm."""
    return {
        (row["task"], row["algorithm"]): MainEntry(
            _printed(row, "return_iqm", "return_ci"), _printed(row, "cost_iqm", "cost_ci")
        )
        for row in _rows("results_main.csv")
    }


@cache
def recovery_metrics() -> dict[tuple[str, str], RecoveryEntry]:
    """Return the recovery metrics by the paper's names of task and algorithm."""
    return {
        (row["task"], row["algorithm"]): RecoveryEntry(
            _printed(row, "tts", "tts_std"),
            _printed(row, "rp", "rp_std"),
            _printed(row, "violations", "violations_std"),
        )
        for row in _rows("recovery_metrics.csv")
    }


@cache
def sensitivity_split() -> dict[tuple[str, str], SplitEntry]:
    """Return the sensitivity split of CSPO by the paper's name of the task and "flat" or "steep"."""
    return {
        (row["task"], row["geometry"].lower()): SplitEntry(
            _printed(row, "tts"), _printed(row, "rp")
        )
        for row in _rows("sensitivity_split.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    file = resources.files("cspo.lab.report") / "paper" / name
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def _printed(row: dict[str, str], value: str, spread: str | None = None) -> Printed:
    return Printed(float(row[value]), None if spread is None else float(row[spread]))
