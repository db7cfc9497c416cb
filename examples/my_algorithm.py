"""An algorithm in a file of your own: PPO with a price on cost that moves by a fixed step.

cspo train SafetyHopperVelocity-v1 --plugin my_algorithm.py --algo step-price --step 0.1
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import cspo
from cspo.algorithms.learner import Learner, Loss
from cspo.algorithms.surrogates import clipped_cost, clipped_reward
from cspo.types import Batch, FloatArray


@cspo.register("step-price")
class StepPrice:
    """PPO on reward minus price times cost."""

    summary = "PPO with a price on cost that rises while the limit is violated and falls otherwise"

    @dataclass(frozen=True)
    class Config:
        """Settings, as flags of `cspo train`: a default each, and a sentence for the help."""

        step: float = 0.05
        """By how much the price moves in an epoch."""

    def __init__(self, config: Config, learner: Learner, num_costs: int, discount: Any) -> None:
        self.config, self.learner = config, learner
        self.multiplier = np.zeros(num_costs)  # the prices, one per limit; shown in the log

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Improve the policy on one epoch; J_c is the mean cost of an episode, d its limit."""
        rise = self.config.step * np.sign(J_c - d)
        self.multiplier = price = np.maximum(self.multiplier + rise, 0.0)

        def loss(L_R: Any, L_C: Any) -> Any:
            return (-L_R + price @ L_C) / (1.0 + price.sum())

        surrogates = clipped_reward(batch.adv_r), clipped_cost(batch.adv_c)
        return self.learner.fit(batch, Loss(loss, *surrogates, clip=0.2)).report()

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive an epoch, so that a resumed run goes on exactly."""
        return {"price": self.multiplier}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self.multiplier = state["price"]
