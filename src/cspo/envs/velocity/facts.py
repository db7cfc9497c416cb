"""The facts that make the five velocity tasks, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cspo.envs.batch import BoolArray, FloatArray

Health = Callable[[FloatArray], BoolArray]  # positions and velocities (N, nq + nv) -> (N,)


@dataclass(frozen=True)
class VelocityTask:
    """The facts that make one velocity task."""

    robot: str  # file in Gymnasium's MuJoCo assets
    frame_skip: int
    speed_limit: float
    speed_is_planar: bool  # speed is the norm of (vx, vy), otherwise vx alone
    position: Literal["qpos", "torso", "mass"]  # whose displacement over one step is the velocity
    has_y: bool  # y_velocity is defined
    skipped: int  # leading positions left out of the observation
    control_weight: float
    position_noise: float  # half-width of the uniform reset noise
    velocity_noise: Literal["uniform", "normal"]
    forward_weight: float = 1.0
    alive_bonus: float = 0.0
    velocity_clip: float | None = None  # observed joint velocities are clipped to this
    body_terms: tuple[str, ...] = ()  # more arrays of MjData in the observation
    chained: bool = (
        False  # needs the integrator of the MuJoCo that Safety-Gymnasium ran on, see `chained_rk4`
    )
    healthy: Health | None = None  # the episode ends where False


def _ant_is_healthy(state: FloatArray) -> BoolArray:
    height = state[:, 2]
    return np.isfinite(state).all(axis=1) & (height >= 0.2) & (height <= 1.0)


def _humanoid_is_healthy(state: FloatArray) -> BoolArray:
    height = state[:, 2]
    return (height > 1.0) & (height < 2.0)


def _hopper_is_healthy(state: FloatArray) -> BoolArray:
    height, pitch = state[:, 1], state[:, 2]
    inside = (np.abs(state[:, 2:]) < 100.0).all(
        axis=1
    )  # positions from the pitch on, and velocities
    return inside & (height > 0.7) & (np.abs(pitch) < 0.2)


TASKS: dict[str, VelocityTask] = {
    "SafetyAntVelocity-v1": VelocityTask(
        robot="ant.xml",
        frame_skip=5,
        speed_limit=2.6222,
        speed_is_planar=True,
        position="torso",
        has_y=True,
        skipped=2,
        control_weight=0.5,
        position_noise=0.1,
        velocity_noise="normal",
        alive_bonus=1.0,
        healthy=_ant_is_healthy,
    ),
    "SafetyHumanoidVelocity-v1": VelocityTask(
        robot="humanoid.xml",
        frame_skip=5,
        speed_limit=1.4149,
        speed_is_planar=True,
        position="mass",
        has_y=True,
        skipped=2,
        control_weight=0.1,
        position_noise=0.01,
        velocity_noise="uniform",
        forward_weight=1.25,
        alive_bonus=5.0,
        body_terms=("cinert", "cvel", "qfrc_actuator", "cfrc_ext"),
        chained=True,
        healthy=_humanoid_is_healthy,
    ),
    "SafetyHalfCheetahVelocity-v1": VelocityTask(
        robot="half_cheetah.xml",
        frame_skip=5,
        speed_limit=3.2096,
        speed_is_planar=False,
        position="qpos",
        has_y=False,
        skipped=1,
        control_weight=0.1,
        position_noise=0.1,
        velocity_noise="normal",
    ),
    "SafetyHopperVelocity-v1": VelocityTask(
        robot="hopper.xml",
        frame_skip=4,
        speed_limit=0.7402,
        speed_is_planar=False,
        position="qpos",
        has_y=False,
        skipped=1,
        control_weight=1e-3,
        position_noise=0.005,
        velocity_noise="uniform",
        alive_bonus=1.0,
        velocity_clip=10.0,
        healthy=_hopper_is_healthy,
    ),
    "SafetySwimmerVelocity-v1": VelocityTask(
        robot="swimmer.xml",
        frame_skip=4,
        speed_limit=0.2282,
        speed_is_planar=False,
        position="qpos",
        has_y=True,
        skipped=2,
        control_weight=1e-4,
        position_noise=0.1,
        velocity_noise="uniform",
    ),
}
