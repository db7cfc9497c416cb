"""Collect experience: T steps of N environments, every epoch from a fresh reset."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.batch import BatchEnv, StepResult
from cspo.errors import EnvironmentFault
from cspo.policy.policy import Policy
from cspo.policy.scaling import ActionScaling
from cspo.types import Episodes, Rollout


def collect(
    env: BatchEnv, policy: Policy, steps: int, rng: np.random.Generator, seed: int | None = None
) -> Rollout:
    """Run the policy for `steps` steps in each environment.

    The learner never clips an action: a raw Gaussian sample is mapped from [-1, 1] to the action
    box and left to the environment; a choice stays as it is. Values and log-probabilities are
    computed afterwards, in one batch.

    Args:
        env: The environments; all are reset first.
        policy: Acts, and its normaliser counts every observation seen.
        steps: Steps per environment, T.
        rng: Stream of the action noise.
        seed: Seed of the reset in the first epoch of a run, None later.
    """
    shape = (steps, env.num_envs)
    actor, normaliser, distribution = policy.actor, policy.normaliser, policy.actor.distribution
    observation = np.empty((*shape, env.observation_size), normaliser.dtype)
    action = distribution.noise(rng, shape, actor.log_std)  # becomes the action step by step
    reward, cost = np.empty(shape), np.empty((*shape, len(env.cost_names)))
    terminated, truncated = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    lost = np.zeros(shape, dtype=bool) if hasattr(env, "lost") else None
    in_units = ActionScaling(env.action_low, env.action_high, len(distribution.choices))
    path_end: list[tuple[int, int]] = []
    path_end_observation: list[NDArray[Any]] = []

    raw = env.reset(seed)
    _check_reset(raw)
    normaliser.push(raw)
    for t in range(steps):
        observation[t] = normaliser(raw)
        result = env.step(in_units(distribution.sample(actor.outputs(observation[t]), action[t])))
        raw, reward[t], cost[t], terminated[t], truncated[t], final = result
        if lost is not None:
            lost[t] = env.lost  # type: ignore[attr-defined]
        ended = terminated[t] | truncated[t]
        last = final[ended]
        if not np.isfinite(raw.sum() + reward[t].sum() + cost[t].sum() + last.sum()):
            _report_fault(result, t)
        normaliser.push(raw)
        if len(last):
            normaliser.push(last)
        timed_out = truncated[t] & ~terminated[t]
        if timed_out.any():
            path_end.extend((t, int(n)) for n in np.flatnonzero(timed_out))
            path_end_observation.extend(normaliser(final[timed_out]))
    cut = np.flatnonzero(~(terminated[-1] | truncated[-1]))
    path_end.extend((steps - 1, int(n)) for n in cut)
    path_end_observation.extend(normaliser(raw[cut]))
    ends = np.array(path_end, dtype=np.int64).reshape(-1, 2)
    last = np.array(path_end_observation, dtype=normaliser.dtype).reshape(-1, env.observation_size)
    return Rollout(observation, action, reward, cost, terminated, truncated, ends, last, lost)


def finished_episodes(rollout: Rollout) -> Episodes:
    """Return the episodes that terminated or timed out.

    One cut by the end of the epoch, or of the worker that stepped it, is none.
    """
    ended = rollout.terminated | rollout.truncated
    t, n = np.nonzero(ended)  # in order of time
    steps, num_envs = ended.shape
    # Sums up to and including each step; an episode is the difference of two of them.
    total_reward = np.zeros((steps + 1, num_envs))
    total_cost = np.zeros((steps + 1, num_envs, rollout.cost.shape[2]))
    np.cumsum(rollout.reward, axis=0, out=total_reward[1:])
    np.cumsum(rollout.cost, axis=0, out=total_cost[1:])
    start = np.zeros(len(t), dtype=np.int64)
    previous_end = np.zeros(num_envs, dtype=np.int64)
    for i, (end, env) in enumerate(zip(t, n, strict=True)):
        start[i] = previous_end[env]
        previous_end[env] = end + 1
    if rollout.lost is not None:
        whole = ~rollout.lost[t, n]
        t, n, start = t[whole], n[whole], start[whole]
    return Episodes(
        total_reward[t + 1, n] - total_reward[start, n],
        total_cost[t + 1, n] - total_cost[start, n],
        (t + 1 - start).astype(np.float64),
    )


def _check_reset(observation: NDArray[np.floating]) -> None:
    bad = ~np.isfinite(observation).all(axis=1)
    if bad.any():
        raise EnvironmentFault(
            f"Environment {int(np.argmax(bad))} returned a non-finite observation at reset. "
            "Training stopped; the last checkpoint is intact."
        )


def _report_fault(result: StepResult, t: int) -> None:
    """Name what is not finite, in which environment and at which step of the epoch; else return."""
    ended = result.terminated | result.truncated
    values = {
        "observation": result.observation,
        "reward": result.reward,
        "cost": result.cost,
        "last observation": np.where(ended[:, None], result.final_observation, 0.0),
    }
    for name, value in values.items():
        bad = ~np.isfinite(value.reshape(value.shape[0], -1)).all(axis=1)
        if bad.any():
            env = int(np.argmax(bad))
            raise EnvironmentFault(
                f"Environment {env} returned a non-finite {name} at step {t + 1} of the epoch "
                f"({value[env]}). "
                "Training stopped; the last checkpoint is intact."
            )
