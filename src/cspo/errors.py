"""Errors a user can cause: one or two plain lines on the command line, exit code 2."""

from __future__ import annotations

import difflib
import os
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

LONGEST = 300  # characters of a stranger's text in a message


class CspoError(Exception):
    """A problem with a plain explanation and, where there is one, what to do about it."""


class EnvironmentFault(CspoError):
    """An environment returned something training cannot use, such as a non-finite value."""


class UnknownSetting(CspoError):
    """A setting, or a value of one, that this version does not have.

    Attributes:
        written: The setting as a file has it, `name` or `name = value`.
    """

    def __init__(self, written: str, message: str) -> None:
        """Keep what was written, for who knows where it was."""
        super().__init__(message)
        self.written = written


class RemoteTraceback(Exception):
    """Stands for an exception in another process, as the cause of the one raised here.

    Attributes:
        places: File and line of all that it came through, the innermost last.
    """

    def __init__(self, trace: str, places: list[tuple[str, int]]) -> None:
        """Keep the traceback's text, and its lines."""
        super().__init__(f"in another process:\n\n{trace}")
        self.places = places


MOST_CHOICES = 40  # that a message lists


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the nearest choice, or some of the choices if none is near."""
    known = sorted(choices)
    lowered = {choice.lower(): choice for choice in known}
    match = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    if match:
        return f"did you mean {lowered[match[0]]!r}?"
    more = f", and {len(known) - MOST_CHOICES} more" if len(known) > MOST_CHOICES else ""
    return f"choose from: {', '.join(known[:MOST_CHOICES])}{more}"


def flag(name: str) -> str:
    """Return the command-line spelling of a setting."""
    return "--" + name.replace("_", "-")


def in_one_line(text: Any) -> str:
    """Return what a stranger's text, or value, looks like, on one line and not too long.

    An exception without a text that can be had, as an object without a `repr`, is no reason to fail
    a second time.
    """
    try:
        line = " ".join(str(text).split())
    except Exception:
        return f"(a {type(text).__name__} that cannot be shown)"
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."


def shown(value: Any) -> str:
    """Return a value as a message shows it: what it is, where its contents do not fit."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"an array of shape {shape} and type {getattr(value, 'dtype', None)}"
    try:
        line = in_one_line(repr(value))
    except Exception:
        return f"a {type(value).__name__}"
    return line if len(line) <= 60 else f"a {type(value).__name__}: {line[:56]} ..."


def told(fault: BaseException) -> str:
    """Return what an exception says, with its kind, on one line."""
    name, text = type(fault).__name__, in_one_line(fault)
    return f"{name}: {text}" if text else name


def users_place(fault: BaseException) -> str | None:
    """Return "FILE, line N" of the innermost line of a user's own that an exception came through.

    That is neither a line of this package nor one of Python's library or of an installed package;
    None if there is no such line.
    """
    own = [place for place in places(fault) if is_users(place[0])]
    return None if not own else f"{own[-1][0]}, line {own[-1][1]}"


def places(fault: BaseException) -> Iterator[tuple[str, int]]:
    """Yield file and line of all that an exception came through, the innermost last."""
    trace = fault.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    if isinstance(fault, RemoteTraceback):
        yield from fault.places
    if isinstance(fault, SyntaxError) and fault.filename and fault.lineno:
        yield fault.filename, fault.lineno


def is_users(file: str) -> bool:
    """Whether a file is a user's own: neither of this package nor installed nor of Python."""
    path = os.path.abspath(file)
    packaged = {"site-packages", "dist-packages"} & set(path.split(os.sep))
    return not (file.startswith("<") or packaged or path.startswith(_installed()))


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    """Return the folders of this package, of Python's library and of installed packages."""
    known = sysconfig.get_paths()
    listed = [known[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = {os.path.dirname(os.path.abspath(__file__)), *listed}
    return tuple(folder + os.sep for folder in {*folders, *map(os.path.realpath, folders)})
