"""How a cost answers to its price, measured from gradients at theta_k.

    a, b_i   gradients of the surrogates L_R, L_C_i; a1, a2, b1, b2 on halves of the environments
    bb = b1 . b2    ab = (a1 . b2 + a2 . b1) / 2       what the halves share: without their noise
    rho      = argmin |a - sum_i lam_i b_i|^2, lam >= 0: at a KKT point the multipliers lambda*
    natural  = |a| / |b|, noise included: the price at which both weigh the same in a step
    S        = eta H bb: the fall of the episode's cost in one epoch for each unit of price

The halves' noise is independent and drops out of their product; of |b|^2 it is nine tenths on the
navigation tasks. eta is the step size of a whole update: the slope of the change of L_C over an
update on b . (a - lam b). In the Fisher metric the products are a . F^-1 b.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from cspo.algorithms.learner import Learner
from cspo.state import Remembers
from cspo.types import Array, Batch, FloatArray

SHARED = 0.05  # of |b|^2 that the halves share at least: their product may be negative by chance
MEMORY = 0.5, 0.9  # of the averages over epochs: short where the halves agree, long where not
ETA_MEMORY, LOG_MEMORY = 0.9, 0.7
PRIOR = 0.1  # weight of the step size along a - lam b beside those along b, in units of |b|^4
ROUNDING = 1e-9  # of |a|^2: at a KKT point a - lam b is no more than that, and tells nothing
DAMPING, ITERATIONS = 0.1, 10  # of the conjugate gradients behind F^-1
TINY = np.finfo(np.float64).tiny


def halves(batch: Batch) -> tuple[Any, Any]:
    """Return the samples of every other environment; of one environment, both halves of its time.

    Samples of one episode resemble each other, so they must not be torn apart.
    """
    n, N = len(batch.log_prob), batch.num_envs
    first = np.arange(n) < n // 2 if N == 1 else np.arange(n) % N % 2 == 0
    return np.flatnonzero(first), np.flatnonzero(~first)


class Sensitivity(Remembers):
    """The products of gradients, averaged over epochs, and what follows from them.

    Attributes:
        known: (K,) whether a constraint has had any cost yet: before that nothing is known of it.
        bb: (K, K) what the halves share of b_i . b_j, positive definite.
        rho, natural: (K,) prices.
        S: (K,) zero where it is not known yet.
    """

    remembered = ("known", "shared", "total", "eta", "slope", "weight", "log_eta")

    def __init__(self, num_costs: int) -> None:
        """Start with nothing seen."""
        size = 1 + num_costs
        self.known = np.zeros(num_costs, bool)
        self.shared, self.total = np.zeros((size, size)), np.zeros((size, size))
        self.eta = np.zeros(num_costs)  # 0 before the first update
        self.slope, self.weight = np.zeros(num_costs), np.zeros(num_costs)  # sums behind eta
        self.log_eta = np.array(np.nan)  # of the step along a - lam b, averaged

    @property
    def gradient_norm(self) -> FloatArray:
        """|b| (K,) on the whole batch of the last epoch, noise included, as the paper logs it."""
        return np.asarray(np.sqrt(np.diag(self.now)[1:]))

    def measure(
        self, learner: Learner, batch: Batch, metric: Literal["euclidean", "fisher"] = "euclidean"
    ) -> None:
        """Take in the gradients of an epoch."""
        A = np.concatenate([batch.adv_r[None], batch.adv_c.T])  # (1 + K, n)
        gradients = learner.score_gradients(batch, A, halves(batch))  # (2, 1 + K, P)
        solved = gradients
        if metric == "fisher":
            region = learner.trust_region(batch, DAMPING, ITERATIONS)
            size = np.maximum(np.linalg.norm(gradients, axis=2, keepdims=True), TINY)
            rows = (gradients / size).reshape(-1, gradients.shape[2])  # the solver has a floor
            solved = np.array(region.solve(*rows)).reshape(gradients.shape) * size
        self.average(gradients, solved, batch.any_cost)
        self.S = self.eta * batch.episode_length * np.diag(self.bb) * self.known
        self._per_eta = self.eta * batch.episode_length * self.known

    def average(self, gradients: FloatArray, solved: FloatArray, live: Any) -> None:
        """Average the products of gradients (2, 1 + K, P) and F^-1 times them.

        Constraints without any cost in this epoch, `live` (K,), stay as they are, and so do those
        whose cost does not depend on the policy.
        """
        (one, two), (to_one, to_two) = gradients, solved
        shared = one @ to_two.T + two @ to_one.T
        self.now = (one + two) @ (to_one + to_two).T / 4.0  # (1 + K, 1 + K) of the whole batch
        live = live & (np.diag(self.now)[1:] > 0.0)
        counts, seen = np.append(True, live), np.append(self.total[0, 0] > 0.0, self.known)
        fresh = np.outer(counts, counts) & ~np.outer(seen, seen)
        self.total = np.where(fresh, self.now, self.total)
        self.shared = np.where(fresh, self.now / 2.0, self.shared)  # half of it noise, say
        self.known = self.known | live
        agreement = np.diag(self.shared) / np.maximum(np.diag(self.total), TINY)
        slow = np.where(counts, np.clip(1.0 - agreement, *MEMORY), 1.0)
        keep = np.maximum.outer(slow, slow)  # a pair moves as slowly as the slower of the two
        self.shared = keep * self.shared + (1.0 - keep) * (shared + shared.T) / 4.0
        self.total = keep * self.total + (1.0 - keep) * self.now
        norms = np.where(self.known, np.diag(self.total)[1:], 1.0)
        reward = self.total[0, 0] or 1.0  # where nothing is to be gained any price will do
        self.natural = np.sqrt(np.where(self.known, reward, 1.0) / norms)
        self._factorise(np.maximum(np.diag(self.shared)[1:], SHARED * norms))
        certain = np.diag(self.bb) / norms
        rho = self._least_squares(self.shared[0, 1:]) * certain
        self.rho = np.minimum(rho, self.natural) * self.known

    def _factorise(self, own: FloatArray) -> None:
        """Set bb from its diagonal `own` and the correlations, which chance may take too far."""
        self._scale = np.sqrt(own)
        alike = self.shared[1:, 1:] / np.outer(self._scale, self._scale)
        np.fill_diagonal(alike, 1.0)
        values, vectors = np.linalg.eigh(alike)
        alike = (vectors * np.maximum(values, SHARED)) @ vectors.T
        self._factor = np.linalg.cholesky(alike)
        self.bb = alike * np.outer(self._scale, self._scale)

    def _least_squares(self, q: FloatArray) -> FloatArray:
        """Return lam >= 0 (K,) with bb lam = q where lam > 0, and bb lam >= q elsewhere."""
        if len(q) == 1:
            return np.asarray(np.maximum(q / self.bb[0], 0.0))
        from scipy.optimize import nnls

        right = np.linalg.solve(self._factor, q / self._scale)
        return np.asarray(nnls(self._factor.T, right)[0] / self._scale)

    def prices(self, hold: FloatArray, push: FloatArray) -> FloatArray:
        """Return [hold + push]_+ (K,), where one price does the work of others that share b."""
        return self._least_squares(self.bb @ hold + np.diag(self.bb) * push)

    def change(self, hold: FloatArray, lam: FloatArray) -> FloatArray:
        """Return the change of cost (K,) that an update at prices lam gives."""
        return np.asarray(self._per_eta * (self.bb @ (hold - lam)))

    def learn(self, lam: FloatArray, ratio: Array, batch: Batch) -> None:
        """Compare what an update at prices lam (K,) changed with its first-order prediction."""
        A = np.column_stack([batch.adv_r, batch.adv_c])
        change: FloatArray = np.mean(
            (ratio - np.float32(1.0))[:, None] * A, axis=0, dtype=np.float64
        )
        direction = np.append(1.0, -lam)  # a - lam b
        along: FloatArray = self.now @ direction  # (1 + K,) change to first order, over eta
        gain, length = float(change @ direction), float(along @ direction)
        if gain > 0.0 and length > ROUNDING * self.now[0, 0]:
            log_eta = np.log(gain / length)
            before = log_eta if np.isnan(self.log_eta) else self.log_eta
            self.log_eta = np.array(LOG_MEMORY * before + (1.0 - LOG_MEMORY) * log_eta)
        self.slope = ETA_MEMORY * self.slope + along[1:] * change[1:]
        self.weight = ETA_MEMORY * self.weight + along[1:] ** 2
        if not np.isnan(self.log_eta):
            eta, prior = np.exp(self.log_eta), PRIOR * np.diag(self.now)[1:] ** 2
            slope, weight = self.slope + prior * eta, self.weight + prior
            same = np.full_like(slope, eta)  # where b was never seen
            slope = np.divide(slope, weight, out=same, where=weight > 0.0)
            self.eta = np.maximum(slope, SHARED * eta)
