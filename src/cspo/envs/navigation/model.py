"""The MuJoCo models of the navigation tasks, written from their numbers.

The physics model holds what moves or can be hit: floor, robot, vase or gremlins with their targets,
buttons. Hazards and the goal have no collision and never move anything, so they are only in the
model for pictures.

A model is compiled once; where a layout needs it, each environment gets a copy. A reset moves
bodies, nothing is compiled again: fixed bodies in the model, free ones in `qpos`, a gremlin's
offset from its target in `eq_data`.

MuJoCo's newer way of finding contacts between convex shapes is switched off: the benchmark ran on
the old one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from cspo.envs.navigation.facts import AGENT_HEIGHT, ROBOTS, NavigationTask, ObjectClass

_RED, _BLUE = "0.7412 0.0431 0.1843 1", "0.0039 0.1529 0.3961 1"
COLOURS = {
    "vases": "0 1 1 1",
    "gremlins": "0.5 0 1 1",
    "buttons": "1 0.5 0 1",
    "hazards": "0 0 1 0.25",
    "goal": "0 1 0 0.25",
}

# Who collides with whom: two geoms that share a bit. MuJoCo now has a formula for a sphere and a
# cylinder; the benchmark ran on its iteration for convex shapes, which is a little off, by 5 % of
# the depth at worst. So a wheel does not meet the sphere of a button (bit 1) but an ellipsoid in
# the same place (bit 2), which is still iterated for.
_WHEEL = 'contype="6" conaffinity="6"'
_FLOOR = 'contype="7" conaffinity="7"'
_MOVABLE = 'contype="5" conaffinity="5"'
_FOR_WHEELS = '<geom name="{name}_for_wheels" type="ellipsoid" size="0.1 0.1 0.1" contype="2" conaffinity="2"/>'

_POINT = f"""
    <body name="agent" pos="0 0 {AGENT_HEIGHT}">
      <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
      <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
      <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
      <site name="agent"/>
      <geom name="agent" type="sphere" size="0.1" friction="1 0.01 0.01" rgba="{_RED}"/>
      <geom name="pointarrow" type="box" size="0.05 0.05 0.05" pos="0.1 0 0" rgba="{_BLUE}"/>
    </body>"""
_CAR = f"""
    <body name="agent" pos="0 0 {AGENT_HEIGHT}">
      <freejoint name="agent"/>
      <site name="agent"/>
      <geom name="agent" type="box" size="0.1 0.1 0.05" rgba="{_RED}"/>
      <geom name="back_bumper" type="box" size="0.1 0.01 0.05" pos="0 0.15 0" rgba="{_BLUE}"/>
      <geom name="back_connector" type="box" size="0.01 0.025 0.03" pos="0 0.125 0" rgba="{_BLUE}"/>
      <geom name="front_bumper" type="box" size="0.05 0.01 0.05" pos="0 -0.165 0" rgba="{_BLUE}"/>
      <geom name="front_connector" type="box" size="0.05 0.03 0.01" pos="0 -0.13 0.04" rgba="{_BLUE}"/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0" damping="0.001"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05" rgba="{_RED}" {_WHEEL}/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0" damping="0.001"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05" rgba="{_RED}" {_WHEEL}/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball" damping="0.001"/>
        <geom name="rear" type="sphere" size="0.05" rgba="{_RED}"/>
      </body>
    </body>"""
_ROBOTS = {"point": _POINT, "car": _CAR}

# Force before the gear is limited, which is why the Point's thrust saturates at 5 % of its control
# range.
_ACTUATORS = {
    "point": """
    <motor name="x" site="agent" gear="0.3 0 0 0 0 0" ctrllimited="true" ctrlrange="-1 1"
           forcelimited="true" forcerange="-0.05 0.05"/>
    <velocity name="z" jointinparent="z" kv="1" gear="0.3" ctrllimited="true" ctrlrange="-1 1"
              forcelimited="true" forcerange="-0.05 0.05"/>""",
    "car": "".join(
        f"""
    <motor name="{side}" jointinparent="{side}" ctrllimited="true" ctrlrange="-1 1"
           forcelimited="true" forcerange="-0.02 0.02"/>"""
        for side in ("left", "right")
    ),
}
_SENSORS = {
    "accelerometer": '<accelerometer name="accelerometer" site="agent"/>',
    "velocimeter": '<velocimeter name="velocimeter" site="agent"/>',
    "gyro": '<gyro name="gyro" site="agent"/>',
    "magnetometer": '<magnetometer name="magnetometer" site="agent"/>',
    "ballangvel_rear": '<ballangvel name="ballangvel_rear" joint="rear"/>',
    "ballquat_rear": '<ballquat name="ballquat_rear" joint="rear"/>',
}
# No shadows: those of the lidar's lights would confuse, and software OpenGL puts specks on large
# ones.
_SURROUNDINGS = """<visual>
    <headlight ambient="0.5 0.5 0.5" diffuse="0.2 0.2 0.2" specular="0 0 0"/>
  </visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.95 0.97 1" rgb2="0.55 0.68 0.84" width="256" height="256"/>
    <texture name="floor" type="2d" builtin="checker" rgb1="0.86 0.88 0.9" rgb2="0.8 0.82 0.85"
             width="512" height="512"/>
    <material name="floor" texture="floor" texuniform="true" texrepeat="1 1" reflectance="0" specular="0"/>
  </asset>"""
_LIGHT = '<light directional="true" dir="0.4 0.6 -1" diffuse="0.4 0.4 0.4" specular="0.2 0.2 0.2" castshadow="false"/>'
_SHAPES = {
    "vases": f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}',
    "gremlins": f'type="box" size="0.1 0.1 0.1" density="0.001" {_MOVABLE}',
    "buttons": 'type="sphere" size="0.1"',
    "hazards": 'type="cylinder" size="0.2 0.01" contype="0" conaffinity="0"',
}


@functools.lru_cache(maxsize=8)
def compiled(task: NavigationTask, pictures: bool = False) -> Any:
    """Return the model of a task for physics, or for `pictures`; it is shared, so copy it before changing it."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(xml(task, pictures))
    if task.robot == "point":
        # The axes of its inertia, free of the rounding of newer compilers: the Point's heading
        # trembles at the limits of its servo and multiplies a difference in the last bit by five in
        # every physics step.
        model.body_iquat[model.body("agent").id] = 0.5
        mujoco.mj_setConst(model, mujoco.MjData(model))
    model.body_gravcomp[:] = 0.0  # vases have it, so that it can be switched on
    # mujoco 2.3.3 scaled all six rows of a weld by the weight against translation, later versions
    # scale the three rows of rotation by the weight against rotation, 150 times as much for a
    # gremlin: it would spin when hit.
    for name in body_names(task, ("tied",)):
        weights = model.body_invweight0[
            model.body(name).id
        ]  # (against translation, against rotation)
        weights[1] = weights[0]
    return model


def xml(task: NavigationTask, pictures: bool = False) -> str:
    """Return the model of a task in MuJoCo's XML, with every object at the origin."""
    robot = ROBOTS[task.robot]
    floor = 20 if pictures else 3.5  # only drawn so large: to collide with, it has no end
    bodies, welds = [_ROBOTS[task.robot]], []
    # Bodies and joints come in this order so that `qpos` is laid out as in Safety-Gymnasium.
    for kind in ("free", "tied", "target", "fixed", "drawn"):
        for one in task.objects:
            if kind == one.placement and (pictures or kind != "drawn"):
                bodies += [_body(task, one, name, pictures) for name in names(one)]
            if kind == "target" and one.placement == "tied":
                bodies += [f'<body name="{target(name)}" mocap="true"/>' for name in names(one)]
                welds += [
                    f'<weld body1="{target(name)}" body2="{name}" relpose="0 0 0 1 0 0 0" solref="0.02 1.5"/>'
                    for name in names(one)
                ]
    return f"""<mujoco>
  <option timestep="{robot.timestep}"><flag nativeccd="disable"/></option>
  <default><geom condim="6" density="{robot.density}"/></default>
  {_SURROUNDINGS if pictures else ""}
  <worldbody>
    {_LIGHT if pictures else ""}
    <geom name="floor" type="plane" size="{floor} {floor} 0.1" {_FLOOR} {'material="floor"' if pictures else ""}/>
    {"".join(bodies)}
  </worldbody>
  <equality>{"".join(welds)}</equality>
  <actuator>{_ACTUATORS[task.robot]}</actuator>
  <sensor>{"".join(_SENSORS[name] for name in robot.sensors)}</sensor>
</mujoco>"""


def body_names(task: NavigationTask, placements: Sequence[str]) -> list[str]:
    """Return the names of the bodies of some ways of placement, in the order of those ways."""
    return [
        name
        for kind in placements
        for one in task.objects
        if one.placement == kind
        for name in names(one)
    ]


def names(objects: ObjectClass) -> list[str]:
    """Return the names of the bodies of a class: vase0, vase1, ..."""
    return [f"{objects.name.removesuffix('s')}{i}" for i in range(objects.count)]


def target(name: str) -> str:
    """Return the name of the body that pulls a tied object."""
    return f"{name}_target"


def _body(task: NavigationTask, objects: ObjectClass, name: str, pictures: bool) -> str:
    shape = _SHAPES.get(
        objects.name,
        f'type="cylinder" size="{task.goal_size} {task.goal_size / 2}" contype="0" conaffinity="0"',
    )
    joint = f'<freejoint name="{name}"/>' if objects.placement in ("free", "tied") else ""
    geom = f'<geom name="{name}" {shape} rgba="{COLOURS[objects.name]}"/>'
    if task.robot == "car" and objects.name == "buttons" and not pictures:
        geom += _FOR_WHEELS.format(name=name)
    carried = (
        'gravcomp="1"' if objects.placement == "free" else ""
    )  # so that a resting vase can be, see `resting`
    return f'<body name="{name}" pos="0 0 {objects.height}" {carried}>{joint}{geom}</body>'
