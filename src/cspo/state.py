"""Nested states: dicts of arrays and plain values, as every `state_dict` returns them."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]


class Remembers:
    """Something whose state is some of its attributes: arrays, numbers, or parts with a state.

    A saved state may lack a name, as one of an earlier version does: that one stays as it began.
    """

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
        for name, value in state.items():
            if isinstance(value, dict):
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
    """Return the state that `split` took apart."""
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1 and (kind := next(iter(plain))) in ("array", "tensor"):
        return arrays[plain[kind]]  # "tensor" is what checkpoints of version 0.1 say
    return {key: join(item, arrays) for key, item in plain.items()}


def digest(arrays: Arrays, text: str = "") -> str:
    """Return a digest of a text and of the names, types, shapes and contents of arrays."""
    result = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        result.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        result.update(arrays[name].tobytes())
    return result.hexdigest()
