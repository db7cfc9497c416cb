"""Adam on flat parameters, with the L2 term and the norm clip in the same pass over memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.optim import kernels
from cspo.types import Array


class FlatAdam:
    """Adam with the usual constants on rows of parameters, each with a gradient norm of its own.

    The learning rate is an attribute, so that a schedule can set it; `count` is the number of steps
    taken.
    """

    def __init__(self, parameters: Array, lr: float) -> None:
        """Optimise `parameters`, (P,) or (M, P), in place."""
        self.lr, self.count = lr, 0
        self.parameters = np.atleast_2d(parameters)  # (M, P), shares memory
        self.first, self.second = np.zeros_like(self.parameters), np.zeros_like(self.parameters)

    def step(self, gradient: Array, l2: float = 0.0, max_norm: float = np.inf) -> None:
        """Take one step against `gradient`, which is overwritten."""
        self.count += 1
        rows = (self.parameters, np.atleast_2d(gradient), self.first, self.second)
        for arrays in zip(*rows, strict=True):
            kernels.adam(*arrays, self.count, self.lr, l2, max_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the step count; the learning rate belongs to the schedule."""
        return {"first": self.first.copy(), "second": self.second.copy(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.first[:] = state["first"]
        self.second[:] = state["second"]
        self.count = int(state["count"])
