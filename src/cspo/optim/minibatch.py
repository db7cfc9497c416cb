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
from cspo.optim.critics import critic_pass
from cspo.optim.objective import SurrogateObjective
from cspo.optim.settings import UpdateSettings
from cspo.optim.trust_region import FisherTrustRegion
from cspo.policy.policy import Policy
from cspo.types import Array, Batch, FloatArray, per_constraint

Order = NDArray[np.int64]
Objective = SurrogateObjective | AutogradObjective


class _Pass(NamedTuple):
    """What one pass over the batch gave."""

    critic_errors: list[float]  # mean squared errors met on the way; empty if none was trained
    output: Array  # (n, O) what the policy puts out after it
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
        workers = min(threads - 1, policy.critics.count)
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
        old = Reference(batch.output, batch.log_std)
        return self._fit(batch, loss, old, range(self.policy.critics.count))

    def fit_actor(
        self, batch: Batch, loss: Loss | AutogradObjective, reference: Reference
    ) -> FitResult:
        """Like `fit`, without the critics and with the KL limit around `reference`."""
        return self._fit(batch, loss, reference, range(0))

    def fit_critics(self, batch: Batch) -> dict[str, float]:
        """Train the critics alone, in all passes, and return the metrics."""
        old = Reference(batch.output, batch.log_std)
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
        mean_kl = actor.distribution.mean_kl
        for passes in range(1, self.settings.passes + 1):  # noqa: B007 (how many is reported)
            order = self.rng.permutation(len(batch.log_prob))
            done = self._run_pass(batch, objective, reference, critics, order)
            if objective is None:
                continue
            kl = mean_kl(*reference, done.output, actor.log_std)
            if not kl <= self.settings.target_kl or done.stopped:
                break
        self._require_finite(kl, passes)
        return FitResult(
            kl=mean_kl(batch.output, batch.log_std, done.output, actor.log_std),
            kl_reference=kl,
            passes=passes,
            output=done.output,
            ratio=actor.distribution.ratio(
                done.output, actor.log_std, batch.action, batch.log_prob
            ),
            metrics=self._metrics(done),
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
                errors[k] = critic_pass(
                    self.policy.critics, k, self.critic_optimiser, self.settings, batch, order
                )

        futures, stopped, output = [], False, batch.output
        if objective is not None and self.settings.kl_check == "minibatch":
            seen, stopped = self._actor_pass(batch, objective, reference, order)
            order = order[:seen]  # the critics see as much as the actor did before it stopped
        else:
            if self._pool is not None:
                futures = [self._pool.submit(train_critics) for _ in range(self._workers)]
            if objective is not None:
                self._actor_pass(batch, objective, reference, order)
        if objective is not None:
            output = self.policy.actor.outputs(batch.observation)
        train_critics()
        for future in futures:
            future.result()
        if critics:
            self.critic_optimiser.count += -(-len(order) // self.settings.minibatch_size)
        return _Pass(errors, output, stopped)

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
                output, old = actor.outputs(batch.observation[index]), reference.output[index]
                kl = actor.distribution.mean_kl(old, reference.log_std, output, actor.log_std)
                if not kl <= settings.target_kl:
                    return start + len(index), True
        return len(order), False

    def _write_gradient(self, batch: Batch, objective: SurrogateObjective, index: Order) -> None:
        """Fill the actor's gradient: the loss's derivatives times the surrogates' gradients."""
        actor, size = self.policy.actor, len(index)
        log_std, choices = actor.log_std, actor.distribution.choice_array
        z = np.empty((size, actor.distribution.gaussians), np.float32)
        scores = np.empty((size, actor.distribution.logits), np.float32)
        delta = np.empty((size, actor.distribution.output_size), np.float32)
        shift, ratio = np.empty_like(delta), np.empty(size, np.float32)
        slopes = np.empty((size, len(objective.kinds)), np.float32)
        means, by_log_std = np.empty(len(objective.kinds)), np.empty_like(log_std)
        output = actor.forward(batch.observation, index)
        kernels.surrogate_means(
            *(output, log_std, choices, batch.action, batch.log_prob),
            *(objective.columns, objective.kinds, objective.clip),
            *(objective.reference_output, objective.reference_log_std, objective.trust),
            *(index, z, scores, ratio, shift, means, slopes),
        )
        kernels.output_slopes(
            *(output, log_std, choices, objective.weights(means), objective.kinds),
            *(z, scores, ratio, shift, objective.reference_log_std, slopes),
            *(self.settings.entropy_coefficient, delta, by_log_std),
        )
        actor.backward(delta, by_log_std)

    def _require_finite(self, kl: float, passes: int) -> None:
        critics_finite = bool(np.isfinite(self.policy.critics.parameters).all())
        if not (np.isfinite(kl) and critics_finite):
            raise CspoError(
                f"The {'policy' if critics_finite else 'critics'} became non-finite in pass "
                f"{passes} of the update. Try a smaller learning rate; the last checkpoint is "
                "intact."
            )

    def _metrics(self, done: _Pass) -> dict[str, float]:
        errors, border, actor = done.critic_errors, 1 + self.policy.num_costs, self.policy.actor
        spread = {}
        if actor.distribution.gaussians:
            spread["policy_std"] = float(np.exp(actor.log_std).mean())
        if actor.distribution.choices:
            spread["choice_entropy"] = float(
                actor.distribution.choice_entropy(done.output)[0].mean()
            )
        return {
            **({"critic_loss_reward": errors[0]} if errors else {}),
            **per_constraint("critic_loss_cost", errors[1:border]),
            **per_constraint("critic_loss_extra", errors[border:]),
            **spread,
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
