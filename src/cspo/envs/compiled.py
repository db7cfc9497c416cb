"""The compiled inner loop of `Physics`: MuJoCo called straight from machine code, without Python's lock.

Threads that loop over `mujoco.mj_step` in Python pass the interpreter lock around once per environment and once
more to meet after each batched step. That is felt where a step is short: 20 HalfCheetahs in two threads made 45 000
steps/s that way and 62 000 here; the Ant and the Humanoid are too slow to notice. One call steps a whole batch: every
thread runs the same function and takes the next environment from a shared counter, so unequal contact costs balance
themselves.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cspo.envs.chained_rk4 import STAGES, WEIGHTS

# Places in the shared counter array: the next environment to step, how many are done, and from AWAKE on one flag
# per helper. They are STRIDE int64 apart so that they live in different cache lines.
STRIDE = 16
NEXT, DONE, AWAKE = 0, STRIDE, 2 * STRIDE
CALLER = -1  # in place of a helper's number
PATIENCE = 1000  # looks at the counter before a helper goes to sleep, roughly half a microsecond each
# Places in the array of settings: whole numbers and addresses that stay the same from step to step.
SETTINGS = (
    "model",
    "controls",
    "rows",
    "counters",
    "nu",
    "nq",
    "nv",
    "frame_skip",
    "post_constraint",
    "chained",
)
# The arrays of a simulator whose addresses the kernel needs, in this order.
STATE = ("ctrl", "qpos", "qvel", "qacc", "qacc_warmstart")

_TIME = 1  # MuJoCo's mjSTATE_TIME
_VALUE, _WORD = ctypes.c_double, ctypes.c_int64  # addresses travel as whole numbers of the size of a pointer
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "mj_step": (_WORD, _WORD),
    "mj_rnePostConstraint": (_WORD, _WORD),
    "mj_checkPos": (_WORD, _WORD),
    "mj_checkVel": (_WORD, _WORD),
    "mj_checkAcc": (_WORD, _WORD),
    "mj_forward": (_WORD, _WORD),
    "mj_forwardSkip": (_WORD, _WORD, ctypes.c_int, ctypes.c_int),
    "mj_integratePos": (_WORD, _WORD, _WORD, _VALUE),
    "mj_getState": (_WORD, _WORD, _WORD, ctypes.c_uint),
    "mj_setState": (_WORD, _WORD, _WORD, ctypes.c_uint),
    "mju_scl": (_WORD, _WORD, _VALUE, ctypes.c_int),
    "mju_addScl": (_WORD, _WORD, _WORD, _VALUE, ctypes.c_int),
    "mju_addToScl": (_WORD, _WORD, _VALUE, ctypes.c_int),
    "mju_zero": (_WORD, ctypes.c_int),
    "mju_copy": (_WORD, _WORD, ctypes.c_int),
}


@functools.cache
def load_kernel() -> tuple[Callable[..., None], Callable[..., None]] | None:
    """Compile `begin` and `work` once per process (about a second), or return None where impossible."""
    try:
        import numba
    except ImportError:
        return None
    library = _mujoco_library()
    if library is None or any(not hasattr(library, name) for name in _SIGNATURES):
        return None
    functions = SimpleNamespace(
        **{name: _pointer(library, name, signature) for name, signature in _SIGNATURES.items()},
        give_way=_pointer(*_scheduler_call(), (), ctypes.c_int),
    )
    return _compile(numba, functions, _atomic("add"), _atomic("xchg"), _chained_rk4(numba, functions))


def _compile(
    numba: Any, c: Any, fetch_add: Any, exchange: Any, chained_rk4: Any
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Build the two functions; everything they call is bound here, when they are compiled."""
    mj_step, mj_post, copy, give_way = c.mj_step, c.mj_rnePostConstraint, c.mju_copy, c.give_way
    word, value = numba.types.int64, numba.types.float64
    words, words_2d = numba.types.int64[::1], numba.types.int64[:, ::1]

    @numba.njit(word(word, word), nogil=True)  # type: ignore[untyped-decorator]
    def begin(counters: Any, helpers: Any) -> Any:
        """Offer all environments again; returns the helpers that are asleep, one bit each."""
        # Exchanges, because a helper may be counting at this moment: reading and then subtracting could lose its
        # count, and with it an environment.
        exchange(counters + 8 * DONE, 0)
        exchange(counters + 8 * NEXT, 0)  # last: helpers that are awake start here
        asleep = 0
        for helper in range(helpers):
            if fetch_add(counters + 8 * (AWAKE + STRIDE * helper), 0) == 0:
                asleep |= 1 << helper
        return asleep

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]
    def step_free_ones(settings: Any, seconds: Any, data: Any, state: Any, sources: Any, lengths: Any) -> None:
        model, controls, rows, counters, nu, nq, nv, frame_skip, post_constraint, chained = settings
        row_size = lengths.sum()
        while True:
            i = fetch_add(counters + 8 * NEXT, 1)
            if i >= data.size:
                break
            copy(state[i, 0], controls + 8 * nu * i, nu)
            for _ in range(frame_skip):
                if chained != 0:
                    chained_rk4(model, data[i], state[i], nq, nv, seconds)
                else:
                    mj_step(model, data[i])
            if post_constraint != 0:
                mj_post(model, data[i])
            place = rows + 8 * row_size * i
            for field in range(lengths.size):
                copy(place, sources[i, field], lengths[field])
                place += 8 * lengths[field]
            fetch_add(counters + 8 * DONE, 1)

    # settings: see SETTINGS; data (N,): the simulators; state (N, 5): see STATE; sources (N, F): the arrays
    # to gather, lengths (F,) numbers each; helper: its number, or CALLER.
    signature = numba.types.void(words, value, words, words_2d, words_2d, words, word)

    @numba.njit(signature, nogil=True)  # type: ignore[untyped-decorator]
    def work(settings: Any, seconds: Any, data: Any, state: Any, sources: Any, lengths: Any, helper: Any) -> None:
        counters, num_envs = settings[3], data.size
        if helper == CALLER:
            step_free_ones(settings, seconds, data, state, sources, lengths)
            # The last environment of a helper takes microseconds: waiting here is cheaper than sleeping. Giving
            # way matters where other processes want this core, perhaps the very one that the helper needs.
            while fetch_add(counters + 8 * DONE, 0) < num_envs:
                give_way()
            return
        awake = counters + 8 * (AWAKE + STRIDE * helper)
        exchange(awake, 1)
        looks = 0
        while True:
            if fetch_add(counters + 8 * NEXT, 0) < num_envs:
                step_free_ones(settings, seconds, data, state, sources, lengths)
                looks = 0
            elif looks < PATIENCE:
                looks += 1
                give_way()
            else:
                # In this order, and `begin` in the opposite one, so that no offer falls between the two: either
                # `begin` sees that this helper is asleep, or this helper sees the offer.
                exchange(awake, 0)
                if fetch_add(counters + 8 * NEXT, 0) >= num_envs:
                    return
                exchange(awake, 1)
                looks = 0

    return begin, work


def _chained_rk4(numba: Any, c: Any) -> Any:
    """Return `chained_rk4.step` in machine code; the comments there apply."""
    import numpy as np

    check_pos, check_vel, check_acc = c.mj_checkPos, c.mj_checkVel, c.mj_checkAcc
    forward, forward_skip, integrate = c.mj_forward, c.mj_forwardSkip, c.mj_integratePos
    get_state, set_state = c.mj_getState, c.mj_setState
    copy, zero, scale, add_scaled, add_to = c.mju_copy, c.mju_zero, c.mju_scl, c.mju_addScl, c.mju_addToScl

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]
    def step(model: Any, data: Any, state: Any, nq: Any, nv: Any, seconds: Any) -> None:
        _, qpos, qvel, qacc, warmstart = state
        scratch = np.empty(1 + nq + 9 * nv)
        clock = scratch.ctypes.data  # (1,) the simulated time
        start = clock + 8  # (nq,)
        change = start + 8 * nq  # (nv,)
        velocity = change + 8 * nv  # (4, nv)
        acceleration = velocity + 8 * 4 * nv  # (4, nv)
        check_pos(model, data)
        check_vel(model, data)
        forward(model, data)
        check_acc(model, data)
        copy(warmstart, qacc, nv)
        copy(start, qpos, nq)
        copy(velocity, qvel, nv)
        copy(acceleration, qacc, nv)
        for stage in range(3):
            behind, ahead = 8 * nv * stage, 8 * nv * (stage + 1)
            copy(qpos, start, nq)
            scale(change, velocity + behind, STAGES[stage], nv)
            integrate(model, qpos, change, seconds)
            scale(change, acceleration + behind, STAGES[stage], nv)
            add_scaled(qvel, velocity, change, seconds, nv)
            copy(velocity + ahead, qvel, nv)
            forward_skip(model, data, 0, 1)
            copy(warmstart, qacc, nv)
            copy(acceleration + ahead, qacc, nv)
        zero(change, nv)
        for stage in range(4):
            add_to(change, acceleration + 8 * nv * stage, WEIGHTS[stage], nv)
        copy(qvel, velocity, nv)
        add_to(qvel, change, seconds, nv)
        zero(change, nv)
        for stage in range(4):
            add_to(change, velocity + 8 * nv * stage, WEIGHTS[stage], nv)
        copy(qpos, start, nq)
        integrate(model, qpos, change, seconds)
        get_state(model, data, clock, _TIME)
        scratch[0] += seconds
        set_state(model, data, clock, _TIME)

    return step


def _atomic(operation: str) -> Any:
    """Return an atomic `old = place; place = place <operation> value` on the int64 at an address."""
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def atomic(context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
            return builder.atomic_rmw(operation, place, arguments[1], "seq_cst")

        return types.int64(types.int64, types.int64), generate

    return atomic


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


def _scheduler_call() -> tuple[ctypes.CDLL, str]:
    """Return the library and name of the call that lets another thread run."""
    if os.name == "nt":
        return ctypes.CDLL("kernel32"), "SwitchToThread"
    return ctypes.CDLL(None), "sched_yield"


def _pointer(library: ctypes.CDLL, name: str, arguments: tuple[Any, ...], result: Any = None) -> Any:
    """Return `library.name` as a typed function pointer that Numba can call."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(result, *arguments)(address or 0)
