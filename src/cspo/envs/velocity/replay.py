"""How a velocity task is replayed against a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.velocity.task import VelocityEnv

if TYPE_CHECKING:
    from cspo.envs.tools.parity import Field

TOLERANCE = 1e-5
# Contact forces reach thousands of newtons, so this is closer, relative to their size, than the
# above.
FORCE_TOLERANCE = 1e-4
RESET_TOLERANCE = 1e-9


class VelocityReplay:
    """One environment of a task, put into recorded states."""

    def __init__(self, task: str) -> None:
        """Create the environment; it never resets by itself."""
        # The Python stepper needs no compiling, and gives the same bits.
        self.env = VelocityEnv(task, num_envs=1, autoreset=False, stepper="python")

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of one row of each key."""
        env, model = self.env, self.env.model
        nq, nv = (int(model.nq),), (int(model.nv),)
        vectors = {
            "qpos_before": nq,
            "qvel_before": nv,
            "qacc_warmstart_before": nv,
            "action": (env.action_size,),
            "obs": (env.observation_size,),
            "qpos_after": nq,
            "qvel_after": nv,
            "qpos": nq,
            "qvel": nv,
        }
        scalars = (
            "episode",
            "reward",
            "cost",
            "terminated",
            "truncated",
            "x_velocity",
            "y_velocity",
        )
        return {**vectors, **dict.fromkeys(scalars, ())}

    def step_fields(self) -> Sequence[Field]:
        """Compare everything that a step gives."""
        from cspo.envs.tools.parity import Field

        fields = [
            *self._observation_fields(TOLERANCE, FORCE_TOLERANCE),
            Field("reward", "reward", tolerance=TOLERANCE),
            Field("cost", "cost"),
            Field("terminated", "terminated"),
            Field("truncated", "truncated"),
            Field("qpos_after", "qpos_after", tolerance=TOLERANCE),
            Field("qvel_after", "qvel_after", tolerance=TOLERANCE),
        ]
        terms = self.env.info_terms
        return [*fields, *(Field(name, name, tolerance=TOLERANCE, optional=True) for name in terms)]

    def reset_fields(self) -> Sequence[Field]:
        """Compare the first observation and the state behind it."""
        from cspo.envs.tools.parity import Field

        return [
            Field("obs", "obs", tolerance=RESET_TOLERANCE),
            Field("qpos", "qpos", tolerance=RESET_TOLERANCE, optional=True),
            Field("qvel", "qvel", tolerance=RESET_TOLERANCE, optional=True),
        ]

    def _observation_fields(self, tolerance: float, force_tolerance: float) -> Sequence[Field]:
        """Split off contact forces, where a task observes them."""
        from cspo.envs.tools.parity import Field

        terms = self.env.task.body_terms
        if "cfrc_ext" not in terms:
            return [Field("obs", "obs", tolerance=tolerance)]
        forces = self.env.physics.data[0].cfrc_ext.size
        return [
            Field("obs", "obs", slice(None, -forces), tolerance),
            Field("obs_contact_forces", "obs", slice(-forces, None), force_tolerance),
        ]

    def step(self, trace: Mapping[str, FloatArray], row: int) -> Mapping[str, Any]:
        """Put the environment into the state before `row` and step it."""
        env = self.env
        state = (
            trace["qpos_before"][row],
            trace["qvel_before"][row],
            trace["qacc_warmstart_before"][row],
        )
        # In a running episode Safety-Gymnasium measures speeds from body positions that its last
        # step left behind, and so must we. A reset or a kick was followed by a forward pass that
        # refreshed them.
        env.set_state(0, *state, forward=not _continues(trace, row))
        if _begins(trace, row):
            env.elapsed[0] = 0
        result = env.step(trace["action"][row : row + 1])
        qpos, qvel, _ = env.get_state(0)
        return {
            "obs": result.observation[0],
            "reward": result.reward[0],
            "cost": result.cost[0, 0],
            "terminated": result.terminated[0],
            "truncated": result.truncated[0],
            "qpos_after": qpos,
            "qvel_after": qvel,
            **{name: values[0] for name, values in env.info_terms.items()},
        }

    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset the environment."""
        observation = self.env.reset(seed)[0]
        qpos, qvel, _ = self.env.get_state(0)
        return {"obs": observation, "qpos": qpos, "qvel": qvel}


def _begins(trace: Mapping[str, FloatArray], row: int) -> bool:
    """Whether an episode begins at `row`."""
    if row == 0:
        return True
    last = row - 1
    other = "episode" in trace and trace["episode"][row] != trace["episode"][last]
    return bool(other or trace["terminated"][last] or trace["truncated"][last])


def _continues(trace: Mapping[str, FloatArray], row: int) -> bool:
    """Whether `row` starts exactly where the row before it ended."""
    return not _begins(trace, row) and all(
        np.array_equal(trace[f"{key}_before"][row], trace[f"{key}_after"][row - 1])
        for key in ("qpos", "qvel")
    )
