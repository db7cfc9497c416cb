"""What a first-order algorithm hands to the minibatch loop: a loss, in one of two forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.surrogates import Surrogate
from cspo.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from cspo.policy import Distribution

Slopes = Callable[..., Sequence[Any]]
Columns = dict[str, Any]  # per-sample tensors, first axis n in the batch and B in a minibatch


class SurrogateObjective:
    """A loss that depends on the policy only through surrogate means L_1, L_2, ...: the fast form.

    Its gradient is sum_i (dLoss / dL_i) grad L_i. The surrogates' gradients are compiled; the algorithm states
    the derivatives in front of them, which is how papers write the update.

    Args:
        surrogates: What L_1, L_2, ... are, see `cspo.surrogates`.
        clip: PPO's eps of the clipped ones.
        slopes: Called with the minibatch's values, in order: a float for a surrogate of one advantage, an array
            (K,) for one of K. Returns the derivatives of the loss in the same shapes.
    """

    def __init__(self, surrogates: Sequence[Surrogate], clip: float, slopes: Slopes) -> None:
        """See the class."""
        self.clip, self.slopes = clip, slopes
        columns = [np.atleast_2d(item.A.numpy().T).T for item in surrogates]  # (n, 1) or (n, K) each
        self.columns = np.ascontiguousarray(np.concatenate(columns, axis=1), dtype=np.float32)  # (n, S)
        self.kinds = np.repeat([item.kind for item in surrogates], [column.shape[1] for column in columns])
        ends = np.cumsum([column.shape[1] for column in columns])
        self._parts: list[Any] = [
            int(end - 1) if item.A.dim() == 1 else slice(int(end - column.shape[1]), int(end))
            for item, column, end in zip(surrogates, columns, ends, strict=True)
        ]

    def weights(self, values: FloatArray) -> np.ndarray:
        """Return dLoss/dL (S,) at the surrogate means `values` (S,)."""
        result = np.empty(len(values), np.float32)
        for part, slope in zip(self._parts, self.slopes(*(values[part] for part in self._parts)), strict=True):
            result[part] = slope
        return result


@dataclass(frozen=True)
class AutogradObjective:
    """Any loss written in PyTorch: several times slower per minibatch, and without restrictions.

    Args:
        loss: Called with the current policy on a minibatch and the minibatch's columns; returns a scalar.
        columns: Per-sample tensors (n, ...) that the loss needs, such as advantages.
    """

    loss: Callable[[Distribution, Columns], Tensor]
    columns: Columns


Objective = SurrogateObjective | AutogradObjective
