"""`cspo.load` and `cspo.evaluate`: use a trained policy, and measure it, with its normaliser frozen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from cspo.arithmetic import single_threaded_math
from cspo.config import TrainConfig
from cspo.envs.batch import BatchEnv
from cspo.errors import CspoError
from cspo.runs.checkpoint import list_checkpoints, load_newest
from cspo.runs.checkpoint import load as load_checkpoint
from cspo.runs.folder import load_config, make_environment
from cspo.runs.session import copies_of
from cspo.streams import stream
from cspo.train import build_policy
from cspo.types import Episodes, FloatArray
from cspo.use.intervals import Interval, mean_interval, share_interval

PARALLEL = 10  # environments an evaluation runs side by side
PATIENCE = 100_000  # steps without the end of any episode after which an evaluation gives up


class TrainedPolicy:
    """A policy and everything it needs to act: no environment, no trainer.

    Call it with a raw observation to get an action in the environment's own units.

    Attributes:
        config: Settings of the run it comes from.
        epoch: Epochs it was trained for.
        observation_size: D.
        action_size: A.
        action_low: Lower bounds of the action box, shape (A,).
        action_high: Upper bounds, shape (A,).
        cost_names: Names of the K costs.
        cost_limit: Limits at the end of training, shape (K,).
        clip_actions: Whether the environment received its actions cut off at these bounds.
    """

    def __init__(self, config: TrainConfig, state: dict[str, Any]) -> None:
        """Build the policy from a run's settings and the state in one of its checkpoints."""
        facts = state["facts"]
        self.config, self.epoch = config, int(state["epoch"])
        self.observation_size, self.action_size = (
            int(facts["observation_size"]),
            int(facts["action_size"]),
        )
        self.action_low, self.action_high = (
            np.array(facts["action_low"]),
            np.array(facts["action_high"]),
        )
        self.cost_names: tuple[str, ...] = tuple(facts["cost_names"])
        self.cost_limit = np.array(state["cost_limit"])
        self.clip_actions = bool(facts["clip_actions"])
        self._policy = build_policy(config, SimpleNamespace(**facts))
        self._policy.load_state_dict(state["policy"])
        self._rng = stream(config.seed, "policy")

    def seed(self, seed: int) -> None:
        """Start the stream that stochastic actions are drawn from anew."""
        self._rng = stream(seed, "policy")

    def __call__(
        self, observation: ArrayLike, *, deterministic: bool = True, clip: bool | None = None
    ) -> FloatArray:
        """Return the action (A,) for an observation (D,), or (B, A) for (B, D).

        Args:
            observation: As the environment gives it, not normalised.
            deterministic: Take the mean of the policy; False draws from it as training did.
            clip: Cut the action off at the bounds of the action box. By default as in training: a
                Gymnasium environment was given clipped actions, a native task (whose physics clamps
                the controls, and whose reward counts the action as given) unclipped ones.
        """
        raw = np.asarray(observation, dtype=np.float64)
        if raw.ndim not in (1, 2) or raw.shape[-1] != self.observation_size:
            size = self.observation_size
            raise CspoError(
                f"The policy takes observations of shape ({size},) or (B, {size}), not {raw.shape}."
            )
        x = torch.from_numpy(self._policy.normaliser(np.atleast_2d(raw)))
        with single_threaded_math():
            action = self._policy.actor.mlp.predict(x)[0].numpy()
        if not deterministic:
            std = self._policy.actor.log_std.exp().numpy()
            action = action + self._rng.standard_normal(action.shape, dtype=np.float32) * std
        half_range = 0.5 * (self.action_high - self.action_low)
        scaled = action * half_range + 0.5 * (self.action_high + self.action_low)
        if self.clip_actions if clip is None else clip:
            scaled = np.clip(scaled, self.action_low, self.action_high)
        return np.asarray(scaled[0] if raw.ndim == 1 else scaled)


def load(
    run_dir: Path | str, checkpoint: Path | str | int | None = None, *, plugin: str | None = None
) -> TrainedPolicy:
    """Return the policy of a run.

    Args:
        run_dir: The run's folder.
        checkpoint: A checkpoint file, or the number of epochs after which it was written; by
            default the newest that can be read.
        plugin: File or module with the run's algorithm, if it is not where it was.
    """
    run_dir = Path(run_dir)
    config = load_config(run_dir, plugin)
    folder = run_dir / "checkpoints"
    if checkpoint is None:
        state, _ = load_newest(folder)
        if state is None:
            raise CspoError(
                f"{run_dir} has no checkpoint yet: train it first, `cspo train --resume {run_dir}`."
            )
        return TrainedPolicy(config, state)
    path = (
        Path(checkpoint)
        if not isinstance(checkpoint, int)
        else folder / f"epoch-{checkpoint:06d}.safetensors"
    )
    if not path.exists():
        kept = ", ".join(
            str(int(one.stem.removeprefix("epoch-"))) for one in list_checkpoints(folder)
        )
        raise CspoError(
            f"There is no checkpoint {path}. The run keeps those of epochs: {kept or 'none'}."
        )
    return TrainedPolicy(config, load_checkpoint(path))


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
    run: Path | str | TrainedPolicy,
    episodes: int = 20,
    *,
    seed: int | None = None,
    deterministic: bool | None = None,
    env: Any = None,
    cost_fn: Any = None,
) -> list[EvaluationRow]:
    """Measure a policy on complete episodes, without changing it.

    Several environments run side by side, and each contributes a number of episodes that is fixed
    beforehand: counting the first N episodes to finish would favour short ones. Both rows see the
    same initial states.

    Args:
        run: A run's folder, or a policy from `load`.
        episodes: Episodes per row.
        seed: Of the environments and of stochastic actions; by default the run's. Its stream
            differs from the one training used, so the episodes are new.
        deterministic: True or False for one row only; by default both.
        env: The environment object or factory, if the run used one.
        cost_fn: The cost function, if the run used one.

    Returns:
        One row per kind of acting, stochastic first. Intervals are bootstrapped (BCa), that of the
        violation rate is Wilson's.
    """
    policy = run if isinstance(run, TrainedPolicy) else load(run)
    if episodes < 1:
        raise CspoError(f"--episodes must be at least 1, not {episodes}.")
    seed = policy.config.seed if seed is None else seed
    if seed < 0:
        raise CspoError(f"--seed must not be negative, not {seed}.")
    copies = (copies_of(env) if env is not None else None) or min(episodes, PARALLEL)
    batch = make_environment(policy.config, env, cost_fn, copies)
    check_sizes(policy, batch)
    modes = (False, True) if deterministic is None else (deterministic,)
    try:
        return [_row(policy, _play(policy, batch, episodes, seed, mode), mode) for mode in modes]
    finally:
        if env is None:
            batch.close()


def check_sizes(policy: TrainedPolicy, env: BatchEnv) -> None:
    """Refuse an environment whose observations, actions or costs are not those of the policy."""
    theirs = (env.observation_size, env.action_size, len(env.cost_names))
    ours = (policy.observation_size, policy.action_size, len(policy.cost_names))
    if theirs != ours:
        raise CspoError(
            f"The environment has sizes {theirs} of observation, action and costs; the policy was trained on {ours}."
        )


def environment_seed(seed: int) -> int:
    """Return what environments are reset with in an evaluation of that seed: a stream that training did not use."""
    return int(stream(seed, "evaluation").integers(2**31))


def _play(
    policy: TrainedPolicy, env: BatchEnv, episodes: int, seed: int, deterministic: bool
) -> Episodes:
    """Return `episodes` complete episodes, a fixed number from each environment."""
    n = env.num_envs
    left = np.array([episodes // n + (i < episodes % n) for i in range(n)])
    total_return, total_cost, length = np.zeros(n), np.zeros((n, len(env.cost_names))), np.zeros(n)
    returns, costs, lengths = [], [], []
    observation = env.reset(seed=environment_seed(seed))
    policy.seed(seed)
    waited = 0
    while left.any():
        result = env.step(policy(observation, deterministic=deterministic))
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
            raise CspoError(
                f"No episode ended within {PATIENCE} steps: give the environment a time limit."
            )
    return Episodes(np.array(returns), np.array(costs), np.array(lengths))


def _row(policy: TrainedPolicy, episodes: Episodes, deterministic: bool) -> EvaluationRow:
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
