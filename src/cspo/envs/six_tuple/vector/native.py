"""N copies of a native task in one batch, with six values."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.gym import SafetyVectorEnv
from cspo.envs.six_tuple.single import SixValues
from cspo.envs.six_tuple.vector.base import SixVectorEnv, tiled


class NativeVectorEnv(SixVectorEnv):
    """N copies of a native task.

    Args:
        **options: What `cspo.envs.gym.SafetyVectorEnv` takes.
    """

    def __init__(self, **options: Any) -> None:
        """Create the simulators."""
        self._inside = inside = SafetyVectorEnv(**options)
        self.num_envs, self.render_mode = inside.num_envs, inside.render_mode
        self.metadata = inside.metadata
        self.single_observation_space = inside.single_observation_space
        self.single_action_space = inside.single_action_space
        self.observation_space, self.action_space = inside.observation_space, inside.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start N episodes; copy i is seeded with `seed + i`, or with `seed[i]`."""
        return self._inside.reset(seed=seed, options=options)

    def step(self, actions: Any) -> SixValues:  # type: ignore[override]
        """Advance every copy by one step."""
        observation, reward, terminated, truncated, told = self._inside.step(actions)
        cost, ended = told["cost"], terminated | truncated
        terms = {key: told[key] for key in told if f"_{key}" in told and not key.startswith("fin")}
        terms["cost_sum"] = cost
        untold, no_one = self._inside.untold, np.zeros(self.num_envs, np.bool_)
        info: dict[str, Any] = {}
        for key, values in terms.items():
            if key == "goal_met":
                met = (values > 0.0) & ~ended
                info |= {"goal_met": met, "_goal_met": met.copy()} if met.any() else {}
            else:  # of an episode that begins there is nothing to tell yet
                judged = ~(ended | untold.get(key, no_one))
                fresh = {key: np.where(judged, values, 0.0), f"_{key}": judged}
                info |= fresh if judged.any() else {}
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(ended).tolist():
                last = {key: terms[key] for key in terms if not untold.get(key, no_one)[i]}
                final[i] = _of_one(last, i)
            info |= {"final_observation": told["final_obs"], "_final_observation": ended}
            info |= {"final_info": final, "_final_info": ended.copy()}
        return observation, reward, cost, terminated, truncated, info

    def render(self) -> Any:
        """Return one picture of all copies side by side, or None without a `render_mode`."""
        pictures = self._inside.render()
        return None if pictures is None else tiled(pictures)

    def close_extras(self, **kwargs: Any) -> None:
        """Release the simulators."""
        self._inside.close()


def _of_one(terms: dict[str, Any], index: int) -> dict[str, Any]:
    """Return what one copy is told of its last step."""
    told = {key: float(values[index]) for key, values in terms.items() if key != "goal_met"}
    return told | ({"goal_met": True} if terms.get("goal_met", np.zeros(index + 1))[index] else {})
