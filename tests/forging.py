"""Checkpoints as an attacker writes them: anything inside, and a digest that fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from cspo.runs import checkpoint
from cspo.state import digest

Arrays = dict[str, np.ndarray]
KINDS = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "bool": "BOOL",
    "uint8": "U8",
}


def take_apart(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the plain values and the arrays of a checkpoint."""
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["state"]), arrays


def put_together(path: Path, plain: Any, arrays: Arrays, text: str | None = None) -> None:
    """Write a checkpoint with a digest that fits; `text` in place of the plain values as JSON."""
    text = json.dumps(plain) if text is None else text
    metadata = {"format": checkpoint.FORMAT, "state": text, "digest": digest(arrays, text)}
    header: dict[str, Any] = {"__metadata__": metadata}
    content = b""
    for name, array in arrays.items():
        data = array.tobytes()
        ends = [len(content), len(content) + len(data)]
        entry = {"dtype": KINDS[array.dtype.name], "shape": array.shape, "data_offsets": ends}
        header[name], content = entry, content + data
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    path.write_bytes(len(words).to_bytes(8, "little") + words + content)


def forge(path: Path, change: Callable[[dict[str, Any], Arrays], Any]) -> None:
    """Change what is in a checkpoint, and compute its digest anew."""
    plain, arrays = take_apart(path)
    change(plain, arrays)
    put_together(path, plain, arrays)


def tables(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where the tables of a nested value are, the outermost first."""
    if isinstance(value, dict) and list(value) != ["array"]:
        yield path
        for key, item in value.items():
            yield from tables(item, (*path, key))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the plain values of a nested value are."""
    if isinstance(value, dict):
        if list(value) != ["array"]:
            for key, item in value.items():
                yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))
    else:
        yield path


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """Return what a nested value has somewhere."""
    for key in path:
        value = value[key]
    return value
