"""Several small MLPs of one shape, run together, with the backward pass written by hand.

All parameters live in one flat tensor, so that an optimiser step, a norm and a checkpoint are single
operations, and the networks run as one batched matrix product per layer. For 64-unit layers the cost of
calling an operation is as large as the operation itself; this halves the number of calls that autograd needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

CHUNK = 2048  # rows per piece of a large batch: the activations then stay in the processor's cache


def parameter_count(sizes: Sequence[int]) -> int:
    """Return the number of weights and biases of one MLP with these layer sizes."""
    return sum(fan_in * fan_out + fan_out for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True))


class StackedMLP:
    """`count` MLPs with tanh hidden layers and a linear output, on parameters somebody else owns.

    Args:
        sizes: Layer sizes, input first.
        parameters: Flat parameters, one row per network, shape (count, P).
        gradient: Where `backward` writes, same shape.
    """

    def __init__(self, sizes: Sequence[int], parameters: Tensor, gradient: Tensor) -> None:
        """See the class."""
        self.sizes = tuple(sizes)
        self.count = parameters.shape[0]
        self.weights, self.biases = self._views(parameters)
        self._weight_grads, self._bias_grads = self._views(gradient)
        self._transposed = [weight.transpose(1, 2) for weight in self.weights]
        self._workspaces: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._inputs: Tensor | None = None

    def _views(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        weights, biases, start = [], [], 0
        for fan_in, fan_out in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            middle, end = start + fan_in * fan_out, start + fan_in * fan_out + fan_out
            weights.append(flat[:, start:middle].view(self.count, fan_in, fan_out))
            biases.append(flat[:, middle:end].view(self.count, 1, fan_out))
            start = end
        return weights, biases

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw weights and biases uniformly in plus or minus 1/sqrt(fan_in), output layer included."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = 1.0 / math.sqrt(weight.shape[1])
            weight.copy_(torch.from_numpy(rng.uniform(-bound, bound, weight.shape)))
            bias.copy_(torch.from_numpy(rng.uniform(-bound, bound, bias.shape)))

    def _workspace(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        if rows not in self._workspaces:
            shape = (self.count, rows)
            outputs = [torch.empty(*shape, size) for size in self.sizes[1:]]
            deltas = [torch.empty(*shape, size) for size in self.sizes[1:-1]]
            self._workspaces[rows] = outputs, deltas
        return self._workspaces[rows]

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (count, B, out) for x (B, in), and remember what `backward` needs.

        The result is a workspace that the next call with the same number of rows overwrites.
        """
        outputs, _ = self._workspace(x.shape[0])
        hidden = self._inputs = x.expand(self.count, -1, -1)
        last = len(outputs) - 1
        for layer, output in enumerate(outputs):
            torch.baddbmm(self.biases[layer], hidden, self.weights[layer], out=output)
            hidden = output if layer == last else output.tanh_()
        return hidden

    def backward(self, grad_output: Tensor) -> None:
        """Write the parameter gradient for `grad_output` (count, B, out) at the last `forward`."""
        assert self._inputs is not None
        outputs, deltas = self._workspace(grad_output.shape[1])
        delta = grad_output
        for layer in range(len(outputs) - 1, -1, -1):
            below = outputs[layer - 1] if layer > 0 else self._inputs
            torch.bmm(below.transpose(1, 2), delta, out=self._weight_grads[layer])
            torch.sum(delta, 1, keepdim=True, out=self._bias_grads[layer])
            if layer > 0:
                torch.bmm(delta, self._transposed[layer], out=deltas[layer - 1])
                delta = deltas[layer - 1]
                # d tanh(u)/du = 1 - tanh(u)^2, in place
                torch.ops.aten.tanh_backward.grad_input(delta, below, grad_input=delta)

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs (count, B, out) for x (B, in) of any length, as a new tensor."""
        result = x.new_empty(self.count, x.shape[0], self.sizes[-1])
        for start in range(0, x.shape[0], CHUNK):
            rows = x[start : start + CHUNK]
            result[:, start : start + CHUNK] = self.forward(rows)
        return result
