"""A network of your own: one that does not care in which order obstacles are listed.

It looks at each obstacle with the same few layers and keeps the strongest answer of each feature.
An MLP on the flat observation would have to learn every place in the list anew.

    python my_network.py
    cspo train my_network:Field --network my_network:SetNetwork --cost-limit 2
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor, nn

import cspo

OBSTACLES, REACH, STEPS = 6, 0.25, 40


class Field(gymnasium.Env[Any, Any]):
    """A point goes to the origin; being within reach of an obstacle costs 1 per step."""

    observation_space = Box(-np.inf, np.inf, (1 + OBSTACLES, 2), np.float32)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Put everything somewhere."""
        super().reset(seed=seed)
        self.t, self.position = 0, self.np_random.uniform(-1.0, 1.0, 2)
        self.obstacles = self.np_random.uniform(-1.0, 1.0, (OBSTACLES, 2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move; the goal and the obstacles are seen from the new place."""
        self.t += 1
        self.position = np.clip(self.position + 0.1 * np.asarray(action), -1.5, 1.5)
        near = np.linalg.norm(self.obstacles - self.position, axis=1).min() < REACH
        reward, out_of_time = -float(np.linalg.norm(self.position)), self.t == STEPS
        return self._seen(), reward, False, out_of_time, {"cost": float(near)}

    def _seen(self) -> Any:
        return (np.vstack([np.zeros(2), self.obstacles]) - self.position).astype(np.float32)


class SetNetwork(nn.Module):
    """The actor, and each critic: from observations (B, 1 + OBSTACLES, 2) to (B, outputs)."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        """Make one for observations of this shape; how many outputs depends on the actions."""
        super().__init__()
        self.each = nn.Sequential(nn.Linear(2 * shape[1], 32), nn.Tanh(), nn.Linear(32, 32))
        self.together = nn.Sequential(nn.Tanh(), nn.Linear(32, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Look at the goal together with each obstacle, then at the strongest features."""
        goal = x[:, :1].expand(-1, x.shape[1] - 1, -1)  # (B, OBSTACLES, 2)
        features = self.each(torch.cat([goal, x[:, 1:]], dim=2))  # (B, OBSTACLES, 32)
        outputs: Tensor = self.together(features.amax(dim=1))
        return outputs


if __name__ == "__main__":
    sizes: Any = {"total_steps": 200_000, "steps_per_epoch": 4000, "num_envs": 10}
    cspo.train(Field, policy=SetNetwork, cost_limit=2.0, **sizes)
