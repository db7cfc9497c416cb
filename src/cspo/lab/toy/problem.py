"""The problem: come close to a point outside an ellipse without leaving the ellipse."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cspo.types import FloatArray

TARGET = np.array([2.0, 1.5])  # where the objective is least; outside the ellipse


@dataclass(frozen=True)
class Problem:
    """Minimise f(theta) = (c / 2) |theta - (2, 1.5)|^2 subject to g(theta) = r^p - 1 <= 0.

    r = x^2 / 4 + y^2. The feasible set is the same ellipse for every p; p is how fast g grows
    across its boundary.
    """

    steepness: float = 2.0
    """The exponent p."""
    curvature: float = 0.2
    """The factor c: the smaller, the steeper is the boundary next to the objective."""

    def f(self, theta: FloatArray) -> FloatArray:
        """Return the objective at points (..., 2)."""
        value: FloatArray = 0.5 * self.curvature * ((theta - TARGET) ** 2).sum(axis=-1)
        return value

    def gradient_f(self, theta: FloatArray) -> FloatArray:
        """Return the gradient of f at one point (2,)."""
        gradient: FloatArray = self.curvature * (theta - TARGET)
        return gradient

    def g(self, theta: FloatArray) -> FloatArray:
        """Return the constraint at points (..., 2); above zero is a violation."""
        value: FloatArray = _r(theta) ** self.steepness - 1.0
        return value

    def gradient_g(self, theta: FloatArray) -> FloatArray:
        """Return the gradient of g at one point (2,)."""
        gradient_r = np.array([theta[0] / 2.0, 2.0 * theta[1]])
        gradient: FloatArray = self.steepness * _r(theta) ** (self.steepness - 1.0) * gradient_r
        return gradient

    def optimum(self) -> tuple[FloatArray, float]:
        """Return the best feasible point (2,) and its multiplier.

        The target is outside, so the best point is on the boundary (2 cos t, sin t), in the
        target's quadrant.
        """
        from scipy.optimize import minimize_scalar

        def on_boundary(angle: float) -> FloatArray:
            return np.array([2.0 * math.cos(angle), math.sin(angle)])

        found = minimize_scalar(
            lambda angle: float(self.f(on_boundary(angle))),
            bounds=(0.0, math.pi / 2),
            method="bounded",
            options={"xatol": 1e-12},
        )
        theta = on_boundary(float(found.x))
        slope = self.gradient_g(theta)
        return theta, float(-(self.gradient_f(theta) @ slope) / (slope @ slope))


def _r(theta: FloatArray) -> FloatArray:
    value: FloatArray = theta[..., 0] ** 2 / 4.0 + theta[..., 1] ** 2
    return value
