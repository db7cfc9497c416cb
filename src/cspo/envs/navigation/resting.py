"""Objects at rest, left out of the contact solver.

A vase that stands on the floor untouched does not move (by less than 1e-16 m per step in the
recordings), but its four contacts with the floor take two thirds of the physics of PointGoal1. So
while it stands still and nothing that moves is in reach, its contacts are switched off and its
weight is carried; the solver gets it back before the robot arrives. `cspo parity` replays
recordings with this in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.arithmetic import exact_kernel
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
        wanted = np.empty_like(self.resting)
        limits = self._out_of_reach, self._apart
        may_rest(wanted, places, robots, elapsed, velocities, *limits)
        for i, one in np.argwhere(wanted != self.resting).tolist():
            self.set(i, one, bool(wanted[i, one]))

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


@exact_kernel
def may_rest(
    wanted: Any,
    places: Any,
    robots: Any,
    elapsed: Any,
    velocities: Any,
    out_of_reach: Any,
    apart: Any,
) -> None:
    """Write which objects may rest, (N, F); the arguments are those of `Resting.update`.

    An object may that stands still, out of reach of the robot and of every object that may not, for
    one that is hit may be knocked into its neighbours.
    """
    worlds, objects = wanted.shape
    for n in range(worlds):
        for one in range(objects):
            x, y = places[n, one, 0] - robots[n, 0], places[n, one, 1] - robots[n, 1]
            # At the reset an object does not move yet, but it has not settled either: a vase sinks
            # a few micrometres.
            still = elapsed[n] > 0 and math.sqrt(x * x + y * y) > out_of_reach[one]
            for velocity in velocities[n, one]:
                still = still and abs(velocity) < STILL
            wanted[n, one] = still
        changed = True
        while changed:
            changed = False
            for one in range(objects):
                for other in range(objects):
                    if wanted[n, one] and not wanted[n, other]:
                        x = places[n, one, 0] - places[n, other, 0]
                        y = places[n, one, 1] - places[n, other, 1]
                        if math.sqrt(x * x + y * y) < apart[one, other]:
                            wanted[n, one] = False
                            changed = True
