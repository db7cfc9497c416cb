"""One epoch's update: plain PyTorch against ours.

    python benchmarks/update.py [--json]

Three 64x64 networks, 10 passes of 512 over 20 000 samples. Same sizes, same loss (PPO's), no KL
stop. Rounds alternate in one process, the ratio is that of medians.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from cspo.algorithms.learner import Loss
from cspo.algorithms.surrogates import clipped_reward
from cspo.arithmetic import single_threaded_math
from cspo.optim.autograd import AutogradObjective
from cspo.optim.minibatch import MinibatchLearner
from cspo.optim.settings import UpdateSettings
from cspo.policy.networks import parameter_count
from cspo.policy.policy import Policy
from cspo.policy.settings import PolicySettings
from cspo.types import Array, Batch

SAMPLES, OBSERVATION, ACTIONS = 20_000, 17, 6


def make_policy() -> Policy:
    return Policy(OBSERVATION, ACTIONS, 1, PolicySettings(), np.random.default_rng(0))


def make_batch(policy: Policy) -> Batch:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    observation = normal(SAMPLES, OBSERVATION)
    mean = policy.actor.outputs(observation)
    noise = normal(SAMPLES, ACTIONS)
    action = mean + noise  # a standard deviation of one
    return Batch(
        observation=observation,
        action=action,
        output=mean,
        log_std=policy.actor.log_std.copy(),
        log_prob=policy.actor.distribution.log_prob(mean, policy.actor.log_std, action),
        adv_r=normal(SAMPLES),
        adv_c=normal(SAMPLES, 1),
        value_target=normal(2, SAMPLES),
        any_cost=np.ones(1, dtype=bool),
        epoch_cost=np.zeros(1),
    )


def ours(threads: int, autograd: bool = False) -> float:
    policy = make_policy()
    batch = make_batch(policy)
    settings = UpdateSettings(target_kl=np.inf)
    learner = MinibatchLearner(policy, settings, np.random.default_rng(0), threads)
    loss: Loss | AutogradObjective = Loss(lambda L_R: -L_R, clipped_reward(batch.adv_r), clip=0.2)
    if autograd:
        loss = AutogradObjective(
            lambda new, mb: (
                -torch.min(new.ratio * mb["A"], new.ratio.clamp(0.8, 1.2) * mb["A"]).mean()
            ),
            {"A": batch.adv_r},
        )
    started = perf_counter()
    learner.fit(batch, loss)
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
    batch = make_batch(make_policy())
    observation, action, log_prob_old, A_r, target = (
        torch.from_numpy(array)
        for array in (
            batch.observation, batch.action, batch.log_prob, batch.adv_r, batch.value_target,
        )
    )  # fmt: skip
    parameters = [*actor.parameters(), log_std]
    actor_optimiser = torch.optim.Adam(parameters, 3e-4)
    critic_optimisers = [torch.optim.Adam(critic.parameters(), 3e-4) for critic in critics]
    started = perf_counter()
    for _ in range(10):
        for index in torch.randperm(SAMPLES).split(512):
            x = observation[index]
            for k, critic in enumerate(critics):
                loss = (critic(x)[:, 0] - target[k][index]).square().mean()
                loss = loss + 0.001 * sum(p.square().sum() for p in critic.parameters())
                critic_optimisers[k].zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(critic.parameters(), 40.0)
                critic_optimisers[k].step()
            log_prob = (
                torch.distributions.Normal(actor(x), log_std.exp()).log_prob(action[index]).sum(1)
            )
            ratio = (log_prob - log_prob_old[index]).exp()
            A = A_r[index]
            loss = -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()
            actor_optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 40.0)
            actor_optimiser.step()
        with torch.no_grad():
            actor(observation)
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
