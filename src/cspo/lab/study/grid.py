"""A study file as a list of runs. All that is wrong with a file is said at once, before anything starts."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from cspo.config import TrainConfig
from cspo.errors import CspoError, nearest
from cspo.lab.study.combine import Combination, check_environment, combine
from cspo.lab.study.fields import Fields, read_fields

if TYPE_CHECKING:
    from importlib.abc import Traversable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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
        """Return the runs whose ids match one of the patterns (`*`, `?`, `[..]`), pattern by pattern.

        Raises:
            CspoError: If a pattern matches none.
        """
        found: dict[str, RunSpec] = {}
        for pattern in patterns:
            matching = {
                spec.id: spec for spec in self.runs if fnmatch.fnmatchcase(spec.id, pattern)
            }
            if not matching:
                raise CspoError(
                    f"No run of study {self.name} is called {pattern!r}; one is {self.runs[0].id!r}."
                )
            found |= {name: spec for name, spec in matching.items() if name not in found}
        return tuple(found.values())


class StudyProblems(CspoError):
    """Everything that is wrong with a study file, one line each."""

    def __init__(self, source: str, problems: list[str]) -> None:
        """Name the file in front of each problem."""
        self.problems = [f"{source}: {problem}" for problem in problems]
        super().__init__("\n".join(self.problems))


def shipped_studies() -> list[str]:
    """Return the names of the studies that come with this package."""
    return sorted(
        file.name.removesuffix(".toml")
        for file in _files().iterdir()
        if file.name.endswith(".toml")
    )


def _files() -> Traversable:
    return resources.files("cspo.lab.study") / "files"


def read_study(source: Path | str, *, environments: bool = False) -> Study:
    """Return the runs of a study.

    Args:
        source: A TOML file, or the name of a shipped study.
        environments: Also find out whether the environments exist that this package does not
            simulate itself; that imports Gymnasium and the modules that the study names.

    Raises:
        StudyProblems: Tells everything that is wrong with it.
    """
    text, folder = _text_of(source)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyProblems(str(source), [f"this is not valid TOML: {error}"]) from error
    fields = read_fields(data, folder)
    runs = list(_runs(fields, environments))
    for number, spec in enumerate(runs):
        alike = [other for other in runs[:number] if other.id == spec.id]
        if any(
            (one.task, one.algo, one.variant) != (spec.task, spec.algo, spec.variant)
            for one in alike
        ):
            fields.problems.append(
                f"two runs would be called {spec.id!r}: rename a variant or a task"
            )
    if fields.problems:
        raise StudyProblems(str(source), list(dict.fromkeys(fields.problems)))
    if fields.plugin is not None:
        text = _with_plugin(text, data, fields.plugin)
    runs.sort(
        key=lambda spec: fields.seeds.index(spec.seed)
    )  # a study stopped half-way has some seeds of everything
    return Study(fields.name, fields.description, tuple(runs), fields.retries, text)


def _text_of(source: Path | str) -> tuple[str, Path]:
    """Return the text of a study, and the folder in which its relative paths start."""
    path = Path(source)
    name = str(source)
    if not name.endswith(".toml") and os.sep not in name and not path.is_file():
        if name not in shipped_studies():
            raise CspoError(
                f"There is no shipped study {name!r} and no such file: {nearest(name, shipped_studies())}"
            )
        return (_files() / f"{name}.toml").read_text(encoding="utf-8"), Path()
    try:
        return path.read_text(encoding="utf-8"), path.resolve().parent
    except OSError as error:
        raise CspoError(f"Cannot read study file {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise StudyProblems(name, [f"this is not valid TOML: {error}"]) from error


def _with_plugin(text: str, data: dict[str, Any], plugin: str) -> str:
    """Return the text with the plugin's full path, so that it is found from the study's folder as well."""
    line = tomli_w.dumps({"plugin": plugin}).rstrip()
    changed = re.sub(r"^\s*plugin\s*=.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    wanted = {**data, "plugin": plugin}
    return changed if tomllib.loads(changed) == wanted else tomli_w.dumps(wanted)


def _runs(fields: Fields, environments: bool) -> Iterator[RunSpec]:
    """Yield every run; a combination of settings that is refused becomes a problem and gives none."""
    combinations = list(_combinations(fields))
    configs = combine(fields, combinations)
    if environments:
        check_environment(fields, [config for config in configs if config is not None])
    for combination, config in zip(combinations, configs, strict=True):
        if config is None:
            continue
        for seed in fields.seeds:
            name = run_id(combination.task, combination.algo, combination.variant, seed)
            yield RunSpec(
                name, combination.task, combination.algo, combination.variant, seed,
                dataclasses.replace(config, seed=seed),
            )  # fmt: skip


def run_id(task: str, algo: str, variant: str, seed: int) -> str:
    """Return what a run of a study is called, which is also the name of its folder."""
    parts = (task.replace("/", "-").replace(":", "-"), algo, variant, f"seed{seed}")
    return "-".join(part for part in parts if part)


def _combinations(fields: Fields) -> Iterator[Combination]:
    """Yield (task, algorithm, variant) in the order in which they are run; lowest layer of settings first."""
    for task in fields.tasks:
        for algo in fields.algorithms:
            layers = [
                fields.settings,
                *_found(fields.of_algorithm, algo),
                *_found(fields.of_task, task),
            ]
            variants = [variant for variant in fields.variants if algo in variant.algorithms]
            for variant in variants:
                yield Combination(task, algo, variant.name, (*layers, variant.layer))
            if not variants:  # an algorithm that no variant names is run once, as it is
                yield Combination(task, algo, "", tuple(layers))


def _found(layers: dict[str, Any], name: str) -> list[Any]:
    return [layers[name]] if name in layers else []
