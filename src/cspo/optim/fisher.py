"""The curvature of a Gaussian actor's mean KL, applied to vectors.

    K(theta) = mean over samples and action dimensions of KL(old || new)

At the old policy the Hessian of K by the means is 1 / std^2, by each log-std 2, and nothing mixes,
so with J the Jacobian of the mean network

    H v = [ sum_s J_s^T (1 / std^2) J_s v_mlp / (n A) ,  2 v_log_std / A ]     n samples, A actions

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
from cspo.policy.gaussian import Actor
from cspo.policy.kernels import mlp_backward, mlp_forward
from cspo.types import Batch, FloatArray

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
    inverse_variance: Any,
    tangents: Any,
    scratch: Any,
    total: Any,
) -> None:
    """Add J^T (1 / std^2) J v, summed over all samples x (n, D), to `total` (P,), float64."""
    rows = works.shape[1] // sizes[1:].sum()
    part = np.empty(total.size, np.float32)
    for piece in range(works.shape[0]):
        inputs = x[piece * rows : (piece + 1) * rows]
        delta = mlp_tangent(parameters, sizes, inputs, works[piece], direction, tangents)
        for row in range(delta.shape[0]):
            for column in range(delta.shape[1]):
                delta[row, column] *= inverse_variance[column]
        mlp_backward(parameters, sizes, inputs, works[piece], delta, scratch, part)
        for i in range(total.size):
            total[i] += part[i]


class Fisher:
    """H v at an actor's present parameters, which must not move before the last product."""

    def __init__(self, actor: Actor, batch: Batch, executor: Executor | None = None) -> None:
        """Keep the batch's activations; `executor` lends a second thread, which changes no bit."""
        self._executor = executor
        self._sizes = actor.mlp.size_array
        self._x = np.ascontiguousarray(batch.observation)
        self._border = actor.parameters.size - actor.log_std.shape[0]
        self._mlp = actor.parameters[: self._border]
        self._inverse_variance = np.exp(-2.0 * actor.parameters[self._border :])
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
        border, actions = self._border, len(v) - self._border
        direction = v[:border].astype(np.float32)
        if self._executor is None:
            total = self._half(0, direction) + self._half(1, direction)
        else:
            future = self._executor.submit(self._half, 1, direction)
            total = self._half(0, direction) + future.result()
        return np.concatenate([total / (len(self._x) * actions), 2.0 * v[border:] / actions])

    def _half(self, half: int, direction: NDArray[np.float32]) -> FloatArray:
        pieces, total = self._halves[half], np.zeros(self._border)
        add_products(
            self._mlp,
            self._sizes,
            self._x[pieces.start * ROWS : pieces.stop * ROWS],
            self._works[pieces],
            direction,
            self._inverse_variance,
            *self._spaces[half],
            total,
        )
        return total
