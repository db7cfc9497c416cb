"""Nested states: dicts of arrays and plain values, as every `state_dict` returns them."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]


class Remembers:
    """Something whose state is some of its attributes: arrays, numbers, or parts with a state."""

    remembered: ClassVar[tuple[str, ...]]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of what is remembered."""
        values = {name: getattr(self, name) for name in self.remembered}
        return {
            name: value.state_dict() if hasattr(value, "state_dict") else np.array(value)
            for name, value in values.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name in self.remembered:
            if isinstance(value := state[name], dict):
                getattr(self, name).load_state_dict(value)
            else:
                setattr(self, name, np.array(value))


def split(state: Any) -> tuple[Any, Arrays]:
    """Return a state with references in place of its arrays, as JSON can hold it, and those."""
    arrays: Arrays = {}
    return _split(state, "", arrays), arrays


def _split(value: Any, path: str, arrays: Arrays) -> Any:
    if isinstance(value, dict):
        return {key: _split(item, f"{path}/{key}", arrays) for key, item in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    arrays[path] = np.ascontiguousarray(value)
    return {"array": path}


def join(plain: Any, arrays: Arrays) -> Any:
    """Return the state that `split` took apart.

    Raises:
        ValueError: If it names an array that there is not, or does not name one that there is.
    """
    left = dict(arrays)
    state = _join(plain, left)
    if left:
        raise ValueError(f"its state does not name the array {min(left)!r}")
    return state


def _join(plain: Any, left: Arrays) -> Any:
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1 and (kind := next(iter(plain))) in ("array", "tensor"):
        path = plain[kind]  # "tensor" is what checkpoints of version 0.1 say
        if isinstance(path, str):
            if path not in left:
                raise ValueError(f"its state names the array {path!r}, which it does not hold")
            return left.pop(path)
    return {key: _join(item, left) for key, item in plain.items()}


def names_in(state: dict[str, Any], path: str = "") -> set[str]:
    """Return the paths of all that is in a state, tables and what they hold."""
    inner = (names_in(item, f"{path}/{name}") for name, item in state.items() if type(item) is dict)
    return {f"{path}/{name}" for name in state}.union(*inner)


def digest(arrays: Arrays, text: str = "") -> str:
    """Return a digest of a text and of the names, types, shapes and contents of arrays."""
    result = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        result.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        result.update(arrays[name].tobytes())
    return result.hexdigest()
