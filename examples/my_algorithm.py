"""An algorithm in a file of your own: PPO with a price on cost that moves by a fixed step per epoch.

    cspo train SafetyHopperVelocity-v1 --plugin my_algorithm.py --algo step-price --step 0.1

docs/own-algorithm.md explains the parts.
"""

from dataclasses import dataclass

import numpy as np

import cspo
from cspo.algorithms.surrogates import clipped_reward, lagrangian_advantage
from cspo.optim.objective import SurrogateObjective


@dataclass(frozen=True)
class StepPriceConfig:
    """Settings, as flags of `cspo train`: a default each, and the sentence under it for the help."""

    step: float = 0.05
    """By how much the price moves in an epoch."""


@cspo.register("step-price")
class StepPrice:
    """PPO on reward minus price times cost."""

    summary = "PPO with a price on cost that rises while the limit is violated and falls otherwise"
    Config = StepPriceConfig

    def __init__(self, config, learner, num_costs, discount):
        self.config, self.learner = config, learner
        self.multiplier = np.zeros(num_costs)  # the prices, one per limit; shown in the log

    def update(self, batch, J_c, d):
        """Improve the policy on one epoch; J_c is the mean cost of an episode, d its limit, one of each per cost."""
        self.multiplier = np.maximum(self.multiplier + self.config.step * np.sign(J_c - d), 0.0)
        price = batch.adv_c.new_tensor(self.multiplier)
        A = lagrangian_advantage(batch.adv_r, batch.adv_c, price)
        fit = self.learner.fit(
            batch, SurrogateObjective([clipped_reward(A)], 0.2, lambda L: (-1.0,))
        )
        return {"kl": fit.kl, "passes": fit.passes, **fit.metrics}

    def state_dict(self):
        """Return what must survive an epoch, so that a resumed run goes on exactly."""
        return {"price": self.multiplier}

    def load_state_dict(self, state):
        """Put it back."""
        self.multiplier = state["price"]
