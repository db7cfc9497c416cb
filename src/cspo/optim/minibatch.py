"""The only minibatch loop: several passes over the epoch's batch, for the actor and every critic."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cspo.arithmetic import flush_denormals
from cspo.errors import CspoError
from cspo.optim import kernels
from cspo.optim.adam import FlatAdam
from cspo.optim.objective import AutogradObjective, Objective, Reference, SurrogateObjective
from cspo.optim.trust_region import TrustRegion
from cspo.policy.networks import Workspace
from cspo.policy.policy import Policy, gaussian_log_prob, mean_kl, standardise
from cspo.types import Batch, per_constraint

Order = NDArray[np.int64]


@dataclass(frozen=True)
class FitResult:
    """How a fit went."""

    kl: float  # KL(old || new) over the whole batch at the end, from the policy that collected it
    kl_reference: (
        float  # KL(reference || new), which the limit is about; the same but for `fit_actor`
    )
    passes: int  # passes done before the KL stop
    mean: Tensor  # (n, A) of the final policy
    ratio: Tensor  # (n,) of the final policy to the one that collected the batch
    metrics: dict[str, float]


class _Pass(NamedTuple):
    """What one pass over the batch gave."""

    critic_errors: list[
        float
    ]  # mean squared errors met on the way, one per critic; empty if none was trained
    mean: Tensor  # (n, A) the policy's means after it
    stopped: bool  # whether the KL check of a minibatch ended it early


class Learner:
    """Owns the optimisers of one policy; `fit` is what first-order algorithms hand their loss to.

    `fit_actor` and `fit_critics` are its two halves, for algorithms that train them at different
    times.

    Per minibatch the reward critic, the cost critics and the actor each take one step. They share
    no parameters, so each network makes its pass over the same minibatches on its own, on as many
    threads as there are; the result does not depend on their number.
    """

    def __init__(
        self,
        policy: Policy,
        rng: np.random.Generator,
        *,
        actor_lr: float = 3e-4,
        critic_lr: float = 3e-4,
        passes: int = 10,
        minibatch_size: int = 512,
        target_kl: float = 0.02,
        kl_check: Literal["pass", "minibatch"] = "pass",
        max_grad_norm: float = 40.0,
        critic_l2: float = 0.001,
        entropy_coefficient: float = 0.0,
        threads: int = 1,
    ) -> None:
        """Create the optimisers; `rng` is the stream that shuffles."""
        self.policy, self.rng = policy, rng
        self.base_actor_lr = actor_lr
        self.passes, self.minibatch_size = passes, minibatch_size
        self.target_kl, self.kl_check = target_kl, kl_check
        self.max_grad_norm, self.critic_l2 = max_grad_norm, critic_l2
        self.entropy_coefficient = entropy_coefficient
        self.actor_optimiser = FlatAdam(policy.actor.parameters, actor_lr)
        self.critic_optimiser = FlatAdam(policy.critic_parameters, critic_lr)
        self._actor_space = Workspace(policy.actor.mlp.sizes, minibatch_size)
        self._critic_spaces = [
            Workspace(policy.critics.sizes, minibatch_size) for _ in range(policy.critics.count)
        ]
        workers = min(threads - 1, policy.critics.count)
        self._pool = (
            ThreadPoolExecutor(workers, "cspo-critics", flush_denormals) if workers > 0 else None
        )
        self._workers = workers

    def set_progress(self, fraction: float) -> None:
        """Set the actor's learning rate for a run of which `fraction` is done: linear decay to zero."""
        self.actor_optimiser.lr = self.base_actor_lr * (1.0 - fraction)

    def fit(self, batch: Batch, objective: Objective) -> FitResult:
        """Minimise the objective, and train the critics, until the passes are done or the KL limit is exceeded."""
        return self._fit(
            batch, objective, Reference(batch.mean, batch.log_std), range(self.policy.critics.count)
        )

    def fit_actor(self, batch: Batch, objective: Objective, reference: Reference) -> FitResult:
        """Like `fit`, without the critics and with the KL limit around `reference`."""
        return self._fit(batch, objective, reference, range(0))

    def fit_critics(self, batch: Batch) -> dict[str, float]:
        """Train the critics alone, in all passes, and return the metrics."""
        fit = self._fit(
            batch, None, Reference(batch.mean, batch.log_std), range(self.policy.critics.count)
        )
        return {
            name: value for name, value in fit.metrics.items() if name != "actor_lr"
        }  # the actor did not move

    def trust_region(self, batch: Batch, damping: float, iterations: int) -> TrustRegion:
        """Return the actor's trust region on this batch, for algorithms that take one step per epoch."""
        if self.entropy_coefficient:
            raise CspoError(
                "A trust-region algorithm has no entropy bonus: leave --entropy-coefficient at 0."
            )
        return TrustRegion(self.policy.actor, batch, damping, iterations, self._pool)

    def _fit(
        self, batch: Batch, objective: Objective | None, reference: Reference, critics: range
    ) -> FitResult:
        samples = len(batch.log_prob)
        kl, passes = 0.0, 0
        for passes in range(1, self.passes + 1):  # noqa: B007 (the number of passes done is reported)
            order = self.rng.permutation(samples)
            done = self._run_pass(batch, objective, reference, critics, order)
            if objective is None:
                continue
            kl = mean_kl(reference.mean, reference.log_std, done.mean, self.policy.actor.log_std)
            if not kl <= self.target_kl or done.stopped:
                break
        self._require_finite(kl, passes)
        return FitResult(
            mean_kl(batch.mean, batch.log_std, done.mean, self.policy.actor.log_std),
            kl,
            passes,
            done.mean,
            self._ratio(batch, done.mean),
            self._metrics(done.critic_errors),
        )

    def _run_pass(
        self,
        batch: Batch,
        objective: Objective | None,
        reference: Reference,
        critics: range,
        order: Order,
    ) -> _Pass:
        """Let these critics, and the actor if it has an objective, see every minibatch of `order` once."""
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
        if objective is not None and self.kl_check == "minibatch":
            seen, stopped = self._actor_pass(batch, objective, reference, order)
            order = order[:seen]  # the critics see as much as the actor did before it stopped
        else:
            futures = (
                [self._pool.submit(train_critics) for _ in range(self._workers)]
                if self._pool
                else []
            )
            if objective is not None:
                self._actor_pass(batch, objective, reference, order)
        if objective is not None:
            mean = self.policy.actor.mlp.predict(batch.observation)[0]
        train_critics()
        for future in futures:
            future.result()
        if critics:
            self.critic_optimiser.count += -(-len(order) // self.minibatch_size)
        return _Pass(errors, mean, stopped)

    def _critic_pass(self, k: int, batch: Batch, order: Order) -> float:
        """Train critic k on mean squared error + critic_l2 * |parameters|^2."""
        critics, optimiser, space = (
            self.policy.critics,
            self.critic_optimiser,
            self._critic_spaces[k],
        )
        total: float = kernels.critic_pass(
            critics.parameters[k],
            critics.gradient[k],
            optimiser.first[k],
            optimiser.second[k],
            optimiser.count,
            critics.size_array,
            batch.observation.numpy(),
            batch.value_target[k].numpy(),
            order,
            self.minibatch_size,
            optimiser.lr,
            self.critic_l2,
            self.max_grad_norm,
            space.inputs,
            space.work,
            space.scratch,
        )
        return total / len(order)

    def _actor_pass(
        self, batch: Batch, objective: Objective, reference: Reference, order: Order
    ) -> tuple[int, bool]:
        """Train the actor; returns the number of samples seen and whether the KL check stopped it."""
        for start in range(0, len(order), self.minibatch_size):
            index = order[start : start + self.minibatch_size]
            if isinstance(objective, SurrogateObjective):
                self._surrogate_step(batch, objective, index)
            else:
                self._autograd_step(batch, objective, index)
            if (
                self.kl_check == "minibatch"
                and not self._minibatch_kl(batch, reference, index) <= self.target_kl
            ):
                return start + len(index), True
        return len(order), False

    def _surrogate_step(self, batch: Batch, objective: SurrogateObjective, index: Order) -> None:
        actor, space, size = self.policy.actor, self._actor_space, len(index)
        z = np.empty((size, batch.action.shape[1]), np.float32)
        shift = np.empty_like(z)
        ratio = np.empty(size, np.float32)
        slopes = np.empty((size, len(objective.kinds)), np.float32)
        values = np.empty(len(objective.kinds))
        kernels.actor_forward(
            actor.array,
            actor.mlp.size_array,
            batch.observation.numpy(),
            batch.action.numpy(),
            batch.log_prob.numpy(),
            objective.columns,
            objective.kinds,
            objective.clip,
            objective.reference_mean,
            objective.reference_log_std,
            objective.trust,
            index,
            space.inputs,
            space.work,
            z,
            ratio,
            shift,
            values,
            slopes,
        )
        weights = objective.weights(values)
        kernels.actor_backward(
            actor.array,
            actor.gradient_array,
            actor.mlp.size_array,
            weights,
            objective.kinds,
            z,
            ratio,
            shift,
            objective.reference_log_std,
            slopes,
            self.entropy_coefficient,
            space.inputs,
            space.work,
            space.scratch,
        )
        self.actor_optimiser.step(actor.gradient, max_norm=self.max_grad_norm)

    def _autograd_step(self, batch: Batch, objective: AutogradObjective, index: Order) -> None:
        rows = torch.from_numpy(index)
        minibatch = {name: column[rows] for name, column in objective.columns.items()}
        actor = self.policy.actor
        new = actor.distribution(batch.observation[rows], batch.action[rows], batch.log_prob[rows])
        loss = objective.loss(new, minibatch)
        if self.entropy_coefficient:
            loss = loss - self.entropy_coefficient * new.log_std.sum()
        self.actor_optimiser.step(actor.gradient_of(loss, new), max_norm=self.max_grad_norm)

    def _minibatch_kl(self, batch: Batch, reference: Reference, index: Order) -> float:
        rows, actor = torch.from_numpy(index), self.policy.actor
        mean = actor.mlp.predict(batch.observation[rows])[0]
        return mean_kl(reference.mean[rows], reference.log_std, mean, actor.log_std)

    def _require_finite(self, kl: float, passes: int) -> None:
        critics_finite = bool(np.isfinite(self.policy.critics.parameters).all())
        if not (np.isfinite(kl) and critics_finite):
            raise CspoError(
                f"The {'policy' if critics_finite else 'critics'} became non-finite in pass {passes} of the update. "
                "Try a smaller learning rate; the last checkpoint is intact."
            )

    def _ratio(self, batch: Batch, mean: Tensor) -> Tensor:
        log_std = self.policy.actor.log_std
        log_prob = gaussian_log_prob(standardise(batch.action, mean, log_std), log_std)
        return (log_prob - batch.log_prob).exp()

    def _metrics(self, errors: list[float]) -> dict[str, float]:
        border = 1 + self.policy.num_costs
        critic_losses = {
            **({"critic_loss_reward": errors[0]} if errors else {}),
            **per_constraint("critic_loss_cost", errors[1:border]),
            **per_constraint("critic_loss_extra", errors[border:]),
        }
        return {
            **critic_losses,
            "policy_std": float(self.policy.actor.log_std.exp().mean()),
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
