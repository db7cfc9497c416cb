"""The native tasks as Safety-Gymnasium hands them out: six values per step, the cost third.

Code written for it runs with one line changed:

    import cspo.envs.six_tuple as safety_gymnasium

    env = safety_gymnasium.make("SafetyPointGoal1-v0", render_mode="rgb_array")
    observation, info = env.reset(seed=0)
    observation, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
"""

from __future__ import annotations

from typing import Any

import gymnasium

from cspo.envs.make import factory_of
from cspo.envs.tasks import NAMESPACE, native_name
from cspo.errors import CspoError


class SixTuple(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose `step` returns (observation, reward, cost, terminated, truncated, info).

    `info` names what Safety-Gymnasium names: `cost_sum` beside the `cost_...` of each term, and
    `goal_met` only in a step that reached a goal.

    Args:
        env: A Gymnasium environment that gives `info["cost"]` in every step.
    """

    def step(self, action: Any) -> tuple[Any, Any, float, bool, bool, dict[str, Any]]:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise CspoError(
                f"{self.env} gives no info['cost'], which would be the third of the six values."
            )
        info = {**info, "cost_sum": info["cost"]}
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


make = six_tuple  # as Safety-Gymnasium calls it
