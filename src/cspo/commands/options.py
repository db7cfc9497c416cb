"""Command-line options from dataclasses: tyro reads them; errors are one plain line."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from cspo.errors import CspoError, flag, nearest
from cspo.settings import Reader, check_fields, explanations, parse_text, written

if typing.TYPE_CHECKING:
    from cspo.config import TrainConfig

Options = TypeVar("Options")
TaskArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
RunArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
FileOption = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
TaskOption = Annotated[str | None, tyro.conf.arg(metavar="TASK", help_behavior_hint="")]
NetworkOption = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
HELP = ("-h", "--help")


def parse(
    command: type[Options], name: str, arguments: Sequence[str], values: Any = None
) -> Options:
    """Return the options of a command, or print its help and leave.

    Args:
        command: Dataclass; its docstring is the description, a string under a field explains it.
        name: The command as it is typed after `cspo`.
        arguments: What was typed after it.
        values: Options that take the place of the defaults.
    """
    refuse_empty(arguments)
    refused = io.StringIO()
    try:
        # tyro draws boxes around errors: they are caught here and said again in one line.
        with contextlib.redirect_stderr(refused):
            read, unknown = tyro.cli(
                _readable(command, values),
                prog=f"cspo {name}",
                description=inspect.cleandoc(command.__doc__ or ""),
                args=list(arguments),
                return_unknown_args=True,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise
        raise CspoError(f"{_plain(refused.getvalue())} See `cspo {name} --help`.") from None
    _refuse_unknown(unknown, command, name)
    options = command(**vars(read))
    check_fields(options)
    return options


def refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse a value without a character: often a variable of a script that was never set."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, equals, value = word.partition("=")
        is_option = word.startswith("--")
        if not word.strip() or (is_option and equals and not value.strip()):
            where = option if is_option else before if before.startswith("--") else "an argument"
            raise CspoError(f"{where} is empty: give it a value, or leave it out.")


def same_task(run: str, config: TrainConfig, task: str | None) -> None:
    """Refuse `--task` if it is not what the run was trained on."""
    if task is not None and task != config.task:
        raise CspoError(f"{run} was trained on {config.task}, and not on --task {task}.")


def _readable(group: Any, values: Any) -> Any:
    """Return a dataclass again, as tyro takes it: every field explained and read from one word."""
    explained, hints = explanations(group), typing.get_type_hints(group, include_extras=True)
    members: list[Any] = []
    for item in dataclasses.fields(group):
        default: Any = {"default": item.default, "default_factory": item.default_factory}
        if values is not None:
            default = {"default_factory": partial(getattr, values, item.name)}
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            hint = _readable(hint, getattr(values, item.name, None))
            default = {"default_factory": hint}
        else:
            hint = typed(hint, item.name, explained[item.name], item.metadata.get("read"))
        members.append((item.name, hint, dataclasses.field(**default)))
    return dataclasses.make_dataclass(group.__name__, members, namespace={"__doc__": group.__doc__})


def _refuse_unknown(unknown: list[str], command: type, name: str) -> None:
    if not unknown:
        return
    flags = [word.split("=", 1)[0] for word in unknown if word.startswith("-")]
    if flags:
        raise CspoError(
            f"cspo {name} has no option {flags[0]}: {nearest(flags[0], option_names(command))}"
        )
    raise CspoError(
        f"cspo {name} does not know what to do with {unknown[0]!r}. See `cspo {name} --help`."
    )


def show(as_json: bool, data: Any, text: Callable[[], str]) -> None:
    """Print the result of a command: its data as JSON, or what people read."""
    print(json.dumps(data) if as_json else text(), flush=True)


def option_names(command: type) -> list[str]:
    """Return the flags of a command."""
    names = ["--help"]
    for field, hint in _flat_fields(command):
        names.append(flag(field.name))
        if hint is bool:
            names.append(flag(f"no_{field.name}"))
    return names


def _flat_fields(command: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(command)
    for field in dataclasses.fields(command):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _flat_fields(typing.cast(type, hints[field.name]))
        else:
            yield field, hints[field.name]


def _plain(text: str) -> str:
    """Return the sentence inside a drawn box."""
    lines = [re.sub(r"[│╭╮╰╯─┃━┏┓┗┛|]+", " ", line).strip() for line in text.splitlines()]
    words = [
        line for line in lines if line and not re.fullmatch(r"(Parsing|Required) \w+|\W*", line)
    ]
    sentence = " ".join(" ".join(words[:2]).split())
    return sentence if sentence.endswith((".", "?")) else sentence + "."


def typed(hint: Any, name: str, text: str | None = None, read: Reader | None = None) -> Any:
    """Return an annotation that reads a setting of type `hint` from one word, by `parse_text`.

    An annotation that already says how to read it stays as it is.

    Args:
        hint: Type of the setting.
        name: Its name, for error messages.
        text: Its explanation in the help.
        read: What reads it, if not `parse_text`.
    """
    explained = [] if text is None else [tyro.conf.arg(help=text)]
    if hint is bool or typing.get_origin(hint) is Annotated:
        return Annotated[(hint, *explained)]  # type: ignore[return-value]
    spec = PrimitiveConstructorSpec(
        nargs=1,
        metavar=_metavar(hint) if read is None else name.rpartition("_")[2].upper(),
        instance_from_str=lambda words: (
            parse_text(words[0], hint, name) if read is None else read(words[0], name)
        ),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [written(value)],
    )
    return Annotated[(hint, spec, *explained)]  # type: ignore[return-value]


def _metavar(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "{" + ",".join(map(str, arguments)) + "}"
    if origin is tuple:
        return f"{_metavar(arguments[0])}[,...]"
    if origin is dict:
        return "KEY=VALUE[,...]"
    if arguments:  # X | None
        return _metavar(arguments[0])
    return {int: "INT", float: "FLOAT", str: "TEXT"}.get(hint, "VALUE")
