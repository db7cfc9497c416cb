"""Environments with known answers: scripted arrays for the rollout, tiny problems to learn."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from cspo.envs import StepResult

Array = NDArray[np.float64]


class ScriptedBatch:
    """A `BatchEnv` that plays back random arrays and remembers every action.

    `ends` maps (step, environment) to "terminated" or "truncated"; steps count from 0 and go on
    over epochs, since the trainer's resets do not rewind the script."""

    name = "Scripted"

    def __init__(
        self,
        steps: int,
        num_envs: int,
        ends: dict[tuple[int, int], str],
        *,
        observation_size: int = 3,
        num_costs: int = 1,
        low: Any = (-1.0, -1.0),
        high: Any = (1.0, 1.0),
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        shape = (steps + 1, num_envs)
        self.num_envs, self.observation_size = num_envs, observation_size
        self.action_low, self.action_high = np.array(low, dtype=float), np.array(high, dtype=float)
        self.action_size = len(self.action_low)
        self.cost_names = tuple(f"cost_{k}" for k in range(num_costs))
        self.time_limit: int | None = None
        # Coordinates of different size, one with a rare large value, one that never changes.
        scale = np.resize([1.0, 30.0, 0.0], observation_size)
        self.observation = rng.standard_normal((*shape, observation_size)) * scale + 2.0
        self.observation[rng.random(shape) < 0.05, 0] += 100.0
        self.final = rng.standard_normal((*shape, observation_size)) * scale - 4.0
        self.reward = rng.standard_normal(shape)
        self.cost = rng.uniform(0.0, 2.0, (*shape, num_costs))
        self.terminated, self.truncated = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for (t, n), how in ends.items():
            (self.terminated if how == "terminated" else self.truncated)[t, n] = True
        self.actions: list[Array] = []
        self.seeds: list[int | None] = []
        self.clock = 0

    def reset(self, seed: int | None = None) -> Array:
        self.seeds.append(seed)
        return self.observation[self.clock].copy()

    def step(self, actions: Array) -> StepResult:
        self.actions.append(np.array(actions))
        t, self.clock = self.clock, self.clock + 1
        ended = self.terminated[t] | self.truncated[t]
        # Where no episode ended the final observation is not valid: poison it.
        final = np.where(ended[:, None], self.final[t], np.nan)
        return StepResult(
            self.observation[t + 1].copy(),
            self.reward[t].copy(),
            self.cost[t].copy(),
            self.terminated[t].copy(),
            self.truncated[t].copy(),
            final,
        )

    def random_state(self) -> dict[str, Any]:
        return {"clock": self.clock}

    def set_random_state(self, state: dict[str, Any]) -> None:
        self.clock = state["clock"]

    def close(self) -> None:
        pass


class Probe(gymnasium.Env[Any, Any]):
    """A constant observation and one action in [-1, 1]; an episode lasts `length` steps."""

    def __init__(self, length: int = 1, ending: str = "terminated") -> None:
        self.observation_space = Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.length, self.ending, self.steps = length, ending, 0

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.ones(1), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, cost = self.outcome(float(action[0]))
        self.steps += 1
        ended = self.steps == self.length
        terminated, truncated = (
            ended and self.ending == "terminated",
            ended and self.ending == "truncated",
        )
        return np.ones(1), reward, terminated, truncated, {"cost": cost}

    def outcome(self, a: float) -> tuple[float, Any]:
        """Return reward and cost of an action."""
        raise NotImplementedError


class ConstantSignals(Probe):
    """Reward 2 and cost 1 at every step, whatever is done."""

    def outcome(self, a: float) -> tuple[float, Any]:
        return 2.0, 1.0


class Tradeoff(Probe):
    """Reward -(a - 0.7)^2 + noise, cost 1 + a, 50 steps.

    The reward asks for a = 0.7, a limit d < 85 for d/50 - 1.

    The noise keeps the standard deviation of the reward advantage, and with it the right
    multiplier, from following the policy's own standard deviation."""

    def outcome(self, a: float) -> tuple[float, Any]:
        return -((a - 0.7) ** 2) + float(self.np_random.normal()), 1.0 + a


class TwoLimits(Tradeoff):
    """As `Tradeoff`, with a second cost (a - 1)^2 that falls as the first one rises."""

    num_costs = 2

    def outcome(self, a: float) -> tuple[float, Any]:
        reward, cost = super().outcome(a)
        return reward, (cost, (a - 1.0) ** 2)


class RandomWalk(gymnasium.Env[Any, Any]):
    """A noisy point on a line, pushed by the action; ends beyond 2 or after 15 steps.

    Costs: being right, effort.
    """

    num_costs = 2

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(np.array([-3.0, 0.0]), np.array([7.0, 1.0]), dtype=np.float64)
        self.x, self.steps = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.x += 0.1 * float(action[0] - 2.0) + float(self.np_random.normal(0.0, 0.2))
        self.steps += 1
        cost = (float(self.x > 0.5), abs(float(action[1])))
        return self._observation(), self.x, abs(self.x) > 2.0, self.steps >= 15, {"cost": cost}

    def _observation(self) -> Array:
        return np.array([self.x, self.steps / 15.0])
