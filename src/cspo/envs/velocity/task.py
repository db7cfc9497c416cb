"""The velocity tasks, simulated: N robots that should move, but not too fast.

Each is Gymnasium's MuJoCo v4 robot with default arguments, and a cost of 1 per step faster than a
threshold, exactly as Safety-Gymnasium 1.0.0 defines it (`cspo parity` proves it on recorded
transitions).
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cspo.envs.batch import FloatArray, StepResult, check_actions
from cspo.envs.physics.plain import Recipe
from cspo.envs.physics.simulated import SimulatedEnv
from cspo.envs.physics.step import Physics, Stepper
from cspo.envs.tools.render import Scene
from cspo.envs.velocity.facts import TASKS, Robot, VelocityTask
from cspo.envs.velocity.scene import Portrait
from cspo.errors import CspoError


class Stream(np.random.Generator):
    """The random numbers of one environment: the generator that Gymnasium would make for a seed."""

    def __init__(self, seed: int | None) -> None:
        """Start the stream of a seed, or one of its own."""
        super().__init__(np.random.PCG64(np.random.SeedSequence(seed)))

    def state(self) -> Any:
        """Return the state of the generator as JSON-compatible data."""
        return self.bit_generator.state

    def set_state(self, state: Any) -> None:
        """Put back what `state` returned."""
        self.bit_generator.state = state


class VelocityEnv(SimulatedEnv):
    """N copies of one velocity task.

    Actions are not clipped: MuJoCo clamps the controls, and the control cost is that of the action
    as given. The arguments are those of `SimulatedEnv`.

    Attributes:
        info_terms: `x_velocity` and, where defined, `y_velocity` of the last step, (N,) each.
    """

    family = "velocity"
    tasks = TASKS
    cost_name = "velocity"
    streams_name = "generators"
    task: VelocityTask

    def _make_physics(self, threads: int, stepper: Stepper) -> Physics:
        """Load the robot and create N simulators of it."""
        import mujoco

        robot = self.task.robot
        model = mujoco.MjModel.from_xml_path(str(_robot_path(robot.file)))
        observes_forces = bool(robot.body_terms)
        recipe = Recipe(robot.frame_skip, observes_forces, robot.chained)
        gather = functools.partial(_row_of, robot)
        return Physics(model, self.num_envs, threads, recipe, gather, stepper=stepper)

    def _prepare(self, options: Mapping[str, Any]) -> None:
        """Remember where in a row things are, and make room for positions and velocities."""
        n, robot, model = self.num_envs, self.task.robot, self.model
        dimensions = 2 if robot.has_y else 1
        self._state_size = int(model.nq + model.nv)
        # Columns of a row that make the observation, and of those the joint velocities.
        self._observed = slice(robot.skipped, robot.skipped + self.observation_size)
        self._clipped = slice(int(model.nq) - robot.skipped, self._state_size - robot.skipped)
        self._mass_share = model.body_mass / model.body_mass.sum()  # (bodies,)
        # What a step leaves behind that outlives the new state and the forward pass of a reset.
        # `mj_resetData` clears all of MjData for the same result, and costs as much as the rest of
        # a reset.
        simulators = self.physics.data
        self._cleared = [(data.ctrl, data.qacc_warmstart, data.cfrc_ext) for data in simulators]
        self._position: FloatArray = np.zeros((n, dimensions))  # where the last step ended
        self._velocity: FloatArray = np.zeros((dimensions, n))
        self.info_terms = dict(zip(("x_velocity", "y_velocity"), self._velocity, strict=False))
        self.total_cost = self._result.cost[:, 0]
        self._portrait: Portrait | None = None  # made when somebody looks

    def step(self, actions: ArrayLike) -> StepResult:
        """Advance every environment by one step with `actions` (N, A), which are not clipped."""
        task, robot, result = self.task, self.task.robot, self._result
        rows = self.physics.step(check_actions(self.name, actions, self.physics.controls.shape))
        position = self._measure(rows)  # (N, 1 or 2)
        np.subtract(position.T, self._position.T, out=self._velocity)
        self._velocity /= self.row.step_seconds
        np.copyto(self._position, position)

        controls = self.physics.controls  # (N, A) the actions, as float64
        np.multiply(self._velocity[0], robot.forward_weight, out=result.reward)
        result.reward[:] += robot.alive_bonus
        result.reward[:] -= robot.control_weight * np.einsum("na,na->n", controls, controls)
        x, y = self._velocity[0], self._velocity[-1]
        speed = np.sqrt(x * x + y * y) if task.speed_is_planar else x
        np.greater(speed, task.speed_limit, out=result.cost[:, 0])
        if robot.healthy is not None:
            np.logical_not(robot.healthy(rows[:, : self._state_size]), out=result.terminated)
        return self._end_step()

    def set_state(
        self,
        index: int,
        qpos: FloatArray,
        qvel: FloatArray,
        qacc_warmstart: FloatArray | None = None,
        forward: bool = True,
    ) -> None:
        """Put simulator `index` in a state.

        Args:
            index: Which environment.
            qpos: Joint positions.
            qvel: Joint velocities.
            qacc_warmstart: Where the constraint solver starts its search; not set if None.
            forward: Recompute what follows from the state (body positions, ...). False leaves those
                quantities as the last step left them, which is what a continuing Safety-Gymnasium
                episode sees.
        """
        data = self.physics.data[index]
        data.qpos[:], data.qvel[:] = qpos, qvel
        if forward:
            _forward(self.model, data)
        if qacc_warmstart is not None:
            data.qacc_warmstart[:] = qacc_warmstart
        self._refresh(index)

    def get_state(self, index: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return copies of (qpos, qvel, qacc_warmstart) of simulator `index`."""
        data = self.physics.data[index]
        return data.qpos.copy(), data.qvel.copy(), data.qacc_warmstart.copy()

    def scene(self, index: int = 0) -> Scene:
        """Return what there is to see of one copy, for a `Renderer`; the physics is only read."""
        if self._portrait is None:
            robot = self.task.robot
            self._portrait = Portrait(_robot_path(robot.file), robot.framing)
        return self._portrait.scene(self.physics.data[index].qpos)

    def _measure(self, rows: FloatArray) -> FloatArray:
        """Return where each robot is, (N, 1 or 2), by the task's own definition of position.

        Under Runge-Kutta integration body positions in MjData are those of its last stage, slightly
        behind the joints. Safety-Gymnasium measures the Ant and the Humanoid by them, so this does
        too.
        """
        if self.task.robot.position == "qpos":
            return rows[:, : len(self._velocity)]
        places = rows[:, self._observed.stop :].reshape(len(rows), -1, 3)  # (N, bodies, 3)
        if self.task.robot.position == "torso":
            return places[:, 0, :2]
        centre: FloatArray = np.einsum("b,nbj->nj", self._mass_share, places[:, :, :2])
        return centre

    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations into the result, for all or some copies, and return all."""
        observation = self._result.observation
        observation[which] = self.physics.rows[which, self._observed]
        limit = self.task.robot.velocity_clip
        if limit is not None:
            joints = observation[:, self._clipped]
            np.minimum(joints, limit, out=joints)
            np.maximum(joints, -limit, out=joints)
        return observation

    def _new_stream(self, seed: int | None) -> Stream:
        return Stream(seed)

    def _reset_one(self, index: int) -> None:
        """Start a new episode as Gymnasium's v4 environments do: the same draws in that order."""
        stream, robot, data = self._stream(index), self.task.robot, self.physics.data[index]
        for array in self._cleared[index]:
            array.fill(0.0)
        data.time = 0.0
        noise = robot.noise
        data.qpos[:] = self.model.qpos0 + stream.uniform(-noise, noise, data.qpos.size)
        if robot.velocity_noise == "uniform":
            data.qvel[:] = stream.uniform(-noise, noise, data.qvel.size)
        else:
            data.qvel[:] = noise * stream.standard_normal(data.qvel.size)
        _forward(self.model, data)
        self.elapsed[index] = 0
        self._refresh(index)

    def _refresh(self, index: int) -> None:
        self.physics.refresh(index)
        self._position[index] = self._measure(self.physics.rows[index : index + 1])[0]


def _row_of(robot: Robot, data: Any) -> Sequence[FloatArray]:
    """Return what a step needs: state, observed body terms, and what tells the position."""
    row = [data.qpos, data.qvel, *(getattr(data, term) for term in robot.body_terms)]
    if robot.position == "torso":
        row.append(data.body("torso").xpos)
    elif robot.position == "mass":
        row.append(data.xipos)
    return row


def _forward(model: Any, data: Any) -> None:
    """Recompute what follows from the state as mujoco 2.3.3 did, side effects included.

    Its `mj_forward` normalised quaternions in place and kept the acceleration as the solver's next
    start.
    """
    import mujoco

    mujoco.mj_normalizeQuat(model, data.qpos)
    mujoco.mj_forward(model, data)
    data.qacc_warmstart[:] = data.qacc


def _robot_path(file: str) -> Path:
    """Return where a robot is in the installed gymnasium package, without importing it."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise CspoError(
            "the velocity tasks read their robots from the gymnasium package: pip install gymnasium"
        )
    path = Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / file
    if not path.exists():
        missing = f"the installed gymnasium package has no robot file {file}"
        raise CspoError(f"{missing}: pip install 'gymnasium>=1.0'")
    return path
