"""Code that is not ours, an environment above all: what goes wrong in it is said in words.

`ForeignCall` is the one place where a user's code is called from. Whatever it raises, be it
`SystemExit` or a `BrokenPipeError`, and whatever it returns that training cannot use, becomes an
`EnvironmentFault` that names the call, the copy, and the user's own file and line. A `with` around
a whole step of N environments costs a tenth of a microsecond.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from types import TracebackType
from typing import Any

import numpy as np

from cspo.errors import (
    CspoError,
    EnvironmentFault,
    in_one_line,
    places,
    shown,
    told,
    users_place,
)
from cspo.state import split

REAL_KINDS = "fiub"  # kinds of NumPy types that are real numbers
# Types of numbers and flags that need no second look.
NUMBERS = frozenset({float, int, np.float64, np.float32, np.int64, np.int32, bool, np.bool_})
FLAGS = frozenset({bool, np.bool_})


class EnvironmentWarning(UserWarning):
    """Something went wrong in an environment that changes no result, such as closing it."""


class WrongAnswer(Exception):
    """What a user's code returned cannot be used; the text goes on where "step()" ends."""


class ForeignCall:
    """Surrounds calls of a user's code.

    Args:
        call: What is called, such as "step()".
        owner: Whose it is, such as "the environment Cart"; "" if the call says it all.
        code: What is called, or has it as its method, or a list of such copies: its place is told
            if the fault has none.
        copy: Which of several copies is asked, counted from 0; None where there is one.
    """

    kind: type[CspoError] = EnvironmentFault  # what a fault becomes
    first_copy = 0  # what the copies of this process are counted from, which others may share

    def __init__(
        self, call: str, owner: str = "", code: Any = None, copy: int | None = None
    ) -> None:
        """Nothing is called yet."""
        self.call, self.owner, self.code, self.copy = call, owner, code, copy

    def __enter__(self) -> ForeignCall:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if fault is None or isinstance(fault, KeyboardInterrupt):
            return
        place = users_place(fault)
        if isinstance(fault, CspoError) and place is None:
            return  # a sentence of our own
        place = place or self._place(fault)
        what = in_one_line(fault) if isinstance(fault, WrongAnswer) else f"raised {told(fault)}"
        where = f" ({place})" if place else ""
        text = f"{self._subject()} {what.rstrip('.')}{where}."
        raise self.kind(text) from (None if isinstance(fault, WrongAnswer) else fault)

    def _subject(self) -> str:
        copy = "" if self.copy is None else f" (copy {self.first_copy + self.copy})"
        return f"{self.call} of {self.owner}{copy}" if self.owner else f"{self.call}{copy}"

    def _place(self, fault: BaseException) -> str | None:
        """Return where the code stands that was called, or the line of that file that failed."""
        one = self.code
        if isinstance(one, list):
            one = one[self.copy or 0] if one else None
        try:
            method = getattr(getattr(one, "unwrapped", one), self.call.rstrip("()"))
        except Exception:
            method = getattr(one, "func", one)  # of a `partial`, the function
        code = getattr(inspect.unwrap(method) if callable(method) else None, "__code__", None)
        if code is None:
            return None
        lines = [line for file, line in places(fault) if file == code.co_filename]
        return f"{code.co_filename}, line {(lines or [code.co_firstlineno])[-1]}"


def number(value: Any, what: str) -> float:
    """Return one real number that a user's code gave, or refuse anything else."""
    if isinstance(value, Real | Decimal):
        return float(value)
    array = array_of(value)
    if array.shape != () or array.dtype.kind not in REAL_KINDS:
        raise WrongAnswer(f"gave {what} that is not one number but {shown(value)}")
    return float(array)


def numbers(value: Any, what: str) -> Any:
    """Return a flat array of the real numbers that a user's code gave, in the type they have."""
    array = array_of(value)
    if array.dtype.kind not in REAL_KINDS:
        if array.dtype.kind != "O" or not all(isinstance(x, Real | Decimal) for x in array.flat):
            raise WrongAnswer(f"gave {what} that is not made of numbers but {shown(value)}")
        array = array.astype(np.float64)
    return array.reshape(-1)


def truth(value: Any, what: str) -> bool:
    """Return whether a flag is set; 0 and 1 are as good as False and True."""
    array = array_of(value)
    if array.size != 1 or array.dtype.kind not in REAL_KINDS or array.item() not in (0, 1):
        raise WrongAnswer(f"gave {what} that is neither True nor False but {shown(value)}")
    return bool(array.item())


def array_of(value: Any) -> Any:
    """Return a value as an array; what NumPy makes none of is no array of numbers."""
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty(0, object)


def all_finite(numbers: Any) -> bool:
    """Whether a flat array is finite: one pass over it, and nothing is allocated."""
    with np.errstate(all="ignore"):  # squares of large numbers may overflow; then each is looked at
        return math.isfinite(numbers.dot(numbers)) or bool(np.isfinite(numbers).all())


def check_state(state: dict[str, Any]) -> None:
    """Refuse a random state that a checkpoint cannot hold."""
    try:
        json.dumps(split(state)[0])
    except (TypeError, ValueError, RecursionError) as fault:
        raise WrongAnswer(f"gave what JSON cannot hold ({in_one_line(fault)})") from None


def close_all(environments: Sequence[Any], owner: str) -> None:
    """Close environments, all of them; one that fails is a warning, since its work is done."""
    faults = []
    for copy, env in enumerate(environments):
        try:
            with ForeignCall("close()", owner, env, copy):
                if (close := getattr(env, "close", None)) is not None:
                    close()
        except EnvironmentFault as fault:
            faults.append(str(fault))
    if faults:
        more = f" So did {len(faults) - 1} more." if len(faults) > 1 else ""
        warnings.warn(EnvironmentWarning(faults[0] + more), stacklevel=3)
