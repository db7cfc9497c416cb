"""An environment with images that Farama's MiniGrid brings, and a cost: do not step into lava.

A robot crosses a room to a green cell, through the gap in a wall of lava. What it sees is a picture
of the 7 x 7 cells before it, 28 x 28 pixels. Lava ends the episode, and costs 1: the limit on the
mean cost of an episode is the share of episodes that may end so.

    pip install 'cspo[torch]' minigrid
    cspo train image_environment:make --cost-limit 0.2 --total-steps 100000 \
        --steps-per-epoch 1000 --num-envs 8 --passes 4 --minibatch-size 125 --actor-lr 1e-3
"""

from __future__ import annotations

from typing import Any

import gymnasium
from minigrid.core.world_object import Lava
from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

TASK = "MiniGrid-LavaGapS5-v0"
PIXELS = 4  # of a cell, each way


class CostOfLava(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells in `info["cost"]` whether the robot stands in lava."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Leave out the actions that do nothing here."""
        super().__init__(env)
        self.action_space = gymnasium.spaces.Discrete(3)  # turn left, turn right, forward

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and look at the cell below."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        room: Any = self.env.unwrapped
        info["cost"] = float(isinstance(room.grid.get(*room.agent_pos), Lava))
        return observation, reward, terminated, truncated, info


def make() -> gymnasium.Env[Any, Any]:
    """Return a new room whose observations are images (28, 28, 3) of bytes."""
    env = RGBImgPartialObsWrapper(gymnasium.make(TASK), tile_size=PIXELS)
    return CostOfLava(ImgObsWrapper(env))
