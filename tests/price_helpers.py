"""CSPO's price written once more, plant by plant: for tests/test_price.py and tests/test_margin.py.

`WrittenPrice` is an independent transcription in float64, one constraint and one number at a time.
`LinearPlant` is a problem without a network: given gradients, an exact first-order answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from probe_envs import Array, Probe

import cspo
from cspo.algorithms import forecast, get_algorithm, sensitivity
from cspo.algorithms.cspo import CSPO
from cspo.algorithms.learner import FitResult
from cspo.algorithms.sensitivity import Sensitivity
from cspo.types import Batch, Discount

FIRST_SHARED = 0.5  # of the first products, which the module does not name: the rest is noise


def price_of(learner: Any, num_costs: int = 1, **settings: Any) -> Any:
    """Return CSPO at its beginning."""
    kind = get_algorithm("cspo")
    return kind(kind.Config(**settings), learner, num_costs, Discount(0.99, 0.95))


# ---------------------------------------------------------------- the transcription


def smallest_prices(bb: Array, q: Array) -> Array:
    """Return lam >= 0 with bb lam = q where lam > 0 and bb lam >= q elsewhere, by trying all."""
    K = len(q)
    for size in range(K + 1):
        for active in itertools.combinations(range(K), size):
            lam, rows = np.zeros(K), list(active)
            if rows:
                lam[rows] = np.linalg.solve(bb[np.ix_(rows, rows)], q[rows])
            if (lam >= 0.0).all() and (bb @ lam >= q - 1e-9 * np.abs(q).max()).all():
                return lam
    raise AssertionError("a positive definite problem has a solution")


class WrittenFilter:
    """The textbook filter of (J, delta), of one constraint, in units of cost."""

    def __init__(self) -> None:
        self.x, self.P = np.zeros(2), np.zeros((2, 2))
        self.Q = self.R = self.answer = self.change = 0.0
        self.gain, self.started, self.least = 1.0, False, None

    def see(self, y: float, error: float, natural: float) -> None:
        """Predict with the last change and its derivative by delta, then correct with y."""
        if self.answer > 0.0:  # delta and its deviation are counted in the least natural price
            least = natural if self.least is None else min(natural, self.least)
            counted = np.diag([1.0, 1.0 if self.least is None else least / self.least])
            self.x, self.P, self.least = counted @ self.x, counted @ self.P @ counted, least
        spread = max(forecast.SPREAD * natural, abs(self.x[1]))
        if not self.started:
            self.x[0], self.R, self.started = y, error**2, True
            self.P = np.diag([error**2, spread**2])
            return
        self.R = forecast.ERROR_MEMORY * self.R + (1 - forecast.ERROR_MEMORY) * error**2
        F, C = np.array([[1.0, self.answer], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        known = np.array([self.change - self.answer * self.x[1], 0.0])  # the part without delta
        wander = forecast.WANDER * natural
        x, P = F @ self.x + known, F @ self.P @ F.T + np.diag([self.Q, wander**2])
        if self.answer == 0.0:  # the cost has not answered to a price yet
            P[1, 1] = spread**2
        elif P[1, 1] > spread**2:  # delta is less uncertain, as strongly correlated with J
            correlation = P[0, 1] / np.sqrt(P[0, 0] * P[1, 1])
            P[0, 1] = P[1, 0] = correlation * np.sqrt(P[0, 0]) * spread
            P[1, 1] = spread**2
        V = float((C @ P @ C.T)[0, 0]) + self.R
        gain = (P @ C.T)[:, 0] / V if V > 0.0 else np.array([1.0, 0.0])
        surprise = y - x[0]
        self.x, self.P = x + gain * surprise, (np.eye(2) - np.outer(gain, C)) @ P
        low, high = (bound * natural for bound in forecast.BOUNDS)
        self.x[1] = min(max(self.x[1], low), high)
        noise = self.Q + forecast.LEARN * (surprise**2 - V)
        self.Q = min(max(noise, 0.0), forecast.LIMIT**2)
        self.gain = float(gain[0])


class WrittenPrice:
    """One constraint or two; `before` sets the price of an epoch, `after` sees what it changed."""

    def __init__(self, K: int, alpha: Sequence[float], epochs: float) -> None:
        self.K, self.alpha, self.patience = K, list(alpha), epochs
        self.held, self.eta = [0] * K, [0.0] * K
        self.known, self.filters = [False] * K, [WrittenFilter() for _ in range(K)]
        self.shared, self.total = np.full((2, 1 + K, 1 + K), np.nan)
        self.slope, self.weight, self.log_eta = [0.0] * K, [0.0] * K, None
        self.unit = [0.0] * K

    def _average(self, g1: Array, g2: Array, live: Sequence[bool]) -> None:
        whole = (g1 + g2) / 2.0
        count, new = [True, *live], np.isnan(self.total)
        slow = []
        for i in range(1 + self.K):
            agreement = FIRST_SHARED if new[i, i] else self.shared[i, i] / self.total[i, i]
            slow.append(min(max(1.0 - agreement, sensitivity.MEMORY[0]), sensitivity.MEMORY[1]))
        self.now = np.array([[u @ v for v in whole] for u in whole])
        for i, j in itertools.product(range(1 + self.K), repeat=2):
            if not (count[i] and count[j]):
                continue
            before = FIRST_SHARED * self.now[i, j] if new[i, j] else self.shared[i, j]
            m, product = max(slow[i], slow[j]), (g1[i] @ g2[j] + g2[i] @ g1[j]) / 2.0
            self.shared[i, j] = m * before + (1 - m) * product
            before = self.now[i, j] if new[i, j] else self.total[i, j]
            self.total[i, j] = m * before + (1 - m) * self.now[i, j]
        self.known = [known or bool(now) for known, now in zip(self.known, live, strict=True)]

    def _products(self, seen: list[int]) -> Array:
        """Return bb of the constraints seen: a floor below its diagonal and its correlations."""
        floor = sensitivity.SHARED
        own = [max(self.shared[1 + i, 1 + i], floor * self.total[1 + i, 1 + i]) for i in seen]
        if len(seen) == 1:
            return np.array([own])
        r = self.shared[1, 2] / np.sqrt(own[0] * own[1])
        plus, minus = max(1.0 + r, floor), max(1.0 - r, floor)  # eigenvalues of [[1, r], [r, 1]]
        same, mixed = (plus + minus) / 2.0, (plus - minus) / 2.0 * np.sqrt(own[0] * own[1])
        return np.array([[same * own[0], mixed], [mixed, same * own[1]]])

    def before(
        self,
        g1: Array,
        g2: Array,
        cost: Array,
        error: Array,
        d: Array,
        H: float,
        live: Sequence[bool],
    ) -> dict[str, Array]:
        """Return the parts of the price, (K,) each."""
        K = self.K
        self._average(g1, g2, live)
        found = {name: np.zeros(K) for name in ("rho", "S", "delta", "hold", "push", "lam", "J")}
        found |= {"natural": np.ones(K), "gain": np.ones(K)}
        seen = [i for i in range(K) if self.known[i]]
        self.bb = np.diag(np.full(K, np.nan))
        if seen:
            bb = self._products(seen)
            rho = smallest_prices(bb, np.array([self.shared[0, 1 + i] for i in seen]))
            for at, i in enumerate(seen):
                norm = self.total[1 + i, 1 + i]
                natural = np.sqrt(self.total[0, 0] / norm)
                found["natural"][i] = natural
                found["rho"][i] = min(rho[at] * bb[at, at] / norm, natural)
                found["S"][i] = self.eta[i] * H * bb[at, at]
        wanted = np.zeros(K)
        for i, level in enumerate(self.filters):
            if self.unit[i] == 0.0 and cost[i] > 0.0:
                self.unit[i] = max(d[i], 0.1 * cost[i]) / forecast.LIMIT
            unit = self.unit[i] or 1.0
            level.see(cost[i] / unit, error[i] / unit, found["natural"][i])
            found["J"][i], found["gain"][i] = level.x[0], level.gain
            found["delta"][i] = level.x[1]
            found["hold"][i] = max(found["rho"][i] + found["delta"][i], 0.0)
            flat = CSPO.epsilon / found["natural"][i]
            wanted[i] = (level.x[0] - d[i] / unit) / (found["S"][i] + flat)
            found["push"][i] = self.alpha[i] * min(wanted[i], found["natural"][i])
        if seen:
            q = bb @ found["hold"][seen] + np.diag(bb) * found["push"][seen]
            lam = smallest_prices(bb, q)
            for at, i in enumerate(seen):
                if live[i] and found["S"][i] > 0.0:
                    found["lam"][i] = lam[at]
            change = bb @ (found["hold"] - found["lam"])[seen]
        for i, level in enumerate(self.filters):
            level.change = self.eta[i] * H * change[seen.index(i)] if i in seen else 0.0
            level.answer = found["S"][i]
            held_down = live[i] and found["S"][i] > 0.0 and wanted[i] > found["natural"][i]
            if held_down:
                above = level.x[0] - d[i] / self.unit[i]
                rise = self.alpha[i] * self._rise(i, above / forecast.LIMIT)
                rise *= found["natural"][i]
                level.x[1] += rise
                level.P[1, 1] = (level.P[1, 1] ** 0.5 + rise) ** 2
            self.held[i] = self.held[i] + 1 if held_down else 0
        return found

    def _rise(self, i: int, excess: float) -> float:
        m, n = self.patience, self.held[i]
        return (1.0 if n < m else max(excess * float(np.e ** ((n - m) / m)), 1.0)) / m

    def after(self, change: Array, lam: Array) -> None:
        """See the change of the surrogates (1 + K,) over the update."""
        direction = np.array([1.0, *-lam])
        predicted = self.now @ direction  # over eta
        gained, length = change @ direction, predicted @ direction
        if gained > 0.0 and length > sensitivity.ROUNDING * self.now[0, 0]:
            new = np.log(gained / length)
            old = new if self.log_eta is None else self.log_eta
            self.log_eta = sensitivity.LOG_MEMORY * old + (1 - sensitivity.LOG_MEMORY) * new
        for i in range(self.K):
            m = sensitivity.ETA_MEMORY
            self.slope[i] = m * self.slope[i] + predicted[1 + i] * change[1 + i]
            self.weight[i] = m * self.weight[i] + predicted[1 + i] ** 2
            if self.log_eta is not None:
                prior, along = sensitivity.PRIOR * self.now[1 + i, 1 + i] ** 2, np.exp(self.log_eta)
                weight, above = self.weight[i] + prior, self.slope[i] + prior * along
                slope = above / weight if weight > 0.0 else along
                self.eta[i] = max(slope, sensitivity.SHARED * along)


# ---------------------------------------------------------------- a problem without a network


class LinearPlant:
    """theta in R^P with a reward and K costs per step, all functions of theta; stands in for both
    environment and learner.

    An update moves theta by eta against the gradient of CSPO's loss, so that an epoch's episode
    cost H c(theta) answers to the price exactly as the model says where c is linear. Advantages are
    orthogonal columns of +-1, so that any change of the surrogates can be written as a ratio.
    """

    def __init__(
        self,
        theta: Any,
        slopes: Callable[[Array], Array],
        costs: Callable[[Array], Array],
        eta: float = 0.1,
        H: float = 10.0,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.theta, self.slopes, self.costs = np.array(theta, dtype=float), slopes, costs
        self.eta, self.H, self.noise = eta, H, noise
        self.rng, self.unit = np.random.default_rng(seed), 1.0

    @property
    def J(self) -> Array:
        """Cost of an episode (K,)."""
        return self.H * self.costs(self.theta)

    def _gradients(self) -> Array:
        """(1 + K, P), the costs' in the algorithm's unit."""
        gradients = np.array(self.slopes(self.theta), dtype=float)
        gradients[1:] /= np.reshape(self.unit, (-1, 1))
        return gradients

    def score_gradients(self, batch: Batch, A: Any, parts: Sequence[Any]) -> Array:
        exact = self._gradients()
        scatter = self.noise * np.linalg.norm(exact, axis=1, keepdims=True)
        return exact + scatter * self.rng.standard_normal((len(parts), *exact.shape))

    def batch(self, J: Any = None, error: Any = 0.0, live: Any = True) -> Batch:
        """Return an epoch at theta; J may be given instead."""
        J = np.array(self.J if J is None else J, dtype=float)
        K, n = len(J), 8
        signs = np.array([[1.0 - 2.0 * ((i >> k) & 1) for k in range(3)] for i in range(n)])
        signs = np.column_stack([signs, signs[:, 0] * signs[:, 1]])[:, : 1 + K]
        blank = np.zeros((n, 1), np.float32)
        return Batch(
            observation=blank,
            action=blank,
            output=blank,
            log_std=np.zeros(1, np.float32),
            log_prob=np.zeros(n, np.float32),
            adv_r=signs[:, 0].astype(np.float32),
            adv_c=signs[:, 1:].astype(np.float32),
            value_target=np.zeros((1 + K, n), np.float32),
            any_cost=np.broadcast_to(np.asarray(live), (K,)),
            epoch_cost=J,
            cost_error=np.broadcast_to(np.asarray(error, dtype=float), (K,)),
            episode_length=self.H,
            num_envs=2,
        )

    def fit(self, batch: Batch, loss: Any) -> FitResult:
        """Take one step down the loss; its slopes by the surrogates are differences, exact here."""
        K, self.loss = batch.adv_c.shape[1], loss
        unit = np.eye(1 + K)
        by = np.array([loss.function(u[0], u[1:]) - loss.function(0.0, 0.0 * u[1:]) for u in unit])
        gradients = self._gradients()
        move = -self.eta * by @ gradients
        self.theta = self.theta + move
        A = np.column_stack([batch.adv_r, batch.adv_c]).astype(float)
        ratio: Any = 1.0 + A @ (gradients @ move)
        return FitResult(0.0, 0.0, 1, batch.output, ratio, {})

    def train(
        self, algorithm: Any, d: Any, epochs: int, error: Any = 0.0, live: Any = True
    ) -> list[dict[str, Any]]:
        """Return what each epoch reported, with its true cost and its price."""
        d, reports = np.array(d, dtype=float), []
        for _ in range(epochs):
            J = self.J
            self.unit = algorithm.cost_unit(J, d)
            report = dict(algorithm.update(self.batch(error=error, live=live), J, d))
            reports.append(report | {"J": J, "lam": algorithm.multiplier.copy(), "unit": self.unit})
        return reports


def quadratic(
    target: Any, B: Any, constant: Any = 0.0, **options: Any
) -> tuple[LinearPlant, Callable[[Any], tuple[Array, Array]]]:
    """Return the plant of reward -|theta - target|^2 / 2 and costs B theta + constant, and its
    optimum: a function of the limits that gives theta* and lambda* of the active ones."""
    B, target = np.atleast_2d(np.array(B, dtype=float)), np.array(target, dtype=float)
    plant = LinearPlant(
        np.zeros_like(target),
        lambda theta: np.concatenate([[target - theta], B]),
        lambda theta: B @ theta + constant,
        **options,
    )

    def optimum(d: Any) -> tuple[Array, Array]:
        # Stationary: target - theta = B^T lam; on the limit: B theta + constant = d / H.
        excess = B @ target + constant - np.array(d, dtype=float) / plant.H
        lam = smallest_prices(B @ B.T, excess)
        return target - B.T @ lam, lam

    return plant, optimum


def settle(sense: Sensitivity, gradients: Any, epochs: int = 60) -> Sensitivity:
    """Show the same gradients (1 + K, P) on both halves, until the averages have forgotten."""
    both = np.array([gradients, gradients], dtype=float)
    for _ in range(epochs):
        sense.average(both, both, np.ones(len(both[0]) - 1, bool))
    return sense


# ---------------------------------------------------------------- small environments


class Scaled(Probe):
    """As `Tradeoff`, its cost in another unit."""

    def __init__(self, factor: float = 1.0, length: int = 50) -> None:
        super().__init__(length, "truncated")
        self.factor = factor

    def outcome(self, a: float) -> tuple[float, Any]:
        reward = -((a - 0.7) ** 2) + float(self.np_random.normal())
        return reward, self.factor * (1.0 + a)


class TwoActions(Probe):
    """Reward -|a - 0.7|^2 + noise, costs 1 + a_1 and 2 + a_1 + a_2: both limits ask for a_1."""

    num_costs = 2

    def __init__(self, length: int = 50) -> None:
        super().__init__(length, "truncated")
        self.action_space = Box(-1.0, 1.0, (2,), np.float64)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        a = np.asarray(action, dtype=float)
        self.steps += 1
        reward = -float(((a - 0.7) ** 2).sum()) + float(self.np_random.normal())
        cost = (1.0 + a[0], 2.0 + a[0] + a[1])
        return np.ones(1), reward, False, self.steps == self.length, {"cost": cost}


def probe_trainer(env: Any, limit: Any, epochs: int, algo: str = "cspo", **settings: Any) -> Any:
    """Return a trainer with a tiny policy on a probe, ten episodes of 50 steps an epoch."""
    options: dict[str, Any] = {
        "cost_limit": limit,
        "steps_per_epoch": 500,
        "total_steps": 500 * epochs,
        "num_envs": 10,
        "threads": 1,
        "hidden_sizes": (8,),
        "episode_window": 10,
        "gamma": 0.9,
        "passes": 5,
        "minibatch_size": 100,
        "actor_lr": 1e-2,
        "actor_lr_decay": False,
        "critic_lr": 1e-2,
        "target_kl": 0.1,
        "log_std_init": -1.6,
        # Holds the policy's standard deviation near 0.15, against the concave reward.
        "entropy_coefficient": 0.02,
        "tensorboard": False,
    }
    return cspo.Trainer(cspo.make_config("probe", algo, **(options | settings)), env=env)


LATE = 30  # epochs at the end of a probe's training


def late(reports: list[Any], name: str) -> Array:
    """Return the mean of what those epochs reported."""
    return np.mean([getattr(report, name) for report in reports[-LATE:]], axis=0)
