"""The only minibatch loop: passes over the epoch's batch, for the actor and every critic."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cspo.algorithms.learner import FitResult, Loss, Reference
from cspo.arithmetic import flush_denormals
from cspo.errors import CspoError
from cspo.optim import kernels
from cspo.optim.adam import FlatAdam
from cspo.optim.autograd import AutogradObjective
from cspo.optim.objective import SurrogateObjective
from cspo.optim.settings import UpdateSettings
from cspo.optim.trust_region import FisherTrustRegion
from cspo.policy.gaussian import mean_kl
from cspo.policy.networks import Workspace
from cspo.policy.policy import Policy
from cspo.types import Array, Batch, FloatArray, per_constraint

Order = NDArray[np.int64]
Objective = SurrogateObjective | AutogradObjective


class _Pass(NamedTuple):
    """What one pass over the batch gave."""

    critic_errors: list[float]  # mean squared errors met on the way; empty if none was trained
    mean: Array  # (n, A) the policy's means after it
    stopped: bool  # whether the KL check of a minibatch ended it early


class MinibatchLearner:
    """Owns the optimisers of one policy; `fit` is what first-order algorithms hand their loss to.

    `fit_actor` and `fit_critics` are its two halves, for algorithms that train them at different
    times.

    Per minibatch the reward critic, the cost critics and the actor each take one step. They share
    no parameters, so each network makes its pass over the same minibatches on its own, on as many
    threads as there are; the result does not depend on their number.
    """

    def __init__(
        self, policy: Policy, settings: UpdateSettings, rng: np.random.Generator, threads: int = 1
    ) -> None:
        """Create the optimisers; `rng` is the stream that shuffles."""
        self.policy, self.settings, self.rng = policy, settings, rng
        self.actor_optimiser = FlatAdam(policy.actor.parameters, settings.actor_lr)
        self.critic_optimiser = FlatAdam(policy.critics.parameters, settings.critic_lr)
        critics, rows = policy.critics, settings.minibatch_size
        self._actor_space = Workspace(policy.actor.mlp.sizes, rows)
        self._critic_spaces = [Workspace(critics.sizes, rows) for _ in range(critics.count)]
        workers = min(threads - 1, critics.count)
        self._pool: ThreadPoolExecutor | None = None
        if workers > 0:
            self._pool = ThreadPoolExecutor(workers, "cspo-critics", flush_denormals)
        self._workers = workers

    def close(self) -> None:
        """End the threads; a later pass is made by the caller alone, with the same result."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool, self._workers = None, 0

    def set_progress(self, fraction: float) -> None:
        """Set the actor's learning rate for a run of which `fraction` is done."""
        done = fraction if self.settings.actor_lr_decay else 0.0
        self.actor_optimiser.lr = self.settings.actor_lr * (1.0 - done)

    def fit(self, batch: Batch, loss: Loss | AutogradObjective) -> FitResult:
        """Minimise the loss and train the critics, until the passes or the KL limit are used up."""
        old = Reference(batch.mean, batch.log_std)
        return self._fit(batch, loss, old, range(self.policy.critics.count))

    def fit_actor(
        self, batch: Batch, loss: Loss | AutogradObjective, reference: Reference
    ) -> FitResult:
        """Like `fit`, without the critics and with the KL limit around `reference`."""
        return self._fit(batch, loss, reference, range(0))

    def fit_critics(self, batch: Batch) -> dict[str, float]:
        """Train the critics alone, in all passes, and return the metrics."""
        old = Reference(batch.mean, batch.log_std)
        metrics = self._fit(batch, None, old, range(self.policy.critics.count)).metrics
        del metrics["actor_lr"]  # the actor did not move
        return metrics

    def trust_region(self, batch: Batch, damping: float, iterations: int) -> FisherTrustRegion:
        """Return the actor's trust region on this batch, for one step per epoch."""
        if self.settings.entropy_coefficient:
            raise CspoError(
                "A trust-region algorithm has no entropy bonus: leave --entropy-coefficient at 0."
            )
        return FisherTrustRegion(self.policy.actor, batch, damping, iterations, self._pool)

    def score_gradients(self, batch: Batch, A: Array, parts: Sequence[Order]) -> FloatArray:
        """Return the gradients (parts, C, P) of mean(r A_c) at theta_k, on parts of the samples."""

        def of(rows: Order) -> Array:
            return self.policy.actor.score_gradients(batch.observation, batch.action, A, rows)

        first, *others = parts
        if self._pool is None:
            found = [of(rows) for rows in parts]
        else:
            futures = [self._pool.submit(of, rows) for rows in others]
            found = [of(first), *(future.result() for future in futures)]
        return np.array(found, dtype=np.float64)

    def _fit(
        self,
        batch: Batch,
        loss: Loss | AutogradObjective | None,
        reference: Reference,
        critics: range,
    ) -> FitResult:
        objective = SurrogateObjective(loss) if isinstance(loss, Loss) else loss
        actor, kl, passes = self.policy.actor, 0.0, 0
        for passes in range(1, self.settings.passes + 1):  # noqa: B007 (how many is reported)
            order = self.rng.permutation(len(batch.log_prob))
            done = self._run_pass(batch, objective, reference, critics, order)
            if objective is None:
                continue
            kl = mean_kl(*reference, done.mean, actor.log_std)
            if not kl <= self.settings.target_kl or done.stopped:
                break
        self._require_finite(kl, passes)
        return FitResult(
            kl=mean_kl(batch.mean, batch.log_std, done.mean, actor.log_std),
            kl_reference=kl,
            passes=passes,
            mean=done.mean,
            ratio=actor.ratio(batch.action, done.mean, batch.log_prob),
            metrics=self._metrics(done.critic_errors),
        )

    def _run_pass(
        self,
        batch: Batch,
        objective: Objective | None,
        reference: Reference,
        critics: range,
        order: Order,
    ) -> _Pass:
        """Let these critics, and the actor if it has an objective, see every minibatch once."""
        waiting = deque(critics)
        errors = [0.0] * len(critics)

        def train_critics() -> None:
            while waiting:
                try:
                    k = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                errors[k] = self._critic_pass(k, batch, order)

        futures, stopped, mean = [], False, batch.mean
        if objective is not None and self.settings.kl_check == "minibatch":
            seen, stopped = self._actor_pass(batch, objective, reference, order)
            order = order[:seen]  # the critics see as much as the actor did before it stopped
        else:
            if self._pool is not None:
                futures = [self._pool.submit(train_critics) for _ in range(self._workers)]
            if objective is not None:
                self._actor_pass(batch, objective, reference, order)
        if objective is not None:
            mean = self.policy.actor.mlp.predict(batch.observation)[0]
        train_critics()
        for future in futures:
            future.result()
        if critics:
            self.critic_optimiser.count += -(-len(order) // self.settings.minibatch_size)
        return _Pass(errors, mean, stopped)

    def _critic_pass(self, k: int, batch: Batch, order: Order) -> float:
        """Train critic k on mean squared error + critic_l2 * |parameters|^2."""
        critics, adam, settings = self.policy.critics, self.critic_optimiser, self.settings
        space = self._critic_spaces[k]
        total: float = kernels.critic_pass(
            *(critics.parameters[k], critics.gradient[k], adam.first[k], adam.second[k]),
            *(adam.count, critics.size_array, batch.observation, batch.value_target[k], order),
            *(settings.minibatch_size, adam.lr, settings.critic_l2, settings.max_grad_norm),
            *(space.inputs, space.work, space.scratch),
        )
        return total / len(order)

    def _actor_pass(
        self, batch: Batch, objective: Objective, reference: Reference, order: Order
    ) -> tuple[int, bool]:
        """Train the actor; returns the samples seen and whether the KL check stopped it."""
        settings, actor = self.settings, self.policy.actor
        for start in range(0, len(order), settings.minibatch_size):
            index = order[start : start + settings.minibatch_size]
            if isinstance(objective, SurrogateObjective):
                self._write_gradient(batch, objective, index)
            else:
                objective.gradient(actor, batch, index, settings.entropy_coefficient)
            self.actor_optimiser.step(actor.gradient, max_norm=settings.max_grad_norm)
            if settings.kl_check == "minibatch":
                mean = actor.mlp.predict(batch.observation[index])[0]
                kl = mean_kl(reference.mean[index], reference.log_std, mean, actor.log_std)
                if not kl <= settings.target_kl:
                    return start + len(index), True
        return len(order), False

    def _write_gradient(self, batch: Batch, objective: SurrogateObjective, index: Order) -> None:
        """Fill the actor's gradient: the loss's derivatives times the surrogates' gradients."""
        actor, space, size = self.policy.actor, self._actor_space, len(index)
        z = np.empty((size, batch.action.shape[1]), np.float32)
        shift, ratio = np.empty_like(z), np.empty(size, np.float32)
        slopes = np.empty((size, len(objective.kinds)), np.float32)
        means = np.empty(len(objective.kinds))
        kernels.actor_forward(
            *(actor.parameters, actor.mlp.size_array),
            *(batch.observation, batch.action, batch.log_prob),
            *(objective.columns, objective.kinds, objective.clip),
            *(objective.reference_mean, objective.reference_log_std, objective.trust),
            *(index, space.inputs, space.work, z, ratio, shift, means, slopes),
        )
        kernels.actor_backward(
            *(actor.parameters, actor.gradient, actor.mlp.size_array),
            *(objective.weights(means), objective.kinds, z, ratio, shift),
            *(objective.reference_log_std, slopes, self.settings.entropy_coefficient),
            *(space.inputs, space.work, space.scratch),
        )

    def _require_finite(self, kl: float, passes: int) -> None:
        critics_finite = bool(np.isfinite(self.policy.critics.parameters).all())
        if not (np.isfinite(kl) and critics_finite):
            raise CspoError(
                f"The {'policy' if critics_finite else 'critics'} became non-finite in pass "
                f"{passes} of the update. Try a smaller learning rate; the last checkpoint is "
                "intact."
            )

    def _metrics(self, errors: list[float]) -> dict[str, float]:
        border = 1 + self.policy.num_costs
        return {
            **({"critic_loss_reward": errors[0]} if errors else {}),
            **per_constraint("critic_loss_cost", errors[1:border]),
            **per_constraint("critic_loss_extra", errors[border:]),
            "policy_std": float(np.exp(self.policy.actor.log_std).mean()),
            "actor_lr": self.actor_optimiser.lr,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the optimisers' state."""
        return {
            "actor": self.actor_optimiser.state_dict(),
            "critics": self.critic_optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.actor_optimiser.load_state_dict(state["actor"])
        self.critic_optimiser.load_state_dict(state["critics"])
