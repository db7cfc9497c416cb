"""Adam on flat parameters, with the L2 term and the norm clip in the same pass over memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cspo.optim import kernels


class FlatAdam:
    """Adam with the usual constants on rows of parameters, each with a gradient norm of its own.

    The learning rate is an attribute, so that a schedule can set it; `count` is the number of steps
    taken.
    """

    def __init__(self, parameters: Tensor, lr: float) -> None:
        """Optimise `parameters`, (P,) or (M, P), in place."""
        self.lr, self.count = lr, 0
        self.parameters = np.atleast_2d(parameters.numpy())  # (M, P), shares memory
        self.first, self.second = np.zeros_like(self.parameters), np.zeros_like(self.parameters)

    def step(self, gradient: Tensor, l2: float = 0.0, max_norm: float = np.inf) -> None:
        """Take one step against `gradient`, which is overwritten."""
        self.count += 1
        for row, row_gradient in enumerate(np.atleast_2d(gradient.numpy())):
            kernels.adam(
                self.parameters[row],
                row_gradient,
                self.first[row],
                self.second[row],
                self.count,
                self.lr,
                l2,
                max_norm,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the step count; the learning rate belongs to the schedule."""
        return {
            "first": torch.from_numpy(self.first.copy()),
            "second": torch.from_numpy(self.second.copy()),
            "count": self.count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.first[:] = state["first"]
        self.second[:] = state["second"]
        self.count = int(state["count"])
