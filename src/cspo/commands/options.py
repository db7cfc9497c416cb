"""Command-line options from dataclasses: tyro reads them; errors are one plain line."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from cspo.errors import CspoError, flag, nearest
from cspo.settings import parse_text, written

Options = TypeVar("Options")
PluginOption = Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
HELP = ("-h", "--help")


def parse(
    command: type[Options], name: str, arguments: Sequence[str], default: Any = None
) -> Options:
    """Return the options of a command, or print its help and leave.

    Args:
        command: Frozen dataclass; its docstring is the description, a string under a field explains
            it.
        name: The command as it is typed after `cspo`.
        arguments: What was typed after it.
        default: Values of options that are not given, if they differ from the dataclass's own.
    """
    refused = io.StringIO()
    keywords: dict[str, Any] = {} if default is None else {"default": default}
    try:
        # tyro draws boxes around errors: they are caught here and said again in one line.
        with contextlib.redirect_stderr(refused):
            options, unknown = tyro.cli(
                command,
                prog=f"cspo {name}",
                description=inspect.cleandoc(command.__doc__ or ""),
                args=list(arguments),
                return_unknown_args=True,
                config=(tyro.conf.OmitArgPrefixes,),
                **keywords,
            )
    except SystemExit as leaving:
        if leaving.code in (0, None):
            raise
        raise CspoError(f"{_plain(refused.getvalue())} See `cspo {name} --help`.") from None
    _refuse_unknown(unknown, command, name)
    return typing.cast(Options, options)


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


def typed(hint: Any, name: str, text: str | None = None) -> Any:
    """Return an annotation that reads a setting of type `hint` from one word, by `parse_text`.

    Args:
        hint: Type of the setting.
        name: Its name, for error messages.
        text: Its explanation in the help.
    """
    explained = [] if text is None else [tyro.conf.arg(help=text)]
    if hint is bool:
        return Annotated[(hint, *explained)]  # type: ignore[return-value]
    spec = PrimitiveConstructorSpec(
        nargs=1,
        metavar=_metavar(hint),
        instance_from_str=_reader(hint, name),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [written(value)],
    )
    return Annotated[(hint, spec, *explained)]  # type: ignore[return-value]


def _reader(hint: Any, name: str) -> Callable[[list[str]], Any]:
    return lambda words: parse_text(words[0], hint, name)


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
