"""CSPO's price on a linear plant: what patience does to the way to the limit, and at the limit.

    python benchmarks/patience.py

The plant is that of docs/evidence: J' = J + S (h - lam) + noise of the update, of which an epoch
sees y = J + noise of its episodes. Its numbers are those identified on runs: on navigation tasks
the cost answers to the price a little and is measured badly, on velocity tasks it is the other way
round. Level, correction, margin and patience are the package's own; gradients are given. So this
says what the loop does, not what a policy learns. 300 runs of each kind in a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from cspo.algorithms.forecast import Forecast
from cspo.algorithms.patience import Patience
from cspo.experience.margin import Margin
from cspo.types import FloatArray

RUNS, LIMIT, WINDOW = 300, 25.0, 5  # epochs in the window of the reported cost
RATE = 0.1  # of violation, asked for


class Even(Patience):
    """As it was at first: c moves by the same share in every epoch, and the brake acts on it."""

    def spend(self, holds: Any, level: FloatArray, patience: float) -> None:
        """Take in whether the bound held each price down; how far above does not matter."""
        self.c = np.maximum(0.0, self.c + np.where(holds, 1.0, -1.0) / patience)


@dataclass(frozen=True)
class Plant:
    """What a task is to the controller; `at` gives its numbers in an epoch."""

    name: str
    epochs: int
    start: float  # J of the first epoch
    episodes: float  # standard deviation of an epoch's mean cost
    update: float  # of what an update changes beyond the model
    rho: float
    natural: float

    def at(self, t: int) -> tuple[float, float, float]:
        """Return S, the price that holds the cost, and how far S is overrated."""
        rate = max(1.0 - t / self.epochs, 0.02)  # the learning rate falls to zero
        if self.name == "velocity":
            return 3.0 * rate, 0.8 + 0.4 * np.sin(t / 15.0), 1.0
        early = np.exp(-t / 12.0)
        holds = 0.6 + 2.6 * (1.0 - np.exp(-t / 35.0))  # the better the policy, the dearer the limit
        return (0.2 + 3.0 * early) * rate, holds, 1.0 + 4.0 * np.exp(-t / 15.0)


PLANTS = (
    Plant("navigation", 100, 70.0, 6.0, 0.3, 0.1, 0.65),
    Plant("navigation", 500, 70.0, 6.0, 0.3, 0.1, 0.65),
    Plant("velocity", 100, 10.0, 1.0, 2.5, 0.8, 1.0),
)


def run(plant: Plant, spent: Patience, patience: float) -> dict[str, float]:
    """Steer RUNS plants and return means over them."""
    rng, d = np.random.default_rng(0), np.full(RUNS, LIMIT)
    forecast, margin = Forecast(RUNS), Margin(RATE, RUNS)
    forecast.unit[:] = 1.0
    J, natural = np.full(RUNS, plant.start), np.full(RUNS, plant.natural)
    costs, levels, prices, window = [], [], [], []
    for t in range(plant.epochs):
        S, holds, overrated = plant.at(t)
        y = np.maximum(J + plant.episodes * rng.standard_normal(RUNS), 0.0)
        error = plant.episodes * np.exp(0.15 * rng.standard_normal(RUNS))
        window = [*window, y][-WINDOW:]
        J_c = np.mean(window, axis=0)
        aim = margin.target(J_c, error / np.sqrt(len(window)), d)
        seen, K, delta, aim = forecast.update(SimpleNamespace(epoch_cost=y, cost_error=error), aim)  # type: ignore[arg-type]
        measured = S * overrated * np.exp(0.3 * rng.standard_normal(RUNS))
        wanted, hold = (seen - aim) / measured, np.maximum(plant.rho + delta * natural, 0.0)
        push = K * np.minimum(wanted, natural)
        braked = spent.c * natural if isinstance(spent, Even) else 0.0
        lam = np.maximum(hold + push + braked, 0.0) + spent.c * natural - braked
        forecast.expect(measured * (hold - lam), measured * natural)
        spent.spend(wanted > natural, 1.0 + (seen - aim) / LIMIT, patience)
        costs.append(J_c)
        levels.append(J)
        prices.append(lam)
        noise = plant.update * min(1.0 - t / plant.epochs + 0.1, 1.0)
        J = np.maximum(J + S * (holds - lam) + noise * rng.standard_normal(RUNS), 0.0)
    late, half = int(0.3 * plant.epochs), plant.epochs // 2
    violated, level = np.array(costs) > LIMIT, np.array(levels)
    return {
        "kept after": float(np.where(violated.all(0), plant.epochs, violated.argmin(0)).mean()),
        "VF": float(violated[late:].mean()),
        "worst": float(np.max(costs[late:], axis=0).mean()),
        "cost, 2nd half": float(level[half:].mean()),
        "its swing": float(level[half:].std(axis=0).mean()),
        "the price's": float(np.array(prices)[half:].std(axis=0).mean()),
    }


def main() -> None:
    """Print a table."""
    columns = ("kept after", "VF", "worst", "cost, 2nd half", "its swing", "the price's")
    print("| plant | epochs | patience | " + " | ".join(columns) + " |")
    print("|---|---|---|" + "---|" * len(columns))
    for plant in PLANTS:
        for kind, patience in ((Even, 10.0), (Patience, 5.0), (Patience, 10.0), (Patience, 20.0)):
            found = run(plant, kind(RUNS), patience)
            name = f"{patience:.0f}" + (", at first" if kind is Even else "")
            numbers = " | ".join(f"{found[key]:.2f}" for key in columns)
            print(f"| {plant.name} | {plant.epochs} | {name} | {numbers} |")


if __name__ == "__main__":
    main()
