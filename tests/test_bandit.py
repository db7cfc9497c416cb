"""A constrained bandit whose best mixed policy is known: where each algorithm ends.

Three arms give (1, 0.4, 0) and cost (10, 5, 0); with the limit 5 the best policy takes the first
and the last half of the time each, and no policy of one arm is as good and within the limit. The
price of the limit is 0.2: at the optimum an arm's advantage of reward, standardised, is 0.2 times
its advantage of cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from space_envs import Bandit

import cspo
from cspo.algorithms.registry import BUILT_IN
from cspo.train import Trainer

EPOCHS = 120
SETTINGS: dict[str, Any] = {
    "num_envs": 32,
    "steps_per_epoch": 512,
    "total_steps": 512 * EPOCHS,
    "episode_window": 512,  # J_c is that of the epoch
    "minibatch_size": 128,
    "passes": 4,
    "actor_lr": 0.002,
    "critic_lr": 0.01,
    "hidden_sizes": (8,),
    "target_kl": 0.005,
    "seed": 1,
    "threads": 1,
    "margin": "off",
    "cost_limit": (Bandit.LIMIT,),
}
# A multiplier that only integrates circles around its price, the policy around the optimum: the
# rule whose step is proportional to the violation, a start at the price and a small entropy bonus
# keep the circles small enough that no arm dies out, which no sample would bring back.
CIRCLING = {
    "dual": "projected",
    "multiplier_init": 0.2,
    "multiplier_lr": 0.05,
    "entropy_coefficient": 0.03,
}
# The gains are those of costs of size 1 to 10; the policy answers within an epoch, so the
# controller need not wait.
CONTROLLED = {"delay": 1, "memory": 0.5, "proportional": 0.1, "integral": 0.01}
OWN: dict[str, dict[str, Any]] = {
    "ppo-lag": CIRCLING,
    "focops": CIRCLING,
    # rho = (1 - gamma lambda) / (1 - gamma) is about sums over long episodes; with lambda = 1 it
    # is 1, as it should be for one step.
    "cup": CIRCLING | {"cost_gae_lambda": 1.0},
    "cppo-pid": CONTROLLED,
    "trpo-pid": CONTROLLED | {"kl_limit": 0.002},
    # An exact penalty of twice the price; 20 throws the policy far inside at every violation.
    "p3o": {"penalty": 0.4},
    # Its preset standardises costs, in which unit the price is 1: outside it must be higher.
    "ipo": {"penalty_max": 3.0},
    # The second critic values squares of costs, by which the middle arm is the better one: off.
    # Its penalty at the limit, half of `penalty`, is then the price.
    "epo": {"linear_share": 1.0, "penalty": 0.4},
    # As usually implemented both take steps of reward alone or of cost alone, and stay where they
    # meet the limit; the published step slides along it.
    "cpo": {"variant": "corrected"},
    "pcpo": {"variant": "corrected", "kl_limit": 0.05},
    # It divides a predicted change of cost by 1 - gamma, which is 1 for one step. With 0.99 it
    # takes the limit for a hundred times nearer than it is, and stops at 0.43.
    "c-trpo": {"cost_gamma": 0.0, "kl_limit": 0.002},
}
BEST = (0.5, 0.0, 0.5)
ENDS = {"ppo": (1.0, 0.0, 0.0)}  # it knows no limit
WITHIN = {"ppo-lag": 0.12, "focops": 0.12, "cup": 0.12}


def play(algo: str, **changes: Any) -> tuple[Any, Any]:
    """Return the policy's probabilities after every epoch (E, 3), and the costs it had (E,)."""
    config = cspo.make_config("<Bandit>", algo, **SETTINGS | OWN.get(algo, {}) | changes)
    trainer = Trainer(config, env=Bandit)
    found, costs = [], []
    for report in trainer:
        output = trainer.policy.actor.outputs(trainer.policy.normaliser(np.ones((1, 1))))[0]
        share = np.exp(output - output.max())
        found.append(share / share.sum())
        costs.append(report.cost[0])
    return np.array(found), np.array(costs)


@pytest.mark.parametrize("algo", [name.replace("_", "-") for name in BUILT_IN])
def test_it_ends_at_the_best_mixed_policy(algo: str) -> None:
    shares, costs = play(algo)
    half = slice(EPOCHS // 2, None)
    end, within = ENDS.get(algo, BEST), WITHIN.get(algo, 0.05)
    np.testing.assert_allclose(shares[half].mean(axis=0), end, atol=within)
    assert costs[half].mean() == pytest.approx(np.dot(end, Bandit.COST), abs=10.0 * within)
