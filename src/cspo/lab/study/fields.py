"""The fields of a study file, one by one: every problem becomes a line, and what is usable is kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cspo.algorithms.registry import algorithm_names
from cspo.config import use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError, nearest

RETRIES = 2
KNOWN = ("name", "description", "tasks", "algorithms", "seeds", "total_steps", "retries", "plugin")
TABLES = ("settings", "algorithm", "task", "variants")
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
    algorithms: tuple[str, ...]
    layer: Layer


@dataclass
class Fields:
    """What a study file says, as far as it could be understood, and what is wrong with it."""

    name: str = ""
    description: str = ""
    tasks: list[str] = field(default_factory=list)
    algorithms: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    total_steps: Any = None
    retries: int = RETRIES
    plugin: str | None = None
    settings: Layer = field(default_factory=lambda: Layer("[settings]", {}))
    of_algorithm: dict[str, Layer] = field(default_factory=dict)
    of_task: dict[str, Layer] = field(default_factory=dict)
    variants: list[Variant] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_fields(data: dict[str, Any], folder: Path) -> Fields:
    """Return the fields of a study file; `folder` is where a plugin's relative path starts."""
    fields = Fields()
    say = fields.problems.append
    for key in data:
        if key not in (*KNOWN, *TABLES):
            say(f"unknown key {key!r}: {nearest(key, (*KNOWN, *TABLES))}")
    for key in ("name", "tasks", "algorithms", "seeds", "total_steps"):
        if key not in data:
            say(f"{key} is missing")
    _read_texts(fields, data)
    fields.tasks = _names(fields, data, "tasks")
    fields.algorithms = _names(fields, data, "algorithms")
    fields.seeds = _seeds(fields, data.get("seeds"))
    fields.total_steps = _total_steps(fields, data.get("total_steps"))
    retries = data.get("retries", RETRIES)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        say(f"retries = {retries!r} is not a whole number of zero or more")
    else:
        fields.retries = retries
    plugin_failed = _read_plugin(fields, data.get("plugin"), folder)
    _keep_known(fields, plugin_failed)
    fields.settings = Layer("[settings]", _table(fields, data.get("settings", {}), "[settings]"))
    listed = {
        key: [name for name in _listed(data.get(key)) if isinstance(name, str)]
        for key in ("algorithms", "tasks")
    }
    fields.of_algorithm = _tables(
        fields, data.get("algorithm", {}), "algorithm", listed["algorithms"]
    )
    fields.of_task = _tables(fields, data.get("task", {}), "task", listed["tasks"])
    _read_variants(fields, data.get("variants", []), listed["algorithms"])
    return fields


def _read_texts(fields: Fields, data: dict[str, Any]) -> None:
    name, description = data.get("name", ""), data.get("description", "")
    if "name" in data and not (isinstance(name, str) and NAME.fullmatch(name)):
        fields.problems.append(f"name = {name!r} is not made of letters, digits and dashes")
    else:
        fields.name = name
    if isinstance(description, str):
        fields.description = description
    else:
        fields.problems.append(f"description = {description!r} is not text")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(fields: Fields, data: dict[str, Any], key: str) -> list[str]:
    """Return the distinct names in a list."""
    if key not in data:
        return []
    value = data[key]
    if not isinstance(value, list) or not value:
        fields.problems.append(f"{key} is not a list of at least one name")
        return []
    found: list[str] = []
    for item in value:
        if not isinstance(item, str) or not item:
            fields.problems.append(f"{key}: {item!r} is not a name")
        elif item not in found:
            found.append(item)
    fields.problems += _repeated(value, key)
    return found


def _repeated(values: Iterable[Any], key: str) -> list[str]:
    listed = list(values)
    again = [item for i, item in enumerate(listed) if item in listed[:i]]
    return [
        f"{key}: {item!r} is named more than once"
        for i, item in enumerate(again)
        if item not in again[:i]
    ]


def _seeds(fields: Fields, value: Any) -> list[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            fields.problems.append(f"seeds = {value}: a count of seeds is at least 1")
            return []
        return list(range(value))
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        fields.problems.append("seeds is neither a count nor a list of whole numbers")
        return []
    for seed in value:
        if isinstance(seed, bool) or not isinstance(seed, int):
            fields.problems.append(f"seeds: {seed!r} is not a whole number")
        elif seed < 0:
            fields.problems.append(f"seeds: {seed} is negative")
    fields.problems += _repeated(value, "seeds")
    return [
        seed
        for i, seed in enumerate(value)
        if type(seed) is int and seed >= 0 and seed not in value[:i]
    ]


def _total_steps(fields: Fields, value: Any) -> Any:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value < float("inf")
    ):
        fields.problems.append(f"total_steps = {value!r} is not a positive number")
        return None
    if value != int(value):
        fields.problems.append(f"total_steps = {value!r} is not a whole number")
        return None
    return int(value)


def _read_plugin(fields: Fields, value: Any, folder: Path) -> bool:
    """Load the plugin; returns whether it could not be loaded."""
    if value is None:
        return False
    if not isinstance(value, str) or not value:
        fields.problems.append(f"plugin = {value!r} is not the name of a file or a module")
        return True
    is_file = value.endswith(".py") or "/" in value
    try:
        fields.plugin = use_plugin({"plugin": str(folder / value) if is_file else value})["plugin"]
    except CspoError as fault:
        fields.problems.append(f"plugin: {fault}")
        return True
    return False


def _keep_known(fields: Fields, plugin_failed: bool) -> None:
    """Drop algorithms and tasks that do not exist, each with its line."""
    known = algorithm_names()
    for name in [name for name in fields.algorithms if name not in known]:
        fields.algorithms.remove(name)
        if not plugin_failed:  # else it may be the plugin's, and its problem is told already
            fields.problems.append(f"unknown algorithm {name!r}: {nearest(name, known)}")
    for name in list(fields.tasks):
        try:
            check_task_name(name)
        except CspoError as fault:
            fields.tasks.remove(name)
            fields.problems.append(str(fault))


def _table(fields: Fields, value: Any, where: str) -> dict[str, Any]:
    """Return a table of settings without those that the study itself decides."""
    if not isinstance(value, dict):
        fields.problems.append(f"{where} is not a table of settings")
        return {}
    for key in OF_THE_STUDY:
        if key in value:
            fields.problems.append(
                f"{where}: {key} is decided by the study, not by a table of settings"
            )
    return {key: item for key, item in value.items() if key not in OF_THE_STUDY}


def _tables(fields: Fields, value: Any, kind: str, names: list[str]) -> dict[str, Layer]:
    if not isinstance(value, dict):
        fields.problems.append(f"{kind} is not a table: write [{kind}.NAME]")
        return {}
    found = {}
    for name, table in value.items():
        where = f"[{kind}.{name}]" if re.fullmatch(r"[\w-]+", name) else f'[{kind}."{name}"]'
        if name not in names:
            hint = nearest(name, names) if names else "there is none."
            fields.problems.append(f"{where}: the study has no {kind} {name!r}: {hint}")
        found[name] = Layer(where, _table(fields, table, where))
    return found


def _read_variants(fields: Fields, value: Any, algorithms: list[str]) -> None:
    if not isinstance(value, list):
        fields.problems.append("variants is not a list: write [[variants]] above each")
        return
    names = []
    for number, item in enumerate(value, start=1):
        if not isinstance(item, dict):
            fields.problems.append(f"variant {number} is not a table")
            continue
        name = item.get("name")
        where = f"variant {name!r}" if isinstance(name, str) else f"variant {number}"
        if name is None:
            fields.problems.append(f"variant {number} has no name")
        elif not (isinstance(name, str) and VARIANT.fullmatch(name)):
            fields.problems.append(
                f"variant {number}: name = {name!r} is not made of letters, digits, dots and dashes"
            )
        else:
            names.append(name)
        for key in item:
            if key not in ("name", "algorithms", "settings"):
                fields.problems.append(
                    f"{where}: unknown key {key!r}: {nearest(key, ('name', 'algorithms', 'settings'))}"
                )
        only = (
            _names(fields, item, "algorithms") if "algorithms" in item else list(fields.algorithms)
        )
        for algo in [algo for algo in only if algo not in algorithms]:
            only.remove(algo)
            hint = nearest(algo, algorithms) if algorithms else "there is none."
            fields.problems.append(f"{where}: the study has no algorithm {algo!r}: {hint}")
        layer = Layer(where, _table(fields, item.get("settings", {}), where))
        fields.variants.append(Variant(str(name), tuple(only), layer))
    fields.problems += _repeated(names, "variants")


def plain_names(settings: type) -> set[str]:
    """Return the names of the settings in a dataclass."""
    return {item.name for item in dataclasses.fields(settings)}
