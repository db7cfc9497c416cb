"""The Ant: a ball on four legs, strong and clumsy; it dies when its body touches the floor."""

from __future__ import annotations

import math
from typing import Any

from cspo.envs.navigation.robots.robot import STANDARD_SENSORS, Robot, Sensor, Uniform

_SIDES = ((1, 1), (-1, 1), (-1, -1), (1, -1))  # where the legs point to, in the order of the joints
_JOINTS = [f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle")]
_JOINT = 'limited="true" armature="1" damping="1"'
_DARK, _LIGHT = 'rgba="0.0039 0.1529 0.3961 1"', 'rgba="0.7412 0.0431 0.1843 1"'


def _leg(number: int, x: int, y: int) -> str:
    """Return one leg: a fixed link, one that turns about the vertical, and a foot that bends."""
    link, foot = f"{0.05 * x} {0.05 * y} 0", f"{0.1 * x} {0.1 * y} 0"
    bend = "0.52 1.74" if x > 0 else "-1.74 -0.52"
    geom = '<geom type="capsule" size="0.02" fromto="0 0 0 {}" {}/>'
    return f"""
      <body name="leg_{number}">
        {geom.format(link, _DARK)}
        <body name="upper_{number}" pos="{link}">
          <joint name="hip_{number}" axis="0 0 1" range="-0.7 0.7" {_JOINT}/>
          {geom.format(link, _DARK)}
          <body name="foot_{number}" pos="{link}">
            <joint name="ankle_{number}" axis="{-x * y} 1 0" range="{bend}" {_JOINT}/>
            {geom.format(foot, _LIGHT)}
          </body>
        </body>
      </body>"""


_BODY = f"""
    <body name="agent" pos="0 0 0.18">
      <freejoint name="agent"/>
      <site name="agent" pos="0 0 -0.02"/>
      <geom name="agent" type="sphere" size="0.0625" {_LIGHT}/>
      {"".join(_leg(number, *side) for number, side in enumerate(_SIDES, 1))}
    </body>"""
_MOTOR = '<motor joint="{}" gear="150" ctrllimited="true" ctrlrange="-1 1"/>'


def _stand(data: Any, uniform: Uniform) -> None:
    """Bend the joints at random around a right angle of the ankles."""
    angles = uniform(-0.1, 0.1, len(_JOINTS))
    angles[1::2] += math.pi / 2
    angles[[3, 5]] *= -1.0  # of legs 2 and 3, which bend the other way
    data.qpos[7 : 7 + len(angles)] = angles


ANT = Robot(
    name="Ant",
    verb="walk",
    timestep=0.01,
    runge_kutta=True,
    density=5.0,
    action_size=8,
    sensors=(
        *STANDARD_SENSORS,
        *(Sensor("jointvel", joint) for joint in _JOINTS),
        Sensor("framepos"),
        Sensor("frameangvel"),
        *(Sensor("jointpos", joint) for joint in _JOINTS),
    ),
    body=_BODY,
    actuators="".join(map(_MOTOR.format, _JOINTS)),
    ahead=(1.0, 0.0, 0.0),
    vision='pos="0 0.05 0.05" xyaxes="1 0 0 0 0 1"',  # sideways, as in Safety-Gymnasium
    floats=True,
    height=0.18,
    reach=0.8,
    sections='<compiler angle="radian"/>',
    dies_below=0.08,
    pose=_stand,
)
