"""Finding and reading runs: study folders, run folders, and CSV files named after what they hold.

A run is what its config.toml says, read as data: its settings need not exist in this version, its
plugin need not be at hand, and no code of a run folder is run. The one thing that stands elsewhere,
the name of a variant, is in the file of its study. A bare CSV file has nothing but its name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cspo.algorithms.registry import algorithm_names
from cspo.config import FREE, read_toml
from cspo.errors import CspoError
from cspo.lab.metrics import Recovery, Series, read_series, recovery
from cspo.runs.files import read_bytes
from cspo.runs.plain import read_json_table
from cspo.runs.progress import progress_file

MOST_STEPS = 2.0**53  # whole numbers below are themselves as floating-point numbers


@dataclass(frozen=True)
class RunResult:
    """One run: what it was, what it did."""

    id: str
    task: str
    algo: str
    variant: str  # "" without variants
    seed: int
    settings: dict[str, Any]  # as config.toml has them; none for a bare CSV file
    series: Series
    facts: dict[str, str]  # provenance, as text

    @cached_property
    def recovery(self) -> Recovery:
        """How it recovers from violations."""
        return recovery(self.series)

    @property
    def label(self) -> str:
        """What it is called in tables: the name of its algorithm, and its variant's."""
        return f"{self.algo} {self.variant}".rstrip()

    @property
    def finished(self) -> bool:
        """Whether it has all the epochs it is meant to have."""
        return len(self.series) >= self.series.planned_epochs


class FolderRuns(NamedTuple):
    """The runs of a folder."""

    name: str
    runs: list[RunResult]
    notes: list[str]  # what a reader should know about them
    description: str = ""  # of a study


def read_folder(folder: Path) -> FolderRuns:
    """Return the runs of a folder."""
    if not folder.exists():
        raise CspoError(f"There is no folder {folder}.")
    if (folder / "config.toml").is_file():
        return FolderRuns(folder.name, [_read_run(folder)], [])
    if (folder / "study.toml").is_file():
        return _read_study(folder)
    if run_folders := _run_folders(folder):
        return FolderRuns(folder.name, *_read_started(run_folders))
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else [folder]
    runs = [_read_csv(file, *parts) for file in files if (parts := parts_of(file.stem))]
    if not runs:
        said = "holds neither a study, nor runs, nor files named TASK-ALGO-seedN.csv"
        raise CspoError(f"{folder} {said}.")
    return FolderRuns(folder.name, runs, [])


def _run_folders(folder: Path) -> list[Path]:
    return [file.parent for file in sorted(folder.glob("*/config.toml"))]


def _read_study(folder: Path) -> FolderRuns:
    from cspo.lab.study.plan import read_plan

    text = read_toml(folder / "study.toml")
    name = str(text.get("name", folder.name))
    started = _run_folders(folder / "runs")
    if not started:
        raise CspoError(f"No run of the study in {folder} has started yet.")
    runs, notes = _read_started(started)
    try:
        planned = [run.id for run in read_plan(folder).runs]
    except CspoError as fault:
        reason = str(fault).partition("\n")[0]
        notes.append(f"{name}: it is not known which runs have not started. {reason}")
    else:
        there = {run.name for run in started}
        if missing := [run for run in planned if run not in there]:
            count = f"{len(missing)} of {len(planned)}"
            notes.append(f"{name}: {count} runs have not started: {few(missing)}.")
    return FolderRuns(name, runs, notes, str(text.get("description", "")))


def _read_started(folders: Iterable[Path]) -> tuple[list[RunResult], list[str]]:
    """Return the runs with a finished epoch, and notes on those without or that cannot be read."""
    runs, empty, notes = [], [], []
    for folder in folders:
        file = progress_file(folder)
        try:
            if not file.exists() or (file.suffix == ".csv" and read_bytes(file).count(b"\n") < 2):
                empty.append(folder.name)
            else:
                runs.append(_read_run(folder))
        except OSError as fault:
            notes.append(f"Left out, since it cannot be read: {folder.name}. {fault.strerror}")
        except CspoError as fault:  # one damaged run does not keep the others from being reported
            notes.append(f"Left out, since it cannot be read: {folder.name}. {fault}")
    if empty:
        notes.append(f"Without a finished epoch, left out: {few(empty)}.")
    return runs, notes


def few(names: Sequence[str], most: int = 5) -> str:
    """Return a list as text, cut after the first few."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _read_run(folder: Path) -> RunResult:
    settings = read_toml(folder / "config.toml")
    facts = {"folder": folder.name, "cspo": str(settings.pop("cspo_version", ""))}
    task, algo, seed = (settings.get(name) for name in ("task", "algo", "seed"))
    if not isinstance(task, str) or not isinstance(algo, str) or not isinstance(seed, int):
        raise CspoError(f"{folder / 'config.toml'} does not name task, algo and seed.")
    series, variant = _with_steps(folder), variant_of(folder, settings)
    facts |= _summary_facts(folder)
    return RunResult(folder.name, task, algo, variant, seed, settings, series, facts)


def _with_steps(path: Path) -> Series:
    series = read_series(path)
    if math.isnan(series.steps[-1]):
        raise CspoError(f"{path} has no column 'steps': a report needs it.")
    if not (np.abs(series.steps) < MOST_STEPS).all():
        raise CspoError(f"{path} has a number of steps that is none.")
    return series


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return a text that is equal for runs that differ by seed, or in what changes no result."""
    kept = {key: value for key, value in settings.items() if key not in ("seed", *FREE)}
    return json.dumps(kept, sort_keys=True, default=str)


def variant_of(run: Path, settings: Mapping[str, Any]) -> str:
    """Return which variant of its study a run is; nothing for a run that is in no study.

    It is the one of the study's variants with which the study would have given the run of these
    settings this folder.
    """
    folder = run.absolute()
    study = folder.parent.parent / "study.toml"
    if not study.is_file():
        return ""
    from cspo.lab.study.plan import run_id

    task, algo, seed = (settings.get(name) for name in ("task", "algo", "seed"))
    variants = read_toml(study).get("variants")
    listed = variants if isinstance(variants, list) else []
    names = [str(one.get("name")) for one in listed if isinstance(one, dict)]
    ids = {run_id(str(task), str(algo), name, seed or 0): name for name in names}
    return ids.get(folder.name, "")


def _summary_facts(folder: Path) -> dict[str, str]:
    """Return where a run comes from: versions, digests, hashes; a run that goes on has none."""
    data = read_json_table(folder / "summary.json")
    versions = data.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    names = ("config_digest", "parameter_hash", "commit")
    facts = {name: data[name] for name in names if data.get(name)} | versions
    return {str(name): str(value) for name, value in facts.items()}


def parts_of(stem: str) -> tuple[str, str, str, int] | None:
    """Return task, algorithm, variant and seed of a CSV file, TASK-ALGO[-VARIANT]-seedN."""
    known = "|".join(re.escape(name) for name in sorted(algorithm_names(), key=len, reverse=True))
    versioned, variant = r".+?-v\d+", r"(?:-(.+))?"
    for task, algo, rest in (
        (versioned, known, variant),  # where the task ends with its version, as Gymnasium's ids do
        (r".+?", known, variant),
        (versioned, r".+", r"()"),  # an algorithm of another library
    ):
        if match := re.fullmatch(rf"({task})-({algo}){rest}-seed(\d+)", stem):
            return match[1], match[2], match[3] or "", int(match[4])
    return None


def _read_csv(file: Path, task: str, algo: str, variant: str, seed: int) -> RunResult:
    series, facts = _with_steps(file), {"file": file.name}
    return RunResult(file.stem, task, algo, variant, seed, {}, series, facts)
