"""Finding and reading runs: study folders, run folders, and CSV files named after what they hold."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cspo.algorithms.registry import algorithm_names
from cspo.config import TrainConfig, from_dict, read_settings, read_toml
from cspo.errors import CspoError
from cspo.lab.metrics import Recovery, Series, read_series, recovery
from cspo.runs.progress import progress_file


@dataclass(frozen=True)
class RunResult:
    """One run: what it was, what it did."""

    id: str
    task: str
    algo: str
    variant: str  # "" without variants
    seed: int
    config: TrainConfig | None  # None for a bare CSV file, or settings this version does not know
    series: Series
    recovery: Recovery
    facts: dict[str, str]  # provenance, as text
    finished: bool


class Found(NamedTuple):
    """What a folder holds."""

    name: str
    runs: list[RunResult]
    notes: list[str]  # what a reader should know about them
    description: str = ""  # of a study


def read_folder(folder: Path) -> Found:
    """Return the runs of a folder."""
    if not folder.exists():
        raise CspoError(f"There is no folder {folder}.")
    if (folder / "config.toml").is_file():
        return Found(folder.name, [_read_run(folder, {})], [])
    if (folder / "study.toml").is_file():
        return _read_study(folder)
    parents = [child.parent for child in sorted(folder.glob("*/config.toml"))]
    if parents:
        runs, notes = _started(parents, {})
        return Found(folder.name, runs, notes)
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else [folder]
    named = [(file, parts) for file in files if (parts := parts_of(file.stem)) is not None]
    if not named:
        raise CspoError(
            f"{folder} holds neither a study, nor runs, nor files named TASK-ALGO-seedN.csv."
        )
    return Found(folder.name, [_read_csv(file, *parts) for file, parts in named], [])


def _read_study(folder: Path) -> Found:
    from cspo.lab.study.grid import read_study

    text = read_toml(folder / "study.toml")
    name, description = str(text.get("name", folder.name)), str(text.get("description", ""))
    variants: dict[str, str] = {}
    with contextlib.suppress(
        CspoError
    ):  # such as a plugin that is not at hand: the folders say enough
        variants = {spec.id: spec.variant for spec in read_study(folder / "study.toml").runs}
    parents = [child.parent for child in sorted(folder.glob("runs/*/config.toml"))]
    if not parents:
        raise CspoError(f"No run of the study in {folder} has started yet.")
    runs, notes = _started(parents, variants)
    there = {parent.name for parent in parents}
    if missing := [run for run in variants if run not in there]:
        notes.append(
            f"{name}: {len(missing)} of {len(variants)} runs have not started: {few(missing)}."
        )
    return Found(name, runs, notes, description)


def _started(
    folders: Iterable[Path], variants: dict[str, str]
) -> tuple[list[RunResult], list[str]]:
    """Return the runs that have a finished epoch, and remarks on those that have none or cannot be read."""
    runs, empty, notes = [], [], []
    for folder in folders:
        file = progress_file(folder)
        if not file.is_file() or (file.suffix == ".csv" and file.read_bytes().count(b"\n") < 2):
            empty.append(folder.name)
            continue
        try:
            runs.append(_read_run(folder, variants))
        except CspoError as fault:  # one damaged run does not keep the others from being reported
            notes.append(f"Left out, since it cannot be read: {folder.name}. {fault}")
    if empty:
        notes.append(f"Without a finished epoch, left out: {few(empty)}.")
    return runs, notes


def few(names: Sequence[str], most: int = 5) -> str:
    """Return a list as text, cut after the first few."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _read_run(folder: Path, variants: dict[str, str]) -> RunResult:
    settings = read_settings(folder / "config.toml")
    task, algo, seed = settings.get("task"), settings.get("algo"), settings.get("seed")
    if not isinstance(task, str) or not isinstance(algo, str) or not isinstance(seed, int):
        raise CspoError(f"{folder / 'config.toml'} does not name task, algo and seed.")
    series = _with_steps(folder)
    return RunResult(
        id=folder.name,
        task=task,
        algo=algo,
        variant=variants.get(folder.name, variant_of(folder.name, task, algo, seed)),
        seed=seed,
        config=_config(settings),
        series=series,
        recovery=recovery(series),
        facts=_facts(folder),
        finished=len(series) >= series.planned_epochs,
    )


def _with_steps(path: Path) -> Series:
    series = read_series(path)
    if math.isnan(series.steps[-1]):
        raise CspoError(f"{path} has no column 'steps': a report needs it.")
    return series


def _config(settings: dict[str, Any]) -> TrainConfig | None:
    """Return the settings; a plugin is not loaded, since a report should run no code of a run folder."""
    try:
        return from_dict({key: value for key, value in settings.items() if key != "plugin"})
    except CspoError:
        return None


def fingerprint(settings: dict[str, Any]) -> str:
    """Return a text that is equal for runs that differ in their seed only, or in what does not change results."""
    free = {"seed", "threads", "tensorboard", "checkpoint_every", "keep_checkpoints", "plugin"}
    return json.dumps(
        {key: value for key, value in settings.items() if key not in free},
        sort_keys=True,
        default=str,
    )


def variant_of(name: str, task: str, algo: str, seed: int) -> str:
    """Return VARIANT of a folder named TASK-ALGO-VARIANT-seedN, or nothing for another name."""
    prefix, suffix = f"{task.replace('/', '-').replace(':', '-')}-{algo}-", f"-seed{seed}"
    return (
        name[len(prefix) : -len(suffix)]
        if name.startswith(prefix) and name.endswith(suffix)
        else ""
    )


def _facts(folder: Path) -> dict[str, str]:
    """Return where a run comes from: versions, digests, hashes."""
    version = read_toml(folder / "config.toml").get("cspo_version", "")
    facts = {"folder": folder.name, "cspo": str(version)}
    try:
        data = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        facts |= {
            name: str(data[name])
            for name in ("config_digest", "parameter_hash", "commit")
            if data.get(name)
        }
        facts |= {str(name): str(value) for name, value in dict(data.get("versions") or {}).items()}
    except (OSError, ValueError, TypeError):
        pass  # a run that is not finished has none
    return facts


def parts_of(stem: str) -> tuple[str, str, str, int] | None:
    """Return task, algorithm, variant and seed of a file named TASK-ALGO-seedN or TASK-ALGO-VARIANT-seedN."""
    known = "|".join(re.escape(name) for name in sorted(algorithm_names(), key=len, reverse=True))
    for task, algo, variant in (
        (
            r".+?-v\d+",
            known,
            r"(?:-(.+))?",
        ),  # where the task ends with its version, as Gymnasium's ids do
        (r".+?", known, r"(?:-(.+))?"),
        (r".+?-v\d+", r".+", r"()"),  # an algorithm of another library
    ):
        if match := re.fullmatch(rf"({task})-({algo}){variant}-seed(\d+)", stem):
            return match[1], match[2], match[3] or "", int(match[4])
    return None


def _read_csv(file: Path, task: str, algo: str, variant: str, seed: int) -> RunResult:
    series = _with_steps(file)
    return RunResult(
        file.stem,
        task,
        algo,
        variant,
        seed,
        None,
        series,
        recovery(series),
        {"file": file.name},
        True,
    )
