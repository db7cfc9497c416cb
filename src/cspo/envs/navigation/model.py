"""The MuJoCo models of the navigation tasks, written from their numbers.

The physics model holds what moves or can be hit: floor, robot, vases, gremlins with their targets,
the box to be pushed, buttons, pillars. What has no collision, such as hazards and the goal, never
moves anything, so it is only in the model for pictures.

A model is compiled once; where a layout needs it, each environment gets a copy. A reset moves
bodies, nothing is compiled again: fixed bodies in the model, free ones in `qpos`, a gremlin's
offset from its target in `eq_data`.

MuJoCo's newer way of finding contacts between convex shapes is switched off: the benchmark ran on
the old one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from cspo.envs.navigation.parts import FLOOR, FOR_CYLINDERS, FOR_PILLARS, ObjectClass
from cspo.envs.navigation.robots.robot import Robot

# No shadows: those of the lidar's lights would confuse, and software OpenGL puts specks on large
# ones.
_SURROUNDINGS = """<visual>
    <headlight ambient="0.5 0.5 0.5" diffuse="0.2 0.2 0.2" specular="0 0 0"/>
  </visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.95 0.97 1" rgb2="0.55 0.68 0.84"
             width="256" height="256"/>
    <texture name="floor" type="2d" builtin="checker" rgb1="0.86 0.88 0.9" rgb2="0.8 0.82 0.85"
             width="512" height="512"/>
    <material name="floor" texture="floor" texuniform="true" texrepeat="1 1" reflectance="0"
              specular="0"/>
  </asset>"""
_LIGHT = """<light directional="true" dir="0.4 0.6 -1" diffuse="0.4 0.4 0.4"
           specular="0.2 0.2 0.2" castshadow="false"/>"""


@functools.lru_cache(maxsize=8)
def compiled(robot: Robot, objects: Sequence[ObjectClass], pictures: bool = False) -> Any:
    """Return the model of a world for physics, or for `pictures`; copy it before changing it."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(xml(robot, objects, pictures))
    if robot.inertia_axes is not None:
        model.body_iquat[model.body("agent").id] = robot.inertia_axes
        mujoco.mj_setConst(model, mujoco.MjData(model))
    if robot.finish is not None:
        robot.finish(model)
    model.body_gravcomp[:] = 0.0  # vases have it, so that it can be switched on
    # mujoco 2.3.3 scaled all six rows of a weld by the weight against translation, later versions
    # scale the three rows of rotation by the weight against rotation, 150 times as much for a
    # gremlin: it would spin when hit.
    for name in body_names(objects, ("tied",)):
        weights = model.body_invweight0[model.body(name).id]  # (translation, rotation)
        weights[1] = weights[0]
    return model


def xml(robot: Robot, objects: Sequence[ObjectClass], pictures: bool = False) -> str:
    """Return the model of a world in MuJoCo's XML, with every object at the origin."""
    floor = 20 if pictures else 3.5  # only drawn so large: to collide with, it has no end
    material = 'material="floor"' if pictures else ""
    tied = body_names(objects, ("tied",))
    has_pillars = any(one.name == "pillars" for one in objects)

    def bodies(*placements: str) -> str:
        kinds = _placed(objects, placements)
        return "".join(_body(robot, one, i, pictures) for one in kinds for i in range(one.count))

    weld = """<weld name="{0}" body1="{0}_target" body2="{0}" relpose="0 0 0 1 0 0 0"
                   solref="0.02 1.5"/>"""
    body = _meeting_pillars(robot.body) if has_pillars else robot.body
    if pictures:
        body = _with_camera(body, robot.vision)
    integrator = 'integrator="RK4"' if robot.runge_kutta else ""
    # Bodies and joints come in this order so that `qpos` is laid out as in Safety-Gymnasium.
    return f"""<mujoco>
  <option timestep="{robot.timestep}" {integrator}><flag nativeccd="disable"/></option>
  <default><geom condim="6" density="{robot.density}"/></default>
  {_SURROUNDINGS if pictures else ""}
  <worldbody>
    {_LIGHT if pictures else ""}
    <geom name="floor" type="plane" size="{floor} {floor} 0.1" {FLOOR} {material}/>
    {body}
    {bodies("free", "tied")}
    {"".join(f'<body name="{name}_target" mocap="true"/>' for name in tied)}
    {bodies("fixed", "drawn") if pictures else bodies("fixed")}
  </worldbody>
  {robot.sections}
  <equality>{"".join(weld.format(name) for name in tied)}</equality>
  <actuator>{robot.actuators}</actuator>
  <sensor>{"".join(sensor.xml for sensor in robot.sensors)}</sensor>
</mujoco>"""


def _meeting_pillars(body: str) -> str:
    """Let a robot meet pillars, with a weightless ellipsoid in place of every ball."""
    robot = ElementTree.fromstring(body)
    for part in robot.iter("body"):
        for geom in part.findall("geom"):
            met = geom
            if geom.get("type", "sphere") == "sphere":
                met = ElementTree.SubElement(part, "geom", geom.attrib)
                size = " ".join([geom.get("size", "").split()[0]] * 3)
                met.attrib |= {"type": "ellipsoid", "size": size, "mass": "0"}
                met.attrib |= {"contype": "0", "conaffinity": "0"}
                met.attrib.pop("name", None)
            for bits in ("contype", "conaffinity"):
                met.set(bits, str(int(met.get(bits, "1")) | FOR_PILLARS))
    return ElementTree.tostring(robot, encoding="unicode")


def _with_camera(body: str, vision: str) -> str:
    """Let a robot see through a camera of its own."""
    parts, _, _ = body.rpartition("</body>")
    return f'{parts}<camera name="vision" {vision}/></body>'


def body_names(objects: Sequence[ObjectClass], placements: Sequence[str]) -> list[str]:
    """Return the names of the bodies of some ways of placement, in the order of those ways."""
    return [name for one in _placed(objects, placements) for name in one.bodies]


def _placed(objects: Sequence[ObjectClass], placements: Sequence[str]) -> list[ObjectClass]:
    return [one for kind in placements for one in objects if one.placement == kind]


def _body(robot: Robot, one: ObjectClass, number: int, pictures: bool) -> str:
    """Return the body of an object."""
    name, moves = one.bodies[number], one.placement in ("free", "tied")
    # So that a resting object can be carried, see `resting`.
    carried = 'gravcomp="1"' if one.placement == "free" else ""
    joint = f'<freejoint name="{name}"/>' if moves else ""
    colour = f'rgba="{" ".join(map(str, one.rgba))}"'
    names = [name, *(f"{name}_{part}" for part in range(1, len(one.shapes)))]
    shapes = zip(names, one.shapes, strict=True)
    geoms = "".join(f'<geom name="{geom}" {shape} {colour}/>' for geom, shape in shapes)
    if robot.has_cylinders and one.name == "buttons" and not pictures:
        geoms += f'<geom name="{name}_for_cylinders" {FOR_CYLINDERS}/>'
    turn = 0.5 * (one.headings[number] if one.headings else 0.0)
    pose = f'pos="0 0 {one.height}" quat="{math.cos(turn)} 0 0 {math.sin(turn)}"'
    return f'<body name="{name}" {pose} {carried}>{joint}{geoms}</body>'
