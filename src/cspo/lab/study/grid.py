"""A study file as a list of runs; all that is wrong with it is said before anything starts."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from cspo.config import TrainConfig
from cspo.errors import CspoError, nearest
from cspo.lab.study.combine import Combination, check_environments, combine
from cspo.lab.study.fields import StudyFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = resources.files("cspo.lab.study") / "files"


@dataclass(frozen=True)
class RunSpec:
    """One run of a study."""

    id: str
    task: str
    algo: str
    variant: str  # "" if the study has no variants
    seed: int
    config: TrainConfig


@dataclass(frozen=True)
class Study:
    """A grid of runs."""

    name: str
    description: str
    runs: tuple[RunSpec, ...]
    retries: int  # how often a failed run is tried again, per start of the study
    text: str  # the TOML text

    @property
    def steps(self) -> int:
        """Environment steps of all runs together."""
        return sum(spec.config.epochs * spec.config.steps_per_epoch for spec in self.runs)

    def named(self, patterns: Sequence[str]) -> tuple[RunSpec, ...]:
        """Return the runs whose ids match one of the patterns (`*`, `?`, `[..]`), one by one.

        Raises:
            CspoError: If a pattern matches none.
        """
        found: dict[str, RunSpec] = {}
        for pattern in patterns:
            matching = [spec for spec in self.runs if fnmatch.fnmatchcase(spec.id, pattern)]
            if not matching:
                one = f"one is {self.runs[0].id!r}"
                raise CspoError(f"No run of study {self.name} is called {pattern!r}; {one}.")
            found |= {spec.id: spec for spec in matching}
        return tuple(found.values())


class StudyProblems(CspoError):
    """Everything that is wrong with a study file, one line each."""

    def __init__(self, source: Path | str, problems: Sequence[str]) -> None:
        """Name the file in front of each problem."""
        self.problems = [f"{source}: {problem}" for problem in dict.fromkeys(problems)]
        super().__init__("\n".join(self.problems))


def shipped_studies() -> list[str]:
    """Return the names of the studies that come with this package."""
    names = [file.name for file in SHIPPED.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_study(source: Path | str, *, environments: bool = False) -> Study:
    """Return the runs of a study.

    Args:
        source: A TOML file, or the name of a shipped study.
        environments: Also find out whether the environments exist that this package does not
            simulate itself; that imports Gymnasium and the modules that the study names.

    Raises:
        StudyProblems: Tells everything that is wrong with it.
    """
    try:
        text, folder = _text_of(source)
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyProblems(source, [f"this is not valid TOML: {error}"]) from error
    file = StudyFile(data, folder)
    combined = combine(file)
    if environments:
        check_environments(file, [config for _, config in combined])
    # Seed by seed: a study stopped half-way has some seeds of everything.
    runs = [_run(*pair, seed) for seed in file.seeds for pair in combined]
    first: dict[str, RunSpec] = {}
    for spec in runs:
        other = first.setdefault(spec.id, spec)
        if (other.task, other.algo, other.variant) != (spec.task, spec.algo, spec.variant):
            again = f"two runs would be called {spec.id!r}: rename a variant or a task"
            file.problems.append(again)
    if file.problems:
        raise StudyProblems(source, file.problems)
    if file.plugin is not None:
        text = _with_plugin(text, data, file.plugin)
    return Study(file.name, file.description, tuple(runs), file.retries, text)


def _text_of(source: Path | str) -> tuple[str, Path]:
    """Return the text of a study, and the folder in which its relative paths start."""
    path, name = Path(source), str(source)
    if not name.endswith(".toml") and os.sep not in name and not path.is_file():
        if name not in (shipped := shipped_studies()):
            hint = nearest(name, shipped)
            raise CspoError(f"There is no shipped study {name!r} and no such file: {hint}")
        return (SHIPPED / f"{name}.toml").read_text(encoding="utf-8"), Path()
    try:
        return path.read_text(encoding="utf-8"), path.resolve().parent
    except OSError as error:
        raise CspoError(f"Cannot read study file {path}: {error.strerror}.") from error


def _run(combination: Combination, config: TrainConfig, seed: int) -> RunSpec:
    task, algo, variant = combination.task, combination.algo, combination.variant
    parts = (task.replace("/", "-").replace(":", "-"), algo, variant, f"seed{seed}")
    name = "-".join(part for part in parts if part)
    return RunSpec(name, task, algo, variant, seed, dataclasses.replace(config, seed=seed))


def _with_plugin(text: str, data: dict[str, Any], plugin: str) -> str:
    """Return the text with the plugin's full path, which holds from the study's folder as well."""
    line = tomli_w.dumps({"plugin": plugin}).rstrip()
    changed = re.sub(r"^\s*plugin\s*=.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    wanted = {**data, "plugin": plugin}
    return changed if tomllib.loads(changed) == wanted else tomli_w.dumps(wanted)
