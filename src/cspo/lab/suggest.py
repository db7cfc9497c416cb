"""How to train on an environment nobody has trained on yet: sizes, processes, the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cspo.envs.examination import Examination, Tally
from cspo.errors import flag
from cspo.settings import written

SLOW = 300e-6  # seconds of a step from which on it is worth handing it to another process
FEW, MANY = 4, 20  # copies of an environment


@dataclass(frozen=True)
class Sizes:
    """How much to collect between two updates."""

    num_envs: int
    steps_per_epoch: int

    @property
    def steps_per_env(self) -> int:
        """Steps of each copy in an epoch."""
        return self.steps_per_epoch // self.num_envs


@dataclass(frozen=True)
class Workers:
    """How many processes step the copies, 0 meaning none but this one, and why."""

    count: int
    reason: str


def suggest_sizes(
    time_limit: int | None,
    longest: int | None = None,
    *,
    steps_per_env: int = 1000,
    most: int = MANY,
) -> Sizes:
    """Return sizes with which whole episodes fit into an epoch.

    All copies are reset at the start of an epoch, so an episode that is longer than what an epoch
    gives its copy never ends. With a time limit each copy gets the multiple of it that is nearest
    to `steps_per_env`, and at least one; without, at least twice the longest episode seen. Where
    that is long there are fewer copies, but at least four, so that an epoch stays as large.

    Args:
        time_limit: Steps after which an episode is cut off, where known.
        longest: The longest episode seen.
        steps_per_env: What each copy would get if episodes had no length.
        most: Copies at most.
    """
    if time_limit is not None:
        each = time_limit * max(1, round(steps_per_env / time_limit))
    else:
        each = max(steps_per_env, 2 * (longest or 0))
    num_envs = min(most, max(FEW, steps_per_env * most // each))
    return Sizes(num_envs, num_envs * each)


def suggest_workers(tally: Tally, num_envs: int, cores: int) -> Workers:
    """Return the number of processes for an environment whose steps were timed."""
    seconds = tally.step_seconds
    if seconds is None:
        return Workers(0, "no step could be timed")
    if seconds < SLOW:
        return Workers(0, "a step takes less time than handing it to another process")
    if tally.waits:
        return Workers(num_envs, "a step mostly waits, so that all copies can wait at once")
    if cores < 2:
        return Workers(0, "a step is slow, but there is one core to calculate it on")
    return Workers(min(num_envs, cores), f"a step is slow, and there are {cores} cores")


def command(
    verb: str,
    task: str,
    env_options: Mapping[str, Any],
    cost_terms: Sequence[str],
    **settings: Any,
) -> str:
    """Return a command to copy, such as `cspo train TASK --num-envs 20 ...`."""
    named = {"env_options": dict(env_options), "cost_terms": tuple(cost_terms)}
    words = ["cspo", verb, shlex.quote(task)]
    for name, value in ({k: v for k, v in named.items() if v} | settings).items():
        words += [flag(name), shlex.quote(written(value))]
    return " ".join(words)


def rounded(value: float, digits: int = 2) -> float:
    """Return a number as a person would choose it."""
    return float(f"{value:.{digits}g}")


def first_limits(found: Examination) -> tuple[float, ...]:
    """Return a limit per cost to begin with: half of what random actions pay, or 1 of nothing."""
    costs = np.mean(found.tally.costs, axis=0) if found.tally.costs else np.zeros(1)
    costs = np.broadcast_to(costs, (max(1, len(found.cost_names)),))
    return tuple(rounded(c / 2) if c > 0.0 else 1.0 for c in costs.tolist())
