"""Lagrange multipliers, one per constraint: lam rises while J_c > d and falls while J_c < d."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from cspo.types import FloatArray


class Dual(Protocol):
    """K multipliers and the rule that moves them."""

    lam: FloatArray  # (K,)

    def step(self, J_c: FloatArray, d: FloatArray) -> FloatArray:
        """Move the multipliers once for costs J_c (K,) and limits d (K,), and return them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything `load_state_dict` needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        ...


class ProjectedAscent:
    """lam <- [lam + lr (J_c - d)]_+, at most `upper`."""

    def __init__(self, num_costs: int, init: float, lr: float, upper: float = np.inf) -> None:
        """Start K multipliers at `init`."""
        self.lam = np.full(num_costs, float(init))
        self.lr, self.upper = lr, upper

    def step(self, J_c: FloatArray, d: FloatArray) -> FloatArray:
        """Move the multipliers along the violation and project them."""
        self.lam = np.clip(self.lam + self.lr * (J_c - d), 0.0, self.upper)
        return self.lam

    def state_dict(self) -> dict[str, Any]:
        """Return the multipliers."""
        return {"lam": self.lam.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.lam = np.array(state["lam"])


class AdamAscent:
    """Adam on the loss -lam (J_c - d), then clamped to [0, upper].

    Adam makes the step about `lr` whatever the size of the violation, and its second moment
    remembers the whole run: after a long violation the multiplier reacts late.
    """

    beta1, beta2, eps = 0.9, 0.999, 1e-8

    def __init__(self, num_costs: int, init: float, lr: float, upper: float = np.inf) -> None:
        """Start K multipliers at `init`."""
        self.lam = np.full(num_costs, float(init))
        self.lr, self.upper = lr, upper
        self.first, self.second, self.count = np.zeros(num_costs), np.zeros(num_costs), 0

    def step(self, J_c: FloatArray, d: FloatArray) -> FloatArray:
        """Take one step of Adam and clamp."""
        gradient = -(J_c - d)
        self.count += 1
        self.first = self.beta1 * self.first + (1.0 - self.beta1) * gradient
        self.second = self.beta2 * self.second + (1.0 - self.beta2) * gradient**2
        first = self.first / (1.0 - self.beta1**self.count)
        second = self.second / (1.0 - self.beta2**self.count)
        self.lam = np.clip(
            self.lam - self.lr * first / (np.sqrt(second) + self.eps), 0.0, self.upper
        )
        return self.lam

    def state_dict(self) -> dict[str, Any]:
        """Return the multipliers and Adam's moments."""
        return {
            "lam": self.lam.copy(),
            "first": self.first.copy(),
            "second": self.second.copy(),
            "count": self.count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.lam, self.first, self.second = (np.array(state[k]) for k in ("lam", "first", "second"))
        self.count = int(state["count"])


class PIDDual:
    """A PID controller on J_c - d (Stooke, Achiam and Abbeel, 2020): lam = [K_P P + I + K_D D]_+.

    P is a moving average of the error, I its clipped sum times K_I, D the rise of the smoothed cost
    over `delay` steps. The first `delay` steps measure that rise from zero.
    """

    def __init__(
        self,
        num_costs: int,
        init: float = 0.001,
        proportional: float = 0.1,
        integral: float = 0.01,
        derivative: float = 0.01,
        memory: float = 0.95,
        delay: int = 10,
    ) -> None:
        """Start the integral, and with it K multipliers, at `init`."""
        self.K_P, self.K_I, self.K_D = proportional, integral, derivative
        self.memory, self.delay = memory, delay
        self.I = np.full(num_costs, float(init))
        self.lam = self.I.copy()
        self.error, self.cost = np.zeros(num_costs), np.zeros(num_costs)  # moving averages
        self.history = np.zeros((1, num_costs))  # smoothed costs, oldest first, at most `delay`

    def step(self, J_c: FloatArray, d: FloatArray) -> FloatArray:
        """Feed the controller one violation."""
        beta = self.memory
        self.I = np.maximum(0.0, self.I + self.K_I * (J_c - d))
        self.error = beta * self.error + (1.0 - beta) * (J_c - d)
        self.cost = beta * self.cost + (1.0 - beta) * J_c
        D = np.maximum(0.0, self.cost - self.history[0])
        self.lam = np.maximum(0.0, self.K_P * self.error + self.I + self.K_D * D)
        self.history = np.concatenate([self.history, self.cost[None]])[-self.delay :]
        return self.lam

    def state_dict(self) -> dict[str, Any]:
        """Return everything the controller remembers."""
        return {
            name: getattr(self, name).copy() for name in ("lam", "I", "error", "cost", "history")
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name in ("lam", "I", "error", "cost", "history"):
            setattr(self, name, np.array(state[name]))
