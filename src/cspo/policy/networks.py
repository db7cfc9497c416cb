"""Several small MLPs of one shape on flat parameters; the arithmetic is in `kernels`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cspo.policy import kernels
from cspo.types import Array

CHUNK = 2048  # rows per piece of a large batch: the activations then stay in the processor's cache


def parameter_count(sizes: Sequence[int]) -> int:
    """Return the number of weights and biases of one MLP with these layer sizes."""
    return sum(fan_in * fan_out + fan_out for fan_in, fan_out in pairwise(sizes))


class Workspace:
    """Memory for `rows` samples at a time; each thread that runs a network needs its own."""

    def __init__(self, sizes: Sequence[int], rows: int) -> None:
        """Allocate for MLPs of these layer sizes."""
        self.rows = rows
        self.inputs = np.empty(rows * sizes[0], np.float32)  # gathered samples
        self.work = np.empty(rows * sum(sizes[1:]), np.float32)  # activations
        self.scratch = np.empty(2 * rows * max(sizes[1:]), np.float32)  # deltas


class StackedMLP:
    """`count` MLPs with tanh hidden layers and a linear output, on parameters somebody else owns.

    Args:
        sizes: Layer sizes, input first.
        parameters: Flat parameters, one row per network, shape (count, P): for each layer weights
            (in, out), biases.
        gradient: Where `backward` writes, same shape.
    """

    def __init__(self, sizes: Sequence[int], parameters: Array, gradient: Array) -> None:
        """Use the arrays given, which stay their owner's."""
        self.sizes = tuple(sizes)
        self.size_array = np.array(sizes, dtype=np.int64)
        self.count = parameters.shape[0]
        self.parameters = parameters  # (count, P)
        self.gradient = gradient  # (count, P)
        self._work = np.empty(0, np.float32)  # activations of `predict`
        self._spaces = [Workspace(sizes, 0) for _ in range(self.count)]  # of `forward`
        self._rows = [0] * self.count  # samples of the last `forward`

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw weights and biases uniformly in plus or minus 1/sqrt(fan_in), all layers alike."""
        start = 0
        for fan_in, fan_out in pairwise(self.sizes):
            bound, end = 1.0 / math.sqrt(fan_in), start + fan_in * fan_out + fan_out
            self.parameters[:, start:end] = rng.uniform(-bound, bound, (self.count, end - start))
            start = end

    def space(self, network: int, rows: int) -> Workspace:
        """Return the workspace in which one network is trained, with room for `rows` samples."""
        if self._spaces[network].rows < rows:
            self._spaces[network] = Workspace(self.sizes, rows)
        return self._spaces[network]

    def forward(self, network: int, x: Array, rows: NDArray[np.int64]) -> Array:
        """Return one network's outputs (B, out) at these rows of x, and remember for `backward`.

        The next call for the same network overwrites them.
        """
        space, self._rows[network] = self.space(network, len(rows)), len(rows)
        result: Array = kernels.gather_forward(
            self.parameters[network], self.size_array, x, rows, space.inputs, space.work
        )
        return result

    def backward(self, network: int, by_output: Array) -> None:
        """Write one network's gradient for `by_output` (B, out) at its last `forward`."""
        space, rows = self._spaces[network], self._rows[network]
        inputs = space.inputs[: rows * self.sizes[0]].reshape(rows, self.sizes[0])
        kernels.mlp_backward(
            *(self.parameters[network], self.size_array, inputs, space.work),
            *(np.ascontiguousarray(by_output), space.scratch, self.gradient[network]),
        )

    def predict(self, x: Array) -> Array:
        """Return the outputs (count, B, out) for x (B, in) of any length, as a new array."""
        needed = min(CHUNK, len(x)) * sum(self.sizes[1:])
        if self._work.size < needed:
            self._work = np.empty(needed, np.float32)
        result = np.empty((self.count, len(x), self.sizes[-1]), np.float32)
        inputs = np.ascontiguousarray(x)
        for parameters, out in zip(self.parameters, result, strict=True):
            kernels.predict(parameters, self.size_array, inputs, self._work, CHUNK, out)
        return result
