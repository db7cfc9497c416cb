"""Objects at rest, left out of the contact solver.

A vase that stands on the floor untouched does not move (by less than 1e-16 m per step in the
recordings), but its four contacts with the floor take two thirds of the physics of PointGoal1. So
while it stands still and nothing that moves is in reach, its contacts are switched off and its
weight is carried; the solver gets it back before the robot arrives. `cspo parity` replays
recordings with this in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import FloatArray

STILL = 1e-9  # m/s and rad/s
KNOCKED = 3.0  # m/s that an object may be knocked to


class Resting:
    """The F free objects of N simulators, and which of them rest.

    Args:
        models: The N models, each its own.
        simulators: The N `MjData`.
        bodies: Names of the bodies.
        radii: (F,) from the centre of each to its outermost corner.
        reach: From the centre of the robot to what it may touch within a step.
        seconds: Simulated time of a step.
    """

    def __init__(
        self,
        models: Sequence[Any],
        simulators: Sequence[Any],
        bodies: Sequence[str],
        radii: FloatArray,
        reach: float,
        seconds: float,
    ) -> None:
        """Look up where the switches are in each model."""
        first = models[0]
        self._bodies = [first.body(name).id for name in bodies]
        self._geoms = [np.flatnonzero(first.geom_bodyid == body) for body in self._bodies]
        self._colliding = [first.geom_contype[geoms].copy() for geoms in self._geoms]
        addresses = [int(first.body(name).dofadr[0]) for name in bodies]
        self._velocities = [
            [one.qvel[start : start + 6] for start in addresses] for one in simulators
        ]
        self._models = models
        self._out_of_reach = reach + radii  # (F,)
        self._apart = radii[:, None] + radii + KNOCKED * seconds  # (F, F)
        self.resting = np.zeros((len(models), len(bodies)), np.bool_)

    def update(
        self,
        places: FloatArray,
        robots: FloatArray,
        velocities: FloatArray,
        elapsed: NDArray[np.int64],
    ) -> None:
        """Let objects rest, or wake them.

        Args:
            places: (N, F, 2) of the objects.
            robots: (N, 2) where the robots are.
            velocities: (N, F, 6) of the objects.
            elapsed: (N,) steps since the reset.
        """
        away = places - robots[:, None]
        distances = np.sqrt(away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1])
        # At the reset an object does not move yet, but it has not settled either: a vase sinks a
        # few micrometres.
        wanted = (
            (distances > self._out_of_reach)
            & (np.abs(velocities).max(axis=2) < STILL)
            & (elapsed > 0)[:, None]
        )
        if wanted.shape[1] > 1:
            self._keep_neighbours_awake(wanted, places)
        for i, one in np.argwhere(wanted != self.resting).tolist():
            self.set(i, one, bool(wanted[i, one]))

    def _keep_neighbours_awake(self, wanted: NDArray[np.bool_], places: FloatArray) -> None:
        """Take out of `wanted` (N, F) what another object that is awake might be knocked into."""
        some = np.flatnonzero(wanted.any(axis=1) & ~wanted.all(axis=1))
        away = places[some, :, None] - places[some, None]  # (n, F, F, 2)
        near = np.hypot(away[..., 0], away[..., 1]) < self._apart
        resting, before = wanted[some], -1
        while (count := int(np.count_nonzero(resting))) != before:  # a neighbour may knock its own
            resting &= ~(near & ~resting[:, None]).any(axis=2)
            before = count
        wanted[some] = resting

    def wake(self, index: int) -> None:
        """Wake all objects of one simulator."""
        for one in np.flatnonzero(self.resting[index]).tolist():
            self.set(index, one, False)

    def set(self, index: int, one: int, resting: bool) -> None:
        """Let an object of one simulator rest, or wake it."""
        model, geoms = self._models[index], self._geoms[one]
        bits = 0 if resting else self._colliding[one]
        model.geom_contype[geoms] = bits
        model.geom_conaffinity[geoms] = bits
        model.body_gravcomp[self._bodies[one]] = 1.0 if resting else 0.0
        if resting:
            self._velocities[index][one][:] = 0.0
        self.resting[index, one] = resting
