"""What most algorithms share: what they are made of, and what they remember between epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.algorithms.duals import Dual
from cspo.algorithms.learner import Learner
from cspo.types import Discount, FloatArray


class WithDual:
    """An algorithm that remembers nothing between epochs but its multipliers."""

    dual: Dual

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Keep the settings, and start the multipliers they describe."""
        self.config, self.learner, self.discount = config, learner, discount
        self.dual = config.make_dual(num_costs)

    @property
    def multiplier(self) -> FloatArray:
        """The Lagrange multipliers, shape (K,)."""
        return self.dual.lam

    def state_dict(self) -> dict[str, Any]:
        """Return the multipliers with their rule's memory."""
        return {"dual": self.dual.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.dual.load_state_dict(state["dual"])


class WithoutDual:
    """An algorithm that has no multipliers, and remembers nothing between epochs."""

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Keep the settings."""
        self.config, self.learner, self.discount = config, learner, discount
        self.multiplier = np.zeros(num_costs)  # (K,) for the log

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: there is nothing to remember."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put nothing back."""
