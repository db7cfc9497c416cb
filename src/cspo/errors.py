"""Errors a user can cause: one or two plain lines on the command line, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the nearest choice, or the list of choices if none is near."""
    known = sorted(choices)
    lowered = {choice.lower(): choice for choice in known}
    match = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    if match:
        return f"did you mean {lowered[match[0]]!r}?"
    return f"choose from: {', '.join(known)}"


def flag(name: str) -> str:
    """Return the command-line spelling of a setting."""
    return "--" + name.replace("_", "-")
