"""Spaces of Gymnasium in words, for people who did not write the environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from cspo.errors import in_one_line

MOST_PARTS = 6  # of a Dict or Tuple that are described


def words_of_space(space: Any) -> str:
    """Return what a space holds, such as "3 numbers from -1 to 1" or "one of 4 choices"."""
    if isinstance(space, spaces.Box):
        return _box(space)
    if isinstance(space, spaces.Discrete):
        return f"one of {space.n} choices"
    if isinstance(space, spaces.MultiDiscrete):
        counts = space.nvec.reshape(-1).tolist()
        return f"{len(counts)} choices at once, among {_listed(counts)}"
    if isinstance(space, spaces.MultiBinary):
        return f"{_size(space.shape)} switches, on or off"
    if isinstance(space, spaces.Dict):
        parts = [f"{name} ({words_of_space(part)})" for name, part in space.spaces.items()]
        return in_one_line(f"a dict with {_listed(parts)}")
    if isinstance(space, spaces.Tuple):
        return in_one_line(f"a tuple of {_listed([words_of_space(one) for one in space.spaces])}")
    return f"a {type(space).__name__} space"


def words_of_vector(low: Any, high: Any) -> str:
    """Return what a vector with bounds holds, such as the actions of a `BatchEnv`."""
    return _box(spaces.Box(np.asarray(low), np.asarray(high), dtype=np.float64))


def words_of_actions(low: Any, high: Any, choices: tuple[int, ...]) -> str:
    """Return what the flat actions of a `BatchEnv` are; its last columns may be choices."""
    numbers = len(low) - len(choices)
    words = [words_of_vector(low[:numbers], high[:numbers])] if numbers else []
    return " and ".join([*words, *(f"one of {max(k, 2)} choices" for k in choices)])


def _box(space: spaces.Box) -> str:
    if space.dtype == np.uint8 and len(space.shape) == 3:
        return f"a picture of {_size(space.shape)} bytes"
    count = "1 number" if np.prod(space.shape) == 1 else f"{_size(space.shape)} numbers"
    lows, highs = np.unique(space.low), np.unique(space.high)
    if len(lows) > 1 or len(highs) > 1:
        return f"{count}, each with its own bounds"
    return f"{count} {_range(float(lows[0]), float(highs[0]))}"


def _range(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f"from {low:g} to {high:g}"
    if np.isfinite(low):
        return f"from {low:g} on"
    return f"up to {high:g}" if np.isfinite(high) else "without bounds"


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _listed(parts: list[Any]) -> str:
    words = [str(part) for part in parts[:MOST_PARTS]]
    if len(parts) > MOST_PARTS:
        return f"{', '.join(words)} and {len(parts) - MOST_PARTS} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
