"""What an observation shows of a robot's sensors, compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.arithmetic import exact_kernel
from cspo.envs.navigation.robots.robot import Sensor

PLAIN, ANGLE, ROTATION = range(3)


def plan_of(sensors: Sequence[Sensor]) -> NDArray[np.int64]:
    """Return what to show, (items, 2): how, and from which number of the sensors on."""
    items, place = [], 0
    for sensor in sensors:
        if sensor.shown == "plain":
            items += [(PLAIN, place + i) for i in range(sensor.size)]
        elif sensor.shown == "height":
            items.append((PLAIN, place + sensor.size - 1))
        else:
            items.append((ANGLE if sensor.shown == "angle" else ROTATION, place))
        place += sensor.size
    return np.array(items, np.int64)


@exact_kernel
def show_sensors(shown: Any, sensors: Any, plan: Any) -> None:
    """Write what the observations show, (N, O), of sensors (N, S), see `plan_of`."""
    for n in range(len(sensors)):
        place = 0
        for item in range(len(plan)):
            how, source = plan[item]
            if how == PLAIN:
                shown[n, place] = sensors[n, source]
                place += 1
            elif how == ANGLE:
                shown[n, place] = math.sin(sensors[n, source])
                shown[n, place + 1] = math.cos(sensors[n, source])
                place += 2
            else:
                rotation_matrices(
                    shown[n : n + 1, place : place + 9], sensors[n : n + 1, source : source + 4]
                )
                place += 9


@exact_kernel
def rotation_matrices(matrices: Any, quaternions: Any) -> None:
    """Write the rotation matrices (N, 9), row by row, of unit quaternions (N, 4)."""
    for n in range(len(quaternions)):
        w, x, y, z = quaternions[n]
        matrices[n, 0] = w * w + x * x - y * y - z * z
        matrices[n, 1] = 2.0 * (x * y - w * z)
        matrices[n, 2] = 2.0 * (x * z + w * y)
        matrices[n, 3] = 2.0 * (x * y + w * z)
        matrices[n, 4] = w * w - x * x + y * y - z * z
        matrices[n, 5] = 2.0 * (y * z - w * x)
        matrices[n, 6] = 2.0 * (x * z - w * y)
        matrices[n, 7] = 2.0 * (y * z + w * x)
        matrices[n, 8] = w * w - x * x - y * y + z * z
