"""A setting is declared once: type, default, check and explanation stand together in a dataclass.

    passes: int = setting(10, positive)
    \"\"\"Passes over the epoch's samples per update.\"\"\"

The command line, TOML files, Python keywords and the help are derived from that.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import math
import os
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from cspo.errors import CspoError, UnknownSetting, flag, nearest
from cspo.runs.plain import WIDEST, parse_toml

# Returns what is wrong with a value, "must be positive" say, or None.
Check = Callable[[Any], str | None]
# Returns a setting from text, or from what a file or a caller has, and its name.
Reader = Callable[[Any, str], Any]


def setting(
    default: Any,
    check: Check | None = None,
    *,
    changes_results: bool = True,
    read: Reader | None = None,
) -> Any:
    """Declare a field of a group of settings.

    Args:
        default: Its value where none is given.
        check: What a value must be.
        changes_results: False for a setting that only says how fast, where or what else is written;
            a run may be resumed with another value of it.
        read: What makes the value from what was typed or written; by default its type does.
    """
    metadata = {"check": check, "changes_results": changes_results, "read": read}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, hash=False, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class UnknownSettings:
    """Settings of an algorithm that is not known here, as the data they are."""

    values: dict[str, Any] = dataclasses.field(hash=False)


def positive(value: float | None) -> str | None:
    """A finite number above zero; None stands for "not set"."""
    fine = value is None or (math.isfinite(value) and value > 0)
    return None if fine else "must be positive"


def positive_or_infinite(value: float) -> str | None:
    """A number above zero."""
    return None if value > 0.0 else "must be positive"


def not_negative(value: float) -> str | None:
    """A number from zero on."""
    return None if value >= 0 else "must not be negative"


def finite(value: float) -> str | None:
    """Any number but NaN and infinity."""
    return None if math.isfinite(value) else "must be a finite number"


def share(value: float | None) -> str | None:
    """A number from 0 to 1."""
    return None if value is None or 0.0 <= value <= 1.0 else "must be between 0 and 1"


def memory(value: float) -> str | None:
    """The past's share in a moving average: from 0 to below 1."""
    return None if 0.0 <= value < 1.0 else "must be at least 0 and less than 1"


def check_memory(what: str, parts: dict[str, int]) -> None:
    """Refuse what does not fit into the memory of this machine, before anything is allocated.

    Args:
        what: What would take it.
        parts: Bytes, at least, of its parts; each is called by the setting that decides it.
    """
    needed, there = sum(parts.values()), machine_memory()
    if needed > there:
        too_large = [name for name in parts if parts[name] > there]
        lower = " and ".join(too_large or [max(parts, key=lambda name: parts[name])])
        takes = f"{what} would take at least {in_bytes(needed)} of memory"
        raise CspoError(f"{takes}, and this machine has {in_bytes(there)}: lower {lower}.")


@functools.cache
def machine_memory() -> int:
    """Return the bytes of memory that this process could have at most."""
    limits = [2**47]  # more than any process can address
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows does not tell
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", name).read_text(encoding="ascii")))
    return min(limits)


def in_bytes(count: int) -> str:
    """Return a number of bytes as people read it, however large."""
    for power, unit in enumerate(("bytes", "kB", "MB", "GB", "TB", "PB")):
        if count < 1000 ** (power + 1):
            return f"{count / 1000**power:.3g} {unit}"
    return f"{Decimal(count):.1e} bytes"


def check_fields(settings: Any) -> None:
    """Refuse the first value in a group that its check does not accept."""
    for item in dataclasses.fields(settings):
        check, value = item.metadata.get("check"), getattr(settings, item.name)
        if check is not None and (wrong := check(value)) is not None:
            raise CspoError(f"{flag(item.name)} {wrong}, not {written(value)}.")


def build(group: Any, values: dict[str, Any], prefix: str = "") -> Any:
    """Return a group of settings from plain data, or name what is nearest to an unknown key."""
    hints = typing.get_type_hints(group)
    readers = {item.name: item.metadata.get("read") for item in dataclasses.fields(group)}
    read = {}
    for name, value in values.items():
        if name not in readers:
            raise unknown_setting(prefix + name, nearest(name, readers))
        own = readers[name]
        read[name] = own(value, name) if own else convert(value, hints[name], prefix + name)
    return group(**read)


def unknown_setting(name: str, hint: str) -> UnknownSetting:
    """Return the error about a name that no setting has."""
    return UnknownSetting(name, f"Unknown setting {name!r}: {hint}")


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def convert(value: Any, hint: Any, name: str) -> Any:
    """Return `value` as the type `hint` asks for, or refuse it in words."""
    # Sizes of layers, a tuple, may be larger: they are refused with the memory they would take.
    return _fitting(_convert(value, hint, name), name)


def _fitting(value: Any, name: str) -> Any:
    if type(value) is int and not -WIDEST <= value < WIDEST:
        raise CspoError(f"Setting {name} is a whole number that does not fit into 64 bits.")
    return value


def _convert(value: Any, hint: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else convert(value, arguments[0], name)
    if origin is Literal:
        if value not in arguments:
            written = f"{name} = {value!r}"
            hint = nearest(str(value), map(str, arguments))
            raise UnknownSetting(written, f"Setting {written}: {hint}")
        return value
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(item, arguments[0], name) for item in items)
    if origin is dict:
        return _table(value, name)
    if hint is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(_fitting(value, name))
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise CspoError(f"Setting {name} = {value!r} is not {_WORDS[hint]}.")


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise CspoError(f"Setting {name} = {value!r} is not a table of names and values.")
    return {key: _as_toml_gives_it(item, f"{name}.{key}") for key, item in value.items()}


def _as_toml_gives_it(value: Any, name: str) -> Any:
    """Return a value as reading it back from a run's config.toml would give it."""
    if isinstance(value, dict):
        return _table(value, name)
    if isinstance(value, list | tuple):
        return [_as_toml_gives_it(item, name) for item in value]
    if isinstance(value, str | int | float):  # a bool is an int
        return value
    raise CspoError(
        f"Setting {name} = {value!r} cannot be kept in a run's config.toml: use numbers, text, "
        "true or false, lists and tables. For anything else, write a factory."
    )


def parse_text(text: str, hint: Any, name: str) -> Any:
    """Return the value that `text` on the command line means for a setting of type `hint`.

    A list is written with commas, `25,5`; a whole number may be written `1e6` or `1_000_000`; a
    table is a TOML inline table without its braces, `speed=2,mode="fast"`; an empty list or table
    is `none`.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, dict) and text.strip().lower() in ("", "none"):
        return origin()
    if origin in (typing.Union, types.UnionType):
        return None if text.lower() == "none" else parse_text(text, arguments[0], name)
    if origin is Literal:
        if text not in arguments:
            raise CspoError(f"{flag(name)} {text}: {nearest(text, arguments)}")
        return text
    if origin is tuple:
        bare = text.strip()
        within = bare[1:-1] if bare[:1] + bare[-1:] in ("()", "[]") else bare
        items = within.split(",")
        return tuple(parse_text(item.strip(), arguments[0], name) for item in items)
    if origin is dict:
        return _parse_table(text, name)
    if hint is str:
        return text
    try:
        number = float(text)
        if hint is float:
            return number
        if number.is_integer():
            return int(text) if text.replace("_", "").lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        pass
    raise CspoError(f"{flag(name)} {text}: that is not {_WORDS[hint]}.")


def _parse_table(text: str, name: str) -> dict[str, Any]:
    end = "the end"  # a key that is there only if the text does not close the table before
    try:
        table: dict[str, Any] = parse_toml(f'table = {{{text}, "{end}" = 0}}')["table"]
        del table[end]
        return table
    except (ValueError, KeyError):
        raise CspoError(
            f"{flag(name)} {text}: write key=value,key=value with text in quotes, as "
            f"""{flag(name)} 'speed=2,mode="fast"'."""
        ) from None


def written(value: Any) -> str:
    """Return a value as it would be typed."""
    if value in ((), [], {}):
        return "none"
    if isinstance(value, dict):
        import json

        return ",".join(f"{key}={json.dumps(item)}" for key, item in value.items())
    if isinstance(value, tuple | list):
        texts = [written(item) for item in value]
        return ("; " if any("@" in text for text in texts) else ",").join(texts)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "none" if value is None else str(value)


def explanations(group: type) -> dict[str, str]:
    """Return the string under each field of a dataclass, its own or inherited."""
    found = {item.name: "" for item in dataclasses.fields(group)}
    for part in reversed(group.__mro__[:-1]):
        found.update(_strings_under_fields(part))
    return found


def _strings_under_fields(group: type) -> Iterator[tuple[str, str]]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(group))).body[0]
    except (OSError, TypeError, SyntaxError):  # a class typed into a prompt has no source to read
        return
    assert isinstance(body, ast.ClassDef)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):  # noqa: SIM102
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                yield field.target.id, " ".join(str(below.value.value).split())
