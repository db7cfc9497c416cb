"""Training speed on CartPole, with a cost: PPO of this package against that of Stable-Baselines3.

    python benchmarks/cartpole_sb3.py [--rounds 20] [--threads 0] [--minibatch-size 64] [--json]

Both collect 2048 samples from 8 copies of Gymnasium's CartPole-v1, one after another in one
process, and make ten passes over them in minibatches of 64 with two hidden layers of 64: the
defaults of Stable-Baselines3. PyTorch has one thread, with which networks this small are fastest;
this package as many as there are cores, or `--threads`. Epochs of the two alternate in one process,
after two to warm up, so that both see the same moods of the machine.

They do not do the same work: this package also computes the cost of every step and fits a critic
to it; Stable-Baselines3 trains on the plain environment.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

import cspo

NUM_ENVS, STEPS, PASSES, HIDDEN = 8, 256, 10, (64, 64)
SAMPLES = NUM_ENVS * STEPS
WARM_UP = 2
Seconds = tuple[float, float]  # by the clock, and of cores


def make() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def far_out(observation: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    """The cost: 1 in a step that ends more than half a metre from the middle."""
    return float(abs(after[0]) > 0.5)


def our_epochs(minibatch_size: int, threads: int, epochs: int) -> Callable[[], object]:
    """Return what trains one epoch of this package's PPO."""
    config = cspo.make_config(
        "<CartPole>",
        "ppo",
        num_envs=NUM_ENVS,
        steps_per_epoch=SAMPLES,
        total_steps=SAMPLES * epochs,
        passes=PASSES,
        minibatch_size=minibatch_size,
        hidden_sizes=HIDDEN,
        target_kl=np.inf,  # every update makes all its passes, as over there
        threads=threads,
    )
    trainer = cspo.Trainer(config, env=make, cost_fn=far_out)
    epoch = iter(trainer)
    return lambda: next(epoch)


def their_epochs(minibatch_size: int) -> Callable[[], object]:
    """Return what trains one epoch of Stable-Baselines3's PPO."""
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([make] * NUM_ENVS),
        n_steps=STEPS,
        n_epochs=PASSES,
        batch_size=minibatch_size,
        policy_kwargs={"net_arch": list(HIDDEN)},
        device="cpu",
        seed=0,
    )
    return lambda: model.learn(SAMPLES, reset_num_timesteps=False)


def timed(epoch: Callable[[], object]) -> Seconds:
    wall, worked = perf_counter(), process_time()
    epoch()
    return perf_counter() - wall, process_time() - worked


def measure(rounds: int, threads: int, minibatch_size: int) -> dict[str, Any]:
    """Return samples per second of both, of their fastest epochs, and the ratios."""
    torch.set_num_threads(1)
    both = our_epochs(minibatch_size, threads, WARM_UP + rounds), their_epochs(minibatch_size)
    times: list[list[Seconds]] = [[], []]
    for number in range(WARM_UP + rounds):
        for which, epoch in enumerate(both):
            seconds = timed(epoch)
            if number >= WARM_UP:
                times[which].append(seconds)
    ours, theirs = (np.array(one) for one in times)  # (rounds, 2)
    return {
        "threads": threads,
        "minibatch_size": minibatch_size,
        "cspo_samples_per_s": SAMPLES / ours[:, 0].min(),
        "sb3_samples_per_s": SAMPLES / theirs[:, 0].min(),
        "ratio_of_fastest": theirs[:, 0].min() / ours[:, 0].min(),
        "median_ratio": median((theirs[:, 0] / ours[:, 0]).tolist()),
        "ratio_of_core_seconds": theirs[:, 1].min() / ours[:, 1].min(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO on CartPole: cspo and Stable-Baselines3")
    parser.add_argument("--rounds", type=int, default=20, help="epochs of each to measure")
    parser.add_argument("--threads", type=int, default=0, help="of cspo; 0: the cores")
    parser.add_argument("--minibatch-size", type=int, default=64, help="of both")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.rounds, arguments.threads, arguments.minibatch_size)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<22} {value:,.1f}" if isinstance(value, float) else f"{name:<22} {value}")


if __name__ == "__main__":
    main()
