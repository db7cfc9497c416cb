"""What a navigation task is put together from: a robot with its sensors, and classes of objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SUB_STEPS = 10  # physics steps per step
EXTENT = 1.5  # objects are placed in the square [-1.5, 1.5] x [-1.5, 1.5]
ROBOT_KEEPOUT = 0.4
ROBOT_HEIGHT = 0.1
LIDAR_BINS = 16
LIDAR_RANGE = 3.0
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


@dataclass(frozen=True)
class Robot:
    """What drives around; its root body, geom and site are all named "agent"."""

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
    shape: str  # attributes of its geom in MuJoCo's XML
    rgba: tuple[float, float, float, float]

    @property
    def bodies(self) -> list[str]:
        """The names of the bodies: vase0, vase1, ..."""
        return [f"{self.name.removesuffix('s')}{i}" for i in range(self.count)]


def goal(radius: float, keepout: float) -> ObjectClass:
    """Return the goal, an area of light."""
    shape = f'type="cylinder" size="{radius} {radius / 2}" {_INTANGIBLE}'
    height, green = radius / 2 + 0.01, (0.0, 1.0, 0.0, 0.25)
    return ObjectClass("goal", 1, keepout, height, "drawn", shape, green)


def hazards(count: int) -> ObjectClass:
    """Return discs on the floor that nobody should be in."""
    shape = f'type="cylinder" size="{HAZARD_RADIUS} 0.01" {_INTANGIBLE}'
    return ObjectClass("hazards", count, 0.18, 0.02, "drawn", shape, (0.0, 0.0, 1.0, 0.25))


def vases(count: int) -> ObjectClass:
    """Return light boxes that give way."""
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}'
    return ObjectClass("vases", count, 0.15, 0.1 - 4e-5, "free", shape, (0.0, 1.0, 1.0, 1.0))


def gremlins(count: int) -> ObjectClass:
    """Return light boxes that run in circles."""
    shape = f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}'
    return ObjectClass("gremlins", count, 0.4, 0.1, "tied", shape, (0.5, 0.0, 1.0, 1.0))


def buttons(count: int) -> ObjectClass:
    """Return balls to be touched."""
    shape = 'type="sphere" size="0.1"'
    return ObjectClass("buttons", count, 0.2, 0.1, "fixed", shape, (1.0, 0.5, 0.0, 1.0))
