"""What acts and what judges, as the rest of the package knows them.

`cspo.policy.mlp` has the compiled networks behind these interfaces; others need only the methods
written down here. Parameters are one flat array, so that optimisers, trust regions and checkpoints
need not know what they are of.

Letters: n or B samples, D observation size, O outputs, A action columns, G Gaussian columns of it,
P parameters, C critics or weightings.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cspo.types import Array, FloatArray

if TYPE_CHECKING:  # brings the compiled kernels, which a list of algorithms does not need
    from cspo.policy.distribution import Distribution

Rows = NDArray[np.int64]


class FisherProducts(Protocol):
    """The curvature H of the mean KL at an actor's parameters, which stay where they are."""

    def product(self, v: FloatArray) -> FloatArray:
        """Return H v (P,) for v (P,)."""
        ...


class Actor(Protocol):
    """A network from normalised observations (B, D) to the outputs (B, O) of a distribution.

    Inherit from it for `score_gradient`; the rest has to be written.

    Attributes:
        distribution: What is drawn from the outputs.
        parameters: (P,) float32: those of the network, then `log_std`. Written to from outside, by
            optimisers, searches and checkpoints, between any two calls.
        gradient: (P,) what `backward` fills.
        log_std: (G,) view of the last parameters.
    """

    distribution: Distribution
    parameters: Array
    gradient: Array
    log_std: Array

    def outputs(self, x: Array) -> Array:
        """Return the outputs (n, O) for x (n, D) of any length, as a new array."""
        ...

    def forward(self, x: Array, rows: Rows) -> Array:
        """Return the outputs (B, O) at these rows of x, and remember what `backward` needs.

        The array may be overwritten by the next call.
        """
        ...

    def backward(self, by_output: Array, by_log_std: Array) -> None:
        """Fill `gradient`, given the loss's gradient at the last `forward`: (B, O) and (G,)."""
        ...

    def score_gradients(self, x: Array, action: Array, weights: Array, rows: Rows) -> Array:
        """Return the gradients (C, P) of mean(weights_c log pi(action|x)) over these rows.

        `weights` is (C, n). Several threads may call it at a time.
        """
        ...

    def score_gradient(self, x: Array, action: Array, weight: Array) -> Array:
        """Return the gradient (P,) of mean(weight * log pi(action|x)), for any length."""
        gradient: Array = self.score_gradients(x, action, weight[None], np.arange(len(x)))[0]
        return gradient

    def fisher(self, x: Array, executor: Executor | None = None) -> FisherProducts:
        """Return products with the Hessian of K at the present parameters.

        K is KL(old || new), averaged over the samples x (n, D) AND over the action columns A.
        `executor` lends a second thread, which must change no bit.
        """
        ...


class Critics(Protocol):
    """C networks from normalised observations (B, D) to one value each; they share no parameters.

    Different critics may be trained at the same time, by different threads.

    Attributes:
        count: C.
        parameters: (C, P) float32, written to from outside.
        gradient: (C, P) what `backward` fills.
    """

    count: int
    parameters: Array
    gradient: Array

    def values(self, x: Array) -> Array:
        """Return the values (C, n) for x (n, D) of any length, as a new array."""
        ...

    def forward(self, critic: int, x: Array, rows: Rows) -> Array:
        """Return one critic's values (B,) at these rows of x, and remember what `backward` needs.

        The array may be overwritten by the critic's next call.
        """
        ...

    def backward(self, critic: int, by_value: Array) -> None:
        """Fill this critic's row of `gradient`, given the loss's gradient (B,) at its values."""
        ...
