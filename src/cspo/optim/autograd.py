"""Losses written in PyTorch, where surrogate means are not enough; needs `cspo[torch]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cspo.errors import CspoError
from cspo.policy.actor import Actor
from cspo.types import Array, Batch

if TYPE_CHECKING:
    from torch import Tensor

INSTALL = "PyTorch is not installed, and a loss written in it needs it: pip install 'cspo[torch]'"


@dataclass(slots=True)
class Distribution:
    """The current policy on a minibatch: what a loss is written in.

    `log_prob`, `output` and `log_std` are the leaves of the loss's graph. Below them, the chain
    rule is applied by hand.
    """

    log_prob: Tensor  # (B,)
    output: Tensor  # (B, O) means of the Gaussian columns, then logits of the choices
    log_std: Tensor  # (G,)
    ratio: Tensor  # (B,) probability of the action relative to the policy that collected it

    @property
    def mean(self) -> Tensor:
        """The means (B, G) of the Gaussian columns."""
        return self.output[:, : len(self.log_std)]


class AutogradObjective:
    """Any loss written in PyTorch: several times slower per minibatch, and without restrictions.

    Args:
        loss: Called with the current policy on a minibatch, a `Distribution`, and the minibatch's
            columns as tensors; returns a scalar tensor.
        columns: Per-sample arrays (n, ...) that the loss needs, such as advantages.
    """

    def __init__(
        self, loss: Callable[[Distribution, dict[str, Any]], Tensor], columns: dict[str, Any]
    ) -> None:
        """Keep the statement, or say how to install PyTorch."""
        torch = _torch()
        self.loss = loss
        self.columns = {name: torch.as_tensor(column) for name, column in columns.items()}

    def gradient(
        self, actor: Actor, batch: Batch, index: NDArray[np.int64], entropy_coefficient: float
    ) -> Array:
        """Return the gradient (P,) of the loss on a minibatch, a buffer that is used again."""
        torch = _torch()
        rows = torch.from_numpy(index)
        new = distribution(actor, batch, index)
        loss = self.loss(new, {name: column[rows] for name, column in self.columns.items()})
        if entropy_coefficient:
            loss = loss - entropy_coefficient * new.log_std.sum()
        leaves = (new.log_prob, new.output, new.log_std)
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        by_log_prob, by_output, by_log_std = (gradient.numpy() for gradient in found)
        output = new.output.detach().numpy()
        if entropy_coefficient and actor.distribution.choices:
            slope = actor.distribution.choice_entropy(output)[1]
            by_output = by_output - np.float32(entropy_coefficient / len(index)) * slope
        through_output, through_std = actor.distribution.through_log_prob(
            output, actor.log_std, batch.action[index], by_log_prob
        )
        actor.backward(through_output + by_output, through_std + by_log_std)
        return actor.gradient


def distribution(actor: Actor, batch: Batch, index: NDArray[np.int64]) -> Distribution:
    """Return the current policy on the samples `index`, for the actions taken there.

    Only the newest result can be differentiated: the network keeps the activations of its last
    call.
    """
    from_numpy = _torch().from_numpy
    output = actor.forward(batch.observation, index).copy()
    log_prob = actor.distribution.log_prob(output, actor.log_std, batch.action[index])
    leaf = from_numpy(log_prob).requires_grad_()
    ratio = (leaf - from_numpy(batch.log_prob[index])).exp()
    log_std = from_numpy(actor.log_std.copy()).requires_grad_()
    return Distribution(leaf, from_numpy(output).requires_grad_(), log_std, ratio)


def _torch() -> Any:
    loaded = "torch" in sys.modules
    try:
        import torch
    except ImportError:
        raise CspoError(INSTALL) from None
    if not loaded:  # in the middle of an update, where `single_threaded_math` has already looked
        torch.set_num_threads(1)
    return torch
