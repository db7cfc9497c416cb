"""What a Gymnasium environment says of itself: its name, costs, time limit, randomness."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.foreign import WrongAnswer, check_state
from cspo.errors import shown

MOST_COSTS = 1000  # of one environment
DEEPEST = 100  # wrappers around an environment


def name_of(env: Any) -> str:
    """Return the id an environment was made by, or the name of its class."""
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__


def name_of_factory(factory: Any) -> str:
    """Return what to call an environment that could not be made: what makes it."""
    return str(getattr(getattr(factory, "func", factory), "__name__", type(factory).__name__))


def names_of_costs(env: Any) -> tuple[str, ...] | None:
    """Return the names an environment declares (`cost_names`, or `num_costs` of them), or None."""
    base = getattr(env, "unwrapped", env)
    names, count = getattr(base, "cost_names", None), getattr(base, "num_costs", None)
    if names is not None and len(names):
        return (names,) if isinstance(names, str) else tuple(str(name) for name in names)
    return None if count is None else numbered_costs(int(count))


def numbered_costs(count: int) -> tuple[str, ...]:
    """Return names for costs that nobody named."""
    if not 1 <= count <= MOST_COSTS:
        raise WrongAnswer(f"gives {count} costs, not at least 1 and at most {MOST_COSTS}")
    return ("cost",) if count == 1 else tuple(f"cost_{k}" for k in range(count))


def time_limit_of(env: Any) -> int | None:
    """Return after how many steps the `TimeLimit` wrapper ends an episode, or None without one."""
    for _ in range(DEEPEST):
        limit = getattr(env, "_max_episode_steps", None)
        if limit is not None:
            return int(limit)
        spec = getattr(env, "spec", None)
        if spec is not None and spec.max_episode_steps is not None:
            return int(spec.max_episode_steps)
        if (env := getattr(env, "env", None)) is None:
            break
    return None


def random_state_of(env: Any) -> dict[str, Any] | None:
    """Return what is random in an environment: what it says itself, else its `np_random`."""
    base = getattr(env, "unwrapped", env)
    if _keeps_random_state(base):
        state = base.random_state()
        if not isinstance(state, dict):
            raise WrongAnswer(f"must return a dict, not {shown(state)}")
        check_state({"generators": [state]})
        return state
    generator = getattr(base, "_np_random", None)
    if not isinstance(generator, np.random.Generator):
        return None
    state = dict(generator.bit_generator.state)
    # Generators other than Gymnasium's PCG64 may hold arrays, which are not JSON.
    return state if state.get("bit_generator") in ("PCG64", "PCG64DXSM") else None


def set_random_state_of(env: Any, state: dict[str, Any]) -> None:
    """Put back what `random_state_of` returned."""
    base = getattr(env, "unwrapped", env)
    if _keeps_random_state(base):
        base.set_random_state(state)
    else:
        base.np_random.bit_generator.state = state


def _keeps_random_state(base: Any) -> bool:
    return hasattr(base, "random_state") and hasattr(base, "set_random_state")
