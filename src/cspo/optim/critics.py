"""A critic's pass over the epoch: least squares on minibatches, with an Adam step after each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cspo.optim import kernels
from cspo.optim.adam import FlatAdam
from cspo.optim.settings import UpdateSettings
from cspo.policy.actor import Critics
from cspo.policy.mlp import MLPCritics
from cspo.types import Batch


def critic_pass(
    critics: Critics,
    k: int,
    adam: FlatAdam,
    settings: UpdateSettings,
    batch: Batch,
    order: NDArray[np.int64],
) -> float:
    """Train critic k on mean squared error + critic_l2 * |parameters|^2, every sample once.

    The optimiser's `count` is left to the caller: all critics take these steps at the same time.

    Returns:
        The mean squared error met on the way.
    """
    x, target, rows = batch.observation, batch.value_target[k], settings.minibatch_size
    l2, max_norm = settings.critic_l2, settings.max_grad_norm
    row = critics.parameters[k], critics.gradient[k], adam.first[k], adam.second[k]
    total: float = 0.0
    if isinstance(critics, MLPCritics):  # the whole pass in one call, without the interpreter lock
        space = critics.mlp.space(k, rows)
        total = kernels.critic_pass(
            *(*row, adam.count, critics.mlp.size_array, x, target, order, rows),
            *(adam.lr, l2, max_norm, space.inputs, space.work, space.scratch),
        )
        return total / len(order)
    for count, start in enumerate(range(0, len(order), rows), adam.count + 1):
        index = order[start : start + rows]
        error = critics.forward(k, x, index) - target[index]
        total += float(np.square(error, dtype=np.float64).sum())
        critics.backward(k, error * np.float32(2.0 / len(index)))
        kernels.adam(*row, count, adam.lr, l2, max_norm)
    return total / len(order)
