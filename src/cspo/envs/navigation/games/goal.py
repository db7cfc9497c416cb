"""Goal: be in the area of light, which then is somewhere else."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation.games.game import GoalGame, Names, Objects
from cspo.envs.navigation.parts import HAZARD_RADIUS, goal, hazards, vases

RADIUS = 0.3  # of the area
MOVED = 1e-4  # m/s from which on a vase costs


class Goal0(GoalGame):
    """Nothing but the goal."""

    name = "Goal0"
    description = "{} to goals"
    objects: ClassVar[Objects] = (goal(RADIUS, keepout=0.305),)
    extent = 1.0

    def _reached(self, distance: FloatArray) -> BoolArray:
        return distance <= RADIUS

    def _count_costs(self) -> None:
        """Nothing costs."""


class Goal1(Goal0):
    """Eight hazards, and one vase that costs nothing."""

    name = "Goal1"
    description = "{} to goals, but not through hazards"
    objects = (*Goal0.objects, hazards(8), vases(1))
    cost_terms: ClassVar[Names] = ("hazards",)
    extent = 1.5

    def _count_costs(self) -> None:
        inside = self.world.distances("hazards") < HAZARD_RADIUS  # (N, hazards)
        self.costs["hazards"][:] = inside.any(axis=1)


class Goal2(Goal1):
    """Ten hazards, and ten vases that must neither be touched nor moved."""

    name = "Goal2"
    description = "{} to goals, but not through hazards, and leave vases alone"
    objects = (*Goal0.objects, hazards(10), vases(10))
    felt = ("vases",)
    cost_terms = ("hazards", "vases_contact", "vases_velocity")
    extent = 2.0

    def _count_costs(self) -> None:
        super()._count_costs()
        self.costs["vases_contact"][:] = self.world.touched("vases").any(axis=1)
        velocity = self.world.velocities("vases")  # (N, vases, 3)
        moves = np.sqrt(np.square(velocity).sum(axis=2)) >= MOVED
        self.costs["vases_velocity"][:] = moves.any(axis=1)
