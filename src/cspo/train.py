"""THE loop: collect -> credit -> update -> report. It knows no folder and prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from cspo import setup, state
from cspo.arithmetic import denormals_flushed, single_threaded_math
from cspo.config import TrainConfig
from cspo.experience.advantages import estimate
from cspo.experience.episodes import EpisodeWindow, measured_costs
from cspo.experience.margin import Margin
from cspo.experience.rollout import collect, finished_episodes
from cspo.streams import Streams
from cspo.types import EpochReport

# What has a `state_dict` of its own.
PARTS = ("policy", "learner", "algorithm", "window", "margin", "streams")


class Trainer:
    """Trains one policy; iterate over it to get one `EpochReport` per epoch.

    Nothing is written: `cspo.Trainer` is this loop with a run folder around it. A user's
    environment is never closed.

    Args:
        config: The settings, see `cspo.make_config`.
        env: An environment object or factory; by default the one that `config.task` names.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without a
            cost.
        policy: What makes your own networks, or its name `module:factory`, see docs/own-network.md.
    """

    def __init__(
        self, config: TrainConfig, *, env: Any = None, cost_fn: Any = None, policy: Any = None
    ) -> None:
        self.config, self.epoch = setup.with_network(config, policy), 0
        self.env = setup.make_environment(config, env, cost_fn)
        self.facts = setup.environment_facts(self.env, cost_fn)
        self.limits = setup.limits_for(config, self.env.cost_names)
        self.streams = Streams(config.run.seed, "action", "minibatch")
        self.policy = setup.build_policy(config, self.env, policy=policy)
        self.learner = setup.build_learner(config, self.policy, self.streams["minibatch"])
        self.algorithm = setup.build_algorithm(config, self.learner, len(self.limits))
        self.window = EpisodeWindow(config.run.episode_window, len(self.limits))
        self.margin = Margin(setup.violation_rate(config), len(self.limits))

    def __iter__(self) -> Iterator[EpochReport]:
        """Train until the steps are used up, one report per epoch."""
        while self.epoch < self.config.run.epochs:
            report = self._run_epoch()
            self.epoch += 1
            yield report

    @single_threaded_math()
    def _run_epoch(self) -> EpochReport:
        run, window, started = self.config.run, self.window, perf_counter()
        self.limits.begin_epoch(self.epoch * run.steps_per_epoch)
        steps = run.steps_per_epoch // self.env.num_envs
        seed = run.seed if self.epoch == 0 else None
        rollout = collect(self.env, self.policy, steps, self.streams["action"], seed)
        collected = perf_counter()

        episodes = finished_episodes(rollout)
        window.extend(episodes)
        J_c, cost, error = measured_costs(window, episodes, rollout, self.env.time_limit)
        limit = self.margin.target(J_c, error / window.epochs_held**0.5, self.limits.now)
        asked = setup.asked_of_credit(self.algorithm, rollout, cost, self.limits.typical(limit))
        with denormals_flushed():
            batch = estimate(rollout, self.policy, self.config.advantages, cost, *asked, error)
            credited = perf_counter()
            self.learner.set_progress(self.epoch / run.epochs)
            metrics = dict(self.algorithm.update(batch, J_c, limit)) | self.margin.metrics
        updated = perf_counter()

        return EpochReport(
            epoch=self.epoch,
            steps=(self.epoch + 1) * run.steps_per_epoch,
            episode_return=window.episode_return,
            cost=tuple(J_c.tolist()),
            cost_limit=tuple(self.limits.now.tolist()),
            episode_length=window.episode_length,
            multiplier=tuple(self.algorithm.multiplier.tolist()),
            kl=metrics.pop("kl"),
            metrics={"episodes": len(episodes), "cost_estimated": int(not window), **metrics},
            steps_per_second=run.steps_per_epoch / (updated - started),
            seconds_rollout=collected - started,
            seconds_update=updated - credited,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as nested dicts of arrays and plain values."""
        own = {"epoch": self.epoch, **self.limits.state_dict(), "facts": self.facts}
        parts = {name: getattr(self, name).state_dict() for name in PARTS}
        return own | parts | {"env": self.env.random_state()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        setup.check_facts(saved["facts"], self.facts)
        self.epoch = int(saved["epoch"])
        self.limits.load_state_dict(saved)
        for name in PARTS:
            getattr(self, name).load_state_dict(saved[name])
        self.env.set_random_state(saved["env"])

    def parameter_hash(self) -> str:
        """Return a digest of all trained parameters, for comparing two runs."""
        return state.digest(state.split(self.policy.state_dict())[1])[:16]
