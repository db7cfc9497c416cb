"""How the navigation tasks look: the whole world, with the lidars as rings of lights."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.facts import NavigationTask
from cspo.envs.navigation.model import compiled
from cspo.envs.navigation.parts import LIDAR_BINS
from cspo.envs.navigation.world import World
from cspo.envs.tools.render import FIXED_VIEWS, Mark, Scene, View, pose

RING_HEIGHT, RING_SPACING = 0.35, 0.08  # of the lowest ring above the robot, and from ring to ring
RING_RADIUS = 0.15
LIGHT_RADIUS = 0.025
UNLIT = 0.1  # opacity of a light that reads 0
TOP_MARGIN = 0.4  # metres around what is seen from above
TRACK = View(distance=2.0 * math.sqrt(2.0), azimuth=-90.0, elevation=-45.0)  # seen from the north


class Portrait:
    """A copy of a world for drawing, with hazards, goal, light and floor, and its own data."""

    def __init__(self, task: NavigationTask) -> None:
        """Load the world."""
        import mujoco

        self._task = task
        self._model = copy.copy(compiled(task.robot, task.objects, pictures=True))
        self._data = mujoco.MjData(self._model)
        self._placed = {  # bodies without joints, by class
            one.name: [self._model.body(name).id for name in one.bodies]
            for one in task.objects
            if one.placement in ("fixed", "drawn")
        }

    def scene(self, world: World, index: int, readings: FloatArray) -> Scene:
        """Return the scene of world `index`, where the lidars read so, (classes, 16)."""
        model, data, simulated = self._model, self._data, world.physics.models[index]
        data.qpos[:] = world.physics.data[index].qpos
        model.body_pos[1], model.body_quat[1] = simulated.body_pos[1], simulated.body_quat[1]
        for name, bodies in self._placed.items():
            model.body_pos[bodies, :2] = world.where(name)[index]
        pose(model, data)
        position, rotation = data.xpos[1], data.xmat[1].reshape(3, 3)
        x, y, _ = rotation @ self._task.robot.ahead
        look_at = (position[0] + 0.3 * x, position[1] + 0.3 * y, 0.1)
        cameras = {
            "follow": View(look_at, 2.2, math.degrees(math.atan2(y, x)), -35.0),
            "top": self._from_above(position),
            "track": replace(TRACK, look_at=tuple(position.tolist())),
            "vision": View(fixed="vision"),
            **FIXED_VIEWS,
        }
        return Scene(model, data, cameras, self._rings(position, rotation, readings))

    def _from_above(self, position: FloatArray) -> View:
        """Return the view of all objects; where the robot has left them, it goes along."""
        extent = self._task.game.extent
        x, y = (position[:2] - np.clip(position[:2], -extent, extent)).tolist()
        return View((x, y, 0.0), 2.4 * (extent + TOP_MARGIN), azimuth=90.0, elevation=-90.0)

    def _rings(
        self, position: FloatArray, rotation: FloatArray, readings: FloatArray
    ) -> list[Mark]:
        """Return one light per direction and class of objects, the brighter the nearer one is."""
        marks, size = [], [LIGHT_RADIUS] * 3
        for ring, (one, row) in enumerate(zip(self._task.seen, readings, strict=True)):
            for number, reading in enumerate(row.tolist()):
                angle = 2.0 * math.pi * (number + 0.5) / LIDAR_BINS
                away = np.array([RING_RADIUS * math.cos(angle), RING_RADIUS * math.sin(angle), 0.0])
                place = position + rotation @ away + [0.0, 0.0, RING_HEIGHT + RING_SPACING * ring]
                colour = [*one.rgba[:3], UNLIT + (1.0 - UNLIT) * reading]
                marks.append(Mark("sphere", place, size, colour))
        return marks
