"""One physics step in machine code: forward dynamics, Euler's method, Runge-Kutta as of old.

A step of a task reads the sensors once, at its end, so physics steps leave them out. Nothing else
differs from `mj_step`, to the last bit, where nothing is asked to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.arithmetic import kernel
from cspo.envs.physics.boxes import BOX, MOST_CONTACTS
from cspo.envs.physics.calls import call, call_int32, load_double, load_int32, store_double
from cspo.envs.physics.rk4 import STAGES, WEIGHTS

# The arrays of a simulator whose addresses are needed, in this order, and three more addresses: the
# number of contacts, the two geoms of the first contact, and its distance.
STATE = ("ctrl", "qpos", "qvel", "qacc", "qacc_warmstart", "mocap_pos")
NUM_CONTACTS, CONTACT_GEOMS, CONTACT_DISTANCE = range(len(STATE), len(STATE) + 3)
# The C functions whose addresses are needed, after GIVE_WAY, the scheduler's call. New ones come
# last: machine code of `compiled.py`, kept on disk, knows them by their numbers.
FUNCTIONS = (
    *("mj_step", "mj_rnePostConstraint", "mj_checkPos", "mj_checkVel", "mj_checkAcc", "mj_Euler"),
    *("mj_forwardSkip", "mj_integratePos", "mj_getState", "mj_setState"),
    *("mju_copy", "mju_zero", "mju_scl", "mju_addScl", "mju_addToScl"),
    *("mj_fwdPosition", "mj_makeConstraint", "mj_island", "mj_projectConstraint", "mj_sensorPos"),
    *("mjc_BoxBox", "mj_addContact"),
)
GIVE_WAY, MJ_STEP, MJ_POST, CHECK_POS, CHECK_VEL, CHECK_ACC, EULER = range(7)
FORWARD_SKIP, INTEGRATE, GET_STATE, SET_STATE = range(7, 11)
COPY, ZERO, SCALE, ADD_SCALED, ADD_TO = range(11, 16)
POSITION, MAKE_CONSTRAINT, ISLANDS, PROJECT_CONSTRAINT, SENSE_POSITION = range(16, 21)
BOX_BOX, ADD_CONTACT = 21, 22
TIME = np.uint32(1)  # MuJoCo's mjSTATE_TIME
_NOTHING_DONE, _POSITION_DONE = np.int32(0), np.int32(1)  # MuJoCo's mjSTAGE_NONE and mjSTAGE_POS


@kernel
def forward(
    c: Any, model: Any, data: Any, state: Any, stride: Any, radii: Any, skip_sensors: Any
) -> None:
    """Do what `shallow.forward` does.

    Args: c: see FUNCTIONS; model, data: addresses; state: see STATE; stride: bytes from contact to
        contact; radii (geoms or 0,): see `shallow.radii_of`; skip_sensors: leave sensors out.
    """
    if radii.size == 0:
        call(c[FORWARD_SKIP], model, data, _NOTHING_DONE, np.int32(skip_sensors))
        return
    call(c[POSITION], model, data)
    restored = restore_contacts(c, model, data, state, stride, radii)
    if cap_depths(state, stride, radii) or restored:
        call(c[MAKE_CONSTRAINT], model, data)
        call(c[ISLANDS], model, data)
        call(c[PROJECT_CONSTRAINT], model, data)
    if skip_sensors == 0:
        call(c[SENSE_POSITION], model, data)
    call(c[FORWARD_SKIP], model, data, _POSITION_DONE, np.int32(skip_sensors))


@kernel
def cap_depths(state: Any, stride: Any, radii: Any) -> Any:
    """Raise the distances of the contacts that are too deep; return whether there were any."""
    found = False
    for contact in range(load_int32(state[NUM_CONTACTS])):
        geoms = state[CONTACT_GEOMS] + stride * contact
        first, second = radii[load_int32(geoms)], radii[load_int32(geoms + 4)]
        radius = max(first, second)
        if radius > 0.0 and min(first, second) < 0.0:
            distance = state[CONTACT_DISTANCE] + stride * contact
            if load_double(distance) < -radius:
                store_double(distance, -radius)
                found = True
    return found


@kernel
def restore_contacts(c: Any, model: Any, data: Any, state: Any, stride: Any, radii: Any) -> Any:
    """Do what `boxes.restore` does; return whether there was anything to do."""
    restored, last, count = False, 0, load_int32(state[NUM_CONTACTS])
    while last < count:
        first, geoms = last, state[CONTACT_GEOMS] + stride * last
        one, other = load_int32(geoms), load_int32(geoms + 4)
        while last < count and (
            load_int32(geoms + stride * (last - first)) == one
            and load_int32(geoms + stride * (last - first) + 4) == other
        ):
            last += 1
        if radii[one] == BOX and radii[other] == BOX:
            kept = state[CONTACT_DISTANCE] + stride * first
            pair = one, other, kept, last - first
            restored |= restore_pair(c, model, data, stride, pair)
    return restored


@kernel
def restore_pair(c: Any, model: Any, data: Any, stride: Any, pair: Any) -> Any:
    """Add the contacts of two boxes that were left out, as the first one but for their places."""
    one, other, kept, count = pair
    words = stride // 8
    scratch = np.empty((MOST_CONTACTS + 1) * words)
    raw, added = scratch.ctypes.data, MOST_CONTACTS * words
    found = call_int32(c[BOX_BOX], model, data, raw, one, other, 0.0)
    restored = False
    for contact in range(found):
        place = contact * words + 1  # of the position, after the distance
        x, y, z = scratch[place], scratch[place + 1], scratch[place + 2]
        is_new = True
        for seen in range(count):
            position = kept + stride * seen + 8
            if (
                load_double(position) == x
                and load_double(position + 8) == y
                and load_double(position + 16) == z
            ):
                is_new = False
        for later in range(contact + 1, found):  # of those in one place the last counts
            place = later * words + 1
            if scratch[place] == x and scratch[place + 1] == y and scratch[place + 2] == z:
                is_new = False
        if is_new:
            call(c[COPY], raw + 8 * added, kept, np.int32(words))
            for number in range(4):
                scratch[added + number] = scratch[contact * words + number]
            call(c[ADD_CONTACT], model, data, raw + 8 * added)
            restored = True
    return restored


@kernel
def euler_step(c: Any, model: Any, data: Any, state: Any, stride: Any, radii: Any) -> None:
    """Do what `mj_step` does under Euler's method, sensors aside."""
    call(c[CHECK_POS], model, data)
    call(c[CHECK_VEL], model, data)
    forward(c, model, data, state, stride, radii, 1)
    call(c[CHECK_ACC], model, data)
    call(c[EULER], model, data)


@kernel
def chained_rk4(
    c: Any,
    model: Any,
    data: Any,
    state: Any,
    stride: Any,
    radii: Any,
    nq: Any,
    nv: Any,
    seconds: Any,
) -> None:
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
    forward(c, model, data, state, stride, radii, 1)
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
        forward(c, model, data, state, stride, radii, 1)
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
    call(c[GET_STATE], model, data, clock, TIME)
    scratch[0] += seconds
    call(c[SET_STATE], model, data, clock, TIME)
