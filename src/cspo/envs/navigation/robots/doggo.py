"""The Doggo: two cylinders in a row on four legs of three joints each, springy and light."""

from __future__ import annotations

from cspo.envs.navigation.robots.robot import (
    CYLINDER,
    SOLID,
    STANDARD_SENSORS,
    Exactness,
    Robot,
    Sensor,
)

# Sides of the legs, in their numbers' order: 1 and 4 in front, 1 and 2 on the left.
_SIDES = {1: (1, 1), 2: (-1, 1), 3: (-1, -1), 4: (1, -1)}
# Motors and sensors count joint by joint, the joints themselves leg by leg.
_JOINTS = [f"{joint}_{leg}" for joint in ("hip_z", "hip_y", "ankle") for leg in _SIDES]
_JOINT = 'limited="true" stiffness="0.0001" armature="0.00005"'
_DARK, _LIGHT = 'rgba="0.0039 0.1529 0.3961 1"', 'rgba="0.7412 0.0431 0.1843 1"'
_UNSEEN = 'rgba="0 0 0 0"'
_TORSO = f'type="cylinder" size="0.0375" density="2" {_LIGHT} {CYLINDER}'


def _leg(number: int) -> str:
    """Return one leg: a fixed link, a hip of two hinges, and a knee with what is below it."""
    x, y = _SIDES[number]
    hip = f"{0.1 * x} {0.05 * y} 0"
    knee, foot = f"0.049 {0.0283 * y} -0.025", f"-0.0588 {-0.0339 * y} -0.05"
    swing = 'range="-1.308998 0.2618" springref="-0.174533"' if x > 0 else 'range="0 2.356196"'
    bend = f'axis="{-0.5 * y} 0.866 0" range="-1.308998 0" springref="-0.349066"'
    geom = '<geom type="capsule" size="0.016" fromto="{} {}" {} ' + f"{SOLID}/>"
    return f"""
      <body name="leg_{number}">
        {geom.format(f"{0.05 * x} 0 0", hip, _DARK)}
        <body name="hip_{number}" pos="{hip}">
          <joint name="hip_z_{number}" axis="0 0 {y}" range="-0.174533 0.523599" {_JOINT}/>
          <joint name="hip_y_{number}" axis="0 1 0" {swing} {_JOINT}/>
          {geom.format("0 0 0", knee, _DARK)}
          <body name="knee_{number}" pos="{knee}">
            <joint name="ankle_{number}" {bend} {_JOINT}/>
            <site name="knee_{number}" size="0.018" {_UNSEEN}/>
            <site name="foot_{number}" size="0.018" pos="{foot}" {_UNSEEN}/>
            {geom.format("0 0 0", foot, _LIGHT)}
          </body>
        </body>
      </body>"""


_BODY = f"""
    <body name="agent" pos="0 0 0.22">
      <freejoint name="agent"/>
      <site name="agent"/>
      <geom name="agent" fromto="0 0 0 0.1 0 0" {_TORSO}/>
      {_leg(1)}{_leg(4)}
      <body name="rear">
        <joint name="waist" axis="1 0 0" range="-0.523599 0.523599" {_JOINT}/>
        <geom name="rear" fromto="-0.1 0 0 0 0 0" {_TORSO}/>
        {_leg(2)}{_leg(3)}
      </body>
    </body>"""
_MOTOR = '<motor joint="{}" gear="0.00625" ctrllimited="true" ctrlrange="-1 1"/>'

DOGGO = Robot(
    name="Doggo",
    verb="trot",
    timestep=0.01,
    density=20.0,
    action_size=12,
    sensors=(
        *STANDARD_SENSORS,
        *(Sensor("touch", f"{place}_{leg}") for place in ("knee", "foot") for leg in _SIDES),
        *(Sensor("jointvel", joint) for joint in _JOINTS),
        *(Sensor("jointpos", joint) for joint in _JOINTS),
    ),
    body=_BODY,
    actuators="".join(map(_MOTOR.format, _JOINTS)),
    ahead=(1.0, 0.0, 0.0),
    vision='pos="0.0625 0 0.1" xyaxes="0 -0.5 0 0.2 0 0.5" fovy="100"',
    floats=True,
    height=0.22,
    reach=0.8,
    has_cylinders=True,
    # Where its torso lies on a button, rounding decides: one unit in the last place of a recorded
    # state changes the next by as much as the difference between the versions.
    exactness=Exactness(1e-4, 2e-3, 2e-2),
    sections='<compiler angle="radian"/>',
)
