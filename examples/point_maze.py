"""PointMaze of Gymnasium-Robotics: roll a ball to a goal, but slowly.

    pip install gymnasium-robotics
    python examples/point_maze.py

Dict observations, and a cost that the environment does not have: a function adds it, and sees the
observation as the environment gives it.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import gymnasium_robotics
import numpy as np

import cspo

gymnasium.register_envs(gymnasium_robotics)


def fast_ball(observation: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    """Return the cost of a step: 1 if the ball then rolls faster than 1 m/s."""
    return float(np.hypot(*after["observation"][2:]) > 1.0)


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description="PointMaze with a limit on fast steps")
    parser.add_argument("--algo", default="cspo", help="see `cspo algos`; ppo ignores the limit")
    parser.add_argument("--cost-limit", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", default=None)
    arguments = parser.parse_args()
    cspo.train(
        "PointMaze_OpenDense-v3",
        arguments.algo,
        cost_fn=fast_ball,
        cost_limit=arguments.cost_limit,
        total_steps=arguments.steps,
        num_envs=10,
        steps_per_epoch=min(6000, arguments.steps),
        seed=arguments.seed,
        run_dir=arguments.run_dir,
    )


if __name__ == "__main__":
    main()
