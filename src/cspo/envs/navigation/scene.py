"""How the navigation tasks look: the whole world, with the lidars as rings of lights above the robot."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.navigation.facts import LIDAR_BINS, NavigationTask
from cspo.envs.navigation.model import COLOURS, compiled, names
from cspo.envs.tools.render import Mark, Scene, View

if TYPE_CHECKING:
    from cspo.envs.navigation.task import NavigationEnv

RING_HEIGHT, RING_SPACING = 0.35, 0.08  # of the lowest ring above the robot, and from ring to ring
RING_RADIUS = 0.15
LIGHT_RADIUS = 0.025
UNLIT = 0.1  # opacity of a light that reads 0
TOP = View((0.0, 0.0, 0.0), distance=4.6, azimuth=90.0, elevation=-90.0)


class Portrait:
    """A copy of a task's world for drawing: a model with hazards, goal, light and floor, and its own data."""

    def __init__(self, task: NavigationTask) -> None:
        """Load the world."""
        import mujoco

        self._task = task
        self._model = copy.copy(compiled(task, pictures=True))
        self._data = mujoco.MjData(self._model)
        self._placed = [  # bodies without joints, and the class of each
            (self._model.body(name).id, one.name, number)
            for one in task.objects
            if one.placement in ("fixed", "drawn")
            for number, name in enumerate(names(one))
        ]

    def scene(self, env: NavigationEnv, index: int) -> Scene:
        """Return the scene of copy `index` of an environment."""
        import mujoco

        model, data = self._model, self._data
        simulated = env.physics.models[index], env.physics.data[index]
        data.qpos[:] = simulated[1].qpos
        model.body_pos[1], model.body_quat[1] = simulated[0].body_pos[1], simulated[0].body_quat[1]
        for body, name, number in self._placed:
            model.body_pos[body, :2] = env.where(name)[index, number]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        position, rotation = data.xpos[1], data.xmat[1].reshape(3, 3)
        ahead = (
            rotation[:, 0] if self._task.robot == "point" else -rotation[:, 1]
        )  # where the robot drives to
        azimuth = math.degrees(math.atan2(ahead[1], ahead[0]))
        track = View(
            (position[0] + 0.3 * ahead[0], position[1] + 0.3 * ahead[1], 0.1), 2.2, azimuth, -35.0
        )
        readings = env.lidar_readings(index)  # (lidars, 16)
        return Scene(
            model, data, {"track": track, "top": TOP}, self._rings(position, rotation, readings)
        )

    def _rings(
        self, position: FloatArray, rotation: FloatArray, readings: FloatArray
    ) -> list[Mark]:
        """Return one light per direction and kind of object, the brighter the nearer the object."""
        marks = []
        for ring, (name, row) in enumerate(zip(self._task.lidars, readings, strict=True)):
            colour = [float(part) for part in COLOURS[name].split()[:3]]
            for number, reading in enumerate(row.tolist()):
                angle = 2.0 * math.pi * (number + 0.5) / LIDAR_BINS
                away = np.array([RING_RADIUS * math.cos(angle), RING_RADIUS * math.sin(angle), 0.0])
                place = position + rotation @ away + [0.0, 0.0, RING_HEIGHT + RING_SPACING * ring]
                marks.append(
                    Mark(
                        "sphere",
                        place,
                        [LIGHT_RADIUS] * 3,
                        [*colour, UNLIT + (1.0 - UNLIT) * reading],
                    )
                )
        return marks
