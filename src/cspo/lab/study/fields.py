"""What a study file says: every problem becomes a line, and what is usable is kept."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cspo.algorithms.registry import algorithm_names
from cspo.config import use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError, nearest

RETRIES = 2
REQUIRED = ("name", "tasks", "algorithms", "seeds", "total_steps")
KEYS = (*REQUIRED, "description", "retries", "plugin", "settings", "algorithm", "task", "variants")
VARIANT_KEYS = ("name", "algorithms", "settings")
OF_THE_STUDY = ("task", "algo", "seed", "plugin")  # settings that a table of a study must not have
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Layer:
    """Settings with the place they come from."""

    where: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One column of a study: every algorithm it names is run with its settings."""

    name: str
    algorithms: list[str]
    layer: Layer


class StudyFile:
    """What a study file says, as far as it could be understood, and what is wrong with it."""

    def __init__(self, data: dict[str, Any], folder: Path) -> None:
        """Read the contents of a TOML file; `folder` is where a plugin's relative path starts."""
        self._data = data
        self.problems: list[str] = []
        self._check_keys("", data, KEYS)
        self.problems += [f"{key} is missing" for key in REQUIRED if key not in data]
        named = _matches(NAME, data.get("name"))
        self.name: str = self._value("name", "", named, "made of letters, digits and dashes")
        told = isinstance(data.get("description"), str)
        self.description: str = self._value("description", "", told, "text")
        self.tasks = self._names(data, "tasks")
        self.algorithms = self._names(data, "algorithms")
        self.seeds = self._seeds(data.get("seeds"))
        self.total_steps = self._total_steps(data.get("total_steps"))
        count, is_count = "a whole number of zero or more", _is_count(data.get("retries"))
        self.retries: int = self._value("retries", RETRIES, is_count, count)
        self.plugin = self._plugin(data.get("plugin"), folder)
        tasks, algorithms = list(self.tasks), list(self.algorithms)
        self._drop_unknown()
        self.settings = self._layer("[settings]", data.get("settings", {}))
        self.of_algorithm = self._layers("algorithm", algorithms)
        self.of_task = self._layers("task", tasks)
        self.variants = self._variants(data.get("variants", []), algorithms)

    def _check_keys(self, where: str, table: dict[str, Any], known: Sequence[str]) -> None:
        unknown = [key for key in table if key not in known]
        self.problems += [f"{where}unknown key {key!r}: {nearest(key, known)}" for key in unknown]

    def _value(self, key: str, default: Any, fits: bool, what: str) -> Any:
        """Return the value of a key that fits, else the default."""
        if key in self._data and not fits:
            self.problems.append(f"{key} = {self._data[key]!r} is not {what}")
        return self._data[key] if fits else default

    def _distinct(self, key: str, values: list[Any]) -> list[Any]:
        again = [item for i, item in enumerate(values) if item in values[:i]]
        self.problems += [f"{key}: {item!r} is named more than once" for item in again]
        return [item for i, item in enumerate(values) if item not in values[:i]]

    def _names(self, table: dict[str, Any], key: str) -> list[str]:
        """Return the distinct names in a list."""
        if (value := table.get(key)) is None:
            return []
        if not isinstance(value, list) or not value:
            self.problems.append(f"{key} is not a list of at least one name")
            return []
        wrong = [item for item in value if not isinstance(item, str) or not item]
        self.problems += [f"{key}: {item!r} is not a name" for item in wrong]
        return [item for item in self._distinct(key, value) if item not in wrong]

    def _seeds(self, value: Any) -> list[int]:
        if _is_int(value):
            if value < 1:
                self.problems.append(f"seeds = {value}: a count of seeds is at least 1")
            return list(range(value))
        if not isinstance(value, list) or not value:
            if value is not None:
                self.problems.append("seeds is neither a count nor a list of whole numbers")
            return []
        for seed in [seed for seed in value if not _is_count(seed)]:
            what = "is negative" if _is_int(seed) else "is not a whole number"
            self.problems.append(f"seeds: {seed!r} {what}")
        return list(filter(_is_count, self._distinct("seeds", value)))

    def _total_steps(self, value: Any) -> int | None:
        positive = (_is_int(value) or isinstance(value, float)) and 0 < value < math.inf
        what = "a whole number" if positive else "a positive number"
        steps = self._value("total_steps", None, positive and value == int(value), what)
        return None if steps is None else int(steps)

    def _plugin(self, value: Any, folder: Path) -> str | None:
        """Load the plugin and return where it is; None also if it could not be loaded."""
        is_name = isinstance(value, str) and value != ""
        if self._value("plugin", None, is_name, "the name of a file or a module") is None:
            return None
        is_file = value.endswith(".py") or "/" in value
        try:
            return use_plugin({"plugin": str(folder / value) if is_file else value})["plugin"]
        except CspoError as fault:
            self.problems.append(f"plugin: {fault}")
            return None

    def _drop_unknown(self) -> None:
        """Drop algorithms and tasks that do not exist, each with its line."""
        known = algorithm_names()
        unknown = [name for name in self.algorithms if name not in known]
        self.algorithms = [name for name in self.algorithms if name in known]
        if self.plugin is not None or "plugin" not in self._data:
            # Else they may be the plugin's, whose problem is told already.
            self.problems += [f"unknown algorithm {x!r}: {nearest(x, known)}" for x in unknown]
        for name in list(self.tasks):
            try:
                check_task_name(name)
            except CspoError as fault:
                self.tasks.remove(name)
                self.problems.append(str(fault))

    def _layer(self, where: str, value: Any) -> Layer:
        """Return a table of settings without those that the study itself decides."""
        if not isinstance(value, dict):
            self.problems.append(f"{where} is not a table of settings")
            return Layer(where, {})
        decided = "is decided by the study, not by a table of settings"
        self.problems += [f"{where}: {key} {decided}" for key in OF_THE_STUDY if key in value]
        return Layer(where, {key: value[key] for key in value if key not in OF_THE_STUDY})

    def _layers(self, kind: str, names: list[str]) -> dict[str, Layer]:
        """Return the tables [kind.NAME]."""
        tables = self._data.get(kind, {})
        if not isinstance(tables, dict):
            self.problems.append(f"{kind} is not a table: write [{kind}.NAME]")
            return {}
        layers = {}
        for name, table in tables.items():
            where = f"[{kind}.{name}]" if re.fullmatch(r"[\w-]+", name) else f'[{kind}."{name}"]'
            self._check_in_study(where, kind, name, names)
            layers[name] = self._layer(where, table)
        return layers

    def _check_in_study(self, where: str, kind: str, name: str, names: list[str]) -> None:
        if name not in names:
            hint = nearest(name, names) if names else "there is none."
            self.problems.append(f"{where}: the study has no {kind} {name!r}: {hint}")

    def _variants(self, items: Any, algorithms: list[str]) -> list[Variant]:
        if not isinstance(items, list):
            self.problems.append("variants is not a list: write [[variants]] above each")
            return []
        variants = []
        for position, item in enumerate(items, start=1):
            if isinstance(item, dict):
                variants.append(self._variant(f"variant {position}", item, algorithms))
            else:
                self.problems.append(f"variant {position} is not a table")
        self._distinct("variants", [one.name for one in variants if _matches(VARIANT, one.name)])
        return variants

    def _variant(self, where: str, item: dict[str, Any], algorithms: list[str]) -> Variant:
        name = item.get("name")
        if name is None:
            self.problems.append(f"{where} has no name")
        elif not _matches(VARIANT, name):
            what = "made of letters, digits, dots and dashes"
            self.problems.append(f"{where}: name = {name!r} is not {what}")
        if isinstance(name, str):
            where = f"variant {name!r}"
        self._check_keys(f"{where}: ", item, VARIANT_KEYS)
        only = self._names(item, "algorithms") if "algorithms" in item else self.algorithms
        for algo in only:
            self._check_in_study(where, "algorithm", algo, algorithms)
        return Variant(str(name), only, self._layer(where, item.get("settings", {})))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_int(value) and value >= 0


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
