"""The only minibatch loop: several passes over the epoch's batch, critics and actor interleaved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cspo.errors import CspoError
from cspo.optim.adam import FlatAdam, clip_norm_
from cspo.policy import Distribution, Policy, gaussian_log_prob, mean_kl
from cspo.types import Batch, per_constraint

Columns = dict[str, Tensor]  # per-sample arrays of the algorithm, first axis n in the batch and B in a minibatch
Loss = Callable[[Distribution, Columns], Tensor]


@dataclass(frozen=True)
class FitResult:
    """How a fit went."""

    kl: float  # KL(old || new) over the whole batch at the end
    passes: int  # passes done before the KL stop
    ratio: Tensor  # (n,) of the final policy
    metrics: dict[str, float]


class Learner:
    """Owns the optimisers of one policy; `fit` is what first-order algorithms hand their loss to."""

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

    def set_progress(self, fraction: float) -> None:
        """Set the actor's learning rate for a run of which `fraction` is done: linear decay to zero."""
        self.actor_optimiser.lr = self.base_actor_lr * (1.0 - fraction)

    def fit(self, batch: Batch, loss: Loss, columns: Columns) -> FitResult:
        """Minimise `loss` over minibatches until the passes are done or the KL limit is exceeded.

        Args:
            batch: The epoch's samples.
            loss: Called with the current policy on a minibatch and the minibatch's columns; returns a scalar.
            columns: Per-sample tensors (n, ...) that the loss needs, such as advantages.
        """
        critic_error = torch.zeros(self.policy.critics.count)
        passes, kl = 0, 0.0
        for passes in range(1, self.passes + 1):  # noqa: B007 (the number of passes done is reported)
            critic_error.zero_()
            order = torch.from_numpy(self.rng.permutation(len(batch.log_prob)))
            stopped = False
            for index in order.split(self.minibatch_size):
                x = batch.observation.index_select(0, index)
                critic_error += self._critic_step(x, batch.value_target.index_select(1, index))
                self._actor_step(x, batch, index, loss, columns)
                if self.kl_check == "minibatch" and self._kl(batch, x, index) > self.target_kl:
                    stopped = True
                    break
            mean = self.policy.actor.mlp.predict(batch.observation)[0]
            kl = mean_kl(batch.mean, batch.log_std, mean, self.policy.actor.log_std)
            if stopped or kl > self.target_kl:
                break
        if not np.isfinite(kl) or not bool(torch.isfinite(self.policy.critic_parameters).all()):
            what = "critics" if np.isfinite(kl) else "policy"
            raise CspoError(
                f"The {what} became non-finite in pass {passes} of the update. Try a smaller learning rate; "
                "the last checkpoint is intact."
            )
        return FitResult(kl, passes, self._ratio(batch, mean), self._metrics(critic_error, len(order)))

    def _critic_step(self, x: Tensor, target: Tensor) -> Tensor:
        """One step of every critic on mean squared error + critic_l2 * |parameters|^2; returns squared errors."""
        policy = self.policy
        error = policy.critics.forward(x)
        error[..., 0] -= target
        squared_error = torch.linalg.vecdot(error[..., 0], error[..., 0])
        policy.critics.backward(error.mul_(2.0 / len(x)))
        policy.critic_gradient.add_(policy.critic_parameters, alpha=2.0 * self.critic_l2)
        clip_norm_(policy.critic_gradient, self.max_grad_norm)
        self.critic_optimiser.step(policy.critic_gradient)
        return squared_error

    def _actor_step(self, x: Tensor, batch: Batch, index: Tensor, loss: Loss, columns: Columns) -> None:
        actor = self.policy.actor
        minibatch = {name: column.index_select(0, index) for name, column in columns.items()}
        action, log_prob = batch.action.index_select(0, index), batch.log_prob.index_select(0, index)
        new = actor.distribution(x, action, log_prob)
        objective = loss(new, minibatch)
        if self.entropy_coefficient:
            objective = objective - self.entropy_coefficient * new.log_std.sum()
        gradient = actor.gradient_of(objective)
        clip_norm_(gradient.unsqueeze(0), self.max_grad_norm)
        self.actor_optimiser.step(gradient)

    def _kl(self, batch: Batch, x: Tensor, index: Tensor) -> float:
        mean = self.policy.actor.mlp.forward(x)[0]
        return mean_kl(batch.mean.index_select(0, index), batch.log_std, mean, self.policy.actor.log_std)

    def _ratio(self, batch: Batch, mean: Tensor) -> Tensor:
        log_std = self.policy.actor.log_std
        log_prob = gaussian_log_prob((batch.action - mean) * log_std.neg().exp(), log_std)
        return (log_prob - batch.log_prob).exp()

    def _metrics(self, critic_error: Tensor, samples: int) -> dict[str, float]:
        errors = (critic_error / samples).tolist()
        metrics = {"critic_loss_reward": errors[0], **per_constraint("critic_loss_cost", errors[1:])}
        metrics["policy_std"] = float(self.policy.actor.log_std.exp().mean())
        metrics["actor_lr"] = self.actor_optimiser.lr
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the optimisers' state."""
        return {"actor": self.actor_optimiser.state_dict(), "critics": self.critic_optimiser.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.actor_optimiser.load_state_dict(state["actor"])
        self.critic_optimiser.load_state_dict(state["critics"])

