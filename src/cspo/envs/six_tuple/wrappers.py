"""Wrappers of environments with six values, by the names that Safety-Gymnasium gives them.

Those that normalise wrap vector environments as well, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import utils

from cspo.envs.six_tuple.single import SafeWrapper, SixTuple, SixValues
from cspo.errors import CspoError

Env = gymnasium.Env[Any, Any]
RunningMeanStd: Any = utils.RunningMeanStd  # has no types
Gymnasium2SafetyGymnasium = SixTuple


class SafeTimeLimit(SafeWrapper):
    """Truncates episodes after some steps.

    Args:
        env: Gives six values.
        max_episode_steps: How many.
    """

    def __init__(self, env: Env, max_episode_steps: int) -> None:
        """Begin to count."""
        super().__init__(env)
        self._max_episode_steps, self._elapsed_steps = max_episode_steps, 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._elapsed_steps = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        self._elapsed_steps += 1
        truncated = truncated or self._elapsed_steps >= self._max_episode_steps
        return observation, reward, cost, terminated, truncated, info


class SafeAutoResetWrapper(SafeWrapper):
    """Begins the next episode within the last step of one.

    That step returns the first observation of the next; the last of its own is
    `info["final_observation"]`, and what `info` would have been is `info["final_info"]`.
    """

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            last = {"final_observation": observation, "final_info": info}
            observation, info = self.env.reset()
            info = {**info, **last}
        return observation, reward, cost, terminated, truncated, info


class SafeRescaleAction(SafeWrapper):
    """Takes actions from another box, whose corners become those of the environment's.

    Args:
        env: Its actions are a `Box`.
        min_action: Lowest action, one for all or one each.
        max_action: Highest action, likewise.
    """

    def __init__(self, env: Env, min_action: Any, max_action: Any) -> None:
        """Declare the box."""
        super().__init__(env)
        inner = env.action_space
        if not isinstance(inner, Box):
            raise CspoError(f"only actions of a Box can be rescaled, not {inner}.")
        corners = (np.full(inner.shape, end, inner.dtype) for end in (min_action, max_action))
        self.min_action, self.max_action = corners
        self.action_space = Box(self.min_action, self.max_action, dtype=inner.dtype.type)
        self._low, self._high = inner.low, inner.high

    def action(self, action: Any) -> Any:
        """Return what the environment is given."""
        share = (action - self.min_action) / (self.max_action - self.min_action)
        return self._low + (self._high - self._low) * share

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        return super().step(self.action(action))


class SafeUnsqueeze(SafeWrapper):
    """Adds an axis of length one in front of everything: an environment looks like a vector."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        return np.expand_dims(observation, 0), _unsqueezed(info)

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        *values, info = super().step(action)
        observation, reward, cost, terminated, truncated = (np.expand_dims(v, 0) for v in values)
        return observation, reward, cost, terminated, truncated, _unsqueezed(info)


def _unsqueezed(info: dict[str, Any]) -> dict[str, Any]:
    return {
        key: np.expand_dims(value, 0) if isinstance(value, np.ndarray) else value
        for key, value in info.items()
    }


class _Normaliser(SafeWrapper):
    """Sees one environment as N = 1 of a vector."""

    def __init__(self, env: Env, epsilon: float = 1e-8) -> None:
        """Ask how many there are."""
        super().__init__(env)
        self.is_vector_env = bool(getattr(env, "is_vector_env", False))
        self.num_envs = int(env.num_envs) if self.is_vector_env else 1  # type: ignore[attr-defined]
        self.epsilon = epsilon

    def _rows(self, value: Any) -> Any:
        return np.asarray(value) if self.is_vector_env else np.asarray(value)[None]

    def _back(self, rows: Any) -> Any:
        return rows if self.is_vector_env else rows[0]


class SafeNormalizeObservation(_Normaliser):
    """Standardises observations by the mean and variance of all that it has seen.

    Attributes:
        obs_rms: That mean and variance.
    """

    def __init__(self, env: Env, epsilon: float = 1e-8) -> None:
        """Begin without experience."""
        super().__init__(env, epsilon)
        name = "single_observation_space" if self.is_vector_env else "observation_space"
        self.obs_rms = RunningMeanStd(shape=getattr(env, name).shape)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**kwargs)
        return self._back(self.normalize(self._rows(observation))), info

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step; `info["final_observation"]` is standardised too."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        observation = self._back(self.normalize(self._rows(observation)))
        if "final_observation" in info:
            info = {**info, "original_final_observation": info["final_observation"]}
            info["final_observation"] = self._final(info)
        return observation, reward, cost, terminated, truncated, info

    def normalize(self, observations: Any) -> Any:
        """Count observations (N, O) and standardise them."""
        self.obs_rms.update(observations)
        return (observations - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + self.epsilon)

    def _final(self, info: dict[str, Any]) -> Any:
        """Return the last observations of the episodes that ended, standardised."""
        last = info["final_observation"]
        if not self.is_vector_env:
            return self.normalize(np.asarray(last)[None])[0]
        ended, shown = np.flatnonzero(info["_final_observation"]), last.copy()
        for i, row in zip(ended, self.normalize(np.stack(last[ended])), strict=True):
            shown[i] = row
        return shown


class _NormaliseSignal(_Normaliser):
    """Divides a signal by the standard deviation of its discounted sum so far.

    Attributes:
        return_rms: Mean and variance of that sum.
        returns: The sums, (N,).
    """

    def __init__(self, env: Env, gamma: float = 0.99, epsilon: float = 1e-8) -> None:
        """Begin without experience."""
        super().__init__(env, epsilon)
        self.return_rms, self.returns, self.gamma = RunningMeanStd(), np.zeros(self.num_envs), gamma

    def _scaled(self, signal: Any, terminated: Any) -> Any:
        rows = self._rows(signal)
        self.returns = self.returns * self.gamma * (1.0 - self._rows(terminated)) + rows
        self.return_rms.update(self.returns)
        return self._back(rows / np.sqrt(self.return_rms.var + self.epsilon))


class SafeNormalizeReward(_NormaliseSignal):
    """Scales rewards so that their discounted sum has a variance of about one."""

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        return observation, self._scaled(reward, terminated), cost, terminated, truncated, info


class SafeNormalizeCost(_NormaliseSignal):
    """Scales costs so that their discounted sum has a variance of about one."""

    def step(self, action: Any) -> SixValues:  # type: ignore[override]
        """Advance by one step."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        return observation, reward, self._scaled(cost, terminated), terminated, truncated, info


class SafetyGymnasium2Gymnasium(SafeWrapper):
    """Gives five values again, the cost in `info["cost"]`: for code written for Gymnasium."""

    def step(self, action: Any) -> Any:
        """Advance by one step."""
        observation, reward, cost, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "cost": cost}


def with_gymnasium_wrappers(env: Env, *wrappers: Callable[[Any], Any]) -> Env:
    """Put Gymnasium's wrappers, which know five values, around an environment with six."""
    for wrapper in (SafetyGymnasium2Gymnasium, *wrappers, Gymnasium2SafetyGymnasium):
        env = wrapper(env)
    return env
