"""The largest difference between a policy and its exported files, for every kind of action space.

    python benchmarks/export_differences.py

Trains a moment on each, exports to every format, both ways of acting, and prints a Markdown table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import cspo

SPACES: dict[str, Any] = {
    "Box, bounded": Box(np.float32([-3.0, 0.5]), np.float32([1.0, 0.75]), dtype=np.float32),
    "Box, unbounded": Box(-np.inf, np.inf, (2,), np.float32),
    "Box of whole numbers": Box(-3, 4, (2, 2), np.int16),
    "Discrete": Discrete(3, start=2),
    "MultiDiscrete": MultiDiscrete([[2, 4], [3, 1]]),
    "MultiBinary": MultiBinary((2, 2)),
    "Tuple and Dict, nested": Dict(
        {"gear": Discrete(3), "rest": Tuple([MultiBinary(2), Box(-1.0, 1.0, (2,), np.float32)])}
    ),
}
FORMATS: tuple[Literal["onnx", "torchscript", "numpy"], ...] = ("onnx", "torchscript", "numpy")


class Drift(gymnasium.Env[Any, Any]):
    """Wanders about; actions only have to be of the space."""

    num_costs = 1
    observation_space = Dict({"place": Box(-np.inf, np.inf, (4,), np.float64), "room": Discrete(3)})

    def __init__(self, name: str) -> None:
        """Take one of the action spaces."""
        self.action_space = SPACES[name]

    def _observe(self) -> dict[str, Any]:
        return {"place": self.np_random.normal(2.0, 3.0, 4), "room": self.t % 3}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        """Go on; the reward is the first number seen."""
        assert self.action_space.contains(action)
        self.t += 1
        seen = self._observe()
        cost = float(seen["place"][1] > 0.0)
        return seen, float(seen["place"][0]), False, self.t == 50, {"cost": cost}


def main() -> None:
    sizes: Any = {"total_steps": 8000, "steps_per_epoch": 4000, "quiet": True}
    print("| action space | " + " | ".join(FORMATS) + " |")
    print("|---|" + "---|" * len(FORMATS))
    with tempfile.TemporaryDirectory() as folder:
        for name in SPACES:
            run, cells = Path(folder, name), []
            cspo.train(lambda n=name: Drift(n), run_dir=run, **sizes)
            for to in FORMATS:
                found = []
                for mode in (True, False):
                    own: Any = {"env": lambda n=name: Drift(n), "episodes": 20}
                    found.append(cspo.export(run, to, deterministic=mode, **own).comparison)
                numbers = [
                    f"{max(c.action, c.distribution) if c.action else c.distribution:.1e}"
                    for c in found
                ]
                differ = sum(c.different_choices for c in found)
                choices = sum(c.choices for c in found)
                counted = f", {differ} of {choices} choices" if choices else ""
                cells.append(" / ".join(numbers) + counted)
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
