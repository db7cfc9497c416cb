"""Spaces as plain data: what JSON can hold of them, read strictly.

    {"kind": "box", "shape": [84, 84, 3], "dtype": "uint8"}
    {"kind": "discrete", "options": 4, "start": 0}
    {"kind": "multi_discrete", "shape": [2], "dtype": "int64", "options": [3, 5], "start": [0, 0]}
    {"kind": "multi_binary", "shape": [8]}
    {"kind": "tuple", "parts": [...]}
    {"kind": "dict", "parts": [["name", {...}], ...]}

Checkpoints hold such descriptions, and anybody may have written them: nothing is allocated by their
numbers before somebody compared the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
) - {"float8"}
DEEPEST = 8  # spaces within spaces: a checkpoint is not read if its tables are nested too deep
MOST = 2**31  # columns
EXACT = 2**53  # whole numbers up to this are exact in float64


class Leaf(NamedTuple):
    """A space that contains no others, and where it is in the raw value."""

    path: tuple[str | int, ...]
    kind: str
    shape: tuple[int, ...]
    dtype: str
    options: tuple[int, ...]  # of each number, where it is discrete; bits have two
    start: tuple[int, ...]  # the first option

    @property
    def size(self) -> int:
        """How many numbers its raw value has."""
        return prod(self.shape)

    @property
    def width(self) -> int:
        """How many columns it has in a flat observation."""
        return sum(self.options) if self.kind in ("discrete", "multi_discrete") else self.size


def leaves_of(description: Any) -> tuple[Leaf, ...]:
    """Return the leaves of a described space in order; nothing is allocated by its numbers.

    Raises:
        ValueError: If it is not a description of a space.
    """
    leaves = tuple(_walk(description, ()))
    if not 0 < sum(leaf.width for leaf in leaves) < MOST:
        raise ValueError("a space that has no columns, or too many")
    return leaves


def _walk(description: Any, path: tuple[str | int, ...]) -> Iterator[Leaf]:
    require(isinstance(description, dict), "a space that is no table")
    require(len(path) <= DEEPEST, f"spaces within spaces, more than {DEEPEST} deep")
    kind = description.get("kind")
    keys = {
        "box": {"shape", "dtype"},
        "discrete": {"options", "start"},
        "multi_discrete": {"shape", "dtype", "options", "start"},
        "multi_binary": {"shape"},
        "tuple": {"parts"},
        "dict": {"parts"},
    }.get(kind if isinstance(kind, str) else "")
    require(keys is not None and description.keys() == {"kind", *keys}, "a space of no known kind")
    if kind in ("tuple", "dict"):
        parts = description["parts"]
        require(isinstance(parts, list) and len(parts) > 0, "a space without parts")
        if kind == "dict":
            pairs = [part for part in parts if isinstance(part, list) and len(part) == 2]
            names = [name for name, _ in pairs if isinstance(name, str)]
            require(len(names) == len(parts) == len({*names}), "a space whose parts have no names")
        for i, part in enumerate(parts):
            name, inner = part if kind == "dict" else (i, part)
            yield from _walk(inner, (*path, name))
        return
    yield _leaf(description, kind, path)


def _leaf(description: dict[str, Any], kind: str, path: tuple[str | int, ...]) -> Leaf:
    shape = tuple(_numbers(description["shape"], 1)) if "shape" in description else ()
    require(prod(shape) < MOST, "a space that is too large")
    dtype = description.get("dtype", "int8" if kind == "multi_binary" else "int64")
    require(isinstance(dtype, str) and dtype in DTYPES, "a space of an unknown type of numbers")
    options: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    if kind == "discrete":
        options = tuple(_numbers([description["options"]], 1))
        start = tuple(_numbers([description["start"]], -EXACT))
    elif kind == "multi_discrete":
        options = tuple(_numbers(description["options"], 1))
        start = tuple(_numbers(description["start"], -EXACT))
        require(len(options) == len(start) == prod(shape), "a space with missing options")
    return Leaf(path, kind, shape, dtype, options, start)


def _numbers(values: Any, least: int) -> list[int]:
    fine = isinstance(values, list) and all(
        type(value) is int and least <= value < EXACT for value in values
    )
    require(fine, "a space with numbers that are none, or out of range")
    return list(values)


def require(holds: bool, otherwise: str) -> None:
    """Raise ValueError unless something holds."""
    if not holds:
        raise ValueError(otherwise)
