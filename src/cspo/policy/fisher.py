"""The curvature of an actor's mean KL, applied to vectors.

    K(theta) = mean over samples and action columns of KL(old || new)

At the old policy the Hessian of KL by the outputs is the Fisher metric F: 1 / std^2 of a mean,
diag(p) - p p^T of a choice's logits, p (1 - p) of a bit's. By each log-std it is 2, and nothing
mixes, so with J the Jacobian of the network

    H v = [ sum_s J_s^T F_s J_s v_mlp / (n A) ,  2 v_log_std / A ]     n samples, A action columns

A product is one forward-mode pass, J v, and one backward pass, J^T u, through activations that are
kept for the whole batch. Samples are taken in pieces that fit the cache; their sums are float32,
the sum over pieces is float64.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.arithmetic import kernel
from cspo.policy.categorical import apply_fishers
from cspo.policy.distribution import Distribution
from cspo.policy.kernels import mlp_backward, mlp_forward
from cspo.policy.networks import StackedMLP
from cspo.types import Array, FloatArray

ROWS = 512  # samples per piece: activations, tangents and deltas then fit the processor's cache


@kernel
def mlp_tangent(
    parameters: Any, sizes: Any, x: Any, work: Any, direction: Any, tangents: Any
) -> Any:
    """Return J v (B, out) for a direction v of the parameters, as a view of `tangents`.

    The activations are those in `work`. `tangents` holds three layers' worth: below, above, and
    one product.
    """
    rows, last, third = x.shape[0], sizes.size - 2, tangents.size // 3
    start, offset = 0, 0
    below, below_tangent = x, x
    for layer in range(last + 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        size = rows * fan_out
        weight = parameters[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        weight_direction = direction[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        bias_direction = direction[start : start + fan_out]
        start += fan_out
        begin = (layer % 2) * third
        tangent = tangents[begin : begin + size].reshape(rows, fan_out)
        np.dot(below, weight_direction, tangent)
        product = tangents[2 * third : 2 * third + size].reshape(rows, fan_out)
        if layer > 0:
            np.dot(below_tangent, weight, product)
        else:
            product[:] = 0.0
        above = work[offset : offset + size].reshape(rows, fan_out)
        offset += size
        for row in range(rows):
            for column in range(fan_out):
                value = tangent[row, column] + product[row, column] + bias_direction[column]
                if layer < last:
                    value *= np.float32(1.0) - above[row, column] * above[row, column]
                tangent[row, column] = value
        below, below_tangent = above, tangent
    return below_tangent


@kernel
def add_products(
    parameters: Any,
    sizes: Any,
    x: Any,
    works: Any,
    direction: Any,
    choices: Any,
    inverse_variance: Any,
    tangents: Any,
    scratch: Any,
    total: Any,
) -> None:
    """Add J^T F J v, summed over all samples x (n, D), to `total` (P,), float64."""
    rows, outputs = works.shape[1] // sizes[1:].sum(), sizes[-1]
    part = np.empty(total.size, np.float32)
    for piece in range(works.shape[0]):
        inputs = x[piece * rows : (piece + 1) * rows]
        delta = mlp_tangent(parameters, sizes, inputs, works[piece], direction, tangents)
        for row in range(delta.shape[0]):
            for column in range(inverse_variance.size):
                delta[row, column] *= inverse_variance[column]
        if choices.size > 0:
            end = delta.shape[0] * sizes[1:].sum()  # the outputs are the last activations
            output = works[piece, end - delta.shape[0] * outputs : end].reshape(delta.shape)
            apply_fishers(output, choices, delta)
        mlp_backward(parameters, sizes, inputs, works[piece], delta, scratch, part)
        for i in range(total.size):
            total[i] += part[i]


class Fisher:
    """H v at an MLP actor's present parameters, which must not move before the last product."""

    def __init__(
        self,
        mlp: StackedMLP,
        distribution: Distribution,
        log_std: Array,
        x: Array,
        executor: Executor | None = None,
    ) -> None:
        """Keep the activations at x (n, D); `executor` lends a thread, which changes no bit."""
        self._executor, self._sizes, self._mlp = executor, mlp.size_array, mlp.parameters[0]
        self._choices, self._actions = distribution.choice_array, distribution.action_size
        self._x = np.ascontiguousarray(x)
        self._inverse_variance = np.exp(-2.0 * log_std)
        pieces, layer = -(-len(self._x) // ROWS), ROWS * int(self._sizes[1:].max())
        self._works = np.empty((pieces, ROWS * int(self._sizes[1:].sum())), np.float32)
        for piece, work in enumerate(self._works):
            mlp_forward(self._mlp, self._sizes, self._x[piece * ROWS : (piece + 1) * ROWS], work)
        self._halves = slice(0, pieces // 2), slice(pieces // 2, pieces)
        self._spaces = [
            (np.empty(3 * layer, np.float32), np.empty(2 * layer, np.float32)) for _ in self._halves
        ]

    def product(self, v: FloatArray) -> FloatArray:
        """Return H v (P,) for v (P,)."""
        border, actions = self._mlp.size, self._actions
        direction = v[:border].astype(np.float32)
        if self._executor is None:
            total = self._half(0, direction) + self._half(1, direction)
        else:
            future = self._executor.submit(self._half, 1, direction)
            total = self._half(0, direction) + future.result()
        return np.concatenate([total / (len(self._x) * actions), 2.0 * v[border:] / actions])

    def _half(self, half: int, direction: NDArray[np.float32]) -> FloatArray:
        pieces, total = self._halves[half], np.zeros(self._mlp.size)
        add_products(
            self._mlp,
            self._sizes,
            self._x[pieces.start * ROWS : pieces.stop * ROWS],
            self._works[pieces],
            direction,
            self._choices,
            self._inverse_variance,
            *self._spaces[half],
            total,
        )
        return total
