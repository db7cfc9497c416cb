"""Vases at rest, left out of the contact solver.

A vase that stands on the floor untouched does not move (by less than 1e-16 m per step in the
recordings), but its four contacts with the floor take two thirds of the physics of PointGoal1. So
while it stands still and the robot is out of reach, its contacts are switched off and its weight is
carried; the solver gets it back before the robot arrives. `cspo parity` replays recordings with
this in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import FloatArray

# A corner of the Car is 0.22 m from its centre, one of a vase 0.18 m, and no robot moves 0.05 m in
# a step.
OUT_OF_REACH = 0.5
STILL = 1e-9  # m/s and rad/s


class RestingVases:
    """The vases of N simulators, one each, and which of them rest.

    Args:
        models: The N models, each its own.
        simulators: The N `MjData`; the vase is the last body with a joint.
        name: Of the vase's body and geom.
    """

    def __init__(self, models: Sequence[Any], simulators: Sequence[Any], name: str) -> None:
        """Look up where the switches are in each model."""
        body, geom = models[0].body(name).id, models[0].geom(name).id
        self._masks = [
            (one.geom_contype[geom : geom + 1], one.geom_conaffinity[geom : geom + 1])
            for one in models
        ]
        self._colliding = int(models[0].geom_contype[geom])
        self._carried = [one.body_gravcomp[body : body + 1] for one in models]
        self._velocities = [one.qvel[-6:] for one in simulators]
        self.resting = np.zeros(len(models), np.bool_)

    def update(
        self, distances: FloatArray, velocities: FloatArray, elapsed: NDArray[np.int64]
    ) -> None:
        """Let vases rest, or wake them.

        Args:
            distances: (N,) from robot to vase.
            velocities: (N, 6) of the vases.
            elapsed: (N,) steps since the reset.
        """
        # At the reset a vase does not move yet, but it has not settled either: it sinks a few
        # micrometres.
        wanted = (
            (distances > OUT_OF_REACH) & (np.abs(velocities).max(axis=1) < STILL) & (elapsed > 0)
        )
        for i in np.flatnonzero(wanted != self.resting).tolist():
            self.set(i, bool(wanted[i]))

    def set(self, index: int, resting: bool) -> None:
        """Let the vase of one simulator rest, or wake it."""
        for mask in self._masks[index]:
            mask[0] = 0 if resting else self._colliding
        self._carried[index][0] = 1.0 if resting else 0.0
        if resting:
            self._velocities[index][:] = 0.0
        self.resting[index] = resting
