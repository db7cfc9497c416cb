"""What the robot sees: for each class of objects sixteen readings, high where one is near."""

from __future__ import annotations

import math
from typing import Any

from cspo.arithmetic import exact_kernel
from cspo.envs.navigation.parts import LIDAR_BINS

_FULL_TURN = 2.0 * math.pi
_BIN = _FULL_TURN / LIDAR_BINS


@exact_kernel
def read_lidars(
    readings: Any, columns: Any, far: Any, places: Any, position: Any, rotation: Any
) -> None:
    """Write the lidars of N robots.

    A reading falls from 1 at the robot to 0 at `far` metres and beyond. The two neighbours of an
    object's bin get a share of its reading that grows as the object nears them, so that a small
    turn changes readings by a small amount.

    Args: readings (N, lidars * 16): the result; columns (M,): where the lidar of each object's
        class begins, or -1 if it has none; far: the range; places (N, M, 2): the objects; position
        (N, 3), rotation (N, 9): the robots.
    """
    readings[:] = 0.0
    for n in range(len(places)):
        for m in range(places.shape[1]):
            if columns[m] < 0:
                continue
            x, y = places[n, m, 0] - position[n, 0], places[n, m, 1] - position[n, 1]
            z = -position[n, 2]  # as if objects lay on the floor: it matters when the robot tilts
            ahead = x * rotation[n, 0] + y * rotation[n, 3] + z * rotation[n, 6]
            left = x * rotation[n, 1] + y * rotation[n, 4] + z * rotation[n, 7]
            reading = max(0.0, far - math.hypot(ahead, left)) / far
            if reading == 0.0:
                continue
            angle = math.atan2(left, ahead)
            if angle < 0.0:
                angle += _FULL_TURN
            here = min(int(angle / _BIN), LIDAR_BINS - 1)
            share = (angle - here * _BIN) / _BIN
            for away, part in ((0, 1.0), (1, share), (-1, 1.0 - share)):
                column = columns[m] + (here + away) % LIDAR_BINS
                readings[n, column] = max(readings[n, column], part * reading)
