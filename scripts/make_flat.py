"""Write src/cspo/flat.py from the settings: their flat names, for type checkers and for reading.

python scripts/make_flat.py
"""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from cspo.algorithms.registry import algorithm_names, get_algorithm, is_built_in
from cspo.config import FREE, GROUPS, TrainConfig, general_fields
from cspo.experience.limits import Schedule
from cspo.runs.folder import CHANGEABLE
from cspo.settings import explanations
from cspo.types import Discount

MODULE = Path(__file__).parents[1] / "src" / "cspo" / "flat.py"
NAMED = ("task", "algo")  # arguments of their own, wherever settings are keywords
# Arguments of `cspo.probe` of their own, and the limit, which it is there to find.
OF_THE_PROBE = ("total_steps", "steps_per_epoch", "num_envs", "cost_limit")
OF_TRAIN = ("init_from",)  # an argument of `cspo.train` of its own, which takes objects, too

HEADER = '''\
"""Every setting by its flat name: as a keyword of a call, and as an attribute of `TrainConfig`.

Type checkers read it: a keyword that is no setting, or whose value is of a wrong type, is an error
before anything runs. Written by scripts/make_flat.py; declare a setting where it belongs, and run
that again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any, ClassVar, Literal, Protocol, TypedDict, runtime_checkable

{imports}


@runtime_checkable
class AlgorithmConfig(Protocol):
    """The settings of an algorithm: an instance of its `Config`, a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


'''


def accepted(hint: Any) -> str:
    """Return the type of what may be given for a setting: more than the type that it has then."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is int:
        return "int | float"  # 1e6
    if origin is tuple:
        return f"{accepted(arguments[0])} | Sequence[{accepted(arguments[0])}]"
    if origin is dict:
        return "Mapping[str, object]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(accepted(one) for one in arguments))
    return kept(hint)


def kept(hint: Any) -> str:
    """Return the type of a setting as it would be written."""
    if hint is type(None):
        return "None"
    if typing.get_origin(hint) is Literal:
        return "Literal[" + ", ".join(f'"{one}"' for one in typing.get_args(hint)) + "]"
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("typing.", "")
    )


def sentence(text: str, indent: int) -> str:
    """Return a docstring of a text, wrapped."""
    ending = '\\"""' if text.endswith("\\") else '"""'
    space = " " * indent
    wrapped = textwrap.wrap(f'"""{text}{ending}', 100 - indent, break_on_hyphens=False)
    return "\n".join(space + line for line in wrapped)


def keyword(item: dataclasses.Field[Any], hint: Any) -> str:
    """Return the type of what may be given for a setting; one with a reader is also text."""
    if item.metadata.get("read") is None:
        return accepted(hint)
    if typing.get_origin(hint) is not tuple:
        return accepted(hint | str)
    one = f"{accepted(typing.get_args(hint)[0])} | str"
    return f"{one} | Sequence[{one}]"


def general() -> Iterator[tuple[str | None, str, Any, str]]:
    """Yield group, name, type and explanation of every setting that all algorithms have."""
    kinds: dict[str | None, Any] = {None: TrainConfig, **GROUPS}
    hints = {group: typing.get_type_hints(kind) for group, kind in kinds.items()}
    texts = {group: explanations(kind) for group, kind in kinds.items()}
    for group, item in general_fields():
        yield group, item.name, hints[group][item.name], texts[group][item.name]


def of_algorithms() -> Iterator[tuple[str, str, str]]:
    """Yield name, type and explanation of every setting of some built-in algorithm."""
    kinds: dict[str, dict[str, None]] = {}
    texts, users = {}, {}
    for algorithm in algorithm_names():
        if not is_built_in(get_algorithm(algorithm)):
            continue
        config = get_algorithm(algorithm).Config
        hints, explained = typing.get_type_hints(config), explanations(config)
        for item in dataclasses.fields(config):
            kinds.setdefault(item.name, {})[accepted(hints[item.name])] = None
            texts.setdefault(item.name, explained[item.name])
            users.setdefault(item.name, []).append(algorithm)
    for name in sorted(kinds):
        yield name, " | ".join(kinds[name]), f"{texts[name]} (Of {', '.join(users[name])}.)"


def keywords(name: str, base: str, about: str, entries: list[tuple[str, str, str]]) -> str:
    """Return the class of some keywords."""
    lines = [f"class {name}({base}, total=False):", sentence(about, 4), ""]
    for key, kind, text in entries:
        lines += [f"    {key}: {kind}", sentence(text, 4)]
    return "\n".join(lines) + "\n\n\n"


def reading() -> str:
    """Return the class that reads the settings of all groups."""
    about = "Reads the settings of the groups by their flat names: `config.gamma`."
    lines = ["class FlatSettings:", sentence(about, 4), ""]
    lines += [f"    {group}: {kind.__name__}" for group, kind in GROUPS.items()]
    for group, name, hint, text in general():
        if group is not None:
            lines += _property(group, name, kept(hint), text)
    for group, kind in GROUPS.items():
        for name, value in vars(kind).items():
            if isinstance(value, property):
                hint = inspect.signature(value.fget).return_annotation  # as it is written there
                lines += _property(group, name, hint, inspect.getdoc(value) or "")
    return "\n".join(lines) + "\n"


def _property(group: str, name: str, hint: str, text: str) -> list[str]:
    head = ["", "    @property", f"    def {name}(self) -> {hint}:"]
    return [*head, sentence(text, 8), f"        return self.{group}.{name}"]


def module() -> str:
    """Return the text of the module."""
    items = {item.name: item for _, item in general_fields()}
    entries = [
        (name, keyword(items[name], hint), text)
        for _, name, hint, text in general()
        if name not in NAMED
    ]
    known = {name for name, _, _ in entries} | set(NAMED)
    own = [entry for entry in of_algorithms() if entry[0] not in known]
    table = "Mapping[str, object] | AlgorithmConfig"
    own.append(("algorithm", table, "Settings of an algorithm of your own, or all of any other's."))
    free = [entry for entry in entries if entry[0] in FREE]
    probe = [entry for entry in entries if entry[0] in OF_THE_PROBE]
    of_train = [entry for entry in entries if entry[0] in OF_TRAIN]
    changes = [entry for entry in entries if entry[0] in CHANGEABLE and entry not in free]
    others = [entry for entry in entries if entry not in free + probe + of_train]
    text = HEADER.replace("{imports}", "\n".join(_imports()))
    about = "Settings that change no result of a training."
    text += keywords("FreeSettings", "TypedDict", about, free)
    about = "What `cspo.resume` may change."
    text += keywords("ResumeSettings", "FreeSettings", about, changes)
    about = "Keywords of `cspo.probe`, besides its own."
    text += keywords("ProbeSettings", "FreeSettings", about, others + own)
    about = "Keywords of `cspo.train`, besides its own."
    text += keywords("TrainSettings", "ProbeSettings", about, probe)
    about = "Keywords of `cspo.make_config`: every setting but task and algo."
    text += keywords("Settings", "TrainSettings", about, of_train) + reading()
    return _formatted(text)


def _imports() -> list[str]:
    kinds = [*GROUPS.values(), Discount, Schedule]
    modules = sorted({kind.__module__ for kind in kinds})
    named = {one: [kind.__name__ for kind in kinds if kind.__module__ == one] for one in modules}
    return [f"from {one} import {', '.join(sorted(named[one]))}" for one in modules]


def _formatted(text: str) -> str:
    words = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"]
    return subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    MODULE.write_text(module(), encoding="utf-8")
    print(f"wrote {MODULE}")
