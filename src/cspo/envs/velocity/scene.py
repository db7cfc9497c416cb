"""How the velocity tasks look: a robot on a floor without end, from the side or from above."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from cspo.envs.batch import FloatArray
from cspo.envs.tools.render import FIXED_VIEWS, Scene, View, pose
from cspo.envs.velocity.facts import Framing

TOP_DISTANCE = 1.3  # of the top view, in distances of the camera that follows

# What the robot files of Gymnasium are changed to, for drawing only: elements and attributes.
SKY = {"rgb1": "0.95 0.97 1", "rgb2": "0.55 0.68 0.84", "width": "256", "height": "256"}
CHECKER = {"rgb1": "0.86 0.89 0.92", "rgb2": "0.70 0.75 0.80", "width": "512", "height": "512"}
MATERIAL = dict.fromkeys(("reflectance", "specular", "shininess"), "0")
MATERIAL |= {"texuniform": "true", "texrepeat": "0.5 0.5"}
# Not a plane of size 0, which MuJoCo draws without end: it takes longer, and software OpenGL puts
# specks on it.
FLOOR = {"rgba": "1 1 1 1", "size": "40 40 5"}
TILE = 2.0  # metres after which the checker repeats, by `texrepeat` above
SKIN = {"rgb1": "1 1 1", "rgb2": "1 1 1", "mark": "none", "random": "0"}
ROBOT = {"rgba": "0.95 0.55 0.2 1"}
LIGHT = {"mode": "track", "pos": "-0.8 -1.2 4", "dir": "0.2 0.3 -1"}
LIGHT |= {"diffuse": "0.5 0.5 0.5", "specular": "0.2 0.2 0.2"}
# Metres around the robot that get a shadow; software OpenGL puts specks near the end of them.
EXTENT = "8"
VISUAL = {
    "headlight": {"ambient": "0.35 0.35 0.35", "diffuse": "0.25 0.25 0.25", "specular": "0 0 0"},
    "quality": {"shadowsize": "2048"},
}


class Portrait:
    """A copy of a robot for drawing: a model with its own light and floor, and its own data."""

    def __init__(self, path: Path, framing: Framing) -> None:
        """Load the robot in `path` with other surroundings."""
        import mujoco

        self._framing = framing
        self._model = mujoco.MjModel.from_xml_string(_decorated(path))
        self._data = mujoco.MjData(self._model)
        self._floor = self._model.geom("floor").id

    def scene(self, qpos: FloatArray) -> Scene:
        """Return the scene with the robot's joints at `qpos`."""
        model, data = self._model, self._data
        data.qpos[:] = qpos
        pose(model, data)
        x, y, _ = data.subtree_com[1].tolist()  # centre of mass of the whole robot
        # The floor goes along with the robot by whole tiles, which nobody sees: so it has no end.
        data.geom_xpos[self._floor, :2] = TILE * round(x / TILE), TILE * round(y / TILE)
        height, distance, azimuth, elevation = self._framing
        follow = View((x, y, height), distance, azimuth, elevation)
        top = View((x, y, 0.0), TOP_DISTANCE * distance, 90.0, -90.0)
        # Gymnasium's robots bring a camera along that is called so.
        cameras = {"follow": follow, "top": top, "track": View(fixed="track"), **FIXED_VIEWS}
        return Scene(model, data, cameras)


def _decorated(path: Path) -> str:
    """Return a robot file with a pale sky, a floor without end and a light that follows along."""
    root = ElementTree.parse(path).getroot()
    changes = {"texgeom": SKIN, "texplane": CHECKER, "MatPlane": MATERIAL, "floor": FLOOR}
    for element in root.iter():
        if element.get("type") == "skybox":
            element.attrib.update(SKY)
        element.attrib.update(changes.get(element.get("name", ""), {}))
    for geom in root.findall("default/geom"):
        geom.attrib.update(ROBOT)
    world = root.find("worldbody")
    torso, light = root.find("worldbody/body"), root.find("worldbody/light")
    if world is not None and torso is not None and light is not None:
        # In the world it would light, and give a shadow to, the start of the track only.
        world.remove(light)
        light.attrib.update(LIGHT)
        torso.append(light)
    ElementTree.SubElement(root, "statistic", {"extent": EXTENT})
    visual = ElementTree.SubElement(root, "visual")
    for name, attributes in VISUAL.items():
        ElementTree.SubElement(visual, name, attributes)
    return ElementTree.tostring(root, encoding="unicode")
