"""The inner loop of `Physics` in plain Python: the same numbers as the compiled one, slower."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import FloatArray
from cspo.envs.physics import rk4, shallow
from cspo.envs.physics.compiled import ROBOT

Queues = Sequence[SimpleQueue[bool]]  # one per helper
Steppers = tuple[Callable[[Queues], None], Callable[[int], None]]
"""One step of all simulators, and what a helper runs, given its number."""


class Circle(NamedTuple):
    """The way of mocap bodies: around the origin in 2 pi seconds, clockwise from the y axis."""

    radius: float
    height: float


class Recipe(NamedTuple):
    """What a step consists of."""

    frame_skip: int = 1  # physics steps
    post_constraint: bool = False  # also `mj_rnePostConstraint`, which fills the contact forces
    chained: bool = False  # integrate as `rk4` explains, instead of by `mj_step`
    forward: bool = False
    """End with `mj_forward`, which refreshes sensors and contacts, and let the solver start its
    next search from the acceleration it found, as mujoco 2.3.3 did."""
    shallow: bool = False  # cap how deep spheres and capsules are found in boxes, see `shallow`
    circle: Circle | None = None
    """Before every physics step, move all mocap bodies to where they are on this circle."""


def plain_stepper(
    models: Sequence[Any],
    simulators: Sequence[Any],
    recipe: Recipe,
    controls: FloatArray,
    views: Sequence[Sequence[FloatArray]],
    rows: FloatArray,
    kinds: NDArray[np.int64],
    touched: FloatArray,
    radii: FloatArray,
) -> Steppers:
    """Return (one step of all, what a helper runs); the arguments are the parts of a `Physics`."""
    flat_views, flat_rows = [view for one in views for view in one], rows.reshape(-1)
    ctrl = [data.ctrl for data in simulators]
    counter = itertools.count(len(simulators))  # the next to step: none yet
    finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def step_free_ones() -> None:
        while (i := next(counter)) < len(simulators):  # atomic under the interpreter lock
            ctrl[i][:] = controls[i]
            _step_one(models[i], simulators[i], recipe, radii)
            _note_contacts(simulators[i], kinds, touched[i])

    def helper(number: int) -> None:
        try:
            step_free_ones()
        except BaseException as fault:
            finished.put(fault)
        else:
            finished.put(None)

    def step(queues: Queues) -> None:
        nonlocal counter
        counter = itertools.count()
        for queue in queues:
            queue.put(True)
        try:
            step_free_ones()
        finally:
            faults = [fault for fault in [finished.get() for _ in queues] if fault is not None]
        if faults:
            raise faults[0]
        np.concatenate(flat_views, out=flat_rows)

    return step, helper


def _step_one(model: Any, data: Any, recipe: Recipe, radii: FloatArray) -> None:
    """Advance one simulator, whose controls are set."""
    import mujoco

    for _ in range(recipe.frame_skip):
        if recipe.circle is not None:
            radius, height = recipe.circle
            data.mocap_pos[:] = radius * math.sin(data.time), radius * math.cos(data.time), height
        if recipe.chained:
            rk4.step(model, data, radii)
        elif radii.size:
            shallow.euler_step(model, data, radii)
        else:
            mujoco.mj_step(model, data)
    if recipe.forward:
        shallow.forward(model, data, radii, skip_sensors=False)
        data.qacc_warmstart[:] = data.qacc
    if recipe.post_constraint:
        mujoco.mj_rnePostConstraint(model, data)


def _note_contacts(data: Any, kinds: NDArray[np.int64], touched: FloatArray) -> None:
    """Write 1 for each object that the robot is in contact with, else 0."""
    if touched.size:
        pairs = kinds[data.contact.geom]  # (contacts, 2)
        objects = pairs.max(axis=1)[pairs.min(axis=1) == ROBOT]
        touched[:] = 0.0
        touched[objects[objects >= 0]] = 1.0
