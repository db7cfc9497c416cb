"""CSPO's price on a linear plant: the way to the limit, and what happens at it.

    python benchmarks/simulated_plant.py

The plant is that of docs/evidence: J' = J + S (h - lam) + noise of the update, of which an epoch
sees y = J + noise of its episodes. Its numbers are those identified on runs: on navigation tasks
the cost answers to the price a little and is measured badly, on velocity tasks it is the other way
round; `far` is a navigation task that begins far outside its limit and is measured worse. Filter,
patience and margin are the package's own; gradients are given. So this says what the loop does, not
what a policy learns. 300 runs of each kind in a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from cspo.algorithms.cspo import CSPO
from cspo.algorithms.forecast import Forecast
from cspo.algorithms.patience import Patience
from cspo.experience.margin import Margin
from cspo.types import FloatArray

EPSILON = CSPO.epsilon
RUNS, LIMIT, WINDOW = 300, 25.0, 5  # epochs in the window of the reported cost
RATE = 0.1  # of violation, asked for


class Certain(Forecast):
    """What patience adds to delta counts as known: the variance of delta stays as it is."""

    def lift(self, rise: FloatArray) -> None:
        """Raise delta alone."""
        variance = self.P.copy()
        super().lift(rise)
        self.P = variance


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
        overrated = 1.0 + 4.0 * np.exp(-t / 15.0)
        if self.name == "far":
            return (0.3 + 2.0 * early) * rate, 2.6, overrated
        holds = 0.6 + 2.6 * (1.0 - np.exp(-t / 35.0))  # the better the policy, the dearer the limit
        return (0.2 + 3.0 * early) * rate, holds, overrated


PLANTS = (
    Plant("navigation", 100, 70.0, 6.0, 0.3, 0.1, 0.65),
    Plant("navigation", 500, 70.0, 6.0, 0.3, 0.1, 0.65),
    Plant("far", 100, 85.0, 9.0, 0.3, 0.1, 0.6),
    Plant("far", 500, 85.0, 9.0, 0.3, 0.1, 0.6),
    Plant("velocity", 100, 10.0, 1.0, 2.5, 0.8, 1.0),
)
ARMS: dict[str, dict[str, Any]] = {
    "default": {},
    "epsilon / 10": {"epsilon": EPSILON / 10.0},
    "epsilon / 2": {"epsilon": EPSILON / 2.0},
    "epsilon x 2": {"epsilon": EPSILON * 2.0},
    "patience 5": {"patience": 5.0},
    "patience 20": {"patience": 20.0},
    "a lift is certain": {"forecast": Certain},
}


def run(
    plant: Plant,
    epsilon: float = EPSILON,
    patience: float = 10.0,
    forecast: type[Forecast] = Forecast,
) -> dict[str, float]:
    """Steer RUNS plants and return means over them."""
    rng, d = np.random.default_rng(0), np.full(RUNS, LIMIT)
    sight, spent, margin = forecast(RUNS), Patience(RUNS), Margin(RATE, RUNS)
    sight.unit[:] = 1.0
    J, natural = np.full(RUNS, plant.start), np.full(RUNS, plant.natural)
    costs, levels, prices, window = [], [], [], []
    for t in range(plant.epochs):
        S, holds, overrated = plant.at(t)
        y = np.maximum(J + plant.episodes * rng.standard_normal(RUNS), 0.0)
        error = plant.episodes * np.exp(0.15 * rng.standard_normal(RUNS))
        window = [*window, y][-WINDOW:]
        J_c = np.mean(window, axis=0)
        aim = margin.target(J_c, error / np.sqrt(len(window)), d)
        batch: Any = SimpleNamespace(epoch_cost=y, cost_error=error)
        seen, delta, aim = sight.update(batch, aim, natural)
        measured = S * overrated * np.exp(0.3 * rng.standard_normal(RUNS))
        hold = np.maximum(plant.rho + delta, 0.0)
        wanted = (seen - aim) / (measured + epsilon / natural)
        lam = np.maximum(hold + np.minimum(wanted, natural), 0.0)
        sight.expect(measured * (hold - lam), measured)
        sight.lift(natural * spent.spend(wanted > natural, (seen - aim) / LIMIT, patience))
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
        "VF, 2nd half": float(violated[half:].mean()),
        "worst": float(np.max(costs[late:], axis=0).mean()),
        "cost, 2nd half": float(level[half:].mean()),
        "its swing": float(level[half:].std(axis=0).mean()),
        "the price's": float(np.array(prices)[half:].std(axis=0).mean()),
    }


def main() -> None:
    """Print a table."""
    found = {(plant, arm): run(plant, **ARMS[arm]) for plant in PLANTS for arm in ARMS}
    columns = tuple(next(iter(found.values())))
    print("| plant | epochs | | " + " | ".join(columns) + " |")
    print("|---|---|---|" + "---|" * len(columns))
    for (plant, arm), row in found.items():
        numbers = " | ".join(f"{row[column]:.2f}" for column in columns)
        print(f"| {plant.name} | {plant.epochs} | {arm} | {numbers} |")


if __name__ == "__main__":
    main()
