"""N worlds of a robot among objects: their simulators, and where everything is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import BoolArray, FloatArray
from cspo.envs.navigation import parts
from cspo.envs.navigation.inventory import Inventory, rows_of
from cspo.envs.navigation.layout import Layout
from cspo.envs.navigation.model import body_names, compiled
from cspo.envs.navigation.parts import Stage
from cspo.envs.navigation.resting import Resting
from cspo.envs.navigation.robots.robot import Robot
from cspo.envs.navigation.rows import Rows, distances_between
from cspo.envs.physics.compiled import NOTHING, ROBOT
from cspo.envs.physics.plain import Circle, Recipe
from cspo.envs.physics.step import Physics, Stepper


class World:
    """N copies of a world.

    Args:
        robot: Who drives around.
        stage: Among which M objects, and where it starts.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        stepper: "compiled", "python" or "auto", see `Physics`.

    Attributes:
        physics: The N simulators.
        robot: Who drives around.
        inventory: The objects, numbered.
        objects: (N, M, 2) where the objects are.
        rooms: Where the robot and the objects may be placed.
        fixed_bodies: Numbers of the fixed objects' bodies in the models.
        resting: Says which free objects rest; None where there are none.
    """

    def __init__(
        self, robot: Robot, stage: Stage, num_envs: int, threads: int, stepper: Stepper
    ) -> None:
        """Compile the world and create N simulators of it."""
        objects = stage.objects
        self.robot, self.num_envs, self.inventory = robot, num_envs, Inventory(objects)
        model = compiled(robot, objects)
        moving, tied = (body_names(objects, kinds) for kinds in (("free", "tied"), ("tied",)))
        self._columns = Rows(model, [model.body(name).id for name in moving])
        felt = [one for one in objects if one.name in stage.felt]
        self._felt = rows_of(felt)
        circle = Circle(parts.GREMLIN_TRAVEL, parts.GREMLIN_HEIGHT) if tied else None
        self.physics = Physics(
            # Each its own: the Point hangs on joints fixed to where it started, buttons are fixed,
            # vases may rest.
            [copy.copy(model) for _ in range(num_envs)],
            num_envs,
            threads,
            Recipe(
                parts.SUB_STEPS,
                chained=robot.runge_kutta,
                forward=True,
                shallow=bool(moving),  # as mujoco 2.3.3 found contacts with boxes
                circle=circle,
            ),
            gather=self._columns.gather,
            kinds=_kinds_of(model, [body for one in felt for body in one.bodies]),
            stepper=stepper,
        )
        self.fixed_bodies = [model.body(name).id for name in body_names(objects, ("fixed",))]
        self._welds = [model.equality(name).id for name in tied]
        self.objects: FloatArray = np.zeros((num_envs, len(self.inventory.heights), 2))
        self.rooms = self.inventory.rooms(stage)
        self._heights = np.array([robot.height, *self.inventory.heights])
        self.resting: Resting | None = None
        if self.inventory.free:
            free, seconds = body_names(objects, ("free",)), parts.SUB_STEPS * robot.timestep
            around = self.inventory.radii, robot.reach, seconds
            self.resting = Resting(self.physics.models, self.physics.data, free, *around)

    @property
    def sensors(self) -> FloatArray:
        """What the sensors tell, (N, S)."""
        return self.physics.rows[:, self._columns.sensors]

    @property
    def robot_places(self) -> FloatArray:
        """Where the robots are, (N, 2)."""
        return self.physics.rows[:, self._columns.place]

    @property
    def robot_positions(self) -> FloatArray:
        """Where the robots are, (N, 3)."""
        return self.physics.rows[:, self._columns.position]

    @property
    def robot_poses(self) -> FloatArray:
        """Position and rotation matrix of the robots, (N, 12)."""
        return self.physics.rows[:, self._columns.pose]

    @property
    def robot_velocities(self) -> FloatArray:
        """Velocity of the robots' centres in the frame of the world, (N, 3)."""
        return self._columns.velocity(self.physics.rows)

    def where(self, name: str) -> FloatArray:
        """Return where the objects of a class are, (N, count, 2); this is not a copy."""
        return self.objects[:, self.inventory.rows[name]]

    def positions(self, name: str) -> FloatArray:
        """Return where the objects of a class that moves are, with their height, (N, count, 3)."""
        return self._moved()[:, self.inventory.moving_rows[name]]

    def velocities(self, name: str) -> FloatArray:
        """Return the velocities of the objects of a class that moves, (N, count, 3)."""
        return self._speeds()[:, self.inventory.moving_rows[name], :3]

    def distances(self, name: str) -> FloatArray:
        """Return how far the robots are from the objects of a class, in the plane, (N, count)."""
        places = self.where(name)
        distances = np.empty(places.shape[:2])
        distances_between(distances, places, self.robot_places)
        return distances

    def touched(self, name: str) -> BoolArray:
        """Return which objects of a class the robots are in contact with, (N, count)."""
        return self.physics.touched[:, self._felt[name]] > 0.0

    def step(self, controls: FloatArray, elapsed: NDArray[np.int64]) -> None:
        """Advance by one step with `controls` (N, A), (N,) steps after the resets."""
        if self.resting is not None:
            free = self.inventory.free
            places, speeds = self._moved()[:, :free, :2], self._speeds()[:, :free]
            self.resting.update(places, self.robot_places, speeds, elapsed)
        self.physics.step(controls)
        self._follow(slice(None))

    def build(self, index: int, layout: Layout) -> None:
        """Begin anew in one world, with robot and objects where a layout says."""
        import mujoco

        if self.resting is not None:
            self.resting.wake(index)
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
        self._follow(index)

    def _moved(self) -> FloatArray:
        """Return where everything is that moves, (N, moving, 3)."""
        return self.physics.rows[:, self._columns.objects].reshape(self.num_envs, -1, 3)

    def _speeds(self) -> FloatArray:
        """Return how everything moves that moves, (N, moving, 6)."""
        return self.physics.rows[:, self._columns.speeds].reshape(self.num_envs, -1, 6)

    def _follow(self, which: Any) -> None:
        """Take over where the objects that move are now, in one world or in all."""
        if self.inventory.moving:
            self.objects[which, self.inventory.moving] = self._moved()[which, :, :2]

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
        moving = poses[1:][self.inventory.moving]
        data.qpos[model.nq - moving.size :] = moving.reshape(-1)  # these bodies come last
        # What keeps a gremlin at its place when its target is at the origin.
        model.eq_data[self._welds, 3:10] = moving[self.inventory.free :]
        fixed = poses[1:][self.inventory.fixed]
        model.body_pos[self.fixed_bodies] = fixed[:, :3]
        model.body_quat[self.fixed_bodies] = fixed[:, 3:]


def _kinds_of(model: Any, bodies: Sequence[str]) -> NDArray[np.int64] | None:
    """Say for each geom whose contacts matter: the robot's, and those of some bodies, counted."""
    if not bodies:
        return None
    kinds = np.full(model.ngeom, NOTHING)
    kinds[model.body_rootid[model.geom_bodyid] == model.body("agent").id] = ROBOT
    for number, name in enumerate(bodies):
        kinds[model.geom_bodyid == model.body(name).id] = number
    return kinds
