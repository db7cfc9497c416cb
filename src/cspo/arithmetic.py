"""How arithmetic runs: compiled, on one thread per call, and without denormal numbers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
import numba.extending
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 (np.dot's BLAS in kernels: thread limits must find it)
from llvmlite import ir
from threadpoolctl import ThreadpoolController

from cspo.runs.kernel_cache import keep

# Reductions may be reordered, so that they vectorise; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter lock, and keep the result on disk where there is a place."""
    return _compiled(function, _FAST)


def exact_kernel(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, but round every operation as Python does, to the same bits."""
    return _compiled(function, False)


def _compiled(function: Callable[..., Any], fastmath: set[str] | bool) -> Any:
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    dispatcher = numba.njit(**options)(function)
    keep(dispatcher)
    return dispatcher


@contextmanager
def single_threaded_math() -> Iterator[None]:
    """Keep BLAS, and PyTorch where it is loaded, on one thread: theirs slow small products down.

    Results then do not depend on the number of cores; work is spread over threads at a higher
    level.
    """
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    try:
        with _blas_threads().limit(limits=1, user_api="blas"):
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)


@cache
def _blas_threads() -> ThreadpoolController:
    return ThreadpoolController()


# For each kind of processor: LLVM's names for reading and writing the control word of its floating
# point unit, and the bits that turn denormal numbers into zero, as results and as operands.
_X86 = ("llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr", 0x8040)
_ARM = ("llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr", 1 << 24)
_PROCESSORS = {"x86_64": _X86, "amd64": _X86, "arm64": _ARM, "aarch64": _ARM}
# Any other kind keeps its denormal numbers: slower now and then, and otherwise the same.
_READ, _WRITE, _FLUSH = _PROCESSORS.get(platform.machine().lower(), ("", "", 0))


@numba.extending.intrinsic
def _read_control(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        module, word = builder.module, ir.IntType(64)
        if _ARM[0] == _READ:
            return builder.call(module.declare_intrinsic(_READ, (), ir.FunctionType(word, [])), [])
        place = builder.alloca(ir.IntType(32))
        kind = ir.FunctionType(ir.VoidType(), [place.type])
        builder.call(module.declare_intrinsic(_READ, (), kind), [place])
        return builder.zext(builder.load(place), word)

    return numba.uint64(), generate


@numba.extending.intrinsic
def _write_control(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        module, (value,) = builder.module, arguments
        if _ARM[1] == _WRITE:
            kind = ir.FunctionType(ir.VoidType(), [value.type])
        else:
            place = builder.alloca(ir.IntType(32))
            builder.store(builder.trunc(value, ir.IntType(32)), place)
            kind, value = ir.FunctionType(ir.VoidType(), [place.type]), place
        builder.call(module.declare_intrinsic(_WRITE, (), kind), [value])
        return context.get_dummy_value()

    return numba.void(numba.uint64), generate


@exact_kernel
def _exchange_control(set_bits: int, clear_bits: int) -> Any:
    """Change the calling thread's control word, and return what it was."""
    before: Any = _read_control()  # type: ignore[call-arg]
    _write_control((before & ~np.uint64(clear_bits)) | np.uint64(set_bits))
    return before


def flush_denormals() -> None:
    """Let the calling thread treat numbers below 1e-38 as zero from now on."""
    if _FLUSH:
        _exchange_control(_FLUSH, 0)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Let the calling thread treat numbers below 1e-38 as zero for a while.

    While a task costs nothing, a cost critic's errors and Adam's moments shrink into that range,
    where processors are up to a hundred times slower.
    """
    before = _exchange_control(_FLUSH, 0) if _FLUSH else 0
    try:
        yield
    finally:
        if _FLUSH:
            _exchange_control(before & _FLUSH, _FLUSH & ~before)
