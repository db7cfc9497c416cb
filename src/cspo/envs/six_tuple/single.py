"""One environment with six values per step."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium

from cspo.envs.make import factory_of
from cspo.envs.tasks import NAMESPACE, native_name
from cspo.errors import CspoError

SixValues = tuple[Any, Any, Any, Any, Any, dict[str, Any]]
"""Observation, reward, cost, terminated, truncated, info; of vector environments (N,) each."""


class SafeWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of environments with six values, which also passes their attributes on.

    Gymnasium's own wrappers did so when that code was written: `env.task`, `env.num_envs`.
    """

    reward_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # as Gymnasium had it

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the environment inside."""
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self.env.get_wrapper_attr(name)

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        outcome: Any = self.env.step(action)
        return outcome  # type: ignore[no-any-return]


class SixTuple(SafeWrapper):
    """An environment whose `step` returns (observation, reward, cost, terminated, truncated, info).

    `info` names what Safety-Gymnasium names: `cost_sum` beside the `cost_...` of each term that was
    judged (not `cost_buttons` while buttons are dark), and `goal_met` only in a step that reached a
    goal. The environment inside is one of Gymnasium that gives `info["cost"]` in every step.
    """

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise CspoError(
                f"{self.env} gives no info['cost'], which would be the third of the six values."
            )
        info = {**info, "cost_sum": info["cost"]}
        for name in getattr(self.unwrapped, "untold", ()):
            info.pop(name, None)
        if info.pop("goal_met", False):
            info["goal_met"] = True
        return observation, reward, info["cost"], terminated, truncated, info


def six_tuple(env: Any, **options: Any) -> SixTuple:
    """Return an environment with six values per step.

    Args:
        env: A native task ("SafetyPointGoal1-v0"), a Gymnasium id, or an environment.
        **options: What `gymnasium.make` takes (`render_mode`, `max_episode_steps`, ...) and options
            of the task.
    """
    if not isinstance(env, str):
        if options:
            raise CspoError(
                "options are for an environment that is made by name, not for an object."
            )
        return SixTuple(env)
    name = native_name(env)
    return SixTuple(factory_of(env if name is None else NAMESPACE + name, options)())
