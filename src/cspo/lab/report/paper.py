"""The paper's own numbers, the names it gives to tasks, and its order of tasks and algorithms."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cspo.envs.tasks import native_name

STEPS = 10_000_000  # of every run of the paper
SEEDS = 5
LAST_EPOCHS = 100  # over which its results are averaged, of 500
LIMIT = 25.0  # of every task
WINDOW = 350  # epochs in which violations are counted

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
ALGORITHMS = (
    *("cspo", "appo", "p3o", "ppo-lag", "cpo", "cup", "focops", "pcpo", "cppo-pid", "c-trpo"),
    *("ipo", "epo", "trpo-pid", "ppo"),
)


@dataclass(frozen=True)
class Printed:
    """A number as the paper prints it."""

    value: float
    spread: float | None = None  # what follows its plus-minus sign, None where there is none


Numbers = dict[tuple[str, str], dict[str, Printed]]


def task_name(task: str) -> str:
    """Return what the paper calls a task; another task keeps its name."""
    return TASKS.get(native_name(task) or task, task)


def task_rank(task: str) -> tuple[int, str]:
    """Return a sort key: the paper's order, then the alphabet."""
    return _rank([*TASKS], native_name(task) or task), task


def algorithm_rank(algo: str) -> tuple[int, str]:
    """Return a sort key: the paper's order, then the alphabet."""
    return _rank(ALGORITHMS, algo), algo


def _rank(known: Sequence[str], name: str) -> int:
    return known.index(name) if name in known else len(known)


@cache
def main_results() -> Numbers:
    """Return the main table: interquartile means and half the width of their 95 % intervals.

    Its keys are the paper's names of task and algorithm, then "return" and "cost".
    """
    columns = {"return": ("return_iqm", "return_ci"), "cost": ("cost_iqm", "cost_ci")}
    return _read("results_main.csv", "algorithm", columns)


@cache
def recovery_metrics() -> Numbers:
    """Return the recovery metrics, means and standard deviations over seeds.

    Its keys are the paper's names of task and algorithm, then "TTS", "RP", "#V" and "VF"; the last
    is #V over the epochs in which the paper counts.
    """
    columns = {"TTS": ("tts", "tts_std"), "RP": ("rp", "rp_std")}
    columns["#V"] = ("violations", "violations_std")
    found = _read("recovery_metrics.csv", "algorithm", columns)
    for row in found.values():
        count, deviation = row["#V"].value, row["#V"].spread
        row["VF"] = Printed(count / WINDOW, None if deviation is None else deviation / WINDOW)
    return found


@cache
def sensitivity_split() -> Numbers:
    """Return the sensitivity split of CSPO by task and "Flat" or "Steep", then "TTS" and "RP"."""
    return _read("sensitivity_split.csv", "geometry", {"TTS": ("tts",), "RP": ("rp",)})


def _read(name: str, second_key: str, columns: Mapping[str, tuple[str, ...]]) -> Numbers:
    """Return a file of the paper's numbers; of each quantity the columns of value and spread."""
    text = (resources.files("cspo.lab.report") / "paper" / name).read_text(encoding="utf-8")
    return {
        (row["task"], row[second_key]): {
            quantity: Printed(*(float(row[column]) for column in pair))
            for quantity, pair in columns.items()
        }
        for row in csv.DictReader(text.splitlines())
    }
