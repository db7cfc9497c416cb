"""What is gathered from a simulator after every step: one row of numbers, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        turning, moving, pivot = rows[:, self.motion].reshape(-1, 3, 3).transpose(1, 0, 2)
        # MuJoCo tells the velocity of the point of the robot that is at its centre of mass.
        x, y, z = (rows[:, self.position] - pivot).T
        velocity: FloatArray = moving.copy()
        velocity[:, 0] += turning[:, 1] * z - turning[:, 2] * y
        velocity[:, 1] += turning[:, 2] * x - turning[:, 0] * z
        velocity[:, 2] += turning[:, 0] * y - turning[:, 1] * x
        return velocity
