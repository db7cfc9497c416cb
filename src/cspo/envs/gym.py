"""Both directions between this package and Gymnasium.

`GymBatchEnv` makes any Gymnasium environment a `BatchEnv`. The other way, `import cspo` registers the native tasks
(`registration.py`), so that `gymnasium.make("cspo/SafetyHopperVelocity-v1")` and `gymnasium.make_vec(...)` know them;
`gymnasium.make("cspo:cspo/SafetyHopperVelocity-v1")` imports the package by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cspo.envs.gym_batch import CostFunction, GymBatchEnv
from cspo.envs.velocity import VelocityEnv

__all__ = ["CostFunction", "GymBatchEnv", "SafetyTaskEnv", "SafetyVectorEnv"]


class SafetyTaskEnv(gymnasium.Env[Any, Any]):
    """One native task as a Gymnasium environment: five values per step, the cost in `info["cost"]`.

    Resets draw the same random numbers as Safety-Gymnasium; the time limit is Gymnasium's `TimeLimit`
    wrapper.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (as Gymnasium declares it)

    def __init__(self, task: str, render_mode: str | None = None) -> None:
        """Create the task called `task`; there is no rendering."""
        self._batch = VelocityEnv(task, num_envs=1, autoreset=False, time_limit=None)
        self.render_mode = render_mode
        self.cost_names = self._batch.cost_names
        self.observation_space, self.action_space = _spaces(self._batch)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the generator is `self.np_random`, as Gymnasium expects."""
        super().reset(seed=seed)
        self._batch.generators[0] = self.np_random
        return self._batch.reset()[0].copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one step; `info` holds `cost`, `x_velocity` and, where defined, `y_velocity`."""
        result = self._batch.step(np.asarray(action)[None])
        info = {"cost": float(result.cost[0, 0])}
        info |= {name: float(value[0]) for name, value in self._batch.info_terms.items()}
        return result.observation[0].copy(), float(result.reward[0]), bool(result.terminated[0]), False, info

    def close(self) -> None:
        """Release the simulator."""
        self._batch.close()


class SafetyVectorEnv(VectorEnv[Any, Any, Any]):
    """N copies of a native task as a Gymnasium vector environment with same-step automatic reset.

    `info` holds `cost` and the velocities of every copy for the step just taken, (N,) each. Where an episode
    ended, `final_obs` and `final_info` follow Gymnasium's conventions.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        threads: int = 1,
        max_episode_steps: int | None = 1000,
        render_mode: str | None = None,
    ) -> None:
        """Create `num_envs` copies of the task called `task`, stepped by `threads` threads."""
        self._batch = VelocityEnv(task, num_envs, threads, time_limit=max_episode_steps)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.cost_names = self._batch.cost_names
        self.single_observation_space, self.single_action_space = _spaces(self._batch)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start N episodes; copy i is seeded with `seed + i`, or with `seed[i]`."""
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(f"{len(seed)} seeds were given for {self.num_envs} environments")
            for i, one in enumerate(seed):
                if one is not None:
                    self._batch.generators[i] = seeding.np_random(one)[0]
            seed = None
        super().reset(seed=seed)
        return self._batch.reset(seed).copy(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Advance every copy by one step; a copy whose episode ended already shows its next one."""
        result = self._batch.step(actions)
        terms = {"cost": result.cost[:, 0], **self._batch.info_terms}
        info = _masked(terms, np.ones(self.num_envs, np.bool_))
        ended = result.terminated | result.truncated
        if ended.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(ended):
                final[i] = result.final_observation[i].copy()
            info |= {"final_obs": final, "_final_obs": ended}
            info |= {"final_info": _masked(terms, ended), "_final_info": ended.copy()}
        outcome = (result.observation, result.reward, result.terminated, result.truncated)
        observation, reward, terminated, truncated = (array.copy() for array in outcome)
        return observation, reward, terminated, truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Release the simulators."""
        self._batch.close()


def _masked(terms: dict[str, Any], mask: Any) -> dict[str, Any]:
    """Return Gymnasium's form of batched infos: each array, zero where it does not apply, and its mask."""
    info: dict[str, Any] = {}
    for name, values in terms.items():
        info[name], info[f"_{name}"] = np.where(mask, values, 0.0), mask.copy()
    return info


def _spaces(batch: VelocityEnv) -> tuple[Box, Box]:
    """Return the observation and action space of one copy, typed as Safety-Gymnasium types them."""
    observation = Box(-np.inf, np.inf, (batch.observation_size,), np.float64)
    low, high = batch.action_low.astype(np.float32), batch.action_high.astype(np.float32)
    return observation, Box(low, high, dtype=np.float32)
