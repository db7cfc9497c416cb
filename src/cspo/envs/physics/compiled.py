"""The compiled inner loop of `Physics`: MuJoCo called from machine code, without Python's lock.

A Python loop over `mujoco.mj_step` hands the interpreter lock back and forth once per environment,
which costs two threads a third of their speed. Here one call steps a whole batch: every thread runs
the same function and takes the next environment from a shared counter, so unequal contact costs
balance themselves. Between two steps of a rollout a helper stays in machine code and watches the
counter: waking a Python thread would cost it a tenth of the step. When nothing comes for a fraction
of a millisecond it goes to sleep.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.arithmetic import kernel
from cspo.envs.physics.calls import (
    call,
    exchange,
    fetch_add,
    load_int32,
    mujoco_library,
    scheduler_call,
    store_double,
)
from cspo.envs.physics.rk4 import STAGES, WEIGHTS

# Places in the shared counter array: the next environment to step, how many are done, whether
# helpers are to leave, and from AWAKE on one flag per helper. They are STRIDE int64 apart so that
# they live in different cache lines.
STRIDE = 16
NEXT, DONE, STOPPED, AWAKE = 0, STRIDE, 2 * STRIDE, 3 * STRIDE
CALLER = -1  # in place of a helper's number
PATIENCE = 1000  # looks before a helper goes to sleep, roughly half a microsecond each

# The arrays of a simulator whose addresses the kernel needs, in this order, and two more addresses:
# the number of contacts, and the two geoms of the first contact.
STATE = ("ctrl", "qpos", "qvel", "qacc", "qacc_warmstart", "mocap_pos")
NUM_CONTACTS, CONTACT_GEOMS = len(STATE), len(STATE) + 1
ROBOT = -2  # what `kinds` says of a geom of the robot
NOTHING = -1  # what it says of a geom whose contacts do not matter
# The C functions whose addresses are needed, in this order; GIVE_WAY is the scheduler's call.
FUNCTIONS = (
    *("mj_step", "mj_rnePostConstraint", "mj_checkPos", "mj_checkVel", "mj_checkAcc", "mj_forward"),
    *("mj_forwardSkip", "mj_integratePos", "mj_getState", "mj_setState"),
    *("mju_copy", "mju_zero", "mju_scl", "mju_addScl", "mju_addToScl"),
)
MJ_STEP, MJ_POST, CHECK_POS, CHECK_VEL, CHECK_ACC, FORWARD = range(6)
FORWARD_SKIP, INTEGRATE, GET_STATE, SET_STATE = range(6, 10)
COPY, ZERO, SCALE, ADD_SCALED, ADD_TO, GIVE_WAY = range(10, 16)
_TIME = np.uint32(1)  # MuJoCo's mjSTATE_TIME
_NO, _YES = np.int32(0), np.int32(1)


@functools.cache
def addresses() -> NDArray[np.int64] | None:
    """Return the addresses of `FUNCTIONS` and of the scheduler's call, or None if not found."""
    library = mujoco_library()
    if library is None or any(not hasattr(library, name) for name in FUNCTIONS):
        return None
    found = [getattr(library, name) for name in FUNCTIONS] + [scheduler_call()]
    return np.array([ctypes.cast(function, ctypes.c_void_p).value for function in found], np.int64)


@kernel
def begin(counters: Any, helpers: Any) -> Any:
    """Offer all environments again; returns the helpers that are asleep, one bit each."""
    # Exchanges, because a helper may be counting at this moment: reading and then subtracting could
    # lose its count, and with it an environment.
    exchange(counters + 8 * DONE, 0)
    exchange(counters + 8 * NEXT, 0)  # last: helpers that are awake start here
    asleep = 0
    for helper in range(helpers):
        if fetch_add(counters + 8 * (AWAKE + STRIDE * helper), 0) == 0:
            asleep |= 1 << helper
    return asleep


@kernel
def work(
    c: Any, settings: Any, reals: Any, places: Any, lengths: Any, kinds: Any, helper: Any
) -> None:
    """Step environments until none is free.

    The caller then waits for the helpers; a helper waits for the next `begin`, and returns when
    none comes.

    Args: c: see FUNCTIONS; settings: addresses and whole numbers that stay the same from step to
        step, see `step_free_ones`; reals (3,): seconds of a physics step, radius and height of the
        targets' circle; places: addresses, the models (N,), the simulators (N,),
        their arrays (N, 8), see STATE, and the arrays to gather (N, F), `lengths` (F,) numbers
        each; kinds (geoms,): see `Physics`; helper: its number, or CALLER.
    """
    counters, num_envs = settings[0], len(places[0])
    if helper == CALLER:
        step_free_ones(c, settings, reals, places, lengths, kinds)
        # The last environment of a helper takes microseconds: waiting here is cheaper than
        # sleeping. Giving way matters where other processes want this core, perhaps the very one
        # that the helper needs.
        while fetch_add(counters + 8 * DONE, 0) < num_envs:
            call(c[GIVE_WAY])
        return
    awake = counters + 8 * (AWAKE + STRIDE * helper)
    exchange(awake, 1)
    looks = 0
    while True:
        if fetch_add(counters + 8 * NEXT, 0) < num_envs:
            step_free_ones(c, settings, reals, places, lengths, kinds)
            looks = 0
        elif looks < PATIENCE and fetch_add(counters + 8 * STOPPED, 0) == 0:
            looks += 1
            call(c[GIVE_WAY])
        else:
            # In this order, and `begin` in the opposite one, so that no offer falls between the
            # two: either `begin` sees that this helper is asleep, or this helper sees the offer.
            exchange(awake, 0)
            if fetch_add(counters + 8 * NEXT, 0) >= num_envs:
                return
            exchange(awake, 1)
            looks = 0


@kernel
def step_free_ones(
    c: Any, settings: Any, reals: Any, places: Any, lengths: Any, kinds: Any
) -> None:
    """Take free environments one by one: set controls, step, gather the row, note the contacts."""
    counters, controls, rows, touched, objects, contact_stride = settings[:6]
    nu, nq, nv, targets, frame_skip, post_constraint, chained, forward = settings[6:]
    models, simulators, states, sources = places
    seconds, radius, height = reals
    row_size = lengths.sum()
    while True:
        i = fetch_add(counters + 8 * NEXT, 1)
        if i >= len(models):
            break
        model, data, state = models[i], simulators[i], states[i]
        call(c[COPY], state[0], controls + 8 * nu * i, np.int32(nu))
        for _ in range(frame_skip):
            if chained != 0:
                chained_rk4(c, model, data, state, nq, nv, seconds)
            else:
                if targets != 0:
                    move_targets(c, model, data, state[5], targets, radius, height)
                call(c[MJ_STEP], model, data)
        if forward != 0:
            call(c[FORWARD], model, data)
            call(c[COPY], state[4], state[3], np.int32(nv))
        if post_constraint != 0:
            call(c[MJ_POST], model, data)
        place = rows + 8 * row_size * i
        for field in range(lengths.size):
            call(c[COPY], place, sources[i, field], np.int32(lengths[field]))
            place += 8 * lengths[field]
        if objects != 0:
            note_contacts(state, kinds, contact_stride, touched + 8 * objects * i, objects)
        fetch_add(counters + 8 * DONE, 1)


@kernel
def move_targets(
    c: Any, model: Any, data: Any, mocap_pos: Any, targets: Any, radius: Any, height: Any
) -> None:
    """Put every target where it is on its circle at the simulated time."""
    clock = np.empty(1)
    call(c[GET_STATE], model, data, clock.ctypes.data, _TIME)
    x, y = radius * math.sin(clock[0]), radius * math.cos(clock[0])
    for target in range(targets):
        place = mocap_pos + 24 * target
        store_double(place, x)
        store_double(place + 8, y)
        store_double(place + 16, height)


@kernel
def note_contacts(state: Any, kinds: Any, stride: Any, touched: Any, objects: Any) -> None:
    """Write 1 for each object that the robot is in contact with, else 0."""
    for one in range(objects):
        store_double(touched + 8 * one, 0.0)
    for contact in range(load_int32(state[NUM_CONTACTS])):
        geoms = state[CONTACT_GEOMS] + stride * contact
        first, second = kinds[load_int32(geoms)], kinds[load_int32(geoms + 4)]
        if first == ROBOT and second >= 0:
            store_double(touched + 8 * second, 1.0)
        elif second == ROBOT and first >= 0:
            store_double(touched + 8 * first, 1.0)


@kernel
def chained_rk4(c: Any, model: Any, data: Any, state: Any, nq: Any, nv: Any, seconds: Any) -> None:
    """Do what `rk4.step` does; the comments there apply."""
    qpos, qvel, qacc, warmstart = state[1:5]
    positions, size = np.int32(nq), np.int32(nv)
    scratch = np.empty(1 + nq + 9 * nv)
    clock = scratch.ctypes.data  # (1,) the simulated time
    start = clock + 8  # (nq,)
    change = start + 8 * nq  # (nv,)
    velocity = change + 8 * nv  # (4, nv)
    acceleration = velocity + 8 * 4 * nv  # (4, nv)
    call(c[CHECK_POS], model, data)
    call(c[CHECK_VEL], model, data)
    call(c[FORWARD], model, data)
    call(c[CHECK_ACC], model, data)
    call(c[COPY], warmstart, qacc, size)
    call(c[COPY], start, qpos, positions)
    call(c[COPY], velocity, qvel, size)
    call(c[COPY], acceleration, qacc, size)
    for stage in range(3):
        behind, ahead = 8 * nv * stage, 8 * nv * (stage + 1)
        call(c[COPY], qpos, start, positions)
        call(c[SCALE], change, velocity + behind, STAGES[stage], size)
        call(c[INTEGRATE], model, qpos, change, seconds)
        call(c[SCALE], change, acceleration + behind, STAGES[stage], size)
        call(c[ADD_SCALED], qvel, velocity, change, seconds, size)
        call(c[COPY], velocity + ahead, qvel, size)
        call(c[FORWARD_SKIP], model, data, _NO, _YES)
        call(c[COPY], warmstart, qacc, size)
        call(c[COPY], acceleration + ahead, qacc, size)
    call(c[ZERO], change, size)
    for stage in range(4):
        call(c[ADD_TO], change, acceleration + 8 * nv * stage, WEIGHTS[stage], size)
    call(c[COPY], qvel, velocity, size)
    call(c[ADD_TO], qvel, change, seconds, size)
    call(c[ZERO], change, size)
    for stage in range(4):
        call(c[ADD_TO], change, velocity + 8 * nv * stage, WEIGHTS[stage], size)
    call(c[COPY], qpos, start, positions)
    call(c[INTEGRATE], model, qpos, change, seconds)
    call(c[GET_STATE], model, data, clock, _TIME)
    scratch[0] += seconds
    call(c[SET_STATE], model, data, clock, _TIME)
