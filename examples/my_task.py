"""A task in a file of your own: reach goals, but be slow near the pillars. Every robot can play it.

python my_task.py
cspo train SafetyCarSlow-v0 --plugin my_task.py
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import cspo
from cspo.envs.navigation.games import GoalGame
from cspo.envs.navigation.parts import goal, pillars


@cspo.register_task
class Slow(GoalGame):
    """Two pillars; faster than 0.5 m/s within a metre of one costs, and so does touching one."""

    name = "Slow"  # SafetyPointSlow-v0, SafetyCarSlow-v0, ...
    description = "{} to goals, slowly near the pillars"
    objects = (goal(radius=0.3, keepout=0.4), pillars(2))  # placed, and seen, in this order
    felt = ("pillars",)  # whose contacts with the robot matter
    cost_terms = ("speed", "pillars")
    time_limit = 400

    def _reached(self, distance: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Say where the goal is reached; `GoalGame` does the rest: rewards, new goals."""
        return distance <= 0.3

    def _count_costs(self) -> None:
        """Write each term of the cost, one number per world, 0 or 1."""
        world = self.world
        fast = np.linalg.norm(world.robot_velocities[:, :2], axis=1) > 0.5
        near = (world.distances("pillars") < 1.0).any(axis=1)
        self.costs["speed"][:] = fast & near
        self.costs["pillars"][:] = world.touched("pillars").any(axis=1)


if __name__ == "__main__":
    cspo.train("SafetyPointSlow-v0", total_steps=20_000, steps_per_epoch=8_000, cost_limit=10)
