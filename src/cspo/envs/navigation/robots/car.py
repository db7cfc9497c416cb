"""The Car: two driven wheels and a ball that rolls along."""

from __future__ import annotations

from cspo.envs.navigation.robots.robot import (
    CYLINDER,
    STANDARD_SENSORS,
    PushBox,
    Robot,
    Sensor,
)

_RED, _BLUE = 'rgba="0.7412 0.0431 0.1843 1"', 'rgba="0.0039 0.1529 0.3961 1"'
_WHEEL = f'type="cylinder" size="0.05" {_RED} {CYLINDER}'
_BODY = f"""
    <body name="agent" pos="0 0 0.1">
      <freejoint name="agent"/>
      <site name="agent"/>
      <geom name="agent" type="box" size="0.1 0.1 0.05" {_RED}/>
      <geom name="back_bumper" type="box" size="0.1 0.01 0.05" pos="0 0.15 0" {_BLUE}/>
      <geom name="back_connector" type="box" size="0.01 0.025 0.03" pos="0 0.125 0" {_BLUE}/>
      <geom name="front_bumper" type="box" size="0.05 0.01 0.05" pos="0 -0.165 0" {_BLUE}/>
      <geom name="front_connector" type="box" size="0.05 0.03 0.01" pos="0 -0.13 0.04" {_BLUE}/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0" damping="0.001"/>
        <geom name="left" fromto="-0.055 0 0 -0.005 0 0" {_WHEEL}/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0" damping="0.001"/>
        <geom name="right" fromto="0.005 0 0 0.055 0 0" {_WHEEL}/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball" damping="0.001"/>
        <geom name="rear" type="sphere" size="0.05" {_RED}/>
      </body>
    </body>"""
_MOTOR = 'ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.02 0.02"'

CAR = Robot(
    name="Car",
    verb="drive",
    timestep=0.004,
    density=5.0,
    action_size=2,
    sensors=(
        *STANDARD_SENSORS,
        Sensor("ballangvel", "rear"),
        Sensor("ballquat", "rear"),
    ),
    body=_BODY,
    actuators="".join(f'<motor jointinparent="{side}" {_MOTOR}/>' for side in ("left", "right")),
    ahead=(0.0, -1.0, 0.0),
    vision='pos="0 0.1 0.2" xyaxes="-1 0 0 0 -0.4 1"',
    floats=True,
    has_cylinders=True,
    push_box=PushBox(size=0.125, density=0.0005, keepout=0.125),
)
