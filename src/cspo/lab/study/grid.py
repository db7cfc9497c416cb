"""The runs of a study file; all that is wrong with it is said before anything starts.

A setting that is refused is traced to the key that caused it, through all layers of the file.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from cspo.algorithms.registry import get_algorithm
from cspo.config import TrainConfig, general_fields, make_config, with_settings
from cspo.envs.tasks import native_name
from cspo.errors import CspoError, flag, nearest
from cspo.lab.study.fields import Layer, StudyFile, Variant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = resources.files("cspo.lab.study") / "files"
OWN = "algorithm."  # in front of a setting that is the algorithm's own
NOTHING = Layer("", {})
Settings = dict[str, tuple[Any, str]]  # name: value and the place it comes from


@dataclass(frozen=True)
class RunSpec:
    """One run of a study."""

    id: str
    task: str
    algo: str
    variant: str  # "" if the study has no variants
    seed: int
    config: TrainConfig

    @property
    def steps(self) -> int:
        """Environment steps of the run."""
        return self.config.run.epochs * self.config.run.steps_per_epoch


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
        return sum(spec.steps for spec in self.runs)

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
    combined = _combine(file)
    if environments:
        _check_environments(file, (config for _, config in combined))
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


def run_id(task: str, algo: str, variant: str, seed: int) -> str:
    """Return what a run of a study is called, which is also the name of its folder."""
    parts = (task.replace("/", "-").replace(":", "-"), algo, variant, f"seed{seed}")
    return "-".join(part for part in parts if part)


def _run(variant: str, config: TrainConfig, seed: int) -> RunSpec:
    task, algo = config.task, config.algo
    name = run_id(task, algo, variant, seed)
    return RunSpec(name, task, algo, variant, seed, with_settings(config, seed=seed))


def _with_plugin(text: str, data: dict[str, Any], plugin: str) -> str:
    """Return the text with the plugin's full path, which holds from the study's folder as well."""
    line = tomli_w.dumps({"plugin": plugin}).rstrip()
    changed = re.sub(r"^\s*plugin\s*=.*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    wanted = {**data, "plugin": plugin}
    return changed if tomllib.loads(changed) == wanted else tomli_w.dumps(wanted)


def _combine(file: StudyFile) -> list[tuple[str, TrainConfig]]:
    """Return variant and settings of the runs, less the seed; refusals are problems of the file."""
    accepted: list[tuple[str, TrainConfig]] = []
    refused: dict[str, list[str]] = {}  # a problem: the algorithms that have it
    for task, algo in itertools.product(file.tasks, file.algorithms):
        of_both = (file.of_algorithm.get(algo, NOTHING), file.of_task.get(task, NOTHING))
        variants = [variant for variant in file.variants if algo in variant.algorithms]
        # An algorithm that no variant names is run once, as it is.
        for variant in variants or [Variant("", [algo], NOTHING)]:
            layers = (file.settings, *of_both, variant.layer)
            config, problems = _attempt(file, task, algo, layers)
            if config is not None and not problems:
                accepted.append((variant.name, config))
            for problem in problems:
                refused.setdefault(problem, []).append(algo)
    for problem, listed in refused.items():
        algorithms = list(dict.fromkeys(listed))
        narrow = len(algorithms) < len(file.algorithms)
        file.problems.append(f"{problem} (for {', '.join(algorithms)})" if narrow else problem)
    return accepted


def _attempt(
    file: StudyFile, task: str, algo: str, layers: Sequence[Layer]
) -> tuple[TrainConfig | None, list[str]]:
    """Return the settings and all problems: what causes one is left out, the rest tried again."""
    # Runs go on side by side; more threads change nothing but the speed.
    base = {"threads": 1, "total_steps": file.total_steps, "plugin": file.plugin}
    settings = {key: (value, key) for key, value in base.items() if value is not None}
    settings |= _merged(algo, layers)
    problems: list[str] = []
    left_out: list[str] = []
    while True:
        try:
            return _build(task, algo, settings), problems
        except CspoError as error:
            fault = str(error)
        culprit = _culprit(task, algo, settings, fault)
        where = f"{algo} on {task}" if culprit is None else settings[culprit][1]
        # A problem that names a setting left out may be there for want of that setting only.
        if not any(name in fault for name in left_out):
            problems.append(f"{where}: {fault}")
        if culprit is None:
            return None, problems
        left_out.append(flag(culprit.removeprefix(OWN)))
        del settings[culprit]


def _merged(algo: str, layers: Sequence[Layer]) -> Settings:
    """Return the settings of all layers, lowest first; the algorithm's own get `OWN` in front."""
    general = {item.name for _, item in general_fields()}
    own = {item.name for item in dataclasses.fields(get_algorithm(algo).Config)} - general
    merged: Settings = {}
    for layer in layers:
        for key, value in layer.settings.items():
            if key == "algorithm" and isinstance(value, dict):
                merged |= {OWN + name: (item, layer.where) for name, item in value.items()}
            else:
                merged[OWN + key if key in own else key] = (value, layer.where)
    return merged


def _build(task: str, algo: str, settings: Settings) -> TrainConfig:
    general: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, (value, _) in settings.items():
        (own if key.startswith(OWN) else general)[key.removeprefix(OWN)] = value
    if own:
        general["algorithm"] = own
    config = make_config(task, algo, **general)
    _check_limits(config)
    return config


def _culprit(task: str, algo: str, settings: Settings, fault: str) -> str | None:
    """Return the setting without which the fault is gone; of several, that of the highest layer."""
    for key in reversed(settings):
        try:
            _build(task, algo, {name: settings[name] for name in settings if name != key})
        except CspoError as error:
            if str(error) == fault:
                continue
        return key
    return None


def _check_limits(config: TrainConfig) -> None:
    """Refuse limits that a native task has no costs for; others are asked when they are made."""
    limits, costs = len(config.cost_limit), max(1, len(config.cost_terms))
    if native_name(config.task) is not None and limits != costs:
        raise CspoError(
            f"--cost-limit gives {limits} value(s), but there are {costs} cost(s): "
            "give one limit for each of the cost_terms, or for their sum."
        )


def _check_environments(file: StudyFile, configs: Iterable[TrainConfig]) -> None:
    """Add a problem for every environment that does not exist or does not take its options."""
    for config in configs:
        if native_name(config.task) is None:
            from cspo.envs.make import factory_of

            try:
                factory_of(config.task, config.env_options)
            except CspoError as fault:
                file.problems.append(str(fault))
