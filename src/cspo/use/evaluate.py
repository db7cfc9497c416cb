"""`cspo.evaluate`: measure a trained policy on complete episodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cspo.envs.batch import BatchEnv
from cspo.errors import CspoError
from cspo.runs.trust import allowed_task
from cspo.settings import check_memory
from cspo.setup import copies_of, make_environment
from cspo.streams import stream
from cspo.types import Episodes
from cspo.use.acting import Acting
from cspo.use.intervals import Interval, mean_interval, share_interval
from cspo.use.load import load

PARALLEL = 10  # environments an evaluation runs side by side
EPISODE_BYTES = 24  # return, cost and length of one
PATIENCE = 100_000  # steps without the end of any episode after which an evaluation gives up


@dataclass(frozen=True)
class EvaluationRow:
    """What complete episodes of one kind of acting gave."""

    mode: str  # "stochastic" or "deterministic"
    episodes: int
    episode_return: Interval
    cost_names: tuple[str, ...]  # K
    cost: tuple[Interval, ...]  # K
    cost_limit: tuple[float, ...]  # K
    violation_rate: Interval  # share of episodes with some cost above its limit
    episode_length: float


def evaluate(
    run: Path | str | Acting,
    episodes: int = 20,
    *,
    seed: int | None = None,
    deterministic: bool | None = None,
    env: Any = None,
    cost_fn: Any = None,
    policy: Any = None,
    trust: bool = False,
    workers: int | None = None,
) -> list[EvaluationRow]:
    """Measure a policy on complete episodes, without changing it.

    Several environments run side by side, and each contributes a number of episodes that is fixed
    beforehand: counting the first N episodes to finish would favour short ones. Both rows see the
    same initial states.

    Args:
        run: A run's folder, a policy from `load`, or one from `load_exported`.
        episodes: Episodes per row.
        seed: Of the environments and of stochastic actions; by default the run's. Its stream
            differs from the one training used, so the episodes are new.
        deterministic: True or False for one row only; by default both, as far as the policy can.
        env: The environment object or factory, if the run used one; or a name, to say that this
            is what may be imported.
        cost_fn: The cost function, if the run used one.
        policy: As in `load`.
        trust: Import the code that the run names as its task or network, also if the run was not
            started by this user here. See SECURITY.md.
        workers: Processes over which the environments are spread, as in training; by default as
            many as the run had if its environment is made by name, and 0 for one that is passed.

    Returns:
        One row per kind of acting, stochastic first. Intervals are bootstrapped (BCa), that of the
        violation rate is Wilson's.
    """
    trained = run if isinstance(run, Acting) else load(run, policy=policy, trust=trust)
    if episodes < 1:
        raise CspoError(f"--episodes must be at least 1, not {episodes}.")
    check_memory(f"The results of {episodes} episodes", {"--episodes": episodes * EPISODE_BYTES})
    seed = trained.config.seed if seed is None else seed
    if seed < 0:
        raise CspoError(f"--seed must not be negative, not {seed}.")
    owns_env = env is None or isinstance(env, str)
    if workers is None:
        workers = trained.config.parallel.workers if owns_env else 0
    env = allowed_task(trained.config, trust) if env is None else env
    copies = copies_of(env) or min(episodes, PARALLEL)
    batch = make_environment(trained.config, env, cost_fn, copies, workers=workers)
    modes = trained.modes if deterministic is None else (deterministic,)
    try:
        trained.check_sizes(batch)
        return [_row(trained, _play(trained, batch, episodes, seed, mode), mode) for mode in modes]
    finally:
        if owns_env or workers:
            batch.close()


def environment_seed(seed: int) -> int:
    """Return what an evaluation of that seed resets with: from a stream training did not use."""
    return int(stream(seed, "evaluation").integers(2**31))


def _play(policy: Acting, env: BatchEnv, episodes: int, seed: int, deterministic: bool) -> Episodes:
    """Return `episodes` complete episodes, a fixed number from each environment."""
    n = env.num_envs
    left = np.array([episodes // n + (i < episodes % n) for i in range(n)])
    total_return, total_cost, length = np.zeros(n), np.zeros((n, len(env.cost_names))), np.zeros(n)
    returns, costs, lengths = [], [], []
    observation = env.reset(seed=environment_seed(seed))
    policy.seed(seed)
    waited = 0
    while left.any():
        result = env.step(policy.act(observation, deterministic=deterministic))
        observation = result.observation
        total_return += result.reward
        total_cost += result.cost
        length += 1
        ended = result.terminated | result.truncated
        for i in np.flatnonzero(ended & (left > 0)):
            returns.append(total_return[i])
            costs.append(total_cost[i].copy())
            lengths.append(length[i])
            left[i] -= 1
        total_return[ended], total_cost[ended], length[ended] = 0.0, 0.0, 0.0
        waited = 0 if ended.any() else waited + 1
        if waited >= PATIENCE:
            fault = f"No episode ended within {PATIENCE} steps"
            raise CspoError(f"{fault}: give the environment a time limit.")
    return Episodes(np.array(returns), np.array(costs), np.array(lengths))


def _row(policy: Acting, episodes: Episodes, deterministic: bool) -> EvaluationRow:
    violated = (episodes.costs > policy.cost_limit).any(axis=1)
    return EvaluationRow(
        mode="deterministic" if deterministic else "stochastic",
        episodes=len(episodes),
        episode_return=mean_interval(episodes.returns),
        cost_names=policy.cost_names,
        cost=tuple(mean_interval(column) for column in episodes.costs.T),
        cost_limit=tuple(policy.cost_limit.tolist()),
        violation_rate=share_interval(int(violated.sum()), len(episodes)),
        episode_length=float(episodes.lengths.mean()),
    )
