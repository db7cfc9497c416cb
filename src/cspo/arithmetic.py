"""How arithmetic runs: compiled, on one thread per call, and without denormal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 (the BLAS behind np.dot in kernels: loaded now, so that thread limits reach it)
import torch
from threadpoolctl import ThreadpoolController

# Reductions may be reordered, so that they vectorise; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter lock, and keep the result on disk where there is a place for it."""
    return _compiled(function, _FAST)


def exact_kernel(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, but round every operation as it is written, so that Python gives the same bits."""
    return _compiled(function, False)


def _compiled(function: Callable[..., Any], fastmath: set[str] | bool) -> Any:
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package folder nor the user's cache folder is writable
        return numba.njit(**options)(function)


@contextmanager
def single_threaded_math() -> Iterator[None]:
    """Keep BLAS and PyTorch on one thread: their own threads only slow such small products down.

    Results then do not depend on the number of cores; work is spread over threads at a higher
    level.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _blas_threads().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


@cache
def _blas_threads() -> ThreadpoolController:
    return ThreadpoolController()


def flush_denormals() -> None:
    """Let the calling thread treat numbers below 1e-38 as zero from now on."""
    torch.set_flush_denormal(True)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Let the calling thread treat numbers below 1e-38 as zero for a while.

    While a task costs nothing, a cost critic's errors and Adam's moments shrink into that range,
    where processors are up to a hundred times slower.
    """
    before = bool(np.float32(1e-40) * np.float32(1.0) == 0.0)
    flush_denormals()
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
