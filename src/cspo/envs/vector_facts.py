"""What a `gymnasium.vector.VectorEnv` says of itself: resets, infos and random generators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from cspo.envs.batch import BoolArray
from cspo.errors import CspoError


def is_vector_env(env: Any) -> bool:
    """Whether `env` is a Gymnasium environment that steps all its copies itself."""
    return isinstance(env, VectorEnv)


class Infos:
    """The `infos` of a step, by copy."""

    def __init__(self, infos: dict[str, Any], of_ended: Any, ended: BoolArray) -> None:
        self._infos, self._ended = infos, ended
        self._of_ended = of_ended if isinstance(of_ended, dict) else infos

    def whole(self, key: str) -> Any:
        """Return the values of all copies, if they stand in one place."""
        mask = self._infos.get(f"_{key}")
        apart = self._of_ended is not self._infos and self._ended.any()
        complete = mask is None or np.all(mask)
        return self._infos.get(key) if complete and not apart else None

    def of(self, copy: int) -> dict[str, Any]:
        """Return what one copy gave; of one that ended, in its last step."""
        infos = self._of_ended if self._ended[copy] else self._infos
        known = [key for key in infos if not key.startswith("_")]
        masks = {key: infos.get(f"_{key}") for key in known}
        there = [key for key, mask in masks.items() if mask is None or mask[copy]]
        return {key: infos[key][copy] for key in there if hasattr(infos[key], "__getitem__")}


def one_of(values: Any, copy: int) -> Any:
    """Return one copy's part of what Gymnasium gathers in `infos`: nested where that is a dict."""
    if not isinstance(values, dict):
        return values[copy]
    return {key: one_of(inner, copy) for key, inner in values.items() if not key.startswith("_")}


def mode_of(env: Any, name: str) -> AutoresetMode:
    """Return how an environment resets its copies, or say why that does not do."""
    said = env.metadata.get("autoreset_mode")
    try:
        mode = AutoresetMode(said)
    except ValueError:
        known = "metadata['autoreset_mode'] must say how its copies are reset"
        raise CspoError(f"the environment {name} cannot be trained on: {known}.") from None
    base = env.unwrapped
    # Without shared memory a worker of Gymnasium resets a second time after a partial reset.
    exact = isinstance(base, SyncVectorEnv) or getattr(base, "shared_memory", False)
    if mode == AutoresetMode.NEXT_STEP and not (
        exact and isinstance(base, SyncVectorEnv | AsyncVectorEnv)
    ):
        raise CspoError(
            f"the environment {name} resets a copy in the step after its episode, which is no step "
            "to learn from: make it with autoreset_mode=AutoresetMode.SAME_STEP."
        )
    return mode


def random_parts(env: Any) -> list[Any]:
    """Return what has the random generators: the copies, or stand-ins with copies of theirs."""
    base = env.unwrapped
    if copies := getattr(base, "envs", ()):
        return list(copies)
    if isinstance(base, AsyncVectorEnv):
        generators = base.get_attr("np_random")
        return [SimpleNamespace(_np_random=one, np_random=one) for one in generators]
    return [base]


def put_back(env: Any, parts: list[Any]) -> None:
    """Send generators that were changed in stand-ins back to where they came from."""
    if isinstance(env.unwrapped, AsyncVectorEnv):
        env.unwrapped.set_attr("np_random", [one.np_random for one in parts])
