"""Errors a user can cause: the command line prints them as one or two lines and exits with code 2."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any


class CspoError(Exception):
    """A problem with a plain explanation and, where there is one, what to do about it."""


class EnvironmentFault(CspoError):
    """An environment returned something training cannot use, such as a non-finite value."""


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


def require_positive(settings: Any, *names: str) -> None:
    """Refuse settings that are not positive finite numbers; None stands for "not set" and passes."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise CspoError(f"{flag(name)} must be positive, not {value}.")


def require_not_negative(settings: Any, *names: str) -> None:
    """Refuse settings that are negative or not numbers."""
    for name in names:
        value = getattr(settings, name)
        if not value >= 0:
            raise CspoError(f"{flag(name)} must not be negative, not {value}.")


def require_one_limit(algorithm: str, num_costs: int) -> None:
    """Refuse more than one constraint for an algorithm that is defined for one."""
    if num_costs > 1:
        raise CspoError(
            f"{algorithm} is defined for one cost limit, not {num_costs}; cspo and trpo-pid take several."
        )
