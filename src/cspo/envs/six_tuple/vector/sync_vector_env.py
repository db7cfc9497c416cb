"""Environments with six values, stepped one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from cspo.envs.six_tuple.single import SixValues
from cspo.envs.six_tuple.vector.base import SixVectorEnv, batched, tiled
from cspo.errors import CspoError


class SafetySyncVectorEnv(SixVectorEnv):
    """N environments side by side.

    Args:
        env_fns: N functions that make one each.
        observation_space: Of one; by default that of the first.
        action_space: Of one; by default that of the first.
        copy: Without effect: every step returns new arrays.
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        observation_space: Any = None,
        action_space: Any = None,
        copy: bool = True,
    ) -> None:
        """Make them."""
        self.envs = [make() for make in env_fns]
        if not self.envs:
            raise CspoError("a vector environment needs at least one function that makes one.")
        first, self.num_envs = self.envs[0], len(self.envs)
        self.single_observation_space = observation_space or first.observation_space
        self.single_action_space = action_space or first.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = getattr(first, "render_mode", None)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start N episodes; environment i is seeded with `seed + i`, or with `seed[i]`."""
        if seed is None:
            seeds: list[Any] = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            seeds = [seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise CspoError(f"{len(seeds)} seeds were given for {self.num_envs} environments.")
        begun = [
            env.reset(seed=one, options=options) for env, one in zip(self.envs, seeds, strict=True)
        ]
        observations, infos = zip(*begun, strict=True)
        return np.stack(observations), batched(infos)

    def step(self, actions: Any) -> SixValues:  # type: ignore[override]
        """Advance every environment by one step."""
        rows, infos = [], []
        for env, action in zip(self.envs, actions, strict=True):
            observation, reward, cost, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                last = {"final_observation": observation, "final_info": info}
                observation, begun = env.reset()
                info = {**begun, **last}
            rows.append((observation, reward, cost, terminated, truncated))
            infos.append(info)
        observation, reward, cost, terminated, truncated = map(np.array, zip(*rows, strict=True))
        return observation, reward, cost, terminated, truncated, batched(infos)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return an attribute of every environment, or what a method of it returns."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(one(*args, **kwargs) if callable(one) else one for one in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of every environment."""
        return self.call(name)

    def render(self) -> Any:
        """Return one picture of all environments side by side, or None without a `render_mode`."""
        return None if self.render_mode is None else tiled([env.render() for env in self.envs])

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments: they were made here."""
        for env in self.envs:
            env.close()
