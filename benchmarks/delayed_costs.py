"""CSPO and CPPO-PID that learn of the cost some epochs late, for studies of how they bear it.

    cspo train TASK --plugin benchmarks/delayed_costs.py --algo cspo-delayed --cost-delay 3

What an update sees of the cost, J_c, the epoch's own cost and its standard error, is that of
`cost_delay` epochs before, and until then that of the first epoch. Everything else is of the
present: samples, advantages, the margin. What is logged as `cost_epoch` is what the update saw.

Beside `noisy_costs.py` instead of in it: as a plugin this file is loaded under a name of its own,
and an environment's module is imported as well, which would register the algorithms twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cspo
from cspo.algorithms.cppo_pid import CPPOPID, CPPOPIDConfig
from cspo.algorithms.cspo import CSPO, CSPOConfig
from cspo.algorithms.learner import Learner
from cspo.algorithms.registry import DASHED
from cspo.settings import not_negative, setting
from cspo.types import Batch, Discount, FloatArray


class Delayed:
    """What an algorithm with a setting `cost_delay` is derived from, before its original."""

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Begin as the original does, before any cost."""
        super().__init__(config, learner, num_costs, discount)  # type: ignore[call-arg]
        # J_c, epoch_cost and cost_error of the last epochs, the oldest first.
        self.costs = np.zeros((0, 3, num_costs))

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Update on what the cost was."""
        now = np.array([[J_c, batch.epoch_cost, batch.cost_error]])
        self.costs = np.concatenate([self.costs, now])[-1 - self.config.cost_delay :]
        J_c, cost, error = self.costs[0]
        return super().update(replace(batch, epoch_cost=cost, cost_error=error), J_c, d)

    def state_dict(self) -> dict[str, Any]:
        """Return what the original remembers, and the costs."""
        return {"original": super().state_dict(), "costs": self.costs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        super().load_state_dict(state["original"])
        self.costs = np.array(state["costs"])


@dataclass(frozen=True)
class DelayedCSPOConfig(CSPOConfig):
    """Settings of CSPO, and the delay."""

    cost_delay: int = setting(1, not_negative)
    """Epochs by which the cost is late; 0 is CSPO itself."""


@cspo.register("cspo-delayed")
class DelayedCSPO(Delayed, CSPO):
    """CSPO that learns of the cost late."""

    title, look = "CSPO delayed", CSPO.look._replace(dash=DASHED)
    summary = "CSPO that sees the cost of some epochs ago"
    Config = DelayedCSPOConfig


@dataclass(frozen=True)
class DelayedPIDConfig(CPPOPIDConfig):
    """Settings of CPPO-PID, and the delay of what it sees; its own `delay` is of its D."""

    cost_delay: int = setting(1, not_negative)
    """Epochs by which the cost is late; 0 is CPPO-PID itself."""


@cspo.register("cppo-pid-delayed")
class DelayedPID(Delayed, CPPOPID):
    """CPPO-PID that learns of the cost late."""

    title, look = "CPPO-PID delayed", CPPOPID.look._replace(dash=DASHED)
    summary = "CPPO-PID that sees the cost of some epochs ago"
    Config = DelayedPIDConfig
