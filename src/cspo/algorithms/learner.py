"""What an algorithm says to the optimiser, and what it hears back.

A first-order algorithm hands over a `Loss`; a trust-region algorithm asks for a `TrustRegion`. The
optimiser itself is in `cspo.optim`, which knows the policy and the minibatches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cspo.algorithms.surrogates import NEED_REFERENCE, Surrogate
from cspo.types import Array, Batch, FloatArray

if TYPE_CHECKING:  # brings the compiled kernels, which a list of algorithms does not need
    from cspo.policy.policy import Policy


class Reference(NamedTuple):
    """A policy held fixed, as it acts on the samples of a batch."""

    output: Array  # (n, O)
    log_std: Array  # (G,)


class Loss:
    """A loss that depends on the policy only through surrogate means, loss(L_R, L_C), as printed.

    Its gradient is sum_i (dloss / dL_i) grad L_i. The surrogates' gradients are compiled; the few
    numbers in front of them come from the function itself, which is evaluated on complex numbers
    (`cspo.optim.objective`). Write it with operators and NumPy's functions; `np.maximum` and
    comparisons look at the real part. `np.abs` and `float` lose the derivative and are refused.

    Args:
        function: Called with the surrogates' means on a minibatch, in order: a number for a
            surrogate of one advantage, an array (K,) for one of K. Returns the loss.
        *surrogates: What these means are of, see `cspo.algorithms.surrogates`.
        clip: PPO's eps, of the clipped ones.
        reference: The policy of those surrogates that contain a KL divergence.
        trust: The largest divergence at which a sample counts as inside the trust region.
        observe: Called once per minibatch with the means, after the derivatives were taken.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *surrogates: Surrogate,
        clip: float = 0.0,
        reference: Reference | None = None,
        trust: float = np.inf,
        observe: Callable[..., None] | None = None,
    ) -> None:
        """Keep the statement; nothing is computed yet."""
        if reference is None and any(item.kind in NEED_REFERENCE for item in surrogates):
            raise ValueError("A surrogate with a KL divergence needs a reference policy.")
        self.function, self.surrogates, self.clip = function, surrogates, clip
        self.reference, self.trust, self.observe = reference, float(trust), observe


@dataclass(frozen=True)
class FitResult:
    """How a fit went."""

    kl: float  # KL(old || new) over the whole batch, from the policy that collected it
    kl_reference: float  # KL(reference || new), which the limit is about
    passes: int  # passes done before the KL stop
    output: Array  # (n, O) of the final policy
    ratio: Array  # (n,) of the final policy to the one that collected the batch
    metrics: dict[str, float]  # of the critics and the policy

    def report(self, **own: float) -> dict[str, float]:
        """Return what is logged of an update, with an algorithm's own numbers in the middle."""
        return {"kl": self.kl, "passes": self.passes, **own, **self.metrics}


@dataclass(frozen=True)
class Trial:
    """A policy on the batch, compared with the one at theta_k."""

    ratio: Array  # (n,) pi_theta(a|s) / pi_k(a|s)
    start: Array  # (n,) the same at theta_k: 1 up to rounding
    kl: float  # K, averaged over samples and action columns

    def change(self, A: Array) -> float:
        """Return L(theta) - L(theta_k) of the surrogate L = mean(r A)."""
        return float(np.mean((self.ratio - self.start) * A, dtype=np.float64))


@dataclass(frozen=True)
class Step:
    """How a search for a step ended."""

    fraction: float  # of the full step that was taken; 0 = the actor did not move
    backtracks: int  # tries that were refused
    kl: float  # KL(old || new) of the step taken, summed over action dimensions as in all logs

    @property
    def metrics(self) -> dict[str, float]:
        """What is logged."""
        return {"kl": self.kl, "step_fraction": self.fraction, "backtracks": self.backtracks}


class TrustRegion(Protocol):
    """The actor at theta_k on one epoch's batch, and the curvature H of the KL around it."""

    def gradient(self, A: Array) -> FloatArray:
        """Return the gradient (P,) of mean(r A) at theta_k."""
        ...

    def product(self, v: FloatArray) -> FloatArray:
        """Return H v."""
        ...

    def solve(
        self, *right: FloatArray, product: Callable[[FloatArray], FloatArray] | None = None
    ) -> tuple[FloatArray, ...]:
        """Return an approximate H^-1 b for each b; `product` may replace H."""
        ...

    def search(
        self,
        step: FloatArray,
        accept: Callable[[Trial], bool],
        tries: int,
        *,
        give_up_at_infinity: bool = False,
    ) -> Step:
        """Move the actor by the largest of step, 0.8 step, ... that is accepted, or not at all."""
        ...


class Learner(Protocol):
    """Trains one policy on the epoch's batch: what `update` has at hand."""

    policy: Policy

    def fit(self, batch: Batch, loss: Loss) -> FitResult:
        """Minimise the loss and train the critics, until the KL limit or the end."""
        ...

    def fit_actor(self, batch: Batch, loss: Loss, reference: Reference) -> FitResult:
        """Like `fit`, without the critics and with the KL limit around `reference`."""
        ...

    def fit_critics(self, batch: Batch) -> dict[str, float]:
        """Train the critics alone, in all passes, and return the metrics."""
        ...

    def trust_region(self, batch: Batch, damping: float, iterations: int) -> TrustRegion:
        """Return the actor's trust region on this batch, for one step per epoch."""
        ...

    def score_gradients(
        self, batch: Batch, A: Array, parts: Sequence[NDArray[np.int64]]
    ) -> FloatArray:
        """Return the gradients (parts, C, P) of mean(r A_c) at theta_k, on parts of the samples.

        `A` is (C, n); a part is the indices of its samples.
        """
        ...
