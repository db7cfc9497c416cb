"""The pages of the reference that are computed: settings, commands, the Python API."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import typing
from collections.abc import Iterator
from typing import Any, Literal
from unittest import mock

import cspo
from cspo.algorithms import algorithm_names, get_algorithm
from cspo.algorithms.presets import preset
from cspo.cli import COMMANDS
from cspo.config import GROUPS, TrainConfig, make_config
from cspo.errors import flag
from cspo.settings import explanations, written

# Commands that have commands of their own.
BELOW = {"study": ("run", "status", "archive", "list"), "bench": ("env", "train")}
FAMILIES = {
    "any task": "any",
    "velocity tasks": "SafetyHopperVelocity-v1",
    "navigation tasks": "SafetyPointGoal1-v0",
}


def pages() -> dict[str, str]:
    """Return the pages with their addresses on the site."""
    return {
        "reference/settings.md": settings_page(),
        "reference/options.md": options_page(),
        "reference/python.md": python_page(),
    }


def settings_page() -> str:
    """Return the page of every setting of `cspo train`, with the algorithms' own."""
    top = dataclasses.fields(TrainConfig)
    parts = [
        "# Settings\n\nEvery setting of `cspo train`, from the classes that declare it. The same "
        "name is a flag (`--cost-limit 10`), a key of a settings file (`cost_limit = 10`) and an "
        'argument in Python (`cspo.train("TASK", cost_limit=10)`). *Free* settings change no '
        "result: a run may be resumed with another value. How they are combined: "
        "[commands](../commands.md#cspo-train).\n",
        "## The run\n",
        _table(TrainConfig, [item for item in top if item.name not in (*GROUPS, "algorithm")]),
    ]
    for name, group in GROUPS.items():
        words = " ".join((group.__doc__ or name).split())
        parts += [f"## {name.capitalize()}\n\n{words}\n", _table(group, dataclasses.fields(group))]
    parts.append(
        "## Of each algorithm\n\n`cspo train TASK --algo NAME --help` shows them with the general "
        "ones. The last line of each says what its preset changes among the settings above.\n"
    )
    for name in built_in():
        own = get_algorithm(name).Config
        parts += [f"### `{name}`\n", _table(own, dataclasses.fields(own)), presets(name)]
    return "\n".join(parts)


def built_in() -> list[str]:
    """Return the names of the algorithms that come with the package."""
    return [name for name in algorithm_names() if get_algorithm(name).__module__[:5] == "cspo."]


def presets(name: str) -> str:
    """Return what an algorithm's presets change, as a sentence."""
    found: dict[str, dict[str, Any]] = {}
    for family, task in FAMILIES.items():
        changed = preset(name, task, None)
        found[family] = {**changed, **(changed.get("algorithm") or {})}
        found[family].pop("algorithm", None)
    common = found.pop("any task")
    words = [_assignments(common)] if common else []
    for family, values in found.items():
        more = {key: value for key, value in values.items() if common.get(key) != value}
        words += [f"{_assignments(more)} on {family}"] if more else []
    return f"Preset: {'; '.join(words) or 'none'}.\n"


def _assignments(values: dict[str, Any]) -> str:
    return ", ".join(
        f"`{flag(key)} {written(tuple(value) if isinstance(value, list) else value)}`"
        for key, value in values.items()
    )


def _table(group: Any, fields: Any) -> str:
    if not fields:
        return "It has no settings of its own.\n"
    hints, explained = typing.get_type_hints(group), explanations(group)
    rows = ["| Setting | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    for item in fields:
        free = "" if item.metadata.get("changes_results", True) else " *Free.*"
        words = explained[item.name].replace("|", "\\|") + free
        kind = kind_of(hints[item.name]).replace("|", "\\|")
        rows.append(f"| `{flag(item.name)}` | {kind} | {_default(item)} | {words} |")
    return "\n".join(rows) + "\n"


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        return f"`{written(item.default)}`"
    if item.default_factory is not dataclasses.MISSING:
        return f"`{written(item.default_factory())}`"
    return "must be given"


def kind_of(hint: Any) -> str:
    """Return a type as people say it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return kind_of(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in arguments)
    if origin is tuple:
        return f"list of {kind_of(arguments[0]).removesuffix(' or `none`')}s"
    if origin is dict:
        return "table"
    if arguments:  # X | None
        return f"{kind_of(arguments[0])} or `none`"
    return {int: "whole number", float: "number", bool: "switch", str: "text"}.get(hint, "value")


def options_page() -> str:
    """Return the page with the options of every command, by the classes that declare them."""
    parts = [
        "# Options of every command\n\nComputed from the program; what they are for, with "
        "examples: [commands](../commands.md). Every command also takes `--traceback` and "
        "`--help`.\n"
    ]
    for name, (_, summary) in COMMANDS.items():
        for command in [f"{name} {below}" for below in BELOW.get(name, ())] or [name]:
            parts.append(f"## `cspo {command}`\n")
            if name == "train":
                say = "All of the [settings](settings.md), and:"
                parts += [f"{summary.capitalize()}. {say}\n", _train_options()]
                continue
            options = options_of(command)
            words = (options.__doc__ or summary).split("\n\n")[0]
            parts += [" ".join(words.split()) + "\n", _options_table(options)]
    return "\n".join(parts)


def _train_options() -> str:
    from cspo.commands.train import TrainOptions

    inherited = {item.name for item in dataclasses.fields(TrainConfig)}
    own = [item for item in dataclasses.fields(TrainOptions) if item.name not in inherited]
    return _table(TrainOptions, own)


def _options_table(options: Any) -> str:
    hints = typing.get_type_hints(options, include_extras=True)
    table = _table(options, dataclasses.fields(options))
    for item in dataclasses.fields(options):
        if "Positional" in str(hints[item.name]):
            metavar = next(
                (one.metavar for one in hints[item.name].__metadata__ if hasattr(one, "metavar")),
                None,
            )
            table = table.replace(f"`{flag(item.name)}`", f"`{metavar or item.name.upper()}`", 1)
    return table


class _Asked(Exception):
    """Carries the class of a command's options away from it."""


def options_of(command: str) -> Any:
    """Return the class of a command's options: the one it hands to the parser."""
    name, *below = command.split()
    module, function = COMMANDS[name][0].split(":")
    home = importlib.import_module(module)

    def parse(options: Any, *_: Any) -> Any:
        raise _Asked(options)

    try:
        with mock.patch.object(home, "parse", parse), contextlib.redirect_stdout(io.StringIO()):
            getattr(home, function)([*below, "--help"])
    except _Asked as asked:
        return asked.args[0]
    raise LookupError(f"cspo {command} reads no options; name its commands in BELOW")


def python_page() -> str:
    """Return the page of the public names, which mkdocstrings fills from their docstrings."""
    return (
        "# Python\n\nEverything that `import cspo` offers; the first use of a name imports what it "
        "needs. Settings by their flat names, as keyword arguments, are in "
        "[settings](settings.md).\n\n" + "\n".join(_public())
    )


def _public() -> Iterator[str]:
    for name, module in cspo._PUBLIC.items():
        target = module if module.endswith(f".{name}") else f"{module}.{name}"
        yield f"::: {target}\n    options:\n      heading_level: 2\n"


def default_of(name: str, setting: str) -> Any:
    """Return the value that a setting has for an algorithm if nobody names it."""
    config = make_config("any", name)
    own = config.algorithm
    return getattr(own, setting) if hasattr(own, setting) else getattr(config, setting)
