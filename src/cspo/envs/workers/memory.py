"""The arrays that the training process and its workers share: actions in, results out.

They lie in a file without a name, which the system frees with the last process that has it open:
nothing is left behind, whatever ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any, NamedTuple

import numpy as np

from cspo.envs.batch import FloatArray, StepResult


class Sizes(NamedTuple):
    """What the shapes follow from."""

    num_envs: int  # N
    observation_size: int  # D
    action_size: int  # A
    num_costs: int  # K


class SharedArrays(NamedTuple):
    """Views of the shared file."""

    actions: FloatArray  # (N, A)
    result: StepResult

    def rows(self, first: int, count: int) -> SharedArrays:
        """Return the part of some copies that follow each other."""
        part = slice(first, first + count)
        arrays: list[Any] = [array[part] for array in self.result]
        return SharedArrays(self.actions[part], StepResult(*arrays))


def nameless_file() -> int:
    """Return a new file, in memory where the system has that, that no folder lists."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("cspo-workers")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def bytes_needed(sizes: Sizes) -> int:
    """Return the bytes of all arrays together."""
    return sum(int(np.prod(shape)) * kind.itemsize for shape, kind in _layout(sizes))


def share(file: int, sizes: Sizes) -> SharedArrays:
    """Return the arrays in a file that has room for them; they stay after the file is closed."""
    buffer, start = mmap.mmap(file, bytes_needed(sizes)), 0
    arrays: list[Any] = []
    for shape, kind in _layout(sizes):
        count = int(np.prod(shape))
        arrays.append(np.frombuffer(buffer, kind, count, start).reshape(shape))
        start += count * kind.itemsize
    actions, observation, reward, cost, final, terminated, truncated = arrays
    result = StepResult(observation, reward, cost, terminated, truncated, final)
    return SharedArrays(actions, result)


def _layout(sizes: Sizes) -> list[tuple[tuple[int, ...], np.dtype[np.generic]]]:
    """Return shape and type of every array; the flags come last, since numbers are aligned."""
    n, width, actions, costs = sizes
    number, flag = np.dtype(np.float64), np.dtype(np.bool_)
    numbers = [(n, actions), (n, width), (n,), (n, costs), (n, width)]
    return [(shape, number) for shape in numbers] + [((n,), flag)] * 2
