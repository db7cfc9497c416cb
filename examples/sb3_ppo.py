"""Train PPO of Stable-Baselines3 on a task of this package, through Gymnasium's interface.

    pip install -c constraints.txt -e '.[examples]'
    python examples/sb3_ppo.py SafetyPointGoal1-v0 --steps 200000

Every step tells its cost in `info["cost"]`. PPO does not look at it: the return rises, and so does
the cost. Compare with `cspo train SafetyPointGoal1-v0 --cost-limit 25`, which keeps the cost down.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import cspo  # noqa: F401 (importing it tells Gymnasium about the tasks)


class EpisodeCosts(BaseCallback):
    """Adds up the costs of every episode and prints them beside its return."""

    def _on_training_start(self) -> None:
        self.cost = np.zeros(self.training_env.num_envs)

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self.cost += [info["cost"] for info in infos]
        for i, info in enumerate(infos):
            if "episode" in info:  # Stable-Baselines3 adds this in the last step of an episode
                returned, cost = info["episode"]["r"], self.cost[i]
                print(f"{self.num_timesteps:>9} steps  return {returned:>9.2f}  cost {cost:>6.0f}")
                self.cost[i] = 0.0
        return True


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description="PPO of Stable-Baselines3 on a task of cspo")
    parser.add_argument("id", nargs="?", help="one of `cspo tasks`, or any Gymnasium id")
    parser.add_argument("--task", default="SafetyPointGoal1-v0", help="the same")
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps")
    parser.add_argument("--num-envs", type=int, default=4, help="copies of the environment")
    parser.add_argument(
        "--rollout", type=int, default=1024, help="steps of each copy between two updates"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # networks this small are slower on several
    name = arguments.id or arguments.task
    name = f"cspo/{name}" if f"cspo/{name}" in gymnasium.registry else name
    environments = make_vec_env(name, arguments.num_envs, seed=arguments.seed)
    model = PPO(
        "MlpPolicy", environments, n_steps=arguments.rollout, seed=arguments.seed, device="cpu"
    )
    model.learn(arguments.steps, callback=EpisodeCosts())
    environments.close()


if __name__ == "__main__":
    main()
