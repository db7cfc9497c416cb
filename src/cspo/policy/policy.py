"""Who acts: normalisers, a Gaussian actor, a reward critic and K cost critics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cspo.policy import kernels
from cspo.policy.networks import CHUNK, StackedMLP, parameter_count

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Normaliser:
    """Running mean and standard deviation of everything seen so far, per coordinate.

    A new batch is counted first and normalised with the statistics that include it. The standard
    deviation has the (n - 1) divisor and a floor; with a single observation seen there is none, and
    it passes unchanged.
    """

    def __init__(
        self, size: int, clip: float = 5.0, std_floor: float = 0.01, enabled: bool = True
    ) -> None:
        """Start with nothing seen; `enabled=False` passes every observation through unchanged."""
        self.clip, self.std_floor, self.enabled = clip, std_floor, enabled
        self.count = 0
        self.mean = np.zeros(size)
        self.square_sum = np.zeros(size)  # sum of squared deviations from the mean
        self._inverse_std = np.ones(size)

    def push(self, x: NDArray[np.floating[Any]]) -> None:
        """Count the rows of x (B, D), merged with the past as one group with another."""
        if not self.enabled:
            return
        kernels.merge_statistics(np.asarray(x, np.float64), self.count, self.mean, self.square_sum)
        self.count += len(x)
        self._set_inverse_std()

    def _set_inverse_std(self) -> None:
        if self.count > 1:
            std = np.sqrt(self.square_sum / (self.count - 1))
            self._inverse_std = 1.0 / np.maximum(std, self.std_floor)

    def __call__(self, x: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Normalise x (B, D) without counting it."""
        if not self.enabled or self.count <= 1:
            return x.astype(np.float32)
        out = np.empty(x.shape, np.float32)
        kernels.normalise(np.asarray(x, np.float64), self.mean, self._inverse_std, self.clip, out)
        return out

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics."""
        return {"count": self.count, "mean": self.mean.copy(), "square_sum": self.square_sum.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"])
        self.square_sum = np.array(state["square_sum"])
        self._set_inverse_std()


class SignalNormaliser:
    """Rewards and costs as the advantages and the critics see them: raw, or standardised as observations are.

    At every step the values of all environments are counted and then standardised; every cost has
    its own statistics. What is not switched on passes unchanged.
    """

    def __init__(self, num_costs: int, rewards: bool = False, costs: bool = False) -> None:
        """Start with nothing seen."""
        self.parts = {
            "reward": Normaliser(1, enabled=rewards),
            "cost": Normaliser(num_costs, enabled=costs),
        }

    def __call__(
        self, reward: NDArray[np.float64], cost: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Count an epoch of rewards (T, N) and costs (T, N, K); return both as (T, N, 1 + K)."""
        columns = [
            _step_by_step(self.parts["reward"], reward[..., None]),
            _step_by_step(self.parts["cost"], cost),
        ]
        return np.concatenate(columns, axis=2)

    def state_dict(self) -> dict[str, Any]:
        """Return the statistics of what is switched on."""
        return {name: part.state_dict() for name, part in self.parts.items() if part.enabled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name, statistics in state.items():
            self.parts[name].load_state_dict(statistics)


def _step_by_step(normaliser: Normaliser, raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Count each step of raw (T, N, D) and standardise it with everything seen until then."""
    if not normaliser.enabled:
        return raw
    result = np.empty_like(raw)
    for t, values in enumerate(raw):
        normaliser.push(values)
        result[t] = normaliser(values)
    return result


@dataclass(slots=True)
class Distribution:
    """The current policy on a minibatch: what a loss is written in.

    `log_prob`, `mean` and `log_std` are the leaves of the loss's graph. Below them,
    `Actor.gradient_of` applies the chain rule by hand.
    """

    log_prob: Tensor  # (B,)
    mean: Tensor  # (B, A)
    log_std: Tensor  # (A,)
    ratio: Tensor  # (B,) probability of the action relative to the policy that collected it
    z: Tensor  # (B, A) standardised action, no gradient


def standardise(action: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return z = (action - mean) / std, all (B, A)."""
    return (action - mean) * log_std.neg().exp()


def gaussian_log_prob(z: Tensor, log_std: Tensor) -> Tensor:
    """Return the log-density (B,) of standardised samples z (B, A), summed over action dimensions."""
    constant = log_std.sum() + HALF_LOG_TWO_PI * z.shape[1]
    log_prob: Tensor = -0.5 * z.square().sum(1) - constant
    return log_prob


class Actor:
    """A diagonal Gaussian policy: an MLP for the mean and one trained log standard deviation per action."""

    def __init__(self, sizes: Sequence[int], log_std_init: float, rng: np.random.Generator) -> None:
        """Initialise the mean network from `rng` and the log standard deviations at `log_std_init`."""
        mlp_size, actions = parameter_count(sizes), sizes[-1]
        self.parameters = torch.zeros(mlp_size + actions)  # the MLP's, then log_std
        self.gradient = torch.zeros_like(self.parameters)
        self.array, self.gradient_array = (
            self.parameters.numpy(),
            self.gradient.numpy(),
        )  # the same memory
        self.log_std = self.parameters[mlp_size:]
        self._log_std_gradient = self.gradient[mlp_size:]
        self.mlp = StackedMLP(
            sizes, self.parameters[None, :mlp_size], self.gradient[None, :mlp_size]
        )
        self.mlp.initialise(rng)
        self.log_std.fill_(log_std_init)

    def distribution(self, x: Tensor, action: Tensor, old_log_prob: Tensor) -> Distribution:
        """Return the current policy at observations x (B, D) for the actions taken there.

        Only the newest result can be differentiated: the network keeps the activations of its last
        call.
        """
        mean = self.mlp.forward(x)[0]
        z = standardise(action, mean, self.log_std)
        log_prob = gaussian_log_prob(z, self.log_std).requires_grad_()
        ratio = (log_prob - old_log_prob).exp()
        log_std = self.log_std.clone().requires_grad_()
        return Distribution(log_prob, mean.requires_grad_(), log_std, ratio, z)

    def gradient_of(self, loss: Tensor, new: Distribution) -> Tensor:
        """Return the gradient of a loss with respect to the flat parameters, a buffer that is used again."""
        leaves = (new.log_prob, new.mean, new.log_std)
        grad_log_prob, grad_mean, grad_log_std = torch.autograd.grad(
            loss, leaves, allow_unused=True
        )
        if grad_log_prob is not None:
            through_mean, through_std = self._through_log_prob(new.z, grad_log_prob)
            grad_mean = through_mean if grad_mean is None else through_mean + grad_mean
            grad_log_std = through_std if grad_log_std is None else through_std + grad_log_std
        self.backward(torch.zeros_like(new.z) if grad_mean is None else grad_mean, grad_log_std)
        return self.gradient

    def _through_log_prob(self, z: Tensor, grad_log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient at the mean (B, A) and at log_std (A,) for one at the log-probabilities (B,)."""
        weighted = z * grad_log_prob.unsqueeze(1)
        grad_mean = weighted * self.log_std.neg().exp()  # d log_prob / d mean = z / std
        return grad_mean, (weighted * z).sum(
            0
        ) - grad_log_prob.sum()  # d log_prob / d log_std = z^2 - 1

    def backward(self, grad_mean: Tensor, grad_log_std: Tensor | None) -> None:
        """Fill `gradient` from the gradient at the mean (B, A) and at log_std (A,)."""
        self.mlp.backward(grad_mean.unsqueeze(0))
        if grad_log_std is None:
            self._log_std_gradient.zero_()
        else:
            self._log_std_gradient.copy_(grad_log_std)

    def score_gradient(self, x: Tensor, action: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient of mean(weight * log pi(action|x)) over a batch of any length, as a new tensor."""
        total = torch.zeros_like(self.parameters)
        for start in range(0, x.shape[0], CHUNK):
            rows = slice(start, start + CHUNK)
            z = standardise(action[rows], self.mlp.forward(x[rows])[0], self.log_std)
            self.backward(*self._through_log_prob(z, weight[rows]))
            total += self.gradient
        return total / x.shape[0]


class Policy:
    """Normalisers, actor and 1 + K critics: everything that is trained.

    Attributes:
        normaliser: Of observations.
        signals: Of rewards and costs.
        actor: Acts.
        critics: Value of the reward, of the K costs, and of the K extra streams of an algorithm
            that has one.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        num_costs: int,
        normaliser: Normaliser,
        rng: np.random.Generator,
        hidden_sizes: Sequence[int] = (64, 64),
        log_std_init: float = 0.0,
        signals: SignalNormaliser | None = None,
        extra_critics: int = 0,
    ) -> None:
        """Draw the initial networks from `rng`."""
        self.normaliser = normaliser
        self.signals = SignalNormaliser(num_costs) if signals is None else signals
        self.actor = Actor((observation_size, *hidden_sizes, action_size), log_std_init, rng)
        critic_sizes = (observation_size, *hidden_sizes, 1)
        self.num_costs = num_costs
        self.critic_parameters = torch.zeros(
            1 + num_costs + extra_critics, parameter_count(critic_sizes)
        )
        self.critic_gradient = torch.zeros_like(self.critic_parameters)
        self.critics = StackedMLP(critic_sizes, self.critic_parameters, self.critic_gradient)
        # The extra ones last: whether there are any changes nothing for the others.
        for rows in (slice(0, 1 + num_costs), slice(1 + num_costs, None)):
            StackedMLP(
                critic_sizes, self.critic_parameters[rows], self.critic_gradient[rows]
            ).initialise(rng)

    def values(self, x: Tensor) -> Tensor:
        """Return the values (1 + K, B) at normalised observations x (B, D): reward, costs, then any extra ones."""
        return self.critics.predict(x)[..., 0]

    def state_dict(self) -> dict[str, Any]:
        """Return everything trained."""
        return {
            "actor": self.actor.parameters.clone(),
            "critics": self.critic_parameters.clone(),
            "normaliser": self.normaliser.state_dict(),
            "signals": self.signals.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.actor.parameters.copy_(torch.as_tensor(state["actor"]))
        self.critic_parameters.copy_(torch.as_tensor(state["critics"]))
        self.normaliser.load_state_dict(state["normaliser"])
        self.signals.load_state_dict(
            state.get("signals", {})
        )  # checkpoints of version 0.1 may lack it


def mean_kl(batch_mean: Tensor, batch_log_std: Tensor, mean: Tensor, log_std: Tensor) -> float:
    """Return KL(old || new) of diagonal Gaussians, summed over action dimensions, averaged over samples."""
    variance_ratio = (2.0 * (batch_log_std - log_std)).exp()
    shift = (batch_mean - mean).square_().mean(0) * (-2.0 * log_std).exp()
    return float((0.5 * (variance_ratio + shift - 1.0) - (batch_log_std - log_std)).sum())
