"""Plain data: as JSON can hold it, and out of TOML and JSON that anybody may have written.

Both parsers of Python's library go wrong in ways of their own on hostile text: nesting without end
ends the stack, and numbers of thousands of digits become whole numbers that no array can hold. Here
everything that is wrong is a `ValueError` that says so.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from cspo.runs.files import read_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEPTH = 32  # tables in tables
DIGITS = 40  # of a whole number in JSON: the state of a random stream has 39
WIDEST = 2**63  # whole numbers of TOML are below, as its standard asks for


def without_nan(value: Any) -> Any:
    """Return nested data with null in place of NaN and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text holds, or raise `ValueError`."""
    try:
        return _not_too_deep(json.loads(text, parse_int=_whole))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return what a TOML text holds, or raise `ValueError`."""
    try:
        data: dict[str, Any] = _not_too_deep(tomllib.loads(text), WIDEST)
        return data
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def read_json(path: Path) -> Any:
    """Return what a JSON file holds, or None if it is not there or cannot be read."""
    try:
        return parse_json(read_bytes(path))
    except (OSError, ValueError):
        return None


def read_json_table(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, an empty one if there is none that can be read."""
    data = read_json(path)
    return data if isinstance(data, dict) else {}


_TOO_DEEP = f"it is nested more than {DEPTH} deep"


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _not_too_deep(data: Any, widest: int | None = None) -> Any:
    """Return the data, or refuse what later code could not walk through, or count with."""
    level, depth = [data], 0
    while level:
        if depth > DEPTH:
            raise ValueError(_TOO_DEEP)
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif widest is not None and type(item) is int and not -widest <= item < widest:
                raise ValueError("it has a whole number that does not fit into 64 bits")
        level, depth = inner, depth + 1
    return data
