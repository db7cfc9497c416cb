"""A constrained bandit whose best mixed policy is known: where each algorithm ends.

Three arms give (1, 0.4, 0) and cost (1, 0.5, 0); with the limit 0.5 the best policy mixes the first
and the last half and half, and no policy of one arm is optimal and within the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from space_envs import Bandit

import cspo
from cspo.algorithms.registry import BUILT_IN
from cspo.train import Trainer

SETTINGS: dict[str, Any] = {
    "num_envs": 32,
    "steps_per_epoch": 512,
    "total_steps": 512 * 80,
    "episode_window": 512,
    "minibatch_size": 128,
    "passes": 8,
    "actor_lr": 0.01,
    "critic_lr": 0.01,
    "hidden_sizes": (8,),
    "target_kl": 0.02,
    "seed": 1,
    "threads": 1,
    "margin": "off",
    "cost_limit": (Bandit.LIMIT,),
}
OWN: dict[str, dict[str, Any]] = {}


def play(algo: str, **changes: Any) -> tuple[Any, Any]:
    """Train, and return the policy's mean probabilities in the last quarter, and the trainer."""
    config = cspo.make_config("<Bandit>", algo, **SETTINGS | OWN.get(algo, {}) | changes)
    trainer = Trainer(config, env=Bandit)
    found = []
    for report in trainer:
        output = trainer.policy.actor.outputs(trainer.policy.normaliser(np.ones((1, 1))))[0]
        found.append(np.exp(output - output.max()) / np.exp(output - output.max()).sum())
    return np.array(found), trainer


if __name__ == "__main__":
    import sys
    import time

    for name in sys.argv[1:] or [name.replace("_", "-") for name in BUILT_IN]:
        started = time.perf_counter()
        p, _ = play(name)
        quarter = p[-len(p) // 4 :]
        print(name, p[::16].round(2).tolist(), quarter.mean(0).round(3), quarter.std(0).round(3), f"{time.perf_counter() - started:.1f} s")
