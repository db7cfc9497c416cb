"""What is gathered from a simulator after every step: one row of numbers, and where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cspo.arithmetic import exact_kernel
from cspo.envs.batch import FloatArray


class Rows:
    """Where things are in the rows of N simulators.

    Args:
        model: One of them.
        moving: Numbers of the bodies of the F objects that move; they follow each other, and are
            the last that have joints.

    Attributes:
        sensors: What the sensors tell, S numbers.
        place: Of the robot, (x, y).
        position: Of the robot, (x, y, z).
        pose: Position and rotation matrix of the robot, 12 numbers.
        motion: What the velocity of the robot follows from, 9 numbers.
        objects: Positions of the objects that move, 3 F numbers.
        speeds: Their velocities, 6 F numbers.
    """

    def __init__(self, model: Any, moving: Sequence[int]) -> None:
        """Count the numbers."""
        self._bodies = slice(moving[0], moving[-1] + 1) if moving else slice(0)
        self._joints = slice(int(model.nv) - 6 * len(moving), int(model.nv))
        first = int(model.nsensordata)
        self.sensors = slice(first)
        self.place, self.position = slice(first, first + 2), slice(first, first + 3)
        self.pose, self.motion = slice(first, first + 12), slice(first + 12, first + 21)
        self.objects = slice(first + 21, first + 21 + 3 * len(moving))
        self.speeds = slice(self.objects.stop, self.objects.stop + 6 * len(moving))

    def gather(self, data: Any) -> Sequence[FloatArray]:
        """Return the arrays of a `MjData` that make up its row."""
        robot = data.body("agent")
        pose = data.sensordata, robot.xpos, robot.xmat
        motion = robot.cvel, robot.subtree_com
        return *pose, *motion, data.xpos[self._bodies], data.qvel[self._joints]

    def velocity(self, rows: FloatArray) -> FloatArray:
        """Return the velocity of the robot's centre, (N, 3), in the frame of the world."""
        velocities = np.empty((len(rows), 3))
        velocities_at(velocities, rows[:, self.position], rows[:, self.motion])
        return velocities


@exact_kernel
def velocities_at(velocities: Any, positions: Any, motions: Any) -> None:
    """Write velocities (N, 3) of bodies at some positions (N, 3).

    Motions (N, 9) are what MuJoCo tells: how the body turns, how the point of it moves that is at
    the centre of mass of its tree, and where that is.
    """
    for n in range(len(velocities)):
        turn_x, turn_y, turn_z = motions[n, 0], motions[n, 1], motions[n, 2]
        x = positions[n, 0] - motions[n, 6]
        y = positions[n, 1] - motions[n, 7]
        z = positions[n, 2] - motions[n, 8]
        velocities[n, 0] = motions[n, 3] + (turn_y * z - turn_z * y)
        velocities[n, 1] = motions[n, 4] + (turn_z * x - turn_x * z)
        velocities[n, 2] = motions[n, 5] + (turn_x * y - turn_y * x)


@exact_kernel
def distances_between(distances: Any, places: Any, robots: Any) -> None:
    """Write how far objects at places (N, count, 2) are from robots (N, 2), in the plane."""
    for n in range(places.shape[0]):
        for m in range(places.shape[1]):
            x, y = places[n, m, 0] - robots[n, 0], places[n, m, 1] - robots[n, 1]
            distances[n, m] = math.sqrt(x * x + y * y)
