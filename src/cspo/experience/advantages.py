"""Credit: generalised advantage estimation for the reward and K costs, and the epoch's batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cspo.experience.settings import AdvantageSettings
from cspo.policy.policy import Policy
from cspo.types import Array, Batch, Discount, ExtraStreamRule, FloatArray, Rollout


def gae(
    signal: FloatArray,
    value: FloatArray,
    next_value: FloatArray,
    path_end: np.ndarray,
    gamma: FloatArray,
    gae_lambda: FloatArray,
) -> FloatArray:
    """Return A_t = sum_k (gamma lambda)^k delta_{t+k} within each path.

    delta_t = x_t + gamma V(s_{t+1}) - V(s_t), where V(s_{t+1}) is `next_value`: zero after
    termination, and the critic's value of the true last observation at a time limit or at the cut
    of the epoch.

    Args:
        signal: Rewards and costs x, shape (T, N, C).
        value: V(s_t), shape (T, N, C).
        next_value: V(s_{t+1}), shape (T, N, C).
        path_end: Whether a path ends with step t, shape (T, N).
        gamma: Discount of each channel, shape (C,).
        gae_lambda: GAE's lambda of each channel, shape (C,).
    """
    advantage = signal + gamma * next_value - value  # (T, N, C), starts as delta
    carry = np.where(path_end[..., None], 0.0, gamma * gae_lambda)  # (T, N, C)
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t] += carry[t] * advantage[t + 1]
    return advantage


def next_values(value: FloatArray, rollout: Rollout, end_value: FloatArray) -> FloatArray:
    """Return V(s_{t+1}) for every step: the next step's value, except where a path ends.

    Args:
        value: V(s_t), shape (T, N, C).
        rollout: Says where paths end and how.
        end_value: Values (P, C) of `rollout.path_end_observation`.
    """
    result = np.empty_like(value)
    result[:-1] = value[1:]
    result[rollout.path_end[:, 0], rollout.path_end[:, 1]] = end_value
    result[rollout.terminated] = 0.0
    return result


def estimate(
    rollout: Rollout,
    policy: Policy,
    settings: AdvantageSettings,
    epoch_cost: FloatArray,
    extra_stream: ExtraStreamRule | None = None,
    cost_unit: FloatArray | float = 1.0,
    cost_error: FloatArray | float = 0.0,
) -> Batch:
    """Evaluate the rollout with the critics and return the batch the algorithms see.

    Reward advantages are standardised over the epoch with the population standard deviation; cost
    advantages are centred only, so that they keep the scale of the cost signal. `extra_stream` is
    that of an algorithm whose policy has K extra critics; its advantages are centred too. Cost
    critics and cost advantages are in the unit `cost_unit`, (K,) or one number.
    """
    steps, num_envs, num_costs = rollout.cost.shape
    observation = rollout.observation.reshape(steps * num_envs, -1)
    action = rollout.action.reshape(steps * num_envs, -1)
    value = _values(policy, observation).reshape(steps, num_envs, -1)  # (T, N, C)
    next_value = next_values(value, rollout, _values(policy, rollout.path_end_observation))

    signal = policy.signals(rollout.reward, rollout.cost / cost_unit)  # (T, N, 1 + K)
    discounts = [settings.of_rewards] + [settings.of_costs] * num_costs
    target_min = [-np.inf] * (1 + num_costs)
    if extra_stream is not None:
        costs = slice(1, 1 + num_costs)
        streams = signal[..., costs], value[..., costs], next_value[..., costs]
        extra = extra_stream(*streams, *settings.of_costs)
        signal = np.concatenate([signal, extra.signal], axis=2)
        discounts += [Discount(extra.gamma, extra.gae_lambda)] * num_costs
        target_min += [extra.target_min] * num_costs
    path_end = rollout.terminated | rollout.truncated
    gamma, gae_lambda = np.array(discounts).T  # (C,) each
    advantage = gae(signal, value, next_value, path_end, gamma, gae_lambda)
    target = np.maximum(advantage + value, target_min).reshape(steps * num_envs, -1)

    advantage = advantage.reshape(steps * num_envs, -1)
    centred = advantage - advantage.mean(axis=0)
    adv_r = centred[:, 0] / (centred[:, 0].std() + 1e-8)
    adv_c, adv_extra = np.split(centred[:, 1:].astype(np.float32), [num_costs], axis=1)

    actor = policy.actor
    output = actor.outputs(observation)
    return Batch(
        observation=observation,
        action=action,
        output=output,
        log_std=actor.log_std.copy(),
        log_prob=actor.distribution.log_prob(output, actor.log_std, action),
        adv_r=adv_r.astype(np.float32),
        adv_c=np.ascontiguousarray(adv_c),
        value_target=np.ascontiguousarray(target.T, dtype=np.float32),
        any_cost=(rollout.cost != 0.0).any(axis=(0, 1)),
        epoch_cost=epoch_cost,
        cost_error=np.broadcast_to(cost_error, epoch_cost.shape),
        episode_length=_mean_length(path_end),
        num_envs=num_envs,
        adv_extra=None if extra_stream is None else np.ascontiguousarray(adv_extra),
    )


def _mean_length(path_end: NDArray[np.bool_]) -> float:
    """Return the mean length of the episodes that ended at `path_end` (T, N), else T."""
    steps = len(path_end)
    last = steps - path_end[::-1].argmax(
        axis=0
    )  # (N,) steps until the last end, where there is one
    return (
        float(last[path_end.any(axis=0)].sum() / path_end.sum()) if path_end.any() else float(steps)
    )


def _values(policy: Policy, observation: Array) -> FloatArray:
    return policy.values(observation).T.astype(np.float64)  # (n, C)
