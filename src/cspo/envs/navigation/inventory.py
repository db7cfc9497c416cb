"""The objects of a world, numbered: which are of a class, which move, which are fixed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.layout import Rooms
from cspo.envs.navigation.parts import ObjectClass, Stage

# A place that is given is drawn all the same, from a square of this half-width around it.
ABOUT = 1e-9


class Inventory:
    """The M objects of a world, in the order of placement.

    Args:
        classes: Of the objects.

    Attributes:
        names: Of the classes.
        rows: Which of the M objects are of a class.
        moving: Which of them move, in the order of the simulator: free ones, then tied ones.
        moving_rows: Which of the moving ones are of a class.
        free: How many of the moving ones are free.
        fixed: Which of the M objects are fixed.
        heights: (M,) of their centres.
        radii: (F,) of the free ones.
    """

    def __init__(self, classes: Sequence[ObjectClass]) -> None:
        """Count them."""
        movers = [one for kind in ("free", "tied") for one in classes if one.placement == kind]
        self.classes = classes
        self.names = tuple(one.name for one in classes)
        self.rows, self.moving_rows = rows_of(classes), rows_of(movers)
        self.moving = [i for one in movers for i in self._numbers(one)]
        self.free = sum(one.count for one in movers if one.placement == "free")
        fixed = [one for one in classes if one.placement == "fixed"]
        self.fixed = [i for one in fixed for i in self._numbers(one)]
        self.heights = self._each("height")
        self.radii = self._each("radius")[self.moving[: self.free]]

    def rooms(self, stage: Stage) -> Rooms:
        """Return where everything may be placed."""
        keepouts = np.array([stage.robot_keepout, *self._each("keepout")])
        rooms = Rooms.square(stage.extent, keepouts)
        if stage.robot_area is not None:
            rooms.areas[0] = stage.robot_area
        for one in self.classes:
            for number, place in zip(self._numbers(one), one.places, strict=False):
                x, y = place
                rooms.areas[1 + number] = x - ABOUT, y - ABOUT, x + ABOUT, y + ABOUT
        return rooms

    def _numbers(self, one: ObjectClass) -> range:
        rows = self.rows[one.name]
        return range(rows.start, rows.stop)

    def _each(self, fact: str) -> FloatArray:
        """Return a fact about each of the M objects."""
        return np.array([getattr(one, fact) for one in self.classes for _ in range(one.count)])


def rows_of(classes: Sequence[ObjectClass]) -> dict[str, slice]:
    """Return which rows each class has where all objects follow each other."""
    ends = np.cumsum([one.count for one in classes]).tolist()
    return {one.name: slice(end - one.count, end) for one, end in zip(classes, ends, strict=True)}
