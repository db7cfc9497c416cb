"""Several small MLPs of one shape on flat parameters; the arithmetic is in `kernels`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cspo.policy import kernels

CHUNK = 2048  # rows per piece of a large batch: the activations then stay in the processor's cache

Array = NDArray[np.float32]


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

    def __init__(self, sizes: Sequence[int], parameters: Tensor, gradient: Tensor) -> None:
        """See the class."""
        self.sizes = tuple(sizes)
        self.size_array = np.array(sizes, dtype=np.int64)
        self.count = parameters.shape[0]
        self.parameters: Array = parameters.numpy()  # (count, P), shares memory
        self.gradient: Array = gradient.numpy()  # (count, P)
        self._spaces = [Workspace(sizes, 1) for _ in range(self.count)]
        self._inputs: Array | None = None

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw weights and biases uniformly in plus or minus 1/sqrt(fan_in), output layer included."""
        start = 0
        for fan_in, fan_out in pairwise(self.sizes):
            bound, end = 1.0 / math.sqrt(fan_in), start + fan_in * fan_out + fan_out
            self.parameters[:, start:end] = rng.uniform(-bound, bound, (self.count, end - start))
            start = end

    def _reserve(self, rows: int) -> None:
        if self._spaces[0].rows < rows:
            self._spaces = [Workspace(self.sizes, rows) for _ in range(self.count)]

    def output(self, x: Array, network: int = 0) -> Array:
        """Return the outputs (B, out) of one network for x (B, in): a view that the next call overwrites."""
        self._reserve(len(x))
        result: Array = kernels.mlp_forward(
            self.parameters[network], self.size_array, x, self._spaces[network].work
        )
        return result

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (count, B, out) for x (B, in), and remember what `backward` needs."""
        self._inputs = np.ascontiguousarray(x.numpy())
        return torch.from_numpy(np.stack([self.output(self._inputs, k) for k in range(self.count)]))

    def backward(self, grad_output: Tensor) -> None:
        """Write the parameter gradient for `grad_output` (count, B, out) at the last `forward`."""
        assert self._inputs is not None, "backward follows forward"
        for k, delta in enumerate(np.ascontiguousarray(grad_output.detach().numpy())):
            space = self._spaces[k]
            kernels.mlp_backward(
                self.parameters[k],
                self.size_array,
                self._inputs,
                space.work,
                delta,
                space.scratch,
                self.gradient[k],
            )

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs (count, B, out) for x (B, in) of any length, as a new tensor."""
        self._reserve(min(CHUNK, len(x)))
        result = np.empty((self.count, len(x), self.sizes[-1]), np.float32)
        inputs = np.ascontiguousarray(x.numpy())
        for k, out in enumerate(result):
            kernels.predict(
                self.parameters[k], self.size_array, inputs, self._spaces[k].work, CHUNK, out
            )
        return torch.from_numpy(result)
