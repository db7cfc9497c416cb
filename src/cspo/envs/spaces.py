"""Gymnasium's spaces, read once: their description, the bounds of actions, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from cspo.envs.layout import ActionLayout, FloatArray, ObservationLayout
from cspo.errors import CspoError

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Tuple and Dict of these"


class Unsupported(Exception):
    """A space that cannot be trained on; the text goes on where "its action_space" ends."""


def describe(space: Any) -> dict[str, Any]:
    """Return a space as plain data, see `cspo.envs.described`; raises `Unsupported`."""
    if isinstance(space, spaces.Box):
        _demand_numbers(space)
        return {"kind": "box", "shape": _ints(space.shape), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "options": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        _demand_numbers(space)
        return {
            "kind": "multi_discrete",
            "shape": _ints(space.shape),
            "dtype": str(space.dtype),
            "options": _ints(np.ravel(space.nvec)),
            "start": _ints(np.ravel(space.start)),
        }
    if isinstance(space, spaces.MultiBinary):
        _demand_numbers(space)
        return {"kind": "multi_binary", "shape": _ints(space.shape)}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "parts": [describe(part) for part in _parts(space)]}
    if isinstance(space, spaces.Dict):
        named = zip(space.spaces, _parts(space), strict=True)
        if not all(isinstance(name, str) for name in space.spaces):
            raise Unsupported("has keys that are not text: name the parts of a Dict by text")
        return {"kind": "dict", "parts": [[name, describe(part)] for name, part in named]}
    advice = f"supported are {SUPPORTED}: wrap the environment so that it has one of them"
    raise Unsupported(f"has a part of type {type(space).__name__}; {advice}")


def _parts(space: Any) -> list[Any]:
    inner = space.spaces
    if not inner:
        raise Unsupported("is empty: it needs at least one part")
    return list(inner.values() if isinstance(space, spaces.Dict) else inner)


def _demand_numbers(space: Any) -> None:
    if not np.issubdtype(space.dtype, np.number) or 0 in space.shape:
        found = f"dtype {space.dtype} and shape {space.shape}"
        raise Unsupported(f"has {found}, and numbers are needed")


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


def _boxes(space: Any) -> Iterator[Any]:
    """Yield the boxes in a space, in the order of its description."""
    if isinstance(space, spaces.Box):
        yield space
    elif isinstance(space, spaces.Tuple | spaces.Dict):
        for part in _parts(space):
            yield from _boxes(part)


def observation_layout(space: Any) -> ObservationLayout:
    """Return how observations of a space are flattened; raises `Unsupported`."""
    try:
        return ObservationLayout(describe(space))
    except ValueError as fault:
        raise Unsupported(f"cannot be used: it has {fault}") from fault


def action_layout(space: Any) -> ActionLayout:
    """Return how actions of a space are made from flat rows; raises `Unsupported`."""
    try:
        layout = ActionLayout(describe(space))
    except ValueError as fault:
        raise Unsupported(f"cannot be used: it has {fault}") from fault
    if layout.size == 0:
        raise Unsupported("leaves nothing to decide: it has one option only")
    return layout


def action_bounds(space: Any, layout: ActionLayout) -> tuple[FloatArray, FloatArray]:
    """Return the bounds (A,) of flat actions: infinite where a box has none, 0 and k - 1 of k."""
    low, high = [], []
    for box in _boxes(space):
        low.append(np.where(box.bounded_below, box.low.astype(np.float64), -np.inf).reshape(-1))
        high.append(np.where(box.bounded_above, box.high.astype(np.float64), np.inf).reshape(-1))
    options = np.maximum(np.array(layout.choices, dtype=np.float64), 2.0)  # a bit has two
    return np.concatenate([*low, 0.0 * options]), np.concatenate([*high, options - 1.0])


def space_problem(env: Any, what: str) -> str | None:
    """Say why training cannot use the "observation" or "action" space, or return None."""
    if hasattr(env, "possible_agents"):
        return (
            "it has several agents (PettingZoo): make one of them the learner, behind a "
            "gymnasium.Env whose step() moves the others"
        )
    space = getattr(env, f"{what}_space", None)
    if space is None:
        return f"it has no {what}_space"
    try:
        (observation_layout if what == "observation" else action_layout)(space)
    except Unsupported as fault:
        return f"its {what}_space {fault}"
    return None


def layouts_of(env: Any, name: str) -> tuple[ObservationLayout, ActionLayout]:
    """Return the layouts of both spaces, or say why they cannot be trained on."""
    for what in ("observation", "action"):
        problem = space_problem(env, what)
        if problem is not None:
            raise CspoError(f"the environment {name} cannot be trained on: {problem}.")
    return observation_layout(env.observation_space), action_layout(env.action_space)
