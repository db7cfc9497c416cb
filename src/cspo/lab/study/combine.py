"""The settings of one combination of a study, from its layers; what is refused is traced to the key that caused it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cspo.algorithms.registry import get_algorithm
from cspo.config import TrainConfig, make_config
from cspo.envs.tasks import native_name
from cspo.errors import CspoError, flag
from cspo.lab.study.fields import Fields, Layer, plain_names

OWN = "algorithm."  # in front of a setting that is the algorithm's own
Settings = dict[str, tuple[Any, str]]  # name: value and the place it comes from


@dataclass(frozen=True)
class Combination:
    """What the runs of a study that differ by their seed have in common."""

    task: str
    algo: str
    variant: str
    layers: tuple[Layer, ...]  # lowest first


def combine(fields: Fields, combinations: Sequence[Combination]) -> list[TrainConfig | None]:
    """Return the settings of every combination, or None for one that is refused; problems are added to `fields`."""
    configs: list[TrainConfig | None] = []
    told: dict[str, list[str]] = {}  # a problem: the algorithms that have it
    for combination in combinations:
        config, problems = _attempt(fields, combination)
        configs.append(config)
        for problem in problems:
            algorithms = told.setdefault(problem, [])
            if combination.algo not in algorithms:
                algorithms.append(combination.algo)
    for problem, algorithms in told.items():
        narrow = len(algorithms) < len(fields.algorithms)
        fields.problems.append(f"{problem} (for {', '.join(algorithms)})" if narrow else problem)
    return configs


def _attempt(fields: Fields, combination: Combination) -> tuple[TrainConfig | None, list[str]]:
    """Return the settings, or all problems: whatever causes one is left out, and the rest is tried again."""
    base: Settings = {
        "threads": (1, "threads")
    }  # runs side by side; more threads change nothing but the speed
    if fields.total_steps is not None:
        base["total_steps"] = (fields.total_steps, "total_steps")
    if fields.plugin is not None:
        base["plugin"] = (fields.plugin, "plugin")
    settings = base | _merged(combination)
    problems: list[str] = []
    left_out: list[str] = []
    while True:
        try:
            config = _build(combination, settings)
            return (None if problems else config), problems
        except CspoError as fault:
            culprit = _culprit(combination, settings, str(fault))
            where = (
                f"{combination.algo} on {combination.task}"
                if culprit is None
                else settings[culprit][1]
            )
            if not any(
                name in str(fault) for name in left_out
            ):  # else it may be there for want of that setting only
                problems.append(f"{where}: {fault}")
            if culprit is None:
                return None, problems
            left_out.append(flag(culprit.removeprefix(OWN)))
            del settings[culprit]


def _merged(combination: Combination) -> Settings:
    """Return the settings of all layers in one table; the algorithm's own have `OWN` in front."""
    own = plain_names(get_algorithm(combination.algo).Config) - plain_names(TrainConfig)
    merged: Settings = {}
    for layer in combination.layers:
        for key, value in layer.settings.items():
            if key == "algorithm" and isinstance(value, dict):
                merged |= {OWN + name: (item, layer.where) for name, item in value.items()}
            else:
                merged[OWN + key if key in own else key] = (value, layer.where)
    return merged


def _build(combination: Combination, settings: Settings) -> TrainConfig:
    general = {key: value for key, (value, _) in settings.items() if not key.startswith(OWN)}
    own = {
        key.removeprefix(OWN): value for key, (value, _) in settings.items() if key.startswith(OWN)
    }
    if own:
        general["algorithm"] = own
    config = make_config(combination.task, combination.algo, **general)
    _check_limits(config)
    return config


def _culprit(combination: Combination, settings: Settings, message: str) -> str | None:
    """Return the setting without which this problem is gone; of several, the one of the highest layer."""
    for key in reversed(settings):
        rest = {name: value for name, value in settings.items() if name != key}
        try:
            _build(combination, rest)
        except CspoError as fault:
            if str(fault) == message:
                continue
        return key
    return None


def _check_limits(config: TrainConfig) -> None:
    """Refuse a number of limits that a native task has not; other environments are asked when they are made."""
    costs = max(1, len(config.cost_terms))
    if native_name(config.task) is not None and len(config.cost_limit) != costs:
        raise CspoError(
            f"--cost-limit gives {len(config.cost_limit)} value(s), but there are {costs} cost(s): give one limit for "
            "each of the cost_terms, or for their sum."
        )


def check_environment(fields: Fields, configs: Sequence[TrainConfig]) -> None:
    """Add a problem for every environment that does not exist or does not take its options."""
    asked: list[tuple[str, Any]] = []
    for config in configs:
        if native_name(config.task) is None and (config.task, config.env_options) not in asked:
            asked.append((config.task, config.env_options))
    if not asked:
        return
    from cspo.envs.make import factory_of

    for task, options in asked:
        try:
            factory_of(task, options)
        except CspoError as fault:
            fields.problems.append(str(fault))
