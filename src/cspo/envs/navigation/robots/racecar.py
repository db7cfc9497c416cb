"""The Racecar: four wheels, of which the front ones steer and the rear ones drive, as one.

Masses and inertias are given as mujoco 2.3.3 had them, because newer compilers weigh the chassis
differently. The chassis collides as a convex hull, whose vertices are in `racecar_hull.txt`.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.navigation.robots.robot import CYLINDER, SOLID, STANDARD_SENSORS, Exactness, Robot

_RED, _BLUE = 'rgba="0.7412 0.0431 0.1843 1"', 'rgba="0.0039 0.1529 0.3961 1"'
# Of the frame that the vertices of the chassis are given in, and of its inertia.
_HULL_PLACE = "0.15557992747876107 -0.0003826658731145229 6.812385950941158e-10"
_HULL_TURN = "0.001766899788279318 0.7071045736417905 -0.001766899788279318 0.7071045736417905"
_AXES = "0.5 0.5 -0.5 0.5"  # of the inertia of nearly all parts
_GEAR = "0.04411 0.02467 0.02467"  # the inertia of a differential's part
# Quarter turns as the original has them, rounded to six digits.
_DOWN, _ALONG = (
    "0.7071052811843601 0 0.707108281185553 0",
    "0.7071052811843601 0.707108281185553 0 0",
)
_FORTH, _BACK = (f"0.7071072811865695 0 0 {sign}0.7071062811861719" for sign in ("", "-"))
_UPRIGHT = "0.7071072811865695 0.7071062811861719 0 0"
_WHEEL = f'type="cylinder" size="0.05 0.0225" {_BLUE} {CYLINDER}'
_HINGE = 'type="hinge" damping="0.001"'


def _part(mass: float, inertia: str, place: str = "0 0 0", axes: str = _AXES) -> str:
    return f'<inertial mass="{mass}" diaginertia="{inertia}" pos="{place}" quat="{axes}"/>'


def _front_wheel(side: str, y: float) -> str:
    """Return a wheel that rolls, on a hinge that steers."""
    outside = f"0 0 {-0.225 * y}"
    return f"""
        <body name="{side}_hinge" pos="0.325 {y} 0" quat="{_DOWN}">
          <joint name="{side}_steering" axis="-1 0 0" range="-0.785 0.785" limited="true" {_HINGE}/>
          {_part(0.1, "4e-06 4e-06 4e-06", axes="1 0 0 0")}
          <body name="{side}_wheel" quat="{_ALONG}">
            <joint name="{side}_wheel" axis="0 0 -1" {_HINGE}/>
            {_part(0.34055, "0.00041226 0.00026046 0.00026046", outside)}
            <geom pos="{outside}" {_WHEEL}/>
          </body>
        </body>"""


def _rear_wheel(y: int) -> str:
    """Return half of the rear axle, with its wheel."""
    weight = _part(0.39655, "0.0450921 0.0256521 0.0250823", f"0 {0.105201 * y} {7.09759e-08 * y}")
    place = f'pos="0 {0.1225 * y} {8.26471e-08 * y}" quat="{_ALONG}"'
    return f"<body>{weight}<geom {place} {_WHEEL}/></body>"


def _differential(x: float, inside: str) -> str:
    """Return the gears of an axle, which turn nothing: heavy parts that are fixed to the car."""
    planets = "".join(
        f'<body quat="{turn}">{_part(0.056, _GEAR)}</body>' for turn in (_FORTH, _BACK)
    )
    return f'<body pos="{x} 0 0">{_part(0.0637, _GEAR)}{planets}{inside}</body>'


_REAR = f"""
        <geom type="cylinder" size="0.025 0.005" pos="0 0.025 0" {_BLUE} {CYLINDER}
              quat="{_UPRIGHT}"/>
        <body name="rear_axle">
          <joint name="drive" axis="0 1 0" {_HINGE}/>
          {_rear_wheel(1)}{_rear_wheel(-1)}
        </body>"""
_CHASSIS = _part(
    0.017605537618291808,
    "0.0002706324171671688 0.0002385001307776043 4.125453652032671e-05",
    _HULL_PLACE,
    _HULL_TURN,
)
_BODY = f"""
    <body name="agent" pos="0 0 0.05">
      <freejoint name="agent"/>
      <site name="agent" pos="0.02 0 0"/>
      <body name="frame" pos="-0.16 0 0">
        {_part(0.00086625, "2.289354375e-06 2.2757109375e-06 1.435809375e-07", "0.39 0 0.04")}
        <geom name="bumper" type="box" size="0.0165 0.0875 0.015" pos="0.39 0 0.04" {_RED} {SOLID}/>
        <body name="chassis">
          {_CHASSIS}
          <geom name="chassis" type="mesh" mesh="chassis" pos="{_HULL_PLACE}" quat="{_HULL_TURN}"
                {_RED} {SOLID}/>
        </body>
        {_front_wheel("left", 0.1)}{_front_wheel("right", -0.1)}
        {_differential(0.0, _REAR)}
        {_differential(0.32, 2 * f"<body>{_part(0.056, _GEAR)}</body>")}
      </body>
    </body>"""


def _hull() -> NDArray[np.float32]:
    """Return the vertices of the chassis, (78, 3), in the frame of its geom."""
    file = resources.files(__package__).joinpath("racecar_hull.txt")
    return np.loadtxt(file.read_text(encoding="utf-8").splitlines(), np.float32)


def _restore_hull(model: Any) -> None:
    """Undo what a compiler does to a mesh: it centres it anew, in single precision."""
    chassis, hull = model.geom("chassis").id, _hull()
    first = int(model.mesh_vertadr[model.geom_dataid[chassis]])
    model.mesh_vert[first : first + len(hull)] = hull
    model.geom_pos[chassis] = [float(number) for number in _HULL_PLACE.split()]
    model.geom_quat[chassis] = [float(number) for number in _HULL_TURN.split()]
    model.geom_sameframe[chassis] = 0
    far = np.abs(hull).max(axis=0)
    model.geom_size[chassis], model.geom_rbound[chassis] = far, np.linalg.norm(far)
    model.geom_aabb[chassis] = 0.0, 0.0, 0.0, *far


_SECTIONS = f"""
  <compiler angle="radian"/>
  <asset>
    <mesh name="chassis" vertex="{" ".join(map(str, _hull().reshape(-1)))}"/>
  </asset>
  <contact>
    <exclude body1="chassis" body2="left_wheel"/>
    <exclude body1="chassis" body2="right_wheel"/>
  </contact>
  <equality><joint joint1="left_steering" joint2="right_steering"/></equality>"""
_SERVO = 'ctrllimited="true" ctrlrange="{0} {1}" forcelimited="true" forcerange="-1 1"'

RACECAR = Robot(
    name="Racecar",
    verb="drive",
    timestep=0.004,
    runge_kutta=True,
    density=5.0,
    action_size=2,
    sensors=STANDARD_SENSORS,
    body=_BODY,
    actuators=f"""
    <velocity name="drive" joint="drive" kv="1" {_SERVO.format(-20, 20)}/>
    <position name="steering" joint="left_steering" kp="1" {_SERVO.format(-0.785, 0.785)}/>""",
    ahead=(1.0, 0.0, 0.0),
    vision='pos="0.2 0 0.05" xyaxes="0 -1 0 0 0 1"',
    floats=True,
    height=0.05,
    reach=0.4,
    has_cylinders=True,
    sections=_SECTIONS,
    finish=_restore_hull,
    # Where a steered wheel rubs against the bumper, rounding decides: one unit in the last place of
    # a recorded state changes the next by as much as the difference between the versions.
    exactness=Exactness(2e-4, 5e-3, 0.1, reward=1e-4),
)
