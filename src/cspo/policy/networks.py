"""Several small MLPs of one shape on flat parameters; the arithmetic is in `kernels`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

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
        self._spaces = [Workspace(sizes, 1) for _ in range(self.count)]
        self._inputs: Array | None = None

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw weights and biases uniformly in plus or minus 1/sqrt(fan_in), all layers alike."""
        start = 0
        for fan_in, fan_out in pairwise(self.sizes):
            bound, end = 1.0 / math.sqrt(fan_in), start + fan_in * fan_out + fan_out
            self.parameters[:, start:end] = rng.uniform(-bound, bound, (self.count, end - start))
            start = end

    def _reserve(self, rows: int) -> None:
        if self._spaces[0].rows < rows:
            self._spaces = [Workspace(self.sizes, rows) for _ in range(self.count)]

    def output(self, x: Array, network: int = 0) -> Array:
        """Return one network's outputs (B, out) for x (B, in): the next call overwrites them."""
        self._reserve(len(x))
        result: Array = kernels.mlp_forward(
            self.parameters[network], self.size_array, x, self._spaces[network].work
        )
        return result

    def forward(self, x: Array) -> Array:
        """Return the outputs (count, B, out) for x (B, in), and remember what `backward` needs."""
        self._inputs = np.ascontiguousarray(x)
        return np.stack([self.output(self._inputs, k) for k in range(self.count)])

    def backward(self, by_output: Array) -> None:
        """Write the parameter gradient for `by_output` (count, B, out) at the last `forward`."""
        assert self._inputs is not None, "backward follows forward"
        for k, delta in enumerate(np.ascontiguousarray(by_output)):
            parameters, space = self.parameters[k], self._spaces[k]
            kernels.mlp_backward(
                *(parameters, self.size_array, self._inputs, space.work),
                *(delta, space.scratch, self.gradient[k]),
            )

    def predict(self, x: Array) -> Array:
        """Return the outputs (count, B, out) for x (B, in) of any length, as a new array."""
        self._reserve(min(CHUNK, len(x)))
        result = np.empty((self.count, len(x), self.sizes[-1]), np.float32)
        inputs = np.ascontiguousarray(x)
        for k, out in enumerate(result):
            parameters, work = self.parameters[k], self._spaces[k].work
            kernels.predict(parameters, self.size_array, inputs, work, CHUNK, out)
        return result
