"""Many environments at a time, with six values of N rows each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from cspo.envs.six_tuple.registration import make as make_one
from cspo.envs.six_tuple.registration import native_options
from cspo.envs.six_tuple.vector.async_vector_env import SafetyAsyncVectorEnv
from cspo.envs.six_tuple.vector.native import NativeVectorEnv
from cspo.envs.six_tuple.vector.sync_vector_env import SafetySyncVectorEnv
from cspo.envs.tasks import native_name

__all__ = ["SafetyAsyncVectorEnv", "SafetySyncVectorEnv", "VectorEnv", "make"]
Wrapper = Callable[[Any], Any]


def make(
    env_id: str,
    num_envs: int = 1,
    asynchronous: bool = True,
    wrappers: Wrapper | Sequence[Wrapper] | None = None,
    disable_env_checker: bool | None = None,
    **kwargs: Any,
) -> NativeVectorEnv | SafetySyncVectorEnv:
    """Return `num_envs` copies of an environment, whose `step` returns six values of N rows each.

    Copies of a native task without wrappers are one native batch; others are stepped one after
    another.

    Args:
        env_id: What `make` of one environment takes.
        num_envs: Number of copies, N.
        asynchronous: Without effect: nothing is started in other processes.
        wrappers: Put around each copy.
        disable_env_checker: As in `make` of one environment.
        **kwargs: As there; of a native batch also `threads`.
    """
    if wrappers is None and (options := native_options(env_id, kwargs)) is not None:
        return NativeVectorEnv(task=native_name(env_id), num_envs=num_envs, **options)
    around = [wrappers] if callable(wrappers) else list(wrappers or ())

    def wrapped() -> Any:
        env = make_one(env_id, disable_env_checker=disable_env_checker, **kwargs)
        for wrapper in around:
            env = wrapper(env)
        return env

    return SafetySyncVectorEnv([wrapped] * num_envs)
