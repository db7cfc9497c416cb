"""How compiled code reaches MuJoCo: C functions and memory by their addresses.

Addresses are arguments of what is compiled, which so does not depend on where a library was loaded
and can be kept on disk like the other kernels.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

intrinsic: Any = extending.intrinsic  # takes one argument less than its annotation says

NO_CONTACTS = (0, 0, 0, 0)  # in place of what `contact_places` returns
# A world with 5 contacts, 1 equality, 1 friction loss and 1 joint limit: numbers to be recognised
# by.
_PROBE = """<mujoco><worldbody><geom type="plane" size="9 9 1"/>{balls}<body pos="0 0 9">
<joint name="a" axis="1 0 0" limited="true" range="10 20"/>
<joint name="b" axis="0 1 0" frictionloss="1"/><geom size="0.1"/></body></worldbody>
<equality><joint joint1="a" joint2="b"/></equality></mujoco>"""
_BALL = '<body pos="{place} 0 0.05"><freejoint/><geom size="0.1"/></body>'


def mujoco_library() -> ctypes.CDLL | None:
    """Open the library that the `mujoco` package itself uses, or return None if not found."""
    import mujoco

    version = mujoco.__version__
    names = {"win32": "mujoco.dll", "darwin": f"libmujoco.{version}.dylib"}
    path = Path(mujoco.__file__).parent / names.get(sys.platform, f"libmujoco.so.{version}")
    try:
        return ctypes.CDLL(str(path)) if path.exists() else None
    except OSError:
        return None


def scheduler_call() -> Any:
    """Return the C function that lets another thread run."""
    if os.name == "nt":
        return ctypes.CDLL("kernel32").SwitchToThread
    return ctypes.CDLL(None).sched_yield


def contact_places(data: Any) -> tuple[int, int, int, int] | None:
    """Return where the number of contacts, the first one's geoms and distance are, and the stride.

    MuJoCo has no function that tells them, and the Python objects that do cost a microsecond per
    contact.
    """
    offset = _contact_count_offset()
    if offset is None:
        return None
    geoms = data.contact.geom  # (contacts, 2), a view of memory that always starts at one place
    distance = data.contact.dist.ctypes.data
    return data.energy.ctypes.data - offset, geoms.ctypes.data, distance, geoms.strides[0]


@functools.cache
def _contact_count_offset() -> int | None:
    """Return how far before `energy` the number of contacts lies in MuJoCo's data, or None.

    They stand close together in one structure, so the memory before `energy` is searched for the
    numbers that follow each other there.
    """
    import mujoco

    balls = "".join(_BALL.format(place=place) for place in range(5))
    data = mujoco.MjData(model := mujoco.MjModel.from_xml_string(_PROBE.format(balls=balls)))
    mujoco.mj_forward(model, data)
    numbers = [data.ncon, data.ne, data.nf, data.nl, data.nefc]
    words, size = 64, len(numbers)
    memory = (ctypes.c_int32 * words).from_address(data.energy.ctypes.data - 4 * words)
    found = [i for i in range(words - size) if list(memory[i : i + size]) == numbers]
    return 4 * (words - found[0]) if len(found) == 1 else None


@intrinsic
def call(context: Any, address: Any, *arguments: Any) -> Any:
    """Call the C function at an address, with the arguments as they are; it returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in arguments]
        pointer = builder.inttoptr(values[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        builder.call(pointer, cgutils.unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return types.void(address, types.StarArgTuple(arguments)), generate


@intrinsic
def call_int32(context: Any, address: Any, *arguments: Any) -> Any:
    """Call the C function at an address, with the arguments as they are; it returns an int."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in arguments]
        pointer = builder.inttoptr(values[0], ir.FunctionType(ir.IntType(32), kinds).as_pointer())
        return builder.call(pointer, cgutils.unpack_tuple(builder, values[1]))

    return types.int32(address, types.StarArgTuple(arguments)), generate


def _atomic(operation: str) -> Any:
    """Return the code of `place = place <operation> value` on the int64 at an address."""

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
def load_double(context: Any, address: Any) -> Any:
    """Return the double at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], ir.DoubleType().as_pointer()))

    return types.float64(types.int64), generate


@intrinsic
def call_double(context: Any, address: Any, argument: Any) -> Any:
    """Call a C function of one address that returns a double, such as a generator's next one."""

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
