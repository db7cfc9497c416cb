"""One epoch's update, three 64x64 networks, 10 passes of 512 over 20 000 samples: plain PyTorch against ours.

    python benchmarks/update.py [--json]

Same sizes, same loss (PPO's), no KL stop. Rounds alternate in one process, the ratio is that of
medians.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from cspo.algorithms.surrogates import clipped_reward
from cspo.arithmetic import single_threaded_math
from cspo.optim.minibatch import Learner
from cspo.optim.objective import AutogradObjective, SurrogateObjective
from cspo.policy.networks import parameter_count
from cspo.policy.policy import Normaliser, Policy
from cspo.types import Batch

SAMPLES, OBSERVATION, ACTIONS = 20_000, 17, 6


def make_batch(policy: Policy) -> Batch:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))

    observation = normal(SAMPLES, OBSERVATION)
    mean = policy.actor.mlp.predict(observation)[0]
    noise = normal(SAMPLES, ACTIONS)
    log_prob = -0.5 * noise.square().sum(1) - ACTIONS * 0.9189385
    return Batch(
        observation, mean + noise, mean, policy.actor.log_std.clone(), log_prob, normal(SAMPLES), normal(SAMPLES, 1),
        normal(2, SAMPLES), np.ones(1, dtype=bool), np.zeros(1),
    )  # fmt: skip


def ours(threads: int, autograd: bool = False) -> float:
    policy = Policy(OBSERVATION, ACTIONS, 1, Normaliser(OBSERVATION), np.random.default_rng(0))
    batch = make_batch(policy)
    learner = Learner(policy, np.random.default_rng(0), target_kl=np.inf, threads=threads)
    objective = SurrogateObjective([clipped_reward(batch.adv_r)], 0.2, lambda L_R: (-1.0,))
    if autograd:
        objective = AutogradObjective(
            lambda new, mb: (
                -torch.min(new.ratio * mb["A"], new.ratio.clamp(0.8, 1.2) * mb["A"]).mean()
            ),
            {"A": batch.adv_r},
        )
    started = perf_counter()
    learner.fit(batch, objective)
    return perf_counter() - started


def plain_pytorch() -> float:
    def mlp(outputs: int) -> nn.Sequential:
        layers = [
            nn.Linear(OBSERVATION, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, outputs),
        ]
        return nn.Sequential(*layers)

    actor, critics, log_std = mlp(ACTIONS), [mlp(1), mlp(1)], nn.Parameter(torch.zeros(ACTIONS))
    policy = Policy(OBSERVATION, ACTIONS, 1, Normaliser(OBSERVATION), np.random.default_rng(0))
    batch = make_batch(policy)
    parameters = [*actor.parameters(), log_std]
    actor_optimiser = torch.optim.Adam(parameters, 3e-4)
    critic_optimisers = [torch.optim.Adam(critic.parameters(), 3e-4) for critic in critics]
    started = perf_counter()
    for _ in range(10):
        for index in torch.randperm(SAMPLES).split(512):
            x = batch.observation[index]
            for k, critic in enumerate(critics):
                loss = (critic(x)[:, 0] - batch.value_target[k][index]).square().mean()
                loss = loss + 0.001 * sum(p.square().sum() for p in critic.parameters())
                critic_optimisers[k].zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(critic.parameters(), 40.0)
                critic_optimisers[k].step()
            log_prob = (
                torch.distributions.Normal(actor(x), log_std.exp())
                .log_prob(batch.action[index])
                .sum(1)
            )
            ratio = (log_prob - batch.log_prob[index]).exp()
            A = batch.adv_r[index]
            loss = -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()
            actor_optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 40.0)
            actor_optimiser.step()
        with torch.no_grad():
            actor(batch.observation)
    return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    variants = {
        "plain PyTorch, 1 thread": plain_pytorch,
        "cspo, autograd loss, 1 thread": lambda: ours(1, autograd=True),
        "cspo, 1 thread": lambda: ours(1),
        "cspo, 2 threads": lambda: ours(2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    with single_threaded_math():
        for run in variants.values():
            run()  # warm up and compile
        for _ in range(arguments.rounds):
            for name, run in variants.items():
                seconds[name].append(run())
    slowest = median(seconds["plain PyTorch, 1 thread"])
    rows = {
        name: {"seconds": round(median(t), 3), "speedup": round(slowest / median(t), 2)}
        for name, t in seconds.items()
    }
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"parameters: {parameter_count((OBSERVATION, 64, 64, ACTIONS)) + ACTIONS} in the actor")
    for name, row in rows.items():
        print(f"{name:32s} {row['seconds']:.3f} s   {row['speedup']:.1f} x")


if __name__ == "__main__":
    main()
