"""The compiled inner loop of `Physics`: MuJoCo called straight from machine code, without Python's lock.

A Python loop over `mujoco.mj_step` hands the interpreter lock back and forth once per environment,
which costs two threads a third of their speed. Here one call steps a whole batch: every thread runs
the same function and takes the next environment from a shared counter, so unequal contact costs
balance themselves. Between two steps of a rollout a helper stays in machine code and watches the
counter: waking a Python thread would cost it a tenth of the step. When nothing comes for a fraction
of a millisecond it goes to sleep.

C functions are called by their addresses, which are arguments: what is compiled does not depend on
where a library was loaded, so it is kept on disk like the other kernels.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import types
from numpy.typing import NDArray

from cspo.arithmetic import kernel
from cspo.envs.physics.rk4 import STAGES, WEIGHTS

intrinsic: Any = (
    extending.intrinsic
)  # what it returns takes one argument less than its annotation says

# Places in the shared counter array: the next environment to step, how many are done, whether
# helpers are to leave, and from AWAKE on one flag per helper. They are STRIDE int64 apart so that
# they live in different cache lines.
STRIDE = 16
NEXT, DONE, STOPPED, AWAKE = 0, STRIDE, 2 * STRIDE, 3 * STRIDE
CALLER = -1  # in place of a helper's number
PATIENCE = (
    1000  # looks at the counter before a helper goes to sleep, roughly half a microsecond each
)

# Places in the array of settings: whole numbers and addresses that stay the same from step to step.
SETTINGS = (
    *(
        "controls",
        "rows",
        "counters",
        "nu",
        "nq",
        "nv",
        "frame_skip",
        "post_constraint",
        "chained",
        "forward",
    ),
    *("targets", "objects", "touched", "contact_stride"),
)
_COUNTERS = SETTINGS.index("counters")
# The arrays of a simulator whose addresses the kernel needs, in this order.
STATE = ("ctrl", "qpos", "qvel", "qacc", "qacc_warmstart", "mocap_pos")
# Two more addresses: the number of contacts, and the two geoms of the first contact.
NUM_CONTACTS, CONTACT_GEOMS = len(STATE), len(STATE) + 1
ROBOT = -2  # what `kinds` says of a geom of the robot
NOTHING = -1  # what it says of a geom whose contacts do not matter
# The C functions whose addresses it needs, in this order; GIVE_WAY stands for the scheduler's call.
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
    """Return the addresses of `FUNCTIONS` and of the scheduler's call, or None where they cannot be had."""
    library = _mujoco_library()
    if library is None or any(not hasattr(library, name) for name in FUNCTIONS):
        return None
    found = [getattr(library, name) for name in FUNCTIONS] + [_scheduler_call()]
    return np.array([ctypes.cast(function, ctypes.c_void_p).value for function in found], np.int64)


def _mujoco_library() -> ctypes.CDLL | None:
    """Open the MuJoCo library that the `mujoco` package itself uses, or return None where it is not found."""
    import mujoco

    version = mujoco.__version__
    names = {"win32": "mujoco.dll", "darwin": f"libmujoco.{version}.dylib"}
    path = Path(mujoco.__file__).parent / names.get(sys.platform, f"libmujoco.so.{version}")
    try:
        return ctypes.CDLL(str(path)) if path.exists() else None
    except OSError:
        return None


def _scheduler_call() -> Any:
    """Return the C function that lets another thread run."""
    return (
        ctypes.CDLL("kernel32").SwitchToThread if os.name == "nt" else ctypes.CDLL(None).sched_yield
    )


NO_CONTACTS = (0, 0, 0)
# A world with 5 contacts, 1 equality, 1 friction loss and 1 joint limit: numbers to be recognised
# by.
_PROBE = """<mujoco><worldbody><geom type="plane" size="9 9 1"/>{balls}<body pos="0 0 9">
<joint name="a" axis="1 0 0" limited="true" range="10 20"/><joint name="b" axis="0 1 0" frictionloss="1"/>
<geom size="0.1"/></body></worldbody><equality><joint joint1="a" joint2="b"/></equality></mujoco>"""
_BALL = '<body pos="{place} 0 0.05"><freejoint/><geom size="0.1"/></body>'


def contact_places(data: Any) -> tuple[int, int, int] | None:
    """Return the addresses of a simulator's number of contacts and of its first contact's geoms, and the stride.

    MuJoCo has no function that tells them, and the Python objects that do cost a microsecond per
    contact.
    """
    offset = _contact_count_offset()
    geoms = (
        data.contact.geom
    )  # (contacts, 2), a view of MuJoCo's own memory, which starts at the same place always
    return (
        None
        if offset is None
        else (data.energy.ctypes.data - offset, geoms.ctypes.data, geoms.strides[0])
    )


@functools.cache
def _contact_count_offset() -> int | None:
    """Return how far before the array `energy` the number of contacts lies in MuJoCo's data, or None if not found.

    They stand close together in one structure, so the memory before `energy` is searched for the
    numbers that follow each other there.
    """
    import mujoco

    balls = "".join(_BALL.format(place=place) for place in range(5))
    data = mujoco.MjData(model := mujoco.MjModel.from_xml_string(_PROBE.format(balls=balls)))
    mujoco.mj_forward(model, data)
    numbers = [data.ncon, data.ne, data.nf, data.nl, data.nefc]
    words = 64
    memory = (ctypes.c_int32 * words).from_address(data.energy.ctypes.data - 4 * words)
    found = [
        4 * (words - i)
        for i in range(words - len(numbers))
        if list(memory[i : i + len(numbers)]) == numbers
    ]
    return found[0] if len(found) == 1 else None


def _call(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Generate the call of the C function at the address in the first argument, with the others as they are."""
    kinds = [context.get_value_type(kind) for kind in signature.args[1:]]
    pointer = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
    builder.call(pointer, arguments[1:])
    return context.get_dummy_value()


@intrinsic
def call0(context: Any, address: Any) -> Any:
    """Call a C function without arguments."""
    return types.void(address), _call


@intrinsic
def call2(context: Any, address: Any, a: Any, b: Any) -> Any:
    """Call a C function of two arguments."""
    return types.void(address, a, b), _call


@intrinsic
def call3(context: Any, address: Any, a: Any, b: Any, c: Any) -> Any:
    """Call a C function of three arguments."""
    return types.void(address, a, b, c), _call


@intrinsic
def call4(context: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Call a C function of four arguments."""
    return types.void(address, a, b, c, d), _call


@intrinsic
def call5(context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Call a C function of five arguments."""
    return types.void(address, a, b, c, d, e), _call


def _atomic(operation: str) -> Any:
    """Return a generator of `old = place; place = place <operation> value` on the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw(operation, place, arguments[1], "seq_cst")

    return generate


@intrinsic
def fetch_add(context: Any, address: Any, amount: Any) -> Any:
    """Return the int64 at an address and add to it, in one step that no other thread can split."""
    return types.int64(types.int64, types.int64), _atomic("add")


@intrinsic
def exchange(context: Any, address: Any, value: Any) -> Any:
    """Return the int64 at an address and replace it, in one step that no other thread can split."""
    return types.int64(types.int64, types.int64), _atomic("xchg")


@intrinsic
def load_int32(context: Any, address: Any) -> Any:
    """Return the int32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))

    return types.int32(types.int64), generate


@intrinsic
def call_double(context: Any, address: Any, argument: Any) -> Any:
    """Call a C function of one address that returns a double, such as a random generator's `next_double`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.DoubleType(), [ir.IntType(64)])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.float64(types.int64, types.int64), generate


@intrinsic
def store_double(context: Any, address: Any, value: Any) -> Any:
    """Write a double to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], ir.DoubleType().as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.float64), generate


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

    Args: c: see FUNCTIONS; settings: see SETTINGS; reals (3,): seconds of a physics step, radius
        and height of the targets' circle; places: addresses, the models (N,), the simulators (N,),
        their arrays (N, 8), see STATE, and the arrays to gather (N, F), `lengths` (F,) numbers
        each; kinds (geoms,): see `Physics`; helper: its number, or CALLER.
    """
    counters, num_envs = settings[_COUNTERS], len(places[0])
    if helper == CALLER:
        step_free_ones(c, settings, reals, places, lengths, kinds)
        # The last environment of a helper takes microseconds: waiting here is cheaper than
        # sleeping. Giving way matters where other processes want this core, perhaps the very one
        # that the helper needs.
        while fetch_add(counters + 8 * DONE, 0) < num_envs:
            call0(c[GIVE_WAY])
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
            call0(c[GIVE_WAY])
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
    """Take free environments one by one: set its controls, step it, gather its row, note what the robot touches."""
    controls, rows, counters, nu, nq, nv, frame_skip, post_constraint, chained, forward = settings[
        :10
    ]
    targets, objects, touched, contact_stride = settings[10:]
    models, simulators, states, sources = places
    seconds, radius, height = reals
    row_size = lengths.sum()
    while True:
        i = fetch_add(counters + 8 * NEXT, 1)
        if i >= len(models):
            break
        model, data, state = models[i], simulators[i], states[i]
        call3(c[COPY], state[0], controls + 8 * nu * i, np.int32(nu))
        for _ in range(frame_skip):
            if chained != 0:
                chained_rk4(c, model, data, state, nq, nv, seconds)
            else:
                if targets != 0:
                    move_targets(c, model, data, state[5], targets, radius, height)
                call2(c[MJ_STEP], model, data)
        if forward != 0:
            call2(c[FORWARD], model, data)
            call3(c[COPY], state[4], state[3], np.int32(nv))
        if post_constraint != 0:
            call2(c[MJ_POST], model, data)
        place = rows + 8 * row_size * i
        for field in range(lengths.size):
            call3(c[COPY], place, sources[i, field], np.int32(lengths[field]))
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
    call4(c[GET_STATE], model, data, clock.ctypes.data, _TIME)
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
    """Do what `chained_rk4.step` does; the comments there apply."""
    qpos, qvel, qacc, warmstart = state[1:5]
    positions, size = np.int32(nq), np.int32(nv)
    scratch = np.empty(1 + nq + 9 * nv)
    clock = scratch.ctypes.data  # (1,) the simulated time
    start = clock + 8  # (nq,)
    change = start + 8 * nq  # (nv,)
    velocity = change + 8 * nv  # (4, nv)
    acceleration = velocity + 8 * 4 * nv  # (4, nv)
    call2(c[CHECK_POS], model, data)
    call2(c[CHECK_VEL], model, data)
    call2(c[FORWARD], model, data)
    call2(c[CHECK_ACC], model, data)
    call3(c[COPY], warmstart, qacc, size)
    call3(c[COPY], start, qpos, positions)
    call3(c[COPY], velocity, qvel, size)
    call3(c[COPY], acceleration, qacc, size)
    for stage in range(3):
        behind, ahead = 8 * nv * stage, 8 * nv * (stage + 1)
        call3(c[COPY], qpos, start, positions)
        call4(c[SCALE], change, velocity + behind, STAGES[stage], size)
        call4(c[INTEGRATE], model, qpos, change, seconds)
        call4(c[SCALE], change, acceleration + behind, STAGES[stage], size)
        call5(c[ADD_SCALED], qvel, velocity, change, seconds, size)
        call3(c[COPY], velocity + ahead, qvel, size)
        call4(c[FORWARD_SKIP], model, data, _NO, _YES)
        call3(c[COPY], warmstart, qacc, size)
        call3(c[COPY], acceleration + ahead, qacc, size)
    call2(c[ZERO], change, size)
    for stage in range(4):
        call4(c[ADD_TO], change, acceleration + 8 * nv * stage, WEIGHTS[stage], size)
    call3(c[COPY], qvel, velocity, size)
    call4(c[ADD_TO], qvel, change, seconds, size)
    call2(c[ZERO], change, size)
    for stage in range(4):
        call4(c[ADD_TO], change, velocity + 8 * nv * stage, WEIGHTS[stage], size)
    call3(c[COPY], qpos, start, positions)
    call4(c[INTEGRATE], model, qpos, change, seconds)
    call4(c[GET_STATE], model, data, clock, _TIME)
    scratch[0] += seconds
    call4(c[SET_STATE], model, data, clock, _TIME)
