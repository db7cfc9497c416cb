"""What a study file says: every problem becomes a line, and what is usable is kept."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cspo.algorithms.registry import algorithm_names
from cspo.config import use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError, nearest
from cspo.settings import check_memory

RETRIES = 2
RUN_BYTES = 4_000  # what the settings of one run take
REQUIRED = ("name", "tasks", "algorithms", "seeds", "total_steps")
KEYS = (*REQUIRED, "description", "retries", "plugin", "settings", "algorithm", "task", "variants")
VARIANT_KEYS = ("name", "algorithms", "settings")
OF_THE_STUDY = ("task", "algo", "seed", "plugin")  # settings that a table of a study must not have
NAME, VARIANT = r"[A-Za-z0-9][A-Za-z0-9-]*", r"[A-Za-z0-9][A-Za-z0-9._-]*"
# Whether it is known to be the algorithm's own, and its name: its value, and where that is from.
Settings = dict[tuple[bool, str], tuple[Any, str]]


@dataclass(frozen=True)
class Variant:
    """One column of a study: every algorithm it names is run with its settings."""

    name: str
    algorithms: list[str]
    settings: Settings


class StudyCell(NamedTuple):
    """The runs of a study that differ in their seed only, and the settings they are given."""

    task: str
    algo: str
    variant: str  # "" for an algorithm without variants
    layers: tuple[Settings, ...]  # a later one goes before an earlier one


class StudyFile:
    """What a study file says, as far as it could be understood, and what is wrong with it."""

    def __init__(self, data: dict[str, Any], folder: Path | None = None) -> None:
        """Read the contents of a TOML file.

        Args:
            data: The contents.
            folder: Where a plugin's relative path starts. Without it the file is read as data:
                the plugin is not loaded, and no task or algorithm has to exist here.
        """
        self._data = data
        self.problems: list[str] = []
        self._check_keys("", data, KEYS)
        self.problems += [f"{key} is missing" for key in REQUIRED if key not in data]
        named = _matches(NAME, data.get("name"))
        self.name: str = self._value("name", "", named, "made of letters, digits and dashes")
        told = isinstance(data.get("description"), str)
        self.description: str = self._value("description", "", told, "text")
        # As the file names them, for the tables about them; below, those that exist.
        self._named = {kind: self._names(data, f"{kind}s") for kind in ("task", "algorithm")}
        self.seeds = self._seeds(data.get("seeds"))
        self.total_steps = self._total_steps(data.get("total_steps"))
        count, is_count = "a whole number of zero or more", not _wrong_seed(data.get("retries"))
        self.retries: int = self._value("retries", RETRIES, is_count, count)
        self.plugin = None if folder is None else self._plugin(folder)
        self.tasks, self.algorithms = self._named["task"], self._named["algorithm"]
        if folder is not None:
            self.algorithms, self.tasks = self._known_algorithms(), self._known_tasks()
        self.settings = self._settings("[settings]", data.get("settings", {}))
        self.of_algorithm, self.of_task = self._tables("algorithm"), self._tables("task")
        self.variants = self._variants(data.get("variants", []))
        with self.collects():
            runs = len(self.seeds) * sum(1 for _ in self.cells())
            check_memory(f"A study of {runs} runs", {"seeds": runs * RUN_BYTES})

    def cells(self) -> Iterator[StudyCell]:
        """Yield every task with every algorithm and each of its variants."""
        # Runs go on side by side; more threads change nothing but the speed.
        base = {"threads": 1, "total_steps": self.total_steps, "plugin": self.plugin}
        lowest = {(False, key): (value, key) for key, value in base.items() if value is not None}
        for task, algo in itertools.product(self.tasks, self.algorithms):
            of_both = (self.of_algorithm.get(algo, {}), self.of_task.get(task, {}))
            variants = [variant for variant in self.variants if algo in variant.algorithms]
            # An algorithm that no variant names is run once, as it is.
            for variant in variants or [Variant("", [algo], {})]:
                layers = (lowest, self.settings, *of_both, variant.settings)
                yield StudyCell(task, algo, variant.name, layers)

    @contextlib.contextmanager
    def collects(self, prefix: str = "") -> Iterator[None]:
        """Count what is refused as a problem, and go on."""
        try:
            yield
        except CspoError as fault:
            self.problems.append(f"{prefix}{fault}")

    def _check_keys(self, where: str, table: dict[str, Any], known: Sequence[str]) -> None:
        unknown = [key for key in table if key not in known]
        self.problems += [f"{where}unknown key {key!r}: {nearest(key, known)}" for key in unknown]

    def _value(self, key: str, default: Any, fits: bool, what: str) -> Any:
        """Return the value of a key that fits, else the default."""
        if key in self._data and not fits:
            self.problems.append(f"{key} = {self._data[key]!r} is not {what}")
        return self._data[key] if fits else default

    def _items(self, key: str, value: Any, wrong: Callable[[Any], str], lacking: str) -> list[Any]:
        """Return the distinct items of a list with which nothing is wrong."""
        if not isinstance(value, list) or not value:
            self.problems += [] if value is None else [f"{key} is {lacking}"]
            return []
        kept = []
        for i, item in enumerate(value):
            again = "is named more than once" if item in value[:i] else ""
            faults = [fault for fault in (wrong(item), again) if fault]
            self.problems += [f"{key}: {item!r} {fault}" for fault in faults]
            kept += [] if faults else [item]
        return kept

    def _names(self, table: dict[str, Any], key: str) -> list[str]:
        return self._items(key, table.get(key), _wrong_name, "not a list of at least one name")

    def _seeds(self, value: Any) -> list[int]:
        if type(value) is not int:
            lacking = "neither a count nor a list of whole numbers"
            return self._items("seeds", value, _wrong_seed, lacking)
        if value < 1:
            self.problems.append(f"seeds = {value}: a count of seeds is at least 1")
        with self.collects():  # before they are listed
            check_memory(f"A study of {value} seeds", {"seeds": value * RUN_BYTES})
            return list(range(value))
        return []

    def _total_steps(self, value: Any) -> float | None:
        positive = type(value) in (int, float) and 0 < value < math.inf
        what = "a whole number" if positive else "a positive number"
        steps: float | None = self._value("total_steps", None, positive and value % 1 == 0, what)
        return steps

    def _plugin(self, folder: Path) -> str | None:
        """Load the plugin and return where it is; None also if it could not be loaded."""
        filled = not _wrong_name(self._data.get("plugin"))
        name = self._value("plugin", None, filled, "the name of a file or a module")
        if name is not None and (name.endswith(".py") or "/" in name):
            name = str(folder / name)
        with self.collects("plugin: "):
            return use_plugin({"plugin": name}).get("plugin")
        return None

    def _known_algorithms(self) -> list[str]:
        named, known = self._named["algorithm"], algorithm_names()
        if self.plugin is not None or "plugin" not in self._data:
            # Else they may be the plugin's, whose problem is told already.
            unknown = [name for name in named if name not in known]
            self.problems += [f"unknown algorithm {x!r}: {nearest(x, known)}" for x in unknown]
        return [name for name in named if name in known]

    def _known_tasks(self) -> list[str]:
        known = []
        for name in self._named["task"]:
            with self.collects():
                check_task_name(name)
                known.append(name)
        return known

    def _settings(self, where: str, table: Any) -> Settings:
        """Return a table of settings without those that the study itself decides."""
        if not isinstance(table, dict):
            self.problems.append(f"{where} is not a table of settings")
            return {}
        settings: Settings = {}
        for key, value in table.items():
            if key in OF_THE_STUDY:
                decided = "is decided by the study, not by a table of settings"
                self.problems.append(f"{where}: {key} {decided}")
            elif key == "algorithm" and isinstance(value, dict):
                settings |= {(True, name): (own, where) for name, own in value.items()}
            else:
                settings[False, key] = (value, where)
        return settings

    def _tables(self, kind: str) -> dict[str, Settings]:
        """Return the tables [kind.NAME]."""
        tables = self._data.get(kind, {})
        if not isinstance(tables, dict):
            self.problems.append(f"{kind} is not a table: write [{kind}.NAME]")
            return {}
        settings = {}
        for name, table in tables.items():
            where = f"[{kind}.{name}]" if re.fullmatch(r"[\w-]+", name) else f'[{kind}."{name}"]'
            self._check_in_study(where, kind, name)
            settings[name] = self._settings(where, table)
        return settings

    def _check_in_study(self, where: str, kind: str, name: str) -> None:
        if name not in (names := self._named[kind]):
            hint = nearest(name, names) if names else "there is none."
            self.problems.append(f"{where}: the study has no {kind} {name!r}: {hint}")

    def _variants(self, items: Any) -> list[Variant]:
        if not isinstance(items, list):
            self.problems.append("variants is not a list: write [[variants]] above each")
            return []
        variants = []
        for position, item in enumerate(items, start=1):
            if isinstance(item, dict):
                variants.append(self._variant(f"variant {position}", item))
            else:
                self.problems.append(f"variant {position} is not a table")
        named = [variant.name for variant in variants if _matches(VARIANT, variant.name)]
        self._items("variants", named or None, lambda name: "", "")
        return variants

    def _variant(self, where: str, item: dict[str, Any]) -> Variant:
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
            self._check_in_study(where, "algorithm", algo)
        return Variant(str(name), only, self._settings(where, item.get("settings", {})))


def _matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _wrong_name(value: Any) -> str:
    return "" if isinstance(value, str) and value else "is not a name"


def _wrong_seed(value: Any) -> str:
    if type(value) is not int:
        return "is not a whole number"
    return "is negative" if value < 0 else ""
