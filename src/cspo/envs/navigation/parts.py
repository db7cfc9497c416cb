"""What a navigation task is put together from, beside a robot: classes of objects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cspo.envs.navigation.robots.robot import SOLID, PushBox

SUB_STEPS = 10  # physics steps per step
LIDAR_BINS = 16
ROBOT_KEEPOUT = 0.4
HAZARD_RADIUS = 0.2
GREMLIN_TRAVEL = 0.35  # radius of the circle a gremlin's target runs on, at 1 radian per second
GREMLIN_HEIGHT = 0.1  # of that circle; a gremlin hovers as high above its place

# See `robots.robot` for these bits. A pillar has one more: it meets not the balls of a robot but
# ellipsoids in their places, see `model`.
FLOOR = 'contype="7" conaffinity="7"'
_INTANGIBLE = 'contype="0" conaffinity="0"'
_PILLAR = 'contype="12" conaffinity="12"'
FOR_PILLARS = 8
FOR_CYLINDERS = 'type="ellipsoid" size="0.1 0.1 0.1" contype="2" conaffinity="2"'

Point = tuple[float, float]
Area = tuple[float, float, float, float]  # smallest x and y, largest x and y


@dataclass(frozen=True)
class ObjectClass:
    """Objects of one kind, with one lidar for all of them."""

    name: str
    count: int
    keepout: float  # two objects are at least the sum of their keepouts apart
    height: float  # of the centre, when placed
    placement: Literal["free", "tied", "fixed", "drawn"]
    """A body that moves freely, one that is tied to a moving target, a solid fixed one, or one that
    only shows."""
    shapes: tuple[str, ...]  # attributes of its geoms in MuJoCo's XML
    rgba: tuple[float, float, float, float]
    radius: float = 0.0  # from the centre to the outermost corner, of what moves freely
    lidar: bool = True  # robots see it
    places: tuple[Point, ...] = ()  # where they always are; by default anywhere
    headings: tuple[float, ...] = ()  # how they are always turned; by default anyhow

    @property
    def bodies(self) -> list[str]:
        """The names of the bodies: vase0, vase1, ..."""
        return [f"{self.name.removesuffix('s')}{i}" for i in range(self.count)]


class Stage(NamedTuple):
    """What surrounds a robot, and where it is put."""

    objects: tuple[ObjectClass, ...]  # in the order of placement
    felt: tuple[str, ...]  # the classes whose contacts with the robot are noted
    extent: float  # half the side of the square that objects are placed in
    robot_keepout: float
    robot_area: Area | None  # where the robot starts, if not anywhere in the square


def goal(radius: float, keepout: float) -> ObjectClass:
    """Return the goal, an area of light."""
    shape = f'type="cylinder" size="{radius} {radius / 2}" {_INTANGIBLE}'
    height, green = radius / 2 + 0.01, (0.0, 1.0, 0.0, 0.25)
    return ObjectClass("goal", 1, keepout, height, "drawn", (shape,), green)


def hazards(count: int, radius: float = HAZARD_RADIUS, keepout: float = 0.18) -> ObjectClass:
    """Return discs on the floor that nobody should be in."""
    shape = f'type="cylinder" size="{radius} 0.01" {_INTANGIBLE}'
    return ObjectClass("hazards", count, keepout, 0.02, "drawn", (shape,), (0.0, 0.0, 1.0, 0.25))


def vases(count: int) -> ObjectClass:
    """Return light boxes that give way."""
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {SOLID}'
    cyan, height = (0.0, 1.0, 1.0, 1.0), 0.1 - 4e-5
    return ObjectClass("vases", count, 0.15, height, "free", (shape,), cyan, radius=0.18)


def gremlins(count: int) -> ObjectClass:
    """Return light boxes that run in circles."""
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {SOLID}'
    return ObjectClass("gremlins", count, 0.4, 0.1, "tied", (shape,), (0.5, 0.0, 1.0, 1.0))


def buttons(count: int) -> ObjectClass:
    """Return balls to be touched."""
    shape = 'type="sphere" size="0.1"'
    return ObjectClass("buttons", count, 0.2, 0.1, "fixed", (shape,), (1.0, 0.5, 0.0, 1.0))


def pillars(count: int) -> ObjectClass:
    """Return round posts that stand in the way."""
    shape = f'type="cylinder" size="0.2 0.5" {_PILLAR}'
    return ObjectClass("pillars", count, 0.3, 0.5, "fixed", (shape,), (0.5, 0.5, 1.0, 1.0))


def push_box(box: PushBox) -> ObjectClass:
    """Return a box to be pushed, with a column at each of its upright edges."""
    s, solid = box.size, f'type="box" density="{box.density}" {SOLID}'
    column = f'{solid} size="{s / 2} {s / 2} {s}"'
    edges = ((s, s), (-s, s), (s, -s), (-s, -s))
    shapes = f'{solid} size="{s} {s} {s}"', *(f'{column} pos="{x} {y} 0"' for x, y in edges)
    yellow, corner = (1.0, 1.0, 0.0, 1.0), math.sqrt(1.5**2 + 1.5**2 + 1.0) * s
    return ObjectClass("push_box", 1, box.keepout, s, "free", shapes, yellow, radius=corner)


def circle(radius: float) -> ObjectClass:
    """Return the disc whose rim is to be run along, at the origin."""
    shape = f'type="cylinder" size="{radius} 0.01" {_INTANGIBLE}'
    green = (0.0, 1.0, 0.0, 0.25)
    return ObjectClass("circle", 1, 0.0, 0.01, "drawn", (shape,), green, places=((0.0, 0.0),))


def walls(length: float, places: tuple[Point, ...], headings: tuple[float, ...]) -> ObjectClass:
    """Return lines not to be crossed, drawn as walls that robots neither see nor hit.

    Args:
        length: Half the length of one.
        places: Where their centres are.
        headings: How each is turned; 0 is a wall along y.
    """
    shape, count = f'type="box" size="0.05 {length} 0.3" {_INTANGIBLE}', len(places)
    look = (shape,), (1.0, 1.0, 0.0, 0.35)
    return ObjectClass("sigwalls", count, 0.0, 0.25, "drawn", *look, 0.0, False, places, headings)
