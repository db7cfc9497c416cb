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
from cspo.envs.physics.integrators import (
    CONTACT_GEOMS,
    COPY,
    FUNCTIONS,
    GET_STATE,
    GIVE_WAY,
    MJ_POST,
    MJ_STEP,
    NUM_CONTACTS,
    TIME,
    chained_rk4,
    euler_step,
    forward,
)

# Places in the shared counter array: the next environment to step, how many are done, whether
# helpers are to leave, and from AWAKE on one flag per helper. They are STRIDE int64 apart so that
# they live in different cache lines.
STRIDE = 16
NEXT, DONE, STOPPED, AWAKE = 0, STRIDE, 2 * STRIDE, 3 * STRIDE
CALLER = -1  # in place of a helper's number
PATIENCE = 1000  # looks before a helper goes to sleep, roughly half a microsecond each

CHAINED, EULERS, MUJOCOS = range(3)  # how a physics step integrates
ROBOT = -2  # what `kinds` says of a geom of the robot
NOTHING = -1  # what it says of a geom whose contacts do not matter


@functools.cache
def addresses() -> NDArray[np.int64] | None:
    """Return the addresses of the scheduler's call and of `FUNCTIONS`, or None if not found."""
    library = mujoco_library()
    if library is None or any(not hasattr(library, name) for name in FUNCTIONS):
        return None
    found = [scheduler_call(), *(getattr(library, name) for name in FUNCTIONS)]
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
    c: Any,
    settings: Any,
    reals: Any,
    places: Any,
    lengths: Any,
    kinds: Any,
    radii: Any,
    helper: Any,
) -> None:
    """Step environments until none is free.

    The caller then waits for the helpers; a helper waits for the next `begin`, and returns when
    none comes.

    Args: c: see FUNCTIONS; settings: addresses and whole numbers that stay the same from step to
        step, see `step_free_ones`; reals (3,): seconds of a physics step, radius and height of the
        targets' circle; places: addresses, the models (N,), the simulators (N,),
        their arrays (N, 9), see STATE, and the arrays to gather (N, F), `lengths` (F,) numbers
        each; kinds (geoms,): see `Physics`; radii (geoms,): see `shallow`, empty if depths are not
        capped; helper: its number, or CALLER.
    """
    counters, num_envs = settings[0], len(places[0])
    if helper == CALLER:
        step_free_ones(c, settings, reals, places, lengths, kinds, radii)
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
            step_free_ones(c, settings, reals, places, lengths, kinds, radii)
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
    c: Any, settings: Any, reals: Any, places: Any, lengths: Any, kinds: Any, radii: Any
) -> None:
    """Take free environments one by one: set controls, step, gather the row, note the contacts."""
    counters, controls, rows, touched, objects, stride = settings[:6]
    nu, nq, nv, targets, frame_skip, post_constraint, method, ends_forward = settings[6:]
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
            if targets != 0:
                move_targets(c, model, data, state[5], targets, radius, height)
            if method == CHAINED:
                chained_rk4(c, model, data, state, stride, radii, nq, nv, seconds)
            elif method == EULERS:
                euler_step(c, model, data, state, stride, radii)
            else:
                call(c[MJ_STEP], model, data)
        if ends_forward != 0:
            forward(c, model, data, state, stride, radii, 0)
            call(c[COPY], state[4], state[3], np.int32(nv))
        if post_constraint != 0:
            call(c[MJ_POST], model, data)
        place = rows + 8 * row_size * i
        for field in range(lengths.size):
            call(c[COPY], place, sources[i, field], np.int32(lengths[field]))
            place += 8 * lengths[field]
        if objects != 0:
            note_contacts(state, kinds, stride, touched + 8 * objects * i, objects)
        fetch_add(counters + 8 * DONE, 1)


@kernel
def move_targets(
    c: Any, model: Any, data: Any, mocap_pos: Any, targets: Any, radius: Any, height: Any
) -> None:
    """Put every target where it is on its circle at the simulated time."""
    clock = np.empty(1)
    call(c[GET_STATE], model, data, clock.ctypes.data, TIME)
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
