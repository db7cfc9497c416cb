"""Runge-Kutta 4 as mujoco 2.3.3 did it: a stage starts the solver where the last one ended.

Newer MuJoCo starts all four stages from the acceleration of the previous step. With a solver that
converges the two agree to rounding. The Humanoid uses 50 sweeps of projected Gauss-Seidel, which
often do not converge, and then the start matters: plain `mj_step` differs from Safety-Gymnasium by
up to 1e-4 in its velocities and 2e-2 in its contact forces. With the chained start the difference
is 1e-13.

`integrators.py` holds the same steps in machine code; both call MuJoCo's own vector functions so
that not a bit differs between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.physics.shallow import UNCAPPED, forward

STAGES = (0.5, 0.5, 1.0)  # how far along the step the second, third and fourth stage are evaluated
WEIGHTS = (1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0)


def step(model: Any, data: Any, radii: FloatArray = UNCAPPED) -> None:
    """Advance `data` by one physics step; for models without actuator activations.

    Args:
        model: The model.
        data: Its state.
        radii: Cap the depths of contacts by these, see `shallow`.
    """
    import mujoco

    seconds = model.opt.timestep
    mujoco.mj_checkPos(model, data)
    mujoco.mj_checkVel(model, data)
    forward(model, data, radii)
    mujoco.mj_checkAcc(model, data)
    data.qacc_warmstart[:] = data.qacc
    start = data.qpos.copy()
    velocities, accelerations = [data.qvel.copy()], [data.qacc.copy()]
    change = np.empty(model.nv)
    for share in STAGES:
        data.qpos[:] = start
        mujoco.mju_scl(change, velocities[-1], share)
        mujoco.mj_integratePos(model, data.qpos, change, seconds)
        mujoco.mju_scl(change, accelerations[-1], share)
        mujoco.mju_addScl(data.qvel, velocities[0], change, seconds)
        velocities.append(data.qvel.copy())
        forward(model, data, radii)
        data.qacc_warmstart[:] = data.qacc
        accelerations.append(data.qacc.copy())
    _weighted_sum(change, accelerations)
    data.qvel[:] = velocities[0]
    mujoco.mju_addToScl(data.qvel, change, seconds)
    _weighted_sum(change, velocities)
    data.qpos[:] = start
    mujoco.mj_integratePos(model, data.qpos, change, seconds)
    data.time += seconds


def _weighted_sum(out: Any, vectors: list[Any]) -> None:
    import mujoco

    out[:] = 0.0
    for weight, vector in zip(WEIGHTS, vectors, strict=True):
        mujoco.mju_addToScl(out, vector, weight)
