"""Between the raw values of a described space and flat rows of numbers.

A policy takes raw observations and returns raw actions by these, without the environment, and
without importing anything of it.

Flat observations (D,) follow `gymnasium.spaces.utils.flatten`: parts in order, boxes and bits as
they are, one column per option of anything discrete, of which one is 1. Flat actions (A,) have the
numbers of all boxes first, then one column per choice: the index of the option, counted from 0, or
a bit. What has a single option leaves nothing to choose, and has no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.described import EXACT, MOST, Leaf, leaves_of, require

FloatArray = NDArray[np.float64]


class Misfit(ValueError):
    """A value that does not fit a space; the text begins with what it is."""


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

    @property
    def is_image(self) -> bool:
        """Whether observations are images: bytes in three dimensions."""
        return self.box and len(self.shape) == 3 and self.leaves[0].dtype == "uint8"

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

    def batch_of(self, observation: Any) -> list[Any] | None:
        """Return the leaves of several observations in one, arrays with one axis more, or None."""
        values = []
        for leaf in self.leaves:
            value = observation
            try:
                for key in leaf.path:
                    value = value[key]
            except (KeyError, IndexError, TypeError):
                return None  # which `write` explains
            values.append(value)
        pairs = list(zip(values, self.leaves, strict=True))
        every = all(np.ndim(value) == len(leaf.shape) + 1 for value, leaf in pairs)
        return values if every and len({len(value) for value in values}) == 1 else None

    def flatten_leaves(self, values: Sequence[Any]) -> FloatArray:
        """Return the rows (B, D) of the raw values (B, *shape) of every leaf; raises `Misfit`."""
        rows = np.empty((len(values[0]), self.size))
        for (_, put), value in zip(self._writers, values, strict=True):
            for one, row in zip(value, rows, strict=True):
                put(one, row)
        return rows

    def flatten(self, observation: Any) -> FloatArray:
        """Return a raw observation as a row (D,); raises `Misfit`."""
        row = np.empty(self.size)
        self.write(observation, row)
        return row

    def unflatten(self, rows: FloatArray) -> list[NDArray[Any]]:
        """Return the raw values (B, *shape) of every leaf, in order, of flat rows (B, D)."""
        values, begin = [], 0
        for leaf in self.leaves:
            columns = rows[:, begin : begin + leaf.width]
            if leaf.start:
                ends = np.cumsum(leaf.options)[:-1]
                chosen = [part.argmax(axis=1) for part in np.split(columns, ends, axis=1)]
                columns = np.stack(chosen, axis=1) + np.array(leaf.start)
            values.append(columns.astype(leaf.dtype).reshape(len(rows), *leaf.shape))
            begin += leaf.width
        return values


def _writer(leaf: Leaf, begin: int) -> Callable[[Any, FloatArray], None]:
    """Return what writes one leaf's raw value into its columns, which start at `begin`."""
    end, size, where = begin + leaf.width, leaf.size, _named(leaf)
    if leaf.kind in ("box", "multi_binary"):

        def write_numbers(value: Any, row: FloatArray) -> None:
            row[begin:end] = _flat(value, size, "fiub", where)

        return write_numbers
    offsets = begin + np.cumsum([0, *leaf.options[:-1]])
    options, start = np.array(leaf.options), np.array(leaf.start)
    first, count, single = leaf.start[0], leaf.options[0], leaf.kind == "discrete"

    def write_options(value: Any, row: FloatArray) -> None:
        if single and type(value) in (int, np.int64) and 0 <= value - first < count:
            row[begin:end] = 0.0
            row[begin + value - first] = 1.0
            return
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
        require(sum(leaf.size for leaf in self.leaves) < MOST, "a space that is too large")
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

    @cached_property
    def decode(self) -> Callable[[FloatArray], Any]:
        """Return the raw action of a row (A,); `encode` is its inverse.

        Numbers are converted to the type of their box, whole ones rounded, and not clipped
        otherwise. A function that is made once: it is called for every environment and step.
        """
        decoders = [_decoder(codec, self.size) for codec in self._codecs]
        if not self.nested:
            return decoders[0]
        return lambda row: _assemble(self.description, iter([one(row) for one in decoders]))

    def decode_all(self, rows: FloatArray) -> Any:
        """Return the raw actions of rows (N, A), N of them; those of a box are made at once."""
        leaf = self.leaves[0]
        if self.description["kind"] == "box" and np.dtype(leaf.dtype).kind == "f":
            return rows.astype(leaf.dtype).reshape(-1, *leaf.shape)
        return [self.decode(row) for row in rows]

    def encode(self, action: Any) -> FloatArray:
        """Return the row (A,) of a raw action."""
        row = np.zeros(self.size)
        for codec in self._codecs:
            value = action
            for key in codec.leaf.path:
                value = value[key]
            codec.encode(value, row)
        return row

    def encode_leaves(self, values: Sequence[NDArray[Any]]) -> FloatArray:
        """Return the rows (B, A) of the raw values (B, *shape) of every leaf, in order."""
        rows = np.zeros((len(values[0]), self.size))
        for codec, value in zip(self._codecs, values, strict=True):
            for one, row in zip(value, rows, strict=True):
                codec.encode(one, row)
        return rows


def _columns(leaf: Leaf) -> int:
    return sum(k > 1 for k in leaf.options)


class _Codec:
    """One leaf of an action, whose columns start at `begin`."""

    def __init__(self, leaf: Leaf, begin: int) -> None:
        self.leaf, self.begin = leaf, begin
        self.end = begin + (_columns(leaf) if leaf.options else leaf.size)
        self.open = np.array([k > 1 for k in leaf.options], dtype=bool)
        self.start = np.array(leaf.start, dtype=np.int64)

    def encode(self, value: Any, row: FloatArray) -> None:
        flat = np.asarray(value).reshape(-1)
        if self.leaf.options:
            flat = (flat.astype(np.int64) - self.start)[self.open]
        row[self.begin : self.end] = flat


def _decoder(codec: _Codec, size: int) -> Callable[[FloatArray], Any]:
    """Return what makes the raw value of one leaf from a whole row (A,)."""
    leaf, begin, end = codec.leaf, codec.begin, codec.end
    shape, dtype, first = leaf.shape, np.dtype(leaf.dtype), (leaf.start or (0,))[0]
    if leaf.kind == "discrete":
        return (lambda row: first + int(row[begin])) if end > begin else (lambda row: first)
    if leaf.kind == "multi_discrete":

        def decode_options(row: FloatArray) -> Any:
            chosen = codec.start.copy()
            chosen[codec.open] += row[begin:end].astype(np.int64)
            return chosen.astype(dtype).reshape(shape)

        return decode_options
    if leaf.kind == "box" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = float(max(info.min, -EXACT)), float(min(info.max, EXACT))
        return lambda row: np.clip(np.rint(row[begin:end]), low, high).astype(dtype).reshape(shape)
    if shape == (size,):
        return lambda row: row.astype(dtype)
    return lambda row: row[begin:end].astype(dtype).reshape(shape)


def _assemble(description: dict[str, Any], values: Iterator[Any]) -> Any:
    """Return the nested value of a described space from those of its leaves, in order."""
    if description["kind"] == "tuple":
        return tuple(_assemble(part, values) for part in description["parts"])
    if description["kind"] == "dict":
        return {name: _assemble(part, values) for name, part in description["parts"]}
    return next(values)
