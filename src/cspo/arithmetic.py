"""How arithmetic runs during training: on one thread per call, and without denormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from cspo import kernels  # noqa: F401 (loads the BLAS it uses, which the controller below must find)


@contextmanager
def single_threaded_math() -> Iterator[None]:
    """Keep BLAS and PyTorch on one thread: their own threads only slow such small products down.

    Results then do not depend on the number of cores; work is spread over threads at a higher level.
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

    While a task costs nothing, a cost critic's errors and Adam's moments shrink into that range, where processors
    are up to a hundred times slower.
    """
    before = bool(np.float32(1e-40) * np.float32(1.0) == 0.0)
    flush_denormals()
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
