"""Environments with other spaces than boxes, and a bandit whose best mixed policy is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

ACTION_SPACES: dict[str, gymnasium.Space[Any]] = {
    "box": Box(
        np.float32([-1.0, 0.0, -np.inf]), np.float32([2.0, np.inf, np.inf]), dtype=np.float32
    ),
    "discrete": Discrete(3, start=2),
    "multi_discrete": MultiDiscrete([[2, 4], [3, 1]], start=[[0, 1], [-2, 5]]),
    "multi_binary": MultiBinary((2, 2)),
    "mixed": Dict(
        {
            "gear": Discrete(3),
            "wheel": Box(-1.0, 1.0, (2,), np.float32),
            "lights": Tuple([MultiBinary(2), MultiDiscrete([2, 3])]),
        }
    ),
}
OBSERVATION_SPACE = Dict(
    {
        "place": Box(-np.inf, np.inf, (2,), np.float64),
        "room": Discrete(3, start=1),
        "doors": Tuple([MultiBinary(2), MultiDiscrete([2, 2])]),
    }
)


def total(action: Any) -> float:
    """Return the sum of all numbers in a raw action."""
    if isinstance(action, dict):
        return sum(total(part) for part in action.values())
    if isinstance(action, tuple):
        return sum(total(part) for part in action)
    return float(np.sum(action))


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Moves by the sum of its action's numbers, and refuses an action outside of its space."""

    num_costs = 1

    def __init__(self, action_space: str = "discrete") -> None:
        self.action_space = ACTION_SPACES[action_space]
        self.observation_space = OBSERVATION_SPACE

    def _observe(self) -> dict[str, Any]:
        bits = self.np_random.integers(0, 2, 4)
        return {
            "place": self.place.copy(),
            "room": 1 + self.t % 3,
            "doors": (bits[:2].astype(np.int8), bits[2:]),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.place = 0, self.np_random.normal(size=2)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t += 1
        self.place = 0.5 * self.place + 0.1 * total(action) + 0.1 * self.np_random.normal(size=2)
        cost = float(self.place[1] > 0.2)
        return self._observe(), float(self.place[0]), False, self.t == 10, {"cost": cost}


def make_space_env(action_space: str = "discrete") -> SpaceEnv:
    """Return one; the command line names this function."""
    return SpaceEnv(action_space)


class Bandit(gymnasium.Env[Any, Any]):
    """Three arms and one step per episode; with the limit 0.5 the best policy is (0.5, 0, 0.5).

    Arm 0 gives 1 and costs 1, arm 1 gives 0.4 and costs 0.5, arm 2 gives 0 and costs nothing.
    Arms 0 and 2 mixed give as much as their cost; arm 1 lies below that line.
    """

    REWARD, COST, LIMIT = (1.0, 0.4, 0.0), (10.0, 5.0, 0.0), 5.0

    num_costs = 1
    observation_space = Box(-1.0, 1.0, (1,), np.float64)
    action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones(1), self.REWARD[action], True, False, {"cost": self.COST[action]}
