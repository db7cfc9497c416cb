"""What a navigation task is put together from: a robot with its sensors, and classes of objects."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cspo.envs.batch import FloatArray

SUB_STEPS = 10  # physics steps per step
LIDAR_BINS = 16
ROBOT_HEIGHT = 0.1
ROBOT_KEEPOUT = 0.4
HAZARD_RADIUS = 0.2
GREMLIN_TRAVEL = 0.35  # radius of the circle a gremlin's target runs on, at 1 radian per second
GREMLIN_HEIGHT = 0.1  # of that circle; a gremlin hovers as high above its place

# Who collides with whom: two geoms that share a bit. MuJoCo now has a formula for a sphere and a
# cylinder; the benchmark ran on its iteration for convex shapes, which is a little off, by 5 % of
# the depth at worst. So a wheel does not meet the sphere of a button (bit 1) but an ellipsoid in
# the same place (bit 2), which is still iterated for.
WHEEL = 'contype="6" conaffinity="6"'
FLOOR = 'contype="7" conaffinity="7"'
_MOVABLE = 'contype="5" conaffinity="5"'
_INTANGIBLE = 'contype="0" conaffinity="0"'
FOR_WHEELS = 'type="ellipsoid" size="0.1 0.1 0.1" contype="2" conaffinity="2"'

Point = tuple[float, float]
Area = tuple[float, float, float, float]  # smallest x and y, largest x and y


@dataclass(frozen=True)
class Sensor:
    """A sensor of a robot, in MuJoCo's words."""

    kind: str
    joint: str | None = None  # whose motion it tells; by default it sits at the robot's centre
    size: int = 3  # how many numbers it gives to the observation

    @property
    def xml(self) -> str:
        """The sensor in MuJoCo's XML."""
        if self.joint is None:
            return f'<{self.kind} name="{self.kind}" site="agent"/>'
        return f'<{self.kind} name="{self.kind}_{self.joint}" joint="{self.joint}"/>'


class PushBox(NamedTuple):
    """The box that a robot pushes: heavy robots get a heavy one."""

    size: float = 0.2  # half an edge of its cube
    density: float = 0.001
    keepout: float = 0.2


USUAL_BOX = PushBox()
Observe = Callable[[FloatArray, FloatArray], None]  # sensors (n, S), what is shown (n, O)
Uniform = Callable[[float, float, int], FloatArray]  # draws numbers between two bounds


@dataclass(frozen=True)
class Robot:
    """What drives around; its root body and site are named "agent".

    The fields with a default are for robots that differ from the simplest one.
    """

    name: str  # in the name of a task
    verb: str  # what it does
    timestep: float
    density: float
    action_size: int
    sensors: tuple[Sensor, ...]
    """In the order of the observation; one of a rotation is last, and is shown as a matrix."""
    body: str  # MuJoCo's XML of it and of what drives it
    actuators: str
    ahead: tuple[float, float, float]  # where it drives to, in its own frame
    floats: bool  # its place is in `qpos`; otherwise its joints are relative to where it starts
    rolls: bool = False  # it has wheels that are cylinders
    inertia_axes: float | None = None  # all four numbers of the quaternion, if not as compiled
    height: float = ROBOT_HEIGHT  # of its root where it starts
    reach: float = 0.32  # from its root to what it may touch within a step
    push_box: PushBox = USUAL_BOX
    runge_kutta: bool = False  # integrate as `physics.rk4` explains, instead of by Euler's method
    sections: str = ""  # more of MuJoCo's XML: assets, exclusions of contacts, equalities
    finish: Callable[[Any], None] | None = None  # changes the compiled model
    observe: Observe | None = None  # writes the observation, if it is not the sensors as they are
    pose: Callable[[Any, Uniform], None] | None = None
    """Ends a reset: sets joints of a `MjData`, with random numbers drawn after the goal's."""
    dies_below: float = -math.inf  # an episode ends where its root is at this height or below

    @property
    def observation_size(self) -> int:
        """How many numbers its sensors give to the observation."""
        return sum(sensor.size for sensor in self.sensors)

    @property
    def plain_numbers(self) -> int:
        """How many of them are as the sensors give them."""
        return sum(sensor.size for sensor in self.sensors if sensor.kind != "ballquat")


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
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}'
    cyan, height = (0.0, 1.0, 1.0, 1.0), 0.1 - 4e-5
    return ObjectClass("vases", count, 0.15, height, "free", (shape,), cyan, radius=0.18)


def gremlins(count: int) -> ObjectClass:
    """Return light boxes that run in circles."""
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}'
    return ObjectClass("gremlins", count, 0.4, 0.1, "tied", (shape,), (0.5, 0.0, 1.0, 1.0))


def buttons(count: int) -> ObjectClass:
    """Return balls to be touched."""
    shape = 'type="sphere" size="0.1"'
    return ObjectClass("buttons", count, 0.2, 0.1, "fixed", (shape,), (1.0, 0.5, 0.0, 1.0))


def pillars(count: int) -> ObjectClass:
    """Return round posts that stand in the way."""
    shape = f'type="cylinder" size="0.2 0.5" {_MOVABLE}'
    return ObjectClass("pillars", count, 0.3, 0.5, "fixed", (shape,), (0.5, 0.5, 1.0, 1.0))


def push_box(box: PushBox) -> ObjectClass:
    """Return a box to be pushed, with a column at each of its upright edges."""
    s, solid = box.size, f'type="box" density="{box.density}" {_MOVABLE}'
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
