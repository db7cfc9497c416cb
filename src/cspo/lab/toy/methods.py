"""The three methods, as their equations read, and what is counted along the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from cspo.errors import CspoError
from cspo.lab.toy.problem import Problem
from cspo.types import FloatArray

METHODS = ("primal-dual", "CSPO (paper)", "CSPO")
EPSILON = 1e-8  # keeps w and rho finite where g is flat
# g above this counts as a violation: all methods approach g = 0, from either side.
TOLERANCE = 1e-3
SMALLER = {  # what to do where a method diverges
    "primal-dual": "use a smaller --step-theta or --step-lambda",
    "CSPO (paper)": "use a smaller --step-theta, --step-lambda or --alpha",
    "CSPO": "use a smaller --step-theta or --alpha",
}


def primal_dual_step(
    problem: Problem, theta: FloatArray, lam: float, step_theta: float, step_lambda: float
) -> tuple[FloatArray, float]:
    """Descend on L = f + lam g, ascend on lam."""
    g = float(problem.g(theta))
    gradient = problem.gradient_f(theta) + lam * problem.gradient_g(theta)
    return theta - step_theta * gradient, max(0.0, lam + step_lambda * g)


def paper_step(
    problem: Problem,
    theta: FloatArray,
    lam: float,
    step_theta: float,
    step_lambda: float,
    alpha: float,
) -> tuple[FloatArray, float]:
    """Descend on L_k = f + (alpha / 2) w_k [g]_+^2 + lam g, ascend on lam.

    w_k = 1 / |grad g(theta_k)|^2.
    """
    g, gradient_g = float(problem.g(theta)), problem.gradient_g(theta)
    w = 1.0 / (gradient_g @ gradient_g + EPSILON)
    gradient = problem.gradient_f(theta) + (lam + alpha * w * max(0.0, g)) * gradient_g
    return theta - step_theta * gradient, max(0.0, lam + step_lambda * g)


def cspo_price(problem: Problem, theta: FloatArray, step_theta: float, alpha: float) -> float:
    """Return lam = [rho + alpha w g]_+, the price whose step removes the fraction alpha of g.

    With a = -grad f and b = grad g: at rho = a.b / b.b a step leaves g as it is, to first order,
    and w = 1 / (step_theta b.b) is what the price must change by to change g by one. Within the
    limit g < 0 lowers the price, to nothing at some distance. Nothing here is unknown, so there is
    no dual variable.
    """
    a, b = -problem.gradient_f(theta), problem.gradient_g(theta)
    square = float(b @ b) + EPSILON
    rho, w = float(a @ b) / square, 1.0 / (step_theta * square)
    return max(0.0, rho + alpha * w * float(problem.g(theta)))


def cspo_step(
    problem: Problem, theta: FloatArray, lam: float, step_theta: float, alpha: float
) -> tuple[FloatArray, float]:
    """Descend on f + lam g with the price lam of theta; return the next point and its price."""
    theta = theta - step_theta * (problem.gradient_f(theta) + lam * problem.gradient_g(theta))
    return theta, cspo_price(problem, theta, step_theta, alpha)


@dataclass(frozen=True)
class Trajectory:
    """Where a method went; row 0 is the start."""

    name: str
    theta: FloatArray  # (n + 1, 2)
    lam: FloatArray  # (n + 1,), the multiplier or the price with which the row's point is left
    g: FloatArray  # (n + 1,)

    @property
    def violations(self) -> list[int]:
        """Lengths of the stretches of iterations above the limit, in order."""
        return [len(list(stretch)) for above, stretch in groupby(self.g > TOLERANCE) if above]

    @property
    def first_safe(self) -> int | None:
        """The first iteration within the limit; None if there is none."""
        safe = np.flatnonzero(self.g <= TOLERANCE)
        return int(safe[0]) if len(safe) else None

    @property
    def largest_after(self) -> float | None:
        """The largest violation after that; 0 if there is none."""
        safe = self.first_safe
        return None if safe is None else max(0.0, float(self.g[safe:].max()))


def follow(
    name: str,
    problem: Problem,
    start: Sequence[float],
    steps: int,
    step_theta: float,
    step_lambda: float,
    alpha: float,
) -> Trajectory:
    """Let the method `name` take so many steps from `start`; multipliers are 0 at first."""
    theta, lam = np.array(start, dtype=float), 0.0
    if name == "CSPO":
        lam = cspo_price(problem, theta, step_theta, alpha)
    thetas, lams = [theta], [lam]
    for iteration in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):
            if name == "CSPO":
                theta, lam = cspo_step(problem, theta, lam, step_theta, alpha)
            elif name == "CSPO (paper)":
                theta, lam = paper_step(problem, theta, lam, step_theta, step_lambda, alpha)
            else:
                theta, lam = primal_dual_step(problem, theta, lam, step_theta, step_lambda)
        if not np.abs(theta).max() < 1e6:
            raise CspoError(f"{name} diverges in iteration {iteration + 1}: {SMALLER[name]}.")
        thetas.append(theta)
        lams.append(lam)
    path = np.stack(thetas)
    return Trajectory(name, path, np.array(lams), problem.g(path))


def format_table(trajectories: Sequence[Trajectory], problem: Problem) -> str:
    """Return what was counted, one column per method."""
    best, multiplier = problem.optimum()
    counted: dict[str, Callable[[Trajectory], str]] = {
        "iterations above the limit": lambda path: str(sum(path.violations)),
        "the same, counting any g > 0": lambda path: str(int((path.g > 0.0).sum())),
        "violations": lambda path: str(len(path.violations)),
        "longest violation, iterations": lambda path: str(max(path.violations, default=0)),
        "time to safety from the start": lambda path: _or(path.first_safe, "", "never"),
        "largest violation after that": lambda path: _or(path.largest_after, ".3f", "-"),
        "deepest overshoot (least g)": lambda path: f"{path.g.min():.3f}",
        "distance to the optimum, at the end": lambda path: (
            f"{np.linalg.norm(path.theta[-1] - best):.2g}"
        ),
        f"lambda at the end (optimum {multiplier:.4f})": lambda path: f"{path.lam[-1]:.4f}",
    }
    width = max(map(len, counted))
    lines = [" " * width + "".join(f"{path.name:>14}" for path in trajectories)]
    for label, count in counted.items():
        lines.append(f"{label:<{width}}" + "".join(f"{count(path):>14}" for path in trajectories))
    return "\n".join(lines)


def _or(value: float | None, form: str, missing: str) -> str:
    return missing if value is None else f"{value:{form}}"
