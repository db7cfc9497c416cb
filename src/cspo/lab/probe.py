"""`cspo.probe`: what episodes cost where nobody looks at the cost, and which limits would matter.

A limit is a number in the units of somebody's environment. Too high, it changes nothing; too low,
nothing can be learned. So train briefly without one, and look at what is paid before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.config import make_config
from cspo.envs.given import CostFunction, Environment
from cspo.envs.make import make_batch
from cspo.errors import CspoError
from cspo.flat import ProbeSettings
from cspo.lab.distribution import Distribution
from cspo.lab.limits import Proposal, propose
from cspo.lab.suggest import suggest_sizes
from cspo.runs.trainer import Trainer
from cspo.setup import copies_of, object_label
from cspo.types import Episodes, EpochReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

ALGO = "ppo"  # measures costs, and does not look at them
STEPS = 100_000
STEPS_PER_ENV, COPIES = 500, 8  # of an epoch: short ones, so that a short training has many updates
ENOUGH = 20  # episodes to speak of a distribution


@dataclass(frozen=True)
class Stage:
    """What the episodes of some epochs were like."""

    episode_return: Distribution
    length: Distribution
    cost: tuple[Distribution, ...]  # K


@dataclass(frozen=True)
class ProbeResult:
    """What a short training without a limit paid, and the limits that follow from it."""

    task: str
    cost_names: tuple[str, ...]  # K
    time_limit: int | None
    untrained: Stage  # the first episodes
    trained: Stage  # the last ones
    proposals: tuple[Proposal, ...]  # K
    still_improving: bool  # whether the return was still rising at the end
    steps: int
    seconds: float

    @property
    def cost_limit(self) -> tuple[float, ...] | None:
        """The limit of every cost to begin with, or None if none would matter."""
        if not any(proposal.limits for proposal in self.proposals):
            return None
        return tuple(proposal.first for proposal in self.proposals)


def probe(
    env: Environment,
    *,
    cost_fn: CostFunction | None = None,
    total_steps: int = STEPS,
    num_envs: int | None = None,
    steps_per_epoch: int | None = None,
    run_dir: Path | str | None = None,
    watch: Callable[[EpochReport, int], None] | None = None,
    **settings: Unpack[ProbeSettings],
) -> ProbeResult:
    """Train briefly without a limit, and propose limits.

    Examples:
        >>> found = cspo.probe("my_env:make")
        >>> found.cost_limit, found.proposals[0].limits  # to begin with; tight, moderate, loose

    Args:
        env: As in `cspo.train`.
        cost_fn: As in `cspo.train`.
        total_steps: How long to train.
        num_envs: Copies of the environment; by default 8, or fewer where episodes are long.
        steps_per_epoch: Steps between two updates; by default whole episodes, about 500 steps of
            each copy.
        run_dir: Folder to keep the training in; by default nothing is written.
        watch: Called with every epoch's report, and the number of epochs.
        **settings: Other settings of the training, see `cspo.train`.

    Raises:
        CspoError: If a setting or the environment is wrong, or no episode ends.
    """
    started = perf_counter()
    given = None if isinstance(env, str) else env
    task = env if isinstance(env, str) else object_label(env)
    cost_names, time_limit = _look(env, cost_fn, dict(settings))
    sizes = suggest_sizes(time_limit, steps_per_env=STEPS_PER_ENV, most=COPIES)
    num_envs = copies_of(given) or num_envs or sizes.num_envs
    chosen: Any = {
        **settings,
        "num_envs": num_envs,
        "steps_per_epoch": steps_per_epoch or num_envs * sizes.steps_per_env,
        "total_steps": total_steps,
        "cost_limit": (0.0,) * len(cost_names),
    }
    config = make_config(task, ALGO, **chosen)
    with Trainer(config, env=given, cost_fn=cost_fn, run_dir=run_dir) as trainer:
        epochs = _train(trainer, watch)
    stages = _stage(epochs), _stage(epochs[::-1])
    pairs = zip(cost_names, stages[0].cost, stages[1].cost, strict=True)
    return ProbeResult(
        task=task,
        cost_names=cost_names,
        time_limit=time_limit,
        untrained=stages[0],
        trained=stages[1],
        proposals=tuple(propose(*pair) for pair in pairs),
        still_improving=_is_rising([one.returns.mean() for one in epochs if len(one)]),
        steps=config.epochs * config.steps_per_epoch,
        seconds=perf_counter() - started,
    )


def _train(trainer: Trainer, watch: Callable[[EpochReport, int], None] | None) -> list[Episodes]:
    """Train to the end, and return the episodes of every epoch."""
    run, epochs = trainer.config.run, []
    for report in trainer:
        epochs.append(trainer.window.latest)
        if watch is not None:
            watch(report, run.epochs)
    if not any(map(len, epochs)):
        each = run.steps_per_epoch // trainer.env.num_envs
        raise CspoError(
            f"No episode ended within the {each} steps that an epoch gives each environment: give "
            "it a time limit, or --steps-per-epoch a larger number."
        )
    return epochs


def _look(env: Any, cost_fn: Any, settings: dict[str, Any]) -> tuple[tuple[str, ...], int | None]:
    """Return the names of the costs and the time limit, by looking at one copy."""
    options = settings.get("env_options")
    batch = make_batch(env, 1, 1, cost_fn, settings.get("cost_terms", ()), options)
    try:
        return tuple(batch.cost_names), batch.time_limit
    finally:
        if copies_of(env) is None:  # a user's own stays open
            batch.close()


def _stage(epochs: Sequence[Episodes]) -> Stage:
    """Return what the first epochs were like: as many as have enough episodes, a quarter at most.

    More than a quarter only if no episode had ended until then.
    """
    taken: list[Episodes] = []
    for number, episodes in enumerate(epochs):
        count = sum(map(len, taken))
        if count >= ENOUGH or (count and number >= len(epochs) / 4):
            break
        taken.append(episodes)
    costs = np.concatenate([one.costs for one in taken])  # (E, K)
    return Stage(
        Distribution.of(np.concatenate([one.returns for one in taken])),
        Distribution.of(np.concatenate([one.lengths for one in taken])),
        tuple(map(Distribution.of, costs.T)),
    )


def _is_rising(returns: Sequence[float]) -> bool:
    """Whether the last quarter brought more than a fifth of all that was gained."""
    if len(returns) < 4:
        return True  # too few to say that it is not
    quarters = [float(np.mean(part)) for part in np.array_split(np.asarray(returns), 4)]
    return quarters[3] - quarters[2] > 0.2 * (quarters[3] - quarters[0]) > 0.0
