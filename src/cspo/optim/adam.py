"""Adam on one flat tensor: five passes over memory and no Python per parameter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class FlatAdam:
    """Adam with the usual constants; the learning rate is an attribute, so that a schedule can set it."""

    beta1, beta2, eps = 0.9, 0.999, 1e-8

    def __init__(self, parameters: Tensor, lr: float) -> None:
        """Optimise `parameters` in place."""
        self.parameters, self.lr = parameters, lr
        self.first, self.second = torch.zeros_like(parameters), torch.zeros_like(parameters)
        self.count = 0
        self._denominator = torch.empty_like(parameters)

    def step(self, gradient: Tensor) -> None:
        """Take one step against `gradient`."""
        self.count += 1
        self.first.lerp_(gradient, 1.0 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        torch.sqrt(self.second, out=self._denominator)
        self._denominator.mul_((1.0 - self.beta2**self.count) ** -0.5).add_(self.eps)
        step_size = self.lr / (1.0 - self.beta1**self.count)
        self.parameters.addcdiv_(self.first, self._denominator, value=-step_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the step count; the learning rate belongs to the schedule."""
        return {"first": self.first.clone(), "second": self.second.clone(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.first.copy_(state["first"])
        self.second.copy_(state["second"])
        self.count = int(state["count"])


def clip_norm_(gradient: Tensor, max_norm: float) -> None:
    """Scale each row of `gradient` (M, P) in place so that its norm is at most `max_norm`."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    gradient.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
