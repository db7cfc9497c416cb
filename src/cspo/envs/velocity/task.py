"""Five velocity tasks: one class, and a table of facts in `velocity_tasks`.

Each is Gymnasium's MuJoCo v4 robot with default arguments, and a cost of 1 per step faster than a
threshold, exactly as Safety-Gymnasium 1.0.0 defines it (`cspo parity` proves it on recorded
transitions).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs.batch import FloatArray, StepResult, check_actions
from cspo.envs.physics.simulated import SimulatedEnv
from cspo.envs.physics.step import Physics
from cspo.envs.tasks import check_cost_terms
from cspo.envs.velocity.facts import TASKS, VelocityTask
from cspo.errors import CspoError, nearest

if TYPE_CHECKING:
    from cspo.envs.tools.render import Scene
    from cspo.envs.velocity.scene import Portrait

__all__ = ["TASKS", "VelocityEnv", "VelocityTask"]


class VelocityEnv(SimulatedEnv):
    """N copies of one velocity task.

    Actions are not clipped: MuJoCo clamps the controls, and the control cost is that of the action
    as given.

    Args:
        name: One of `TASKS`.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        autoreset: Reset finished environments within `step`; False leaves them where they ended.
        time_limit: Steps after which an episode is truncated.
        stepper: "compiled", "python" or "auto", see `Physics`.
        cost_terms: The terms of the cost to give; there is only "velocity".

    Attributes:
        elapsed: (N,) steps since the last reset.
        generators: The random generator of each environment, None until it is first needed.
        info_terms: `x_velocity` and, where defined, `y_velocity` of the last step, (N,) each.
        total_cost: (N,) the cost of the last step.
    """

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        threads: int = 1,
        autoreset: bool = True,
        time_limit: int | None = 1000,
        stepper: Literal["auto", "compiled", "python"] = "auto",
        cost_terms: Sequence[str] = (),
    ) -> None:
        """Load the robot and create N simulators of it."""
        if name not in TASKS:
            raise CspoError(f"there is no velocity task {name!r}: {nearest(name, TASKS)}")
        check_cost_terms(name, cost_terms)
        self.name, self.num_envs, self.time_limit, self.autoreset = (
            name,
            num_envs,
            time_limit,
            autoreset,
        )
        self.task = task = TASKS[name]
        self.model = model = _load_robot(task.robot)
        self.physics = Physics(
            model,
            num_envs,
            threads,
            frame_skip=task.frame_skip,
            gather=lambda data: _row_of(task, data),
            post_constraint=bool(task.body_terms),  # only the Humanoid observes contact forces
            chained=task.chained,
            stepper=stepper,
        )
        self._state_size = int(model.nq + model.nv)
        observed = self._state_size + sum(
            getattr(self.physics.data[0], term).size for term in task.body_terms
        )
        self._observed = slice(task.skipped, observed)  # columns of a row that make the observation
        self._clipped = slice(int(model.nq) - task.skipped, self._state_size - task.skipped)
        self.observation_size = observed - task.skipped
        self.action_size = int(model.nu)
        self.action_low, self.action_high = (bound.copy() for bound in model.actuator_ctrlrange.T)
        self.cost_names = ("velocity",)
        self._seconds = float(model.opt.timestep) * task.frame_skip
        self._mass_share = model.body_mass / model.body_mass.sum()  # (bodies,)
        self._initial = (model.qpos0.copy(), np.zeros(model.nv))
        self.generators: list[np.random.Generator | None] = [None] * num_envs
        # What a step leaves behind that outlives the new state and the forward pass of a reset.
        # `mj_resetData` clears all of MjData for the same result, and costs as much as the rest of
        # a reset.
        self._cleared = [
            (data.ctrl, data.qacc_warmstart, data.cfrc_ext) for data in self.physics.data
        ]
        self._dimensions = 2 if task.has_y else 1
        self._portrait: Portrait | None = None  # made when somebody looks
        self._allocate()

    def _allocate(self) -> None:
        n, dimensions = self.num_envs, self._dimensions
        self.elapsed = np.zeros(n, np.int64)
        self._position: FloatArray = np.zeros((n, dimensions))  # where the last step ended
        self._velocity: FloatArray = np.zeros((dimensions, n))
        self.info_terms = dict(zip(("x_velocity", "y_velocity"), self._velocity, strict=False))
        self._result = StepResult.zeros(n, self.observation_size, 1)
        self.total_cost: FloatArray = self._result.cost[:, 0]

    def step(self, actions: ArrayLike) -> StepResult:
        """Advance every environment by one step with `actions` (N, A), which are not clipped."""
        task, result = self.task, self._result
        rows = self.physics.step(check_actions(self.name, actions, self.physics.controls.shape))
        position = self._measure(rows)  # (N, 1 or 2)
        np.subtract(position.T, self._position.T, out=self._velocity)
        self._velocity /= self._seconds
        np.copyto(self._position, position)
        self.elapsed += 1

        controls = self.physics.controls  # (N, A) the actions, as float64
        np.multiply(self._velocity[0], task.forward_weight, out=result.reward)
        result.reward[:] += task.alive_bonus
        result.reward[:] -= task.control_weight * np.einsum("na,na->n", controls, controls)
        np.greater(self._speed(), task.speed_limit, out=result.cost[:, 0])
        if task.healthy is not None:
            np.logical_not(task.healthy(rows[:, : self._state_size]), out=result.terminated)
        if self.time_limit is not None:
            np.greater(self.elapsed >= self.time_limit, result.terminated, out=result.truncated)
        self._observe()
        self._reset_finished()
        return result

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
        """Return what there is to see of simulator `index`, for a `Renderer`; the physics is only read."""
        from cspo.envs.velocity.scene import Portrait

        if self._portrait is None:
            self._portrait = Portrait(_robot_path(self.task.robot))
        return self._portrait.scene(self.physics.data[index].qpos)

    def random_state(self) -> dict[str, Any]:
        """Return the state of the N random generators; null for one that was never used."""
        return {
            "generators": [None if g is None else g.bit_generator.state for g in self.generators]
        }

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        saved = state["generators"]
        if len(saved) != self.num_envs:
            raise CspoError(
                f"the saved random state is of {len(saved)} environments, not {self.num_envs}."
            )
        self.generators = [None if one is None else _generator(0) for one in saved]
        for generator, one in zip(self.generators, saved, strict=True):
            if generator is not None:
                generator.bit_generator.state = one

    def _measure(self, rows: FloatArray) -> FloatArray:
        """Return where each robot is, (N, 1 or 2), by the task's own definition of position.

        Under Runge-Kutta integration body positions in MjData are those of its last stage, slightly
        behind the joints. Safety-Gymnasium measures the Ant and the Humanoid by them, so this does
        too.
        """
        if self.task.position == "qpos":
            return rows[:, : self._dimensions]
        bodies = rows[:, self._observed.stop :].reshape(len(rows), -1, 3)[
            :, :, :2
        ]  # (N, bodies, 2)
        if self.task.position == "torso":
            return bodies[:, 0]
        centre: FloatArray = np.einsum("b,nbj->nj", self._mass_share, bodies)
        return centre

    def _speed(self) -> FloatArray:
        x: FloatArray = self._velocity[0]
        if not self.task.speed_is_planar:
            return x
        y = self._velocity[1]
        speed: FloatArray = np.sqrt(x * x + y * y)
        return speed

    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations of the current rows into the result, for all or for some, and return all."""
        observation = self._result.observation
        observation[which] = self.physics.rows[which, self._observed]
        limit = self.task.velocity_clip
        if limit is not None:
            joints = observation[:, self._clipped]
            np.minimum(joints, limit, out=joints)
            np.maximum(joints, -limit, out=joints)
        return observation

    def _seed_stream(self, index: int, seed: int) -> None:
        self.generators[index] = _generator(seed)

    def _reset_one(self, index: int) -> None:
        """Start a new episode as Gymnasium's v4 environments do: the same draws in the same order."""
        generator = self.generators[index]
        if generator is None:
            generator = self.generators[index] = _generator(None)
        task, data = self.task, self.physics.data[index]
        for array in self._cleared[index]:
            array.fill(0.0)
        data.time = 0.0
        qpos, qvel = self._initial
        noise = task.position_noise
        data.qpos[:] = qpos + generator.uniform(-noise, noise, qpos.size)
        if task.velocity_noise == "uniform":
            data.qvel[:] = qvel + generator.uniform(-noise, noise, qvel.size)
        else:
            data.qvel[:] = qvel + noise * generator.standard_normal(qvel.size)
        _forward(self.model, data)
        self.elapsed[index] = 0
        self._refresh(index)

    def _refresh(self, index: int) -> None:
        self.physics.refresh(index)
        self._position[index] = self._measure(self.physics.rows[index : index + 1])[0]


def _row_of(task: VelocityTask, data: Any) -> Sequence[NDArray[np.float64]]:
    """Return the arrays a step needs: state, observed body terms, and what the position is measured by."""
    row = [data.qpos, data.qvel, *(getattr(data, term) for term in task.body_terms)]
    if task.position == "torso":
        row.append(data.body("torso").xpos)
    elif task.position == "mass":
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


def _generator(seed: int | None) -> np.random.Generator:
    """Return the generator that Gymnasium would make for `seed`."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))


def _load_robot(file: str) -> Any:
    import mujoco

    return mujoco.MjModel.from_xml_path(str(_robot_path(file)))


def _robot_path(file: str) -> Path:
    """Return where a robot is in the installed gymnasium package, without importing that package."""
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise CspoError(
            "the velocity tasks read their robots from the gymnasium package: pip install gymnasium"
        )
    path = Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / file
    if not path.exists():
        raise CspoError(
            f"the installed gymnasium package has no robot file {file}: pip install 'gymnasium>=1.0'"
        )
    return path
