"""How the navigation tasks look: the whole world, with the lidars as rings of lights."""

from __future__ import annotations

import copy
import math

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.facts import NavigationTask
from cspo.envs.navigation.model import compiled
from cspo.envs.navigation.parts import LIDAR_BINS
from cspo.envs.navigation.world import World
from cspo.envs.tools.render import Mark, Scene, View, pose

RING_HEIGHT, RING_SPACING = 0.35, 0.08  # of the lowest ring above the robot, and from ring to ring
RING_RADIUS = 0.15
LIGHT_RADIUS = 0.025
UNLIT = 0.1  # opacity of a light that reads 0
ABOVE = 4.6 / 1.5  # metres of the camera above a square whose half side is one


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
        track = View(look_at, 2.2, math.degrees(math.atan2(y, x)), -35.0)
        marks = self._rings(position, rotation, readings)
        return Scene(model, data, {"track": track, "top": self._top(position)}, marks)

    def _top(self, position: FloatArray) -> View:
        """Return the view from above: of the square, or of a robot that starts outside of it."""
        game = self._task.game
        outside = game.robot_area is not None and max(map(abs, game.robot_area)) > game.extent
        middle = (position[0], position[1], 0.0) if outside else (0.0, 0.0, 0.0)
        return View(middle, ABOVE * game.extent, azimuth=90.0, elevation=-90.0)

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
