"""One step per epoch inside a trust region: curvature, conjugate gradients, backtracking.

    K(theta) = mean over samples AND action columns of KL(old || new)        the size of a step
    H        = Hessian of K at theta_k + damping I                              its curvature

A method states a direction and a rule of acceptance; `search` walks back along the
direction until the rule holds, and puts the actor back where it was if it never does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np

from cspo.algorithms.learner import Step, Trial
from cspo.errors import CspoError
from cspo.policy.actor import Actor
from cspo.types import Array, Batch, FloatArray

CG_GUARD, CG_RESIDUAL = 1e-6, 1e-10
SHRINK = 0.8  # factor of the step from one try to the next


def conjugate_gradient(
    product: Callable[[FloatArray], FloatArray], b: FloatArray, iterations: int
) -> FloatArray:
    """Return an approximate solution x of H x = b, where `product(v)` is H v.

    As in the usual implementations 1e-6 is added to both denominators. It keeps b = 0 harmless, and
    it shortens late iterations visibly when b is small.
    """
    x, r, p = np.zeros_like(b), b.copy(), b.copy()
    rr = r @ r
    for _ in range(iterations):
        Hp = product(p)
        alpha = rr / (p @ Hp + CG_GUARD)
        x += alpha * p
        r -= alpha * Hp
        rr_new = r @ r
        if np.sqrt(rr_new) < CG_RESIDUAL:
            break
        p = r + (rr_new / (rr + CG_GUARD)) * p
        rr = rr_new
    return x


class FisherTrustRegion:
    """The actor at theta_k on one epoch's batch."""

    def __init__(
        self,
        actor: Actor,
        batch: Batch,
        damping: float,
        iterations: int,
        executor: Executor | None = None,
    ) -> None:
        """Prepare products with H; `iterations` are those of conjugate gradients."""
        self._actor, self._batch = actor, batch
        self._damping, self._iterations = damping, iterations
        self._fisher = actor.fisher(batch.observation, executor)
        self._start = self._ratio(batch.output)

    def gradient(self, A: Array) -> FloatArray:
        """Return the gradient (P,) of mean(r A) at theta_k."""
        gradient = self._actor.score_gradient(self._batch.observation, self._batch.action, A)
        return gradient.astype(np.float64)

    def product(self, v: FloatArray) -> FloatArray:
        """Return H v."""
        return self._fisher.product(v) + self._damping * v

    def solve(
        self, *right: FloatArray, product: Callable[[FloatArray], FloatArray] | None = None
    ) -> tuple[FloatArray, ...]:
        """Return an approximate H^-1 b for each b; `product` may replace H."""
        solutions = tuple(
            conjugate_gradient(product or self.product, b, self._iterations) for b in right
        )
        if not all(np.isfinite(x).all() for x in solutions):
            raise CspoError(
                "The trust-region step is not finite: rewards or costs are too large, or the "
                "policy's standard deviation vanished. The last checkpoint is intact."
            )
        return solutions

    def search(
        self,
        step: FloatArray,
        accept: Callable[[Trial], bool],
        tries: int,
        *,
        give_up_at_infinity: bool = False,
    ) -> Step:
        """Move the actor by the largest of step, 0.8 step, 0.64 step, ... accepted, or not at all.

        Args:
            step: The full step (P,).
            accept: Whether to take a trial step. A comparison with NaN is false, so it is refused.
            tries: How often to try.
            give_up_at_infinity: End the search at a KL that is not finite, instead of shrinking
                further.
        """
        parameters = self._actor.parameters
        start, fraction = parameters.copy(), 1.0
        for refused in range(tries):
            with np.errstate(over="ignore", invalid="ignore"):
                parameters[:] = start + fraction * step
            trial = self._trial()
            if accept(trial):
                return Step(fraction, refused, trial.kl * self._batch.action.shape[1])
            if give_up_at_infinity and not np.isfinite(trial.kl):
                tries = refused + 1
                break
            fraction *= SHRINK
        parameters[:] = start
        return Step(0.0, tries, 0.0)

    def _trial(self) -> Trial:
        batch, actor = self._batch, self._actor
        output = actor.outputs(batch.observation)
        kl = actor.distribution.mean_kl(batch.output, batch.log_std, output, actor.log_std)
        return Trial(self._ratio(output), self._start, kl / batch.action.shape[1])

    def _ratio(self, output: Array) -> Array:
        batch, log_std = self._batch, self._actor.log_std
        return self._actor.distribution.ratio(output, log_std, batch.action, batch.log_prob)
