"""The velocity tasks, one row each: a robot of Gymnasium, and how fast it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.facts import TaskRow

Health = Callable[[FloatArray], BoolArray]  # positions and velocities (N, nq + nv) -> (N,)


class Framing(NamedTuple):
    """Where the camera stands that follows a robot."""

    height: float  # of the point it looks at, which does not follow the robot up and down
    distance: float
    azimuth: float
    elevation: float


@dataclass(frozen=True)
class Robot:
    """A robot of Gymnasium's MuJoCo v4 tasks, with their rewards, ends and resets."""

    name: str  # in the name of the task
    verb: str  # what it does
    file: str  # in Gymnasium's MuJoCo assets
    sizes: tuple[int, int]  # of an observation and of an action
    timestep: float  # seconds of a physics step
    frame_skip: int  # physics steps per step
    skipped: int  # leading positions left out of the observation
    control_weight: float
    noise: float  # half-width of the uniform noise on positions at a reset
    velocity_noise: Literal["uniform", "normal"]  # of the same width
    framing: Framing
    position: Literal["qpos", "torso", "mass"] = "qpos"
    """Whose displacement over one step is the velocity."""
    has_y: bool = True  # y_velocity is defined
    forward_weight: float = 1.0
    alive_bonus: float = 0.0
    velocity_clip: float | None = None  # observed joint velocities are clipped to this
    body_terms: tuple[str, ...] = ()  # more arrays of MjData in the observation
    chained: bool = False
    """Needs the integrator of the MuJoCo that Safety-Gymnasium ran on, see `rk4`."""
    healthy: Health | None = None  # the episode ends where False


@dataclass(frozen=True)
class VelocityTask:
    """The facts that make one velocity task."""

    robot: Robot
    version: str
    speed_limit: float
    speed_is_planar: bool = False  # speed is the norm of (vx, vy), otherwise vx alone

    options: ClassVar[tuple[str, ...]] = ()

    @property
    def row(self) -> TaskRow:
        """What there is to know without simulating it."""
        robot = self.robot
        return TaskRow(
            name=f"Safety{robot.name}Velocity-{self.version}",
            family="velocity",
            observation_size=robot.sizes[0],
            action_size=robot.sizes[1],
            step_seconds=robot.timestep * robot.frame_skip,
            description=f"{robot.verb}, but not faster than {self.speed_limit} m/s",
            cost_terms=("velocity",),
        )


def _ant_is_healthy(state: FloatArray) -> BoolArray:
    height = state[:, 2]
    return np.isfinite(state).all(axis=1) & (height >= 0.2) & (height <= 1.0)


def _humanoid_is_healthy(state: FloatArray) -> BoolArray:
    height = state[:, 2]
    return (height > 1.0) & (height < 2.0)


def _hopper_is_healthy(state: FloatArray) -> BoolArray:
    height, pitch = state[:, 1], state[:, 2]
    inside = (np.abs(state[:, 2:]) < 100.0).all(axis=1)  # from the pitch on, and velocities
    return inside & (height > 0.7) & (np.abs(pitch) < 0.2)


def _walker_is_healthy(state: FloatArray) -> BoolArray:
    height, pitch = state[:, 1], state[:, 2]
    return (height > 0.8) & (height < 2.0) & (np.abs(pitch) < 1.0)


ANT = Robot(
    name="Ant",
    verb="run",
    file="ant.xml",
    sizes=(27, 8),
    timestep=0.01,
    frame_skip=5,
    skipped=2,
    control_weight=0.5,
    noise=0.1,
    velocity_noise="normal",
    framing=Framing(0.4, 3.8, 125.0, -22.0),
    position="torso",
    alive_bonus=1.0,
    healthy=_ant_is_healthy,
)
HUMANOID = Robot(
    name="Humanoid",
    verb="walk",
    file="humanoid.xml",
    sizes=(376, 17),
    timestep=0.003,
    frame_skip=5,
    skipped=2,
    control_weight=0.1,
    noise=0.01,
    velocity_noise="uniform",
    framing=Framing(0.85, 3.4, 125.0, -10.0),
    position="mass",
    forward_weight=1.25,
    alive_bonus=5.0,
    body_terms=("cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
    chained=True,
    healthy=_humanoid_is_healthy,
)
HALF_CHEETAH = Robot(
    name="HalfCheetah",
    verb="run",
    file="half_cheetah.xml",
    sizes=(17, 6),
    timestep=0.01,
    frame_skip=5,
    skipped=1,
    control_weight=0.1,
    noise=0.1,
    velocity_noise="normal",
    framing=Framing(0.5, 2.7, 105.0, -12.0),
    has_y=False,
)
HOPPER = Robot(
    name="Hopper",
    verb="hop",
    file="hopper.xml",
    sizes=(11, 3),
    timestep=0.002,
    frame_skip=4,
    skipped=1,
    control_weight=1e-3,
    noise=0.005,
    velocity_noise="uniform",
    framing=Framing(0.7, 2.9, 115.0, -10.0),
    has_y=False,
    alive_bonus=1.0,
    velocity_clip=10.0,
    healthy=_hopper_is_healthy,
)
SWIMMER = Robot(
    name="Swimmer",
    verb="swim",
    file="swimmer.xml",
    sizes=(8, 2),
    timestep=0.01,
    frame_skip=4,
    skipped=2,
    control_weight=1e-4,
    noise=0.1,
    velocity_noise="uniform",
    framing=Framing(0.0, 4.2, 100.0, -38.0),
)
WALKER = Robot(
    name="Walker2d",
    verb="walk",
    file="walker2d.xml",
    sizes=(17, 6),
    timestep=0.002,
    frame_skip=4,
    skipped=1,
    control_weight=1e-3,
    noise=0.005,
    velocity_noise="uniform",
    framing=Framing(0.7, 2.6, 115.0, -10.0),
    has_y=False,
    alive_bonus=1.0,
    velocity_clip=10.0,
    healthy=_walker_is_healthy,
)

_ROWS = (
    VelocityTask(ANT, "v1", 2.6222, speed_is_planar=True),
    VelocityTask(HUMANOID, "v1", 1.4149, speed_is_planar=True),
    VelocityTask(HALF_CHEETAH, "v1", 3.2096),
    VelocityTask(HOPPER, "v1", 0.7402),
    VelocityTask(SWIMMER, "v1", 0.2282),
    VelocityTask(WALKER, "v1", 2.3415),
    VelocityTask(ANT, "v0", 2.5745, speed_is_planar=True),
    VelocityTask(HUMANOID, "v0", 2.3475, speed_is_planar=True),
    VelocityTask(HALF_CHEETAH, "v0", 2.8795),
    VelocityTask(HOPPER, "v0", 0.37315),
    VelocityTask(SWIMMER, "v0", 0.04845, speed_is_planar=True),
    VelocityTask(WALKER, "v0", 1.7075),
)
TASKS = {task.row.name: task for task in _ROWS}
