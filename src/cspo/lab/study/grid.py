"""The runs of a study file; all that is wrong with it is said before anything starts.

A setting that is refused is traced to the key that caused it, through all layers of the file.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from cspo.algorithms.registry import get_algorithm
from cspo.config import TrainConfig, general_fields, make_config, with_settings
from cspo.envs.tasks import native_name
from cspo.errors import CspoError, flag, nearest
from cspo.experience.limits import limits_at
from cspo.lab.study.fields import Settings, StudyFile
from cspo.lab.study.plan import Plan, PlannedRun, StudyProblems, run_id
from cspo.lab.study.plugin_path import with_plugin
from cspo.runs.files import read_bytes
from cspo.runs.plain import parse_toml
from cspo.setup import check_training_memory

SHIPPED = resources.files("cspo.lab.study") / "files"


@dataclass(frozen=True)
class RunSpec(PlannedRun):
    """One run of a study that this version can train."""

    config: TrainConfig


@dataclass(frozen=True)
class Study(Plan):
    """A grid of runs to train."""

    runs: tuple[RunSpec, ...]
    retries: int  # how often a failed run is tried again, per start of the study

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


def shipped_studies() -> list[str]:
    """Return the names of the studies that come with this package."""
    files = [Path(file.name) for file in SHIPPED.iterdir()]
    return sorted(file.stem for file in files if file.suffix == ".toml")


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
        data = parse_toml(text)
    except ValueError as error:
        raise StudyProblems(source, [f"this is not valid TOML: {error}"]) from error
    file = StudyFile(data, folder)
    combined = _combine(file)
    for _, config in combined if environments else ():
        if native_name(config.task) is None:
            from cspo.envs.make import factory_of

            with file.collects():
                factory_of(config.task, config.env_options)
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
        text = with_plugin(text, file.plugin)
    return Study(file.name, file.description, text, tuple(runs), file.retries)


def _text_of(source: Path | str) -> tuple[str, Path]:
    """Return the text of a study, and the folder in which its relative paths start."""
    path, name = Path(source), str(source)
    if not name.endswith(".toml") and os.sep not in name and not path.is_file():
        if name not in (shipped := shipped_studies()):
            hint = nearest(name, shipped)
            raise CspoError(f"There is no shipped study {name!r} and no such file: {hint}")
        return (SHIPPED / f"{name}.toml").read_text(encoding="utf-8"), Path()
    try:
        return read_bytes(path).decode("utf-8-sig"), path.resolve().parent
    except OSError as error:
        raise CspoError(f"Cannot read study file {path}: {error.strerror}.") from error


def _run(variant: str, config: TrainConfig, seed: int) -> RunSpec:
    name, run = run_id(config.task, config.algo, variant, seed), config.run
    return RunSpec(
        id=name,
        task=config.task,
        algo=config.algo,
        variant=variant,
        seed=seed,
        epochs=run.epochs,
        steps=run.epochs * run.steps_per_epoch,
        cost_limit=limits_at(config.cost_limit, 0),
        config=with_settings(config, seed=seed),
    )


def _combine(file: StudyFile) -> list[tuple[str, TrainConfig]]:
    """Return variant and settings of the runs, less the seed; refusals are problems of the file."""
    accepted: list[tuple[str, TrainConfig]] = []
    refused: dict[str, list[str]] = {}  # a problem: the algorithms that have it
    general = {item.name for _, item in general_fields()}
    for task, algo, variant, layers in file.cells():
        own = {item.name for item in dataclasses.fields(get_algorithm(algo).Config)} - general
        items = [item for layer in layers for item in layer.items()]
        settings = {(known or key in own, key): value for (known, key), value in items}
        result = _attempt(task, algo, settings)
        if isinstance(result, TrainConfig):
            accepted.append((variant, result))
            continue
        for problem in result:
            refused.setdefault(problem, []).append(algo)
    for problem, listed in refused.items():
        algorithms = list(dict.fromkeys(listed))
        narrow = len(algorithms) < len(file.algorithms)
        file.problems.append(f"{problem} (for {', '.join(algorithms)})" if narrow else problem)
    return accepted


def _attempt(task: str, algo: str, settings: Settings) -> TrainConfig | list[str]:
    """Return the config, or all problems: what causes one is left out, the rest tried again."""
    problems: list[str] = []
    left_out: list[str] = []
    while isinstance(result := _build(task, algo, settings), str):
        # The setting without which the fault is gone; of several, that of the highest layer.
        fewer = {key: {k: settings[k] for k in settings if k != key} for key in reversed(settings)}
        gone = (key for key in fewer if _build(task, algo, fewer[key]) != result)
        culprit = next(gone, None)
        where = f"{algo} on {task}" if culprit is None else settings[culprit][1]
        # A problem that names a setting left out may be there for want of that setting only.
        if not any(name in result for name in left_out):
            problems.append(f"{where}: {result}")
        if culprit is None:
            return problems
        left_out.append(flag(culprit[1]))
        settings = fewer[culprit]
    return problems or result


def _build(task: str, algo: str, settings: Settings) -> TrainConfig | str:
    """Return the config, or why it is refused."""
    own = {key: value for (is_own, key), (value, _) in settings.items() if is_own}
    general = {key: value for (is_own, key), (value, _) in settings.items() if not is_own}
    try:
        config = make_config(task, algo, **({"algorithm": own} | general))
        check_training_memory(config)
    except CspoError as error:
        return str(error)
    limits, costs = len(config.cost_limit), max(1, len(config.cost_terms))
    if native_name(task) is None or limits == costs:  # others are asked when they are made
        return config
    return (
        f"--cost-limit gives {limits} value(s), but there are {costs} cost(s): "
        "give one limit for each of the cost_terms, or for their sum."
    )
