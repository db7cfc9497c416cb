"""THE loop. Everything between two epochs happens in `Trainer._run_epoch`, in this order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from cspo.algorithms import get_algorithm
from cspo.arithmetic import denormals_flushed, single_threaded_math
from cspo.config import TrainConfig
from cspo.errors import CspoError
from cspo.experience.advantages import estimate
from cspo.experience.episodes import EpisodeWindow, cost_without_episodes
from cspo.experience.rollout import collect, finished_episodes
from cspo.optim.minibatch import MinibatchLearner
from cspo.policy.policy import Policy
from cspo.runs import checkpoint
from cspo.runs.folder import RunFolder, check_facts, environment_facts, limits_for, make_environment
from cspo.streams import set_stream_state, stream, stream_state
from cspo.types import EpochReport, FloatArray, Rollout


class Trainer:
    """Trains one policy; iterate over it to get one `EpochReport` per epoch.

    Leaving the loop early is safe at any time: with a run folder, the state of every finished epoch
    that was due a checkpoint is on disk before its report is handed out. A user's environment is
    never closed.

    Args:
        config: The settings, see `cspo.make_config`.
        env: An environment object or factory; by default the one that `config.task` names.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without a
            cost.
        run_dir: Folder to keep the run in; by default nothing is written.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        env: Any = None,
        cost_fn: Any = None,
        run_dir: Path | str | None = None,
    ) -> None:
        """See the class."""
        self.config = config
        self.env = make_environment(config, env, cost_fn)
        self._facts = environment_facts(self.env, cost_fn)
        self.cost_limit = limits_for(config, self.env.cost_names)  # (K,)
        self.policy = build_policy(config, self.env)
        rng, threads = stream(config.run.seed, "minibatch"), config.run.resolved_threads
        self.learner = MinibatchLearner(self.policy, config.update, rng, threads)
        num_costs, discount = len(self.cost_limit), config.advantages.of_costs
        kind = get_algorithm(config.algo)
        self.algorithm = kind(config.algorithm, self.learner, num_costs, discount)
        self.window = EpisodeWindow(config.episode_window, len(self.cost_limit))
        self._noise = stream(config.seed, "action")
        self.epoch = 0
        self.run = None if run_dir is None else RunFolder.create(run_dir, config)

    @classmethod
    def resume(
        cls, run_dir: Path | str, *, env: Any = None, cost_fn: Any = None, **changes: Any
    ) -> Trainer:
        """Continue a run from its newest readable checkpoint, exactly as if it had never stopped.

        Args:
            run_dir: The run's folder.
            env: The environment object or factory, if the run used one.
            cost_fn: The cost function, if the run used one.
            **changes: Settings to change from here on: `total_steps`, `threads`, or `plugin` if
                that file has moved.
        """
        run, config, state = RunFolder.reopen(run_dir, changes)
        try:
            trainer = cls(config, env=env, cost_fn=cost_fn)
            if (
                state is not None
            ):  # None: the run stopped before its first checkpoint and starts anew
                trainer.load_state_dict(state)
        except BaseException:
            run.close()
            raise
        trainer.run = run
        return trainer

    def __iter__(self) -> Iterator[EpochReport]:
        """Train until the steps are used up, one report per epoch."""
        while self.epoch < self.config.epochs:
            yield self._run_epoch()

    def _run_epoch(self) -> EpochReport:
        config, started = self.config, perf_counter()
        with single_threaded_math():
            seed = config.seed if self.epoch == 0 else None
            steps = config.steps_per_epoch // self.env.num_envs
            rollout = collect(self.env, self.policy, steps, self._noise, seed)
            seconds_rollout = perf_counter() - started

            episodes = finished_episodes(rollout)
            self.window.extend(episodes)
            J_c = self._window_cost(rollout)
            with denormals_flushed():
                epoch_cost = episodes.costs.mean(axis=0) if len(episodes) else J_c
                extra = getattr(self.algorithm, "extra_stream", None)
                batch = estimate(rollout, self.policy, config.advantages, epoch_cost, extra)
                self.learner.set_progress(self.epoch / config.epochs)
                update_started = perf_counter()
                metrics = self.algorithm.update(batch, J_c, self.cost_limit)
            seconds_update = perf_counter() - update_started

        report = EpochReport(
            epoch=self.epoch,
            steps=(self.epoch + 1) * config.steps_per_epoch,
            episode_return=self.window.episode_return,
            cost=tuple(J_c.tolist()),
            cost_limit=tuple(self.cost_limit.tolist()),
            episode_length=self.window.episode_length,
            multiplier=tuple(self.algorithm.multiplier.tolist()),
            kl=metrics.pop("kl"),
            metrics={
                "episodes": len(episodes),
                "cost_estimated": int(not len(self.window)),
                **metrics,
            },
            steps_per_second=config.steps_per_epoch / (perf_counter() - started),
            seconds_rollout=seconds_rollout,
            seconds_update=seconds_update,
        )
        self.epoch += 1
        if self.run is not None:
            self.run.log(report)
            if self.epoch % config.checkpoint_every == 0 or self.epoch == config.epochs:
                self.save()
        return report

    def _window_cost(self, rollout: Rollout) -> FloatArray:
        if len(self.window):
            return self.window.J_c
        return cost_without_episodes(rollout, self.env.time_limit)

    def set_cost_limit(self, *cost_limit: float) -> None:
        """Change the limits from the next epoch on; checkpoints remember it."""
        if len(cost_limit) != len(self.cost_limit) or not all(0 <= d < np.inf for d in cost_limit):
            raise CspoError(f"Give {len(self.cost_limit)} finite limit(s) of zero or more.")
        self.cost_limit = np.array(cost_limit, dtype=float)

    def save(self) -> Path:
        """Write a checkpoint of the epochs done so far into the run folder."""
        if self.run is None:
            raise CspoError("This trainer has no run folder: pass run_dir= to keep checkpoints.")
        return self.run.save(self.epoch, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as nested dicts of arrays and plain values."""
        return {
            "epoch": self.epoch,
            "cost_limit": self.cost_limit,
            "policy": self.policy.state_dict(),
            "learner": self.learner.state_dict(),
            "algorithm": self.algorithm.state_dict(),
            "window": self.window.state_dict(),
            "streams": {
                "action": stream_state(self._noise),
                "minibatch": stream_state(self.learner.rng),
            },
            "env": self.env.random_state(),
            "facts": self._facts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        check_facts(state["facts"], self._facts)
        self.epoch = int(state["epoch"])
        self.cost_limit = np.array(state["cost_limit"])
        self.policy.load_state_dict(state["policy"])
        self.learner.load_state_dict(state["learner"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.window.load_state_dict(state["window"])
        set_stream_state(self._noise, state["streams"]["action"])
        set_stream_state(self.learner.rng, state["streams"]["minibatch"])
        self.env.set_random_state(state["env"])

    def parameter_hash(self) -> str:
        """Return a digest of all trained parameters, for comparing two runs."""
        return checkpoint.parameter_hash(self.policy.state_dict())


def build_policy(config: TrainConfig, env: Any) -> Policy:
    """Return the untrained policy of a run."""
    num_costs, rng = len(env.cost_names), stream(config.run.seed, "networks")
    extra_critics = num_costs if hasattr(get_algorithm(config.algo), "extra_stream") else 0
    sizes = env.observation_size, env.action_size, num_costs
    return Policy(*sizes, config.policy, rng, extra_critics=extra_critics)
