"""How deep mujoco 2.3.3 found a sphere or a capsule in a box: never deeper than its radius.

Newer versions tell the true depth once the centre is inside the box, from the same point and in the
same direction. A light box that a leg is pressed into is then thrown away much harder: positions
are off by up to 0.3 m after a step of 0.1 s. So depths are capped between the detection of contacts
and the making of constraints; where one was, the constraints are made again.

`integrators.py` holds the same in machine code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray
from cspo.envs.physics import boxes
from cspo.envs.physics.boxes import BOX

UNCAPPED: FloatArray = np.zeros(0)  # in place of radii


def radii_of(model: Any) -> FloatArray:
    """Return for each geom its radius, if it is a sphere or a capsule, BOX for a box, or 0."""
    import mujoco

    types = model.geom_type
    is_round = (types == mujoco.mjtGeom.mjGEOM_SPHERE) | (types == mujoco.mjtGeom.mjGEOM_CAPSULE)
    others = np.where(types == mujoco.mjtGeom.mjGEOM_BOX, BOX, 0.0)
    radii: FloatArray = np.where(is_round, model.geom_size[:, 0], others)
    return radii


def forward(model: Any, data: Any, radii: FloatArray, skip_sensors: bool = True) -> None:
    """Do what `mj_forward` does, with depths capped if there are `radii`, see `radii_of`."""
    import mujoco

    if not radii.size:
        mujoco.mj_forwardSkip(model, data, mujoco.mjtStage.mjSTAGE_NONE.value, skip_sensors)
        return
    mujoco.mj_fwdPosition(model, data)
    restored = boxes.restore(model, data, radii)
    if _cap(data, radii) or restored:
        mujoco.mj_makeConstraint(model, data)
        mujoco.mj_island(model, data)
        mujoco.mj_projectConstraint(model, data)
    if not skip_sensors:
        mujoco.mj_sensorPos(model, data)
    mujoco.mj_forwardSkip(model, data, mujoco.mjtStage.mjSTAGE_POS.value, skip_sensors)


def euler_step(model: Any, data: Any, radii: FloatArray) -> None:
    """Do what `mj_step` does under Euler's method, with depths capped."""
    import mujoco

    mujoco.mj_checkPos(model, data)
    mujoco.mj_checkVel(model, data)
    forward(model, data, radii)
    mujoco.mj_checkAcc(model, data)
    mujoco.mj_Euler(model, data)


def _cap(data: Any, radii: FloatArray) -> bool:
    """Raise the distances of the contacts that are too deep; return whether there were any."""
    pairs, distances = radii[data.contact.geom], data.contact.dist  # (contacts, 2), a view
    smallest = np.where(
        pairs.min(axis=1, initial=0.0) == BOX, -pairs.max(axis=1, initial=0.0), -np.inf
    )
    smallest[smallest == 0.0] = -np.inf  # two boxes, or a box and some other shape
    deep = distances < smallest
    distances[deep] = smallest[deep]
    return bool(deep.any())
