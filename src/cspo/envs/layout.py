"""Spaces as plain data: what JSON can hold of them, and what follows from it.

A space is described by nested tables, which a checkpoint keeps: a policy then takes raw
observations and returns raw actions without the environment, and without importing anything.

    {"kind": "box", "shape": [84, 84, 3], "dtype": "uint8"}
    {"kind": "discrete", "options": 4, "start": 0}
    {"kind": "multi_discrete", "shape": [2], "dtype": "int64", "options": [3, 5], "start": [0, 0]}
    {"kind": "multi_binary", "shape": [8]}
    {"kind": "tuple", "parts": [...]}
    {"kind": "dict", "parts": [["name", {...}], ...]}

Flat observations (D,) follow `gymnasium.spaces.utils.flatten`: parts in order, boxes and bits as
they are, one column per option of anything discrete, of which one is 1. Flat actions (A,) have the
numbers of all boxes first, then one column per choice: the index of the option, counted from 0, or
a bit. What has a single option leaves nothing to choose, and has no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
) - {"float8"}
DEEPEST = 8  # spaces within spaces: a checkpoint is not read if its tables are nested too deep
MOST = 2**31  # columns
EXACT = 2**53  # whole numbers up to this are exact in float64


class Misfit(ValueError):
    """A value that does not fit a space; the text begins with what it is."""


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
    _require(isinstance(description, dict), "a space that is no table")
    _require(len(path) <= DEEPEST, f"spaces within spaces, more than {DEEPEST} deep")
    kind = description.get("kind")
    keys = {
        "box": {"shape", "dtype"},
        "discrete": {"options", "start"},
        "multi_discrete": {"shape", "dtype", "options", "start"},
        "multi_binary": {"shape"},
        "tuple": {"parts"},
        "dict": {"parts"},
    }.get(kind if isinstance(kind, str) else "")
    _require(keys is not None and description.keys() == {"kind", *keys}, "a space of no known kind")
    if kind in ("tuple", "dict"):
        parts = description["parts"]
        _require(isinstance(parts, list) and len(parts) > 0, "a space without parts")
        if kind == "dict":
            pairs = [part for part in parts if isinstance(part, list) and len(part) == 2]
            names = [name for name, _ in pairs if isinstance(name, str)]
            _require(len(names) == len(parts) == len({*names}), "a space whose parts have no names")
        for i, part in enumerate(parts):
            name, inner = part if kind == "dict" else (i, part)
            yield from _walk(inner, (*path, name))
        return
    yield _leaf(description, kind, path)


def _leaf(description: dict[str, Any], kind: str, path: tuple[str | int, ...]) -> Leaf:
    shape = tuple(_numbers(description["shape"], 1)) if "shape" in description else ()
    _require(prod(shape) < MOST, "a space that is too large")
    dtype = description.get("dtype", "int8" if kind == "multi_binary" else "int64")
    _require(isinstance(dtype, str) and dtype in DTYPES, "a space of an unknown type of numbers")
    options: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    if kind == "discrete":
        options = tuple(_numbers([description["options"]], 1))
        start = tuple(_numbers([description["start"]], -EXACT))
    elif kind == "multi_discrete":
        options = tuple(_numbers(description["options"], 1))
        start = tuple(_numbers(description["start"], -EXACT))
        _require(len(options) == len(start) == prod(shape), "a space with missing options")
    return Leaf(path, kind, shape, dtype, options, start)


def _numbers(values: Any, least: int) -> list[int]:
    fine = isinstance(values, list) and all(
        type(value) is int and least <= value < EXACT for value in values
    )
    _require(fine, "a space with numbers that are none, or out of range")
    return list(values)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


class ObservationLayout:
    """From raw observations to flat rows.

    Attributes:
        description: Of the space, as JSON holds it.
        size: D.
        box: Whether the space is a single box, whose array is its own row.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        """Read a description; raises ValueError if it is none."""
        self.description, self.leaves = description, leaves_of(description)
        self.size = sum(leaf.width for leaf in self.leaves)
        self.box = description["kind"] == "box"
        self.shape = self.leaves[0].shape if self.box else (self.size,)

    @cached_property
    def as_is(self) -> NDArray[np.bool_] | None:
        """Which columns (D,) are not to be standardised, options and bits; None if none is."""
        parts = [np.full(leaf.width, leaf.kind != "box") for leaf in self.leaves]
        mask = np.concatenate(parts)
        return mask if mask.any() else None

    @cached_property
    def _writers(self) -> list[tuple[tuple[str | int, ...], Callable[[Any, FloatArray], None]]]:
        writers, begin = [], 0
        for leaf in self.leaves:
            writers.append((leaf.path, _writer(leaf, begin)))
            begin += leaf.width
        return writers

    def write(self, observation: Any, row: FloatArray) -> None:
        """Fill row (D,) with a raw observation; raises `Misfit`."""
        for path, put in self._writers:
            value = observation
            try:
                for key in path:
                    value = value[key]
            except (KeyError, IndexError, TypeError):
                raise Misfit(f"an observation without the part {key!r}") from None
            put(value, row)

    def flatten(self, observation: Any) -> FloatArray:
        """Return a raw observation as a row (D,); raises `Misfit`."""
        row = np.empty(self.size)
        self.write(observation, row)
        return row


def _writer(leaf: Leaf, begin: int) -> Callable[[Any, FloatArray], None]:
    """Return what writes one leaf's raw value into its columns, which start at `begin`."""
    end, size, where = begin + leaf.width, leaf.size, _named(leaf)
    if leaf.kind in ("box", "multi_binary"):

        def write_numbers(value: Any, row: FloatArray) -> None:
            row[begin:end] = _flat(value, size, "fiub", where)

        return write_numbers
    offsets = begin + np.cumsum([0, *leaf.options[:-1]])
    options, start = np.array(leaf.options), np.array(leaf.start)

    def write_options(value: Any, row: FloatArray) -> None:
        chosen = _flat(value, size, "iub", where).astype(np.int64) - start
        if ((chosen < 0) | (chosen >= options)).any():
            raise Misfit(f"an observation{where} of {value!r:.40}, which is no option there")
        row[begin:end] = 0.0
        row[offsets + chosen] = 1.0

    return write_options


def _flat(value: Any, size: int, kinds: str, where: str) -> NDArray[Any]:
    """Return a leaf's value as a flat array of so many numbers of these kinds of types."""
    try:
        array = value if type(value) is np.ndarray else np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in kinds:
        wanted = "made of numbers" if kinds == "fiub" else "made of whole numbers"
        raise Misfit(f"an observation{where} that is not {wanted} but {value!r:.40}")
    if array.size != size:
        raise Misfit(f"an observation{where} of {array.size} numbers; its space says {size}")
    return array.reshape(-1)


def _named(leaf: Leaf) -> str:
    return "".join(f"[{key!r}]" for key in leaf.path)


class ActionLayout:
    """Between flat rows and raw actions.

    Attributes:
        description: Of the space, as JSON holds it.
        gaussians: G, the numbers of all boxes.
        choices: Options of the M choices that follow them; 1 is a bit.
        size: A = G + M.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        """Read a description; raises ValueError if it is none."""
        self.description, self.leaves = description, leaves_of(description)
        self.gaussians = sum(leaf.size for leaf in self.leaves if leaf.kind == "box")
        _require(sum(leaf.size for leaf in self.leaves) < MOST, "a space that is too large")
        self.size = self.gaussians + sum(_columns(leaf) for leaf in self.leaves if leaf.options)
        self.size += sum(leaf.size for leaf in self.leaves if leaf.kind == "multi_binary")
        self.nested = description["kind"] in ("tuple", "dict")

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """Options of each choice that there is; 1 is a bit."""
        found: list[int] = []
        for leaf in self.leaves:
            bits = leaf.size if leaf.kind == "multi_binary" else 0
            found += [1] * bits or [k for k in leaf.options if k > 1]
        return tuple(found)

    @cached_property
    def _codecs(self) -> list[_Codec]:
        codecs, number, choice = [], 0, self.gaussians
        for leaf in self.leaves:
            begin = number if leaf.kind == "box" else choice
            codecs.append(_Codec(leaf, begin))
            if leaf.kind == "box":
                number += leaf.size
            else:
                choice = codecs[-1].end
        return codecs

    def decode(self, row: FloatArray) -> Any:
        """Return the raw action of a row (A,); `encode` is its inverse.

        Numbers are converted to the type of their box, whole ones rounded, and not clipped
        otherwise.
        """
        values = iter([codec.decode(row) for codec in self._codecs])
        return _assemble(self.description, values)

    def encode(self, action: Any) -> FloatArray:
        """Return the row (A,) of a raw action."""
        row = np.zeros(self.size)
        for codec in self._codecs:
            value = action
            for key in codec.leaf.path:
                value = value[key]
            codec.encode(value, row)
        return row


def _columns(leaf: Leaf) -> int:
    return sum(k > 1 for k in leaf.options)


class _Codec:
    """One leaf of an action, whose columns start at `begin`."""

    def __init__(self, leaf: Leaf, begin: int) -> None:
        self.leaf, self.begin = leaf, begin
        discrete = bool(leaf.options)
        self.end = begin + (_columns(leaf) if discrete else leaf.size)
        self._dtype = np.dtype(leaf.dtype)
        self._open = np.array([k > 1 for k in leaf.options], dtype=bool)
        self._start = np.array(leaf.start, dtype=np.int64)
        self._limits: tuple[float, float] | None = None
        if leaf.kind == "box" and self._dtype.kind in "iu":
            info = np.iinfo(self._dtype)
            self._limits = float(max(info.min, -EXACT)), float(min(info.max, EXACT))

    def decode(self, row: FloatArray) -> Any:
        leaf, part = self.leaf, row[self.begin : self.end]
        if leaf.kind == "discrete":
            return leaf.start[0] + (int(part[0]) if len(part) else 0)
        if leaf.kind == "multi_discrete":
            chosen = self._start.copy()
            chosen[self._open] += part.astype(np.int64)
            return chosen.astype(self._dtype).reshape(leaf.shape)
        if self._limits is not None:
            part = np.clip(np.rint(part), *self._limits)
        return part.astype(self._dtype).reshape(leaf.shape)

    def encode(self, value: Any, row: FloatArray) -> None:
        flat = np.asarray(value).reshape(-1)
        if self.leaf.options:
            flat = (flat.astype(np.int64) - self._start)[self._open]
        row[self.begin : self.end] = flat


def _assemble(description: dict[str, Any], values: Iterator[Any]) -> Any:
    """Return the nested value of a described space from those of its leaves, in order."""
    if description["kind"] == "tuple":
        return tuple(_assemble(part, values) for part in description["parts"])
    if description["kind"] == "dict":
        return {name: _assemble(part, values) for name, part in description["parts"]}
    return next(values)
