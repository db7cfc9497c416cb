"""What can stand after every command, read from the options they declare."""

from __future__ import annotations

import dataclasses
import importlib
import re
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from cspo.algorithms.registry import algorithm_names, get_algorithm, is_built_in
from cspo.commands.options import HELP
from cspo.errors import flag
from cspo.settings import explanations

# What an argument may be: one of some words, or ("task", "algo", "study", "run", "folder", "file",
# "any"); "" if there is none, as after a switch.
Values = tuple[str, ...] | str
METAVARS = {"TASK": "task", "RUN": "run", "FILE": "file", "STUDY": "study"} | dict.fromkeys(
    ("DIR", "OUT", "FOLDER"), "folder"
)


class Flag(NamedTuple):
    """An option of a command."""

    name: str
    values: Values
    explanation: str


class Described(NamedTuple):
    """What can stand after a command."""

    flags: tuple[Flag, ...] = ()
    argument: Values = "any"  # without a flag in front
    summary: str = ""


def names() -> dict[str, list[str]]:
    """Return the names that arguments may have, by kind."""
    from cspo.envs.tasks import native_tasks
    from cspo.lab.study.grid import shipped_studies

    tasks = [row.name for row in native_tasks()]
    return {"task": tasks, "algo": _built_in(), "study": list(shipped_studies())}


def _built_in() -> list[str]:
    """Return the algorithms that are there wherever the script is used."""
    return [name for name in algorithm_names() if is_built_in(get_algorithm(name))]


def described_commands() -> dict[str, Described]:
    """Return every command as it is typed, "study run" among them, with what can stand after it.

    An algorithm's own options are those of the command "train --algo NAME".
    """
    commands = importlib.import_module("cspo.cli").COMMANDS  # which imports no command by itself
    found: dict[str, Described] = {}
    for command, (target, summary) in commands.items():
        module = importlib.import_module(target.partition(":")[0])
        kinds = dict(_options_classes(module, command))
        inner = tuple(name.partition(" ")[2] for name in kinds if name != command)
        if inner:
            found[command] = Described(argument=inner, summary=summary)
        for name, kind in kinds.items():
            found[name] = _describe(kind, summary)
    general = {one.name for one in found["train"].flags}
    train = importlib.import_module("cspo.commands.train")
    for algo in _built_in():
        described = _describe(train.options_class(algo), "")
        own = tuple(one for one in described.flags if one.name not in general)
        found[f"train --algo {algo}"] = Described(own, described.argument)
    return found


def _options_classes(module: ModuleType, command: str) -> Iterator[tuple[str, type]]:
    """Yield the dataclasses of a command's options: those of its name, or of its own commands."""
    title = command.title().replace("-", "")
    if hasattr(module, f"{title}Options"):
        yield command, getattr(module, f"{title}Options")
    elif isinstance(table := getattr(module, "COMMANDS", None), Mapping):
        for name, (kind, *_) in table.items():
            yield f"{command} {name}", kind
    else:
        for name, kind in vars(module).items():
            if own := re.fullmatch(f"{title}(\\w+)Options", name):
                yield f"{command} {own[1].lower()}", kind


def _describe(kind: type, summary: str) -> Described:
    flags, argument = [Flag(HELP[1], "", "show the help")], ""
    for name, hint, text in _fields(kind):
        values = _values(name, hint)
        if any(mark is tyro.conf.Positional for mark in typing.get_args(hint)[1:]):
            argument = argument or values  # type: ignore[assignment]
            continue
        sentence = re.split(r"[.;:]( |$)", text)[0]
        flags.append(Flag(flag(name), values, sentence))
        if hint is bool:
            flags.append(Flag(flag(f"no_{name}"), "", f"not: {sentence}"))
    return Described(tuple(flags), argument, summary)


def _fields(group: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield name, annotation and explanation of every option, those of groups included."""
    hints, explained = typing.get_type_hints(group, include_extras=True), explanations(group)
    for item in dataclasses.fields(group):
        if dataclasses.is_dataclass(hints[item.name]):
            yield from _fields(hints[item.name])
        elif item.name != "algorithm":  # the place of an algorithm's own settings
            yield item.name, hints[item.name], explained[item.name]


def _values(name: str, hint: Any) -> Values:
    if hint is bool:
        return ""
    if name == "algo":
        return "algo"
    if typing.get_origin(hint) is Annotated:
        for mark in hint.__metadata__:
            words = re.findall(r"[A-Z]+", getattr(mark, "metavar", None) or "")
            if words and words[0] in METAVARS:
                return METAVARS[words[0]]
        hint = hint.__origin__
    kinds = [hint, *typing.get_args(hint)]
    for one in kinds:
        if typing.get_origin(one) is Literal:
            return tuple(map(str, typing.get_args(one)))
    return "file" if Path in kinds else "any"
