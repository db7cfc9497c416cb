"""N worlds of a robot among objects: their simulators, and where everything is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation import parts
from cspo.envs.navigation.layout import Layout
from cspo.envs.navigation.model import body_names, compiled
from cspo.envs.navigation.parts import ObjectClass, Robot
from cspo.envs.navigation.resting import RestingVases
from cspo.envs.physics.compiled import NOTHING, ROBOT
from cspo.envs.physics.plain import Circle, Recipe
from cspo.envs.physics.step import Physics, Stepper


class World:
    """N copies of a world.

    Args:
        robot: Who drives around.
        objects: The classes of the M objects, in the order of placement.
        felt: Names of the classes whose contacts with the robot are noted.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        stepper: "compiled", "python" or "auto", see `Physics`.

    Attributes:
        physics: The N simulators.
        robot: Who drives around.
        classes: The names of the classes of objects, in the order of placement.
        rows: Which of the M objects are of a class.
        objects: (N, M, 2) where the objects are.
        keepouts: (1 + M,) how much room the robot and the objects need.
        fixed_bodies: Numbers of the fixed objects' bodies in the models.
        vases: Says which vases rest; None where there are none.
    """

    def __init__(
        self,
        robot: Robot,
        objects: tuple[ObjectClass, ...],
        felt: Sequence[str],
        num_envs: int,
        threads: int,
        stepper: Stepper,
    ) -> None:
        """Compile the world and create N simulators of it."""
        self.robot, self.num_envs = robot, num_envs
        model = compiled(robot, objects)
        moving = [model.body(name).id for name in body_names(objects, ("free", "tied"))]
        felt_bodies = [name for one in objects if one.name in felt for name in one.bodies]
        circle = Circle(parts.GREMLIN_TRAVEL, parts.GREMLIN_HEIGHT) if model.nmocap else None
        self.physics = Physics(
            # Each its own: the Point hangs on joints fixed to where it started, buttons are fixed,
            # vases may rest.
            [copy.copy(model) for _ in range(num_envs)],
            num_envs,
            threads,
            Recipe(parts.SUB_STEPS, forward=True, circle=circle),
            gather=lambda data: _row_of(data, moving),
            kinds=_kinds_of(model, felt_bodies) if felt_bodies else None,
            stepper=stepper,
        )
        every = [one for one in objects for _ in range(one.count)]  # M
        self.classes = tuple(one.name for one in objects)
        self.rows = _rows_of(objects)
        self._felt = _rows_of([one for one in objects if one.name in felt])
        # At most one class of a world moves, and at most one is fixed.
        placed = {one.placement: self.rows[one.name] for one in objects}
        self._moving, self._fixed = placed.get("free") or placed["tied"], placed.get("fixed")
        self.fixed_bodies = [model.body(name).id for name in body_names(objects, ("fixed",))]
        self.objects: FloatArray = np.zeros((num_envs, len(every), 2))
        self.keepouts = np.array([parts.ROBOT_KEEPOUT, *(one.keepout for one in every)])
        self._heights = np.array([parts.ROBOT_HEIGHT, *(one.height for one in every)])
        self._sensors = int(model.nsensordata)
        vases = body_names(objects, ("free",))
        simulators = self.physics.models, self.physics.data
        self.vases = RestingVases(*simulators, vases[0]) if vases else None

    @property
    def sensors(self) -> FloatArray:
        """What the sensors tell, (N, S)."""
        return self.physics.rows[:, : self._sensors]

    @property
    def robot_places(self) -> FloatArray:
        """Where the robots are, (N, 2)."""
        return self.physics.rows[:, self._sensors : self._sensors + 2]

    @property
    def robot_poses(self) -> FloatArray:
        """Position and rotation matrix of the robots, (N, 12)."""
        return self.physics.rows[:, self._sensors : self._sensors + 12]

    def where(self, name: str) -> FloatArray:
        """Return where the objects of a class are, (N, count, 2); this is not a copy."""
        return self.objects[:, self.rows[name]]

    def distances(self, name: str) -> FloatArray:
        """Return how far the robots are from the objects of a class, in the plane, (N, count)."""
        away = self.where(name) - self.robot_places[:, None]
        lengths: FloatArray = np.sqrt(away[..., 0] * away[..., 0] + away[..., 1] * away[..., 1])
        return lengths

    def touched(self, name: str) -> BoolArray:
        """Return which objects of a class the robots are in contact with, (N, count)."""
        return self.physics.touched[:, self._felt[name]] > 0.0

    def step(self, controls: FloatArray, elapsed: NDArray[np.int64]) -> None:
        """Advance by one step with `controls` (N, A), (N,) steps after the resets."""
        if self.vases is not None:
            away = self.distances("vases")[:, 0]
            self.vases.update(away, self.physics.rows[:, -6:], elapsed)
        self.physics.step(controls)
        first, count = self._sensors + 12, self._moving.stop - self._moving.start
        moved = self.physics.rows[:, first : first + 3 * count].reshape(self.num_envs, count, 3)
        self.objects[:, self._moving] = moved[:, :, :2]

    def build(self, index: int, layout: Layout) -> None:
        """Begin anew in one world, with robot and objects where a layout says."""
        import mujoco

        if self.vases is not None:
            self.vases.set(index, False)
        mujoco.mj_resetData(self.physics.models[index], self.physics.data[index])
        self._place(index, layout)
        self.forward(index)

    def forward(self, index: int) -> None:
        """Recompute what follows from the state of one simulator, and take it over."""
        import mujoco

        data = self.physics.data[index]
        mujoco.mj_forward(self.physics.models[index], data)
        data.qacc_warmstart[:] = data.qacc  # as mujoco 2.3.3 did
        self.physics.refresh(index)

    def _place(self, index: int, layout: Layout) -> None:
        """Put robot and objects of one world where a layout says."""
        model, data = self.physics.models[index], self.physics.data[index]
        self.objects[index] = layout.places[1:]
        poses = np.zeros((len(layout.rotations), 7))  # position, quaternion: robot, then objects
        poses[:, :2] = layout.places
        poses[:, 2] = self._heights
        poses[:, 3], poses[:, 6] = np.cos(0.5 * layout.rotations), np.sin(0.5 * layout.rotations)
        # The model compiler divided by the length. At rest a wheel or a gremlin just touches the
        # floor: the last bit of its rotation decides whether that is a contact.
        poses[:, 3:] /= np.sqrt(poses[:, 3] * poses[:, 3] + poses[:, 6] * poses[:, 6])[:, None]
        if self.robot.floats:
            data.qpos[:7] = poses[0]
        else:
            model.body_pos[1], model.body_quat[1] = poses[0, :3], poses[0, 3:]
        moving = poses[1:][self._moving]
        data.qpos[-moving.size :] = moving.reshape(-1)  # free bodies come last
        if model.nmocap:  # what keeps a gremlin at its place when its target is at the origin
            model.eq_data[:, 3:10] = moving
        if self._fixed is not None:
            fixed = poses[1:][self._fixed]
            model.body_pos[self.fixed_bodies] = fixed[:, :3]
            model.body_quat[self.fixed_bodies] = fixed[:, 3:]


def _rows_of(objects: Sequence[ObjectClass]) -> dict[str, slice]:
    """Return which rows each class has where all objects follow each other."""
    ends = np.cumsum([one.count for one in objects]).tolist()
    return {one.name: slice(end - one.count, end) for one, end in zip(objects, ends, strict=True)}


def _row_of(data: Any, moving: Sequence[int]) -> Sequence[FloatArray]:
    """Return what a step needs: sensors, the robot's pose, places of what moves, a vase's speed."""
    robot, moved = data.body("agent"), data.xpos[moving[0] : moving[-1] + 1]
    return data.sensordata, robot.xpos, robot.xmat, moved, data.qvel[-6:]


def _kinds_of(model: Any, bodies: Sequence[str]) -> NDArray[np.int64]:
    """Say for each geom whose contacts matter: the robot's, and those of some bodies, counted."""
    kinds = np.full(model.ngeom, NOTHING)
    kinds[model.body_rootid[model.geom_bodyid] == model.body("agent").id] = ROBOT
    for number, name in enumerate(bodies):
        kinds[model.geom_bodyid == model.body(name).id] = number
    return kinds
