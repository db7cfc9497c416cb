"""What a first-order algorithm hands to the minibatch loop: a loss, in one of two forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.algorithms.surrogates import NEED_REFERENCE, Surrogate
from cspo.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from cspo.policy.policy import Distribution

Slopes = Callable[..., Sequence[Any]]
Columns = dict[str, Any]  # per-sample tensors, first axis n in the batch and B in a minibatch


@dataclass(frozen=True)
class Reference:
    """A policy held fixed, as it acts on the samples of a batch."""

    mean: Tensor  # (n, A)
    log_std: Tensor  # (A,)


class SurrogateObjective:
    """A loss that depends on the policy only through surrogate means L_1, L_2, ...: the fast form.

    Its gradient is sum_i (dLoss / dL_i) grad L_i. The surrogates' gradients are compiled; the
    algorithm states the derivatives in front of them, which is how papers write the update.

    Args:
        surrogates: What L_1, L_2, ... are, see `cspo.algorithms.surrogates`.
        clip: PPO's eps of the clipped ones.
        slopes: Called with the minibatch's values, in order: a float for a surrogate of one
            advantage, an array (K,) for one of K. Returns the derivatives of the loss in the same
            shapes.
        reference: The policy of those surrogates that contain a KL divergence.
        trust: The largest divergence at which a sample counts as inside the trust region.
    """

    def __init__(
        self,
        surrogates: Sequence[Surrogate],
        clip: float,
        slopes: Slopes,
        reference: Reference | None = None,
        trust: float = np.inf,
    ) -> None:
        """See the class."""
        if reference is None and any(item.kind in NEED_REFERENCE for item in surrogates):
            raise ValueError("A surrogate with a KL divergence needs a reference policy.")
        self.clip, self.slopes, self.trust = clip, slopes, float(trust)
        # (n, A) and (A,); empty without a reference, so that one compiled function serves both.
        self.reference_mean, self.reference_log_std = (
            np.empty((0, 0), np.float32),
            np.empty(0, np.float32),
        )
        if reference is not None:
            self.reference_mean = np.ascontiguousarray(reference.mean.numpy())
            self.reference_log_std = reference.log_std.numpy()
        columns = [
            np.atleast_2d(item.A.numpy().T).T for item in surrogates
        ]  # (n, 1) or (n, K) each
        self.columns = np.ascontiguousarray(
            np.concatenate(columns, axis=1), dtype=np.float32
        )  # (n, S)
        self.kinds = np.repeat(
            [item.kind for item in surrogates], [column.shape[1] for column in columns]
        )
        ends = np.cumsum([column.shape[1] for column in columns])
        self._parts: list[Any] = [
            int(end - 1) if item.A.dim() == 1 else slice(int(end - column.shape[1]), int(end))
            for item, column, end in zip(surrogates, columns, ends, strict=True)
        ]

    def weights(self, values: FloatArray) -> np.ndarray:
        """Return dLoss/dL (S,) at the surrogate means `values` (S,)."""
        result = np.empty(len(values), np.float32)
        for part, slope in zip(
            self._parts, self.slopes(*(values[part] for part in self._parts)), strict=True
        ):
            result[part] = slope
        return result


@dataclass(frozen=True)
class AutogradObjective:
    """Any loss written in PyTorch: several times slower per minibatch, and without restrictions.

    Args:
        loss: Called with the current policy on a minibatch and the minibatch's columns; returns a
            scalar.
        columns: Per-sample tensors (n, ...) that the loss needs, such as advantages.
    """

    loss: Callable[[Distribution, Columns], Tensor]
    columns: Columns


Objective = SurrogateObjective | AutogradObjective
