"""What a robot of the navigation tasks is: its body, what drives it, and what it senses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cspo.envs.batch import FloatArray

# Who collides with whom: two geoms that share a bit. MuJoCo now has a formula for a sphere and a
# cylinder; the benchmark ran on its iteration for convex shapes, which is a little off, by 5 % of
# the depth at worst. So a cylinder does not meet the sphere of a button (bit 1) but an ellipsoid in
# the same place (bit 2), which is still iterated for.
CYLINDER = 'contype="6" conaffinity="6"'
SOLID = 'contype="5" conaffinity="5"'  # meets cylinders as well; by default a geom has bit 1 alone

Shown = Literal["plain", "height", "angle", "rotation"]


class _Kind(NamedTuple):
    """What MuJoCo measures by a kind of sensor, and what the observation shows of it."""

    subject: str  # in the XML: which part is measured
    size: int  # numbers that the sensor gives
    shown: Shown = "plain"


# A height is the last of three coordinates, an angle is shown as sine and cosine, and a rotation, a
# quaternion, as a matrix.
_KINDS = {
    **dict.fromkeys(("accelerometer", "velocimeter", "gyro", "magnetometer"), _Kind("site", 3)),
    "touch": _Kind("site", 1),
    "framepos": _Kind('objtype="site" objname', 3, "height"),
    "frameangvel": _Kind('objtype="site" objname', 3),
    "jointvel": _Kind("joint", 1),
    "jointpos": _Kind("joint", 1, "angle"),
    "ballangvel": _Kind("joint", 3),
    "ballquat": _Kind("joint", 4, "rotation"),
}
_SHOWN_SIZES = {"height": 1, "angle": 2, "rotation": 9}


@dataclass(frozen=True)
class Sensor:
    """A sensor of a robot, in MuJoCo's words."""

    kind: str
    of: str = "agent"  # the joint or site; by default the site at the robot's centre

    @property
    def xml(self) -> str:
        """The sensor in MuJoCo's XML."""
        return (
            f'<{self.kind} name="{self.kind}_{self.of}" {_KINDS[self.kind].subject}="{self.of}"/>'
        )

    @property
    def size(self) -> int:
        """How many numbers it measures."""
        return _KINDS[self.kind].size

    @property
    def shown(self) -> Shown:
        """What the observation shows of them."""
        return _KINDS[self.kind].shown

    @property
    def shown_size(self) -> int:
        """How many numbers it gives to the observation."""
        return _SHOWN_SIZES.get(self.shown, self.size)


STANDARD_SENSORS = tuple(map(Sensor, ("accelerometer", "velocimeter", "gyro", "magnetometer")))


class PushBox(NamedTuple):
    """The box that a robot pushes: heavy robots get a heavy one."""

    size: float = 0.2  # half an edge of its cube
    density: float = 0.001
    keepout: float = 0.2


class Exactness(NamedTuple):
    """How closely mujoco 2.3.3 can be followed: the errors that `cspo parity` allows."""

    state: float = 1e-6  # of position and reward, in 95 % of the steps
    observation: float = 1e-6  # likewise
    observation_in_contact: float = 1e-3
    """In 99 %: a contact may be found a moment earlier or later, and accelerations are large."""
    reward: float = 1e-5  # in 99 %


USUAL_BOX, USUAL_EXACTNESS = PushBox(), Exactness()
AHEAD_AND_DOWN = 'pos="0 0 0.15" xyaxes="0 -1 0 0.4 0 1" fovy="90"'  # of what drives along x
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
    sensors: tuple[Sensor, ...]  # in the order of the observation
    body: str  # MuJoCo's XML of it and of what drives it
    actuators: str
    ahead: tuple[float, float, float]  # where it drives to, in its own frame
    floats: bool  # its place is in `qpos`; otherwise its joints are relative to where it starts
    has_cylinders: bool = False  # marked CYLINDER
    inertia_axes: float | None = None  # all four numbers of the quaternion, if not as compiled
    height: float = 0.1  # of its root where it starts
    reach: float = 0.32  # from its root to what it may touch within a step
    push_box: PushBox = USUAL_BOX
    vision: str = AHEAD_AND_DOWN  # where its camera is, for pictures
    runge_kutta: bool = False  # integrate as `physics.rk4` explains, instead of by Euler's method
    sections: str = ""  # more of MuJoCo's XML: assets, exclusions of contacts, equalities
    finish: Callable[[Any], None] | None = None  # changes the compiled model
    pose: Callable[[Any, Uniform], None] | None = None
    """Ends a reset: sets joints of a `MjData`, with random numbers drawn after the goal's."""
    exactness: Exactness = USUAL_EXACTNESS
    dies_below: float = -math.inf  # an episode ends where its root is at this height or below

    @property
    def observation_size(self) -> int:
        """How many numbers its sensors give to the observation."""
        return sum(sensor.shown_size for sensor in self.sensors)
