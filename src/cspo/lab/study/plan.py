"""The runs that a study file names, as data: what every command that only reads a study needs.

Whether this version could train them is a question of `grid`. A study can be read when a setting,
an algorithm or a plugin that it was trained with is gone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cspo.algorithms.presets import preset
from cspo.config import RunSettings, TrainConfig, read_settings, read_toml
from cspo.errors import CspoError
from cspo.experience.limits import limits_at, read_limits
from cspo.lab.study.fields import StudyCell, StudyFile
from cspo.settings import build, check_fields


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study, by what it is and how long it is."""

    id: str
    task: str
    algo: str
    variant: str  # "" if the study has no variants
    seed: int
    epochs: int
    steps: int  # of all epochs
    cost_limit: tuple[float, ...]  # K, those of the first epoch


@dataclass(frozen=True)
class Plan:
    """What a study file names."""

    name: str
    description: str
    text: str  # the TOML text
    runs: tuple[PlannedRun, ...]


class StudyProblems(CspoError):
    """Everything that is wrong with a study file, one line each."""

    def __init__(self, source: Path | str, problems: Sequence[str]) -> None:
        """Name the file in front of each problem."""
        self.problems = [f"{source}: {problem}" for problem in dict.fromkeys(problems)]
        super().__init__("\n".join(self.problems))


def run_id(task: str, algo: str, variant: str, seed: int) -> str:
    """Return what a run of a study is called, which is also the name of its folder."""
    parts = (task.replace("/", "-").replace(":", "-"), algo, variant, f"seed{seed}")
    # Also in a stranger's file: a name must not lead out of the folder of the runs.
    return "-".join(part for part in parts if part).replace(os.sep, "-")


def read_plan(folder: Path) -> Plan:
    """Return what the study in a folder, or in an archive, consists of.

    How long a run is, and its limits, are what its own config.toml says; of a run that has not
    started, what the study would give it now.

    Raises:
        StudyProblems: If the file is not one of a study.
    """
    path = folder / "study.toml"
    file = StudyFile(read_toml(path))
    if file.problems:
        raise StudyProblems(path, file.problems)
    cells = [(cell, _given(cell)) for cell in file.cells()]
    runs = [_planned(folder, cell, given, seed) for seed in file.seeds for cell, given in cells]
    return Plan(file.name, file.description, path.read_text(encoding="utf-8"), tuple(runs))


def _given(cell: StudyCell) -> dict[str, Any]:
    """Return the general settings that the study gives to runs, as far as it names them."""
    settings = preset(cell.algo, cell.task)
    for layer in cell.layers:
        settings |= {key: value for (own, key), (value, _) in layer.items() if not own}
    return settings


def _planned(folder: Path, cell: StudyCell, given: dict[str, Any], seed: int) -> PlannedRun:
    name, settings = run_id(cell.task, cell.algo, cell.variant, seed), given
    with contextlib.suppress(CspoError):  # it has not started, or its file was cut short
        settings = given | read_settings(folder / "runs" / name / "config.toml")
    known = {"total_steps", "steps_per_epoch"} & settings.keys()
    length: RunSettings = build(RunSettings, {key: settings[key] for key in known})
    check_fields(length)
    limits = settings.get("cost_limit", TrainConfig.cost_limit)
    return PlannedRun(
        id=name,
        task=cell.task,
        algo=cell.algo,
        variant=cell.variant,
        seed=seed,
        epochs=length.epochs,
        steps=length.epochs * length.steps_per_epoch,
        cost_limit=limits_at(read_limits(limits), 0),
    )
