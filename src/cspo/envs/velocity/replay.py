"""How a velocity task is replayed against a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.replay import Field, Recording, Replay
from cspo.envs.velocity.task import VelocityEnv

TOLERANCE = 1e-5
# Contact forces reach thousands of newtons, so this is closer, relative to their size, than the
# above.
FORCE_TOLERANCE = 1e-4
RESET_TOLERANCE = 1e-9
EXACT = ("cost", "terminated", "truncated")


class VelocityReplay(Replay):
    """One robot, put into recorded states."""

    def __init__(self, task: str) -> None:
        """Create the environment; it never resets by itself."""
        # The Python stepper needs no compiling, and gives the same bits.
        self.env = VelocityEnv(task, autoreset=False, stepper="python")
        super().__init__(self.env)

    def step_fields(self) -> Sequence[Field]:
        """Compare everything that a step gives."""
        keys = ("reward", "cost", "terminated", "truncated", "qpos_after", "qvel_after")
        terms = self.env.info_terms
        return [
            *self._observation_fields(),
            *(Field(key, key, tolerance=None if key in EXACT else TOLERANCE) for key in keys),
            *(Field(name, name, tolerance=TOLERANCE, optional=True) for name in terms),
        ]

    def reset_fields(self) -> Sequence[Field]:
        """Compare the first observation and the state behind it."""
        keys = ("obs", "qpos", "qvel")
        return [Field(key, key, tolerance=RESET_TOLERANCE, optional=key != "obs") for key in keys]

    def _observation_fields(self) -> Sequence[Field]:
        """Split off contact forces, where a task observes them."""
        if "cfrc_ext" not in self.env.task.robot.body_terms:
            return [Field("obs", "obs", tolerance=TOLERANCE)]
        forces = self.data.cfrc_ext.size
        return [
            Field("obs", "obs", slice(None, -forces), TOLERANCE),
            Field("obs_contact_forces", "obs", slice(-forces, None), FORCE_TOLERANCE),
        ]

    def step(self, trace: Recording, row: int) -> Mapping[str, Any]:
        """Put the environment into the state before `row` and step it."""
        qpos, qvel, warmstart = (
            trace[f"{key}_before"][row] for key in ("qpos", "qvel", "qacc_warmstart")
        )
        # In a running episode Safety-Gymnasium measures speeds from body positions that its last
        # step left behind, and so must we. A reset or a kick was followed by a forward pass that
        # refreshed them.
        self.env.set_state(0, qpos, qvel, warmstart, forward=not _continues(trace, row))
        if _begins(trace, row):
            self.env.elapsed[0] = 0
        if _was_cut(trace, row) and self.env.time_limit is not None:
            self.env.elapsed[0] = self.env.time_limit - 1
        return self.outcome(self.env.step(trace["action"][row : row + 1]))

    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset the environment."""
        return {"obs": self.env.reset(seed)[0], "qpos": self.data.qpos, "qvel": self.data.qvel}


def _begins(trace: Recording, row: int) -> bool:
    """Whether an episode begins at `row`."""
    if row == 0:
        return True
    last = row - 1
    other = "episode" in trace and trace["episode"][row] != trace["episode"][last]
    return bool(other or trace["terminated"][last] or trace["truncated"][last])


def _was_cut(trace: Recording, row: int) -> bool:
    """Whether the recorder advanced the step counter to its limit before `row`.

    It did before the last row of every episode number in files that note resets (`after_reset`).
    """
    rows = len(trace["action"])
    last = row + 1 == rows or trace["episode"][row + 1] != trace["episode"][row]
    return "after_reset" in trace and bool(last)


def _continues(trace: Recording, row: int) -> bool:
    """Whether `row` starts exactly where the row before it ended."""
    return not _begins(trace, row) and all(
        np.array_equal(trace[f"{key}_before"][row], trace[f"{key}_after"][row - 1])
        for key in ("qpos", "qvel")
    )
