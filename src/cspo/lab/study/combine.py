"""The settings of each combination of a study; what is refused is traced to its cause."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cspo.algorithms.registry import get_algorithm
from cspo.config import TrainConfig, make_config
from cspo.envs.tasks import native_name
from cspo.errors import CspoError, flag
from cspo.lab.study.fields import Layer, StudyFile

OWN = "algorithm."  # in front of a setting that is the algorithm's own
Settings = dict[str, tuple[Any, str]]  # name: value and the place it comes from


@dataclass(frozen=True)
class Combination:
    """What the runs of a study that differ by their seed have in common."""

    task: str
    algo: str
    variant: str  # "" if there is none
    layers: tuple[Layer, ...]  # lowest first


def combinations_of(file: StudyFile) -> Iterator[Combination]:
    """Yield every combination in the order in which they are run."""
    for task in file.tasks:
        for algo in file.algorithms:
            named = [file.of_algorithm.get(algo), file.of_task.get(task)]
            layers = (file.settings, *(layer for layer in named if layer is not None))
            variants = [variant for variant in file.variants if algo in variant.algorithms]
            for variant in variants:
                yield Combination(task, algo, variant.name, (*layers, variant.layer))
            if not variants:  # an algorithm that no variant names is run once, as it is
                yield Combination(task, algo, "", layers)


def combine(file: StudyFile) -> list[tuple[Combination, TrainConfig]]:
    """Return every combination with its settings; refused ones are problems of the file instead."""
    accepted: list[tuple[Combination, TrainConfig]] = []
    refused: dict[str, list[str]] = {}  # a problem: the algorithms that have it
    for combination in combinations_of(file):
        config, problems = _attempt(file, combination)
        if config is not None:
            accepted.append((combination, config))
        for problem in problems:
            refused.setdefault(problem, []).append(combination.algo)
    for problem, listed in refused.items():
        algorithms = list(dict.fromkeys(listed))
        narrow = len(algorithms) < len(file.algorithms)
        file.problems.append(f"{problem} (for {', '.join(algorithms)})" if narrow else problem)
    return accepted


def _attempt(file: StudyFile, combination: Combination) -> tuple[TrainConfig | None, list[str]]:
    """Return the settings, or all problems: what causes one is left out, the rest tried again."""
    # Runs go on side by side; more threads change nothing but the speed.
    base = {"threads": 1, "total_steps": file.total_steps, "plugin": file.plugin}
    settings = {key: (value, key) for key, value in base.items() if value is not None}
    settings |= _merged(combination)
    problems: list[str] = []
    left_out: list[str] = []
    while True:
        try:
            config = _build(combination, settings)
            return (None if problems else config), problems
        except CspoError as error:
            fault = str(error)
        culprit = _culprit(combination, settings, fault)
        where = f"{combination.algo} on {combination.task}"
        if culprit is not None:
            where = settings[culprit][1]
        # A problem that names a setting left out may be there for want of that setting only.
        if not any(name in fault for name in left_out):
            problems.append(f"{where}: {fault}")
        if culprit is None:
            return None, problems
        left_out.append(flag(culprit.removeprefix(OWN)))
        del settings[culprit]


def _merged(combination: Combination) -> Settings:
    """Return the settings of all layers in one table; the algorithm's own have `OWN` in front."""
    own = _names_in(get_algorithm(combination.algo).Config) - _names_in(TrainConfig)
    merged: Settings = {}
    for layer in combination.layers:
        for key, value in layer.settings.items():
            if key == "algorithm" and isinstance(value, dict):
                merged |= {OWN + name: (item, layer.where) for name, item in value.items()}
            else:
                merged[OWN + key if key in own else key] = (value, layer.where)
    return merged


def _names_in(settings: type) -> set[str]:
    return {item.name for item in dataclasses.fields(settings)}


def _build(combination: Combination, settings: Settings) -> TrainConfig:
    general: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, (value, _) in settings.items():
        (own if key.startswith(OWN) else general)[key.removeprefix(OWN)] = value
    if own:
        general["algorithm"] = own
    config = make_config(combination.task, combination.algo, **general)
    _check_limits(config)
    return config


def _culprit(combination: Combination, settings: Settings, fault: str) -> str | None:
    """Return the setting without which the fault is gone; of several, that of the highest layer."""
    for key in reversed(settings):
        try:
            _build(combination, {name: settings[name] for name in settings if name != key})
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


def check_environments(file: StudyFile, configs: Sequence[TrainConfig]) -> None:
    """Add a problem for every environment that does not exist or does not take its options."""
    asked = {
        (config.task, repr(config.env_options)): config
        for config in configs
        if native_name(config.task) is None
    }
    if not asked:
        return
    from cspo.envs.make import factory_of

    for config in asked.values():
        try:
            factory_of(config.task, config.env_options)
        except CspoError as fault:
            file.problems.append(str(fault))
