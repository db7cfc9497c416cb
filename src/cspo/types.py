"""The objects that flow through one epoch. Array shapes are documented here, once.

Letters: T steps per environment, N environments, n = T * N samples, D observation size, A action
columns, G Gaussian columns of it, O outputs of the actor (`cspo.policy.distribution`), K
constraints, E finished episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]  # what networks see and give
FloatArray = NDArray[np.float64]  # what is measured and estimated

# What an environment takes: an array of a box or of several choices, the number of a choice, or a
# dict or tuple of these. Several of them are an array with one axis more, or a list.
Numbers: TypeAlias = "NDArray[np.floating] | NDArray[np.integer]"
Action: TypeAlias = "Numbers | int | dict[str, Action] | tuple[Action, ...] | list[Action]"


def per_constraint(name: str, values: Iterable[float]) -> dict[str, float]:
    """Name one value per constraint: `name` if there is one, else `name_0`, `name_1`, ..."""
    listed = [float(value) for value in values]
    if len(listed) == 1:
        return {name: listed[0]}
    return {f"{name}_{k}": value for k, value in enumerate(listed)}


def cost_labels(cost_names: Sequence[str]) -> list[str]:
    """Return what people read: "cost" if there is one constraint, else "cost NAME" for each."""
    if len(cost_names) == 1:
        return ["cost"]
    return [f"cost {name.removeprefix('cost_')}" for name in cost_names]


@dataclass(frozen=True)
class Episodes:
    """The episodes that terminated or reached their time limit, in the order of their ends."""

    returns: FloatArray  # (E,) undiscounted sum of rewards
    costs: FloatArray  # (E, K) undiscounted sum of costs
    lengths: FloatArray  # (E,)

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.returns)


@dataclass(frozen=True)
class Rollout:
    """What T steps of N environments gave; every path starts with a reset at the first step."""

    observation: Array  # (T, N, D) float32, normalised when collected; images are uint8
    action: Array  # (T, N, A) float32: raw Gaussian samples, then choices
    reward: FloatArray  # (T, N)
    cost: FloatArray  # (T, N, K)
    terminated: NDArray[np.bool_]  # (T, N)
    truncated: NDArray[np.bool_]  # (T, N)
    path_end: NDArray[np.int64]  # (P, 2) the (t, n) of every path that ended without terminating
    path_end_observation: Array  # (P, D) like those: what to bootstrap those paths from
    lost: NDArray[np.bool_] | None = None  # (T, N) cut there by a worker's end: no whole episode


class Discount(NamedTuple):
    """How a signal is credited."""

    gamma: float
    gae_lambda: float


@dataclass(frozen=True)
class Batch:
    """One epoch of samples, flattened with time first, as the algorithms see it."""

    observation: Array  # (n, D) float32; images are uint8
    action: Array  # (n, A) float32
    output: Array  # (n, O) outputs of the policy that collected the data
    log_std: Array  # (G,) and its log standard deviations
    log_prob: Array  # (n,) log-probability of each action under that policy
    adv_r: Array  # (n,) reward advantage, standardised over the epoch
    adv_c: Array  # (n, K) cost advantages, centred over the epoch, not scaled
    value_target: Array  # (1 + K, n) of the reward critic and the K cost critics, extra ones last
    any_cost: NDArray[np.bool_]  # (K,) whether the epoch contains any non-zero cost
    epoch_cost: (
        FloatArray  # (K,) mean cost of this epoch's own finished episodes; J_c if none finished
    )
    cost_error: FloatArray = field(default_factory=lambda: np.zeros(1))  # (K,) its standard error
    episode_length: float = (
        1.0  # mean length of this epoch's own finished episodes; T if none finished
    )
    num_envs: int = 1  # N: sample i is of environment i % N
    adv_extra: Array | None = (
        None  # (n, K) advantages of the algorithm's extra stream, centred; None without one
    )


class ExtraStream(NamedTuple):
    """A further signal per constraint that gets critics and advantages, as a cost does.

    delta_t = x_t + gamma V_x(s_{t+1}) - V_x(s_t), with a critic V_x for each constraint.
    """

    signal: FloatArray  # (T, N, K) x
    gamma: float
    gae_lambda: float
    target_min: float  # the critics' targets are not less


# Called with the costs c, the cost critics' V_c(s_t) and V_c(s_{t+1}), each (T, N, K), and the
# costs' gamma and lambda.
ExtraStreamRule = Callable[[FloatArray, FloatArray, FloatArray, float, float], ExtraStream]


@dataclass(frozen=True)
class EpochReport:
    """One epoch in plain numbers: what a trainer hands out and progress.csv keeps."""

    epoch: int
    """Number of the epoch, from 0."""
    steps: int
    """Environment steps so far, of all copies together."""
    episode_return: float
    """Mean undiscounted return of the last `episode_window` finished episodes; NaN before one."""
    cost: tuple[float, ...]
    """J_c of each of the K costs: the mean cost of an episode over the same window."""
    cost_limit: tuple[float, ...]
    """The limit that each of the K costs had in this epoch."""
    episode_length: float
    """Mean length in steps of the same episodes."""
    multiplier: tuple[float, ...]
    """The price of each of the K costs; zeros for an algorithm without multipliers."""
    kl: float
    """KL(old || new) of the update, summed over action dimensions: how far the policy moved."""
    steps_per_second: float
    """Speed of the whole epoch, update included."""
    seconds_rollout: float
    """Time that stepping the environments took."""
    seconds_update: float
    """Time that the update took."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The algorithm's own numbers by name, and `episodes`, `cost_estimated`; docs/metrics.md."""

    @property
    def violated(self) -> bool:
        """Whether any constraint is above its limit."""
        return any(c > d for c, d in zip(self.cost, self.cost_limit, strict=True))
