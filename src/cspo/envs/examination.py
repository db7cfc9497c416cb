"""What a trial of an environment found: its faults, what it is like, and what steps gave."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter, perf_counter_ns, process_time
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]


class Tally:
    """Adds up what random steps of N environments gave: whole episodes, and time.

    Attributes:
        returns: Of every episode that ended.
        costs: Of every episode, K numbers each.
        lengths: Of every episode.
        steps: Taken so far, over all environments.
        seconds: Within the environments' own code, `step` and `reset`.
        worked: The part of those seconds in which this process did something.
        pauses: How often it gave up its core meanwhile, to wait for something.
    """

    def __init__(self, num_envs: int = 1) -> None:
        """Nothing has been counted."""
        self.returns: list[float] = []
        self.costs: list[FloatArray] = []
        self.lengths: list[int] = []
        self.steps, self.seconds, self.worked, self.pauses = 0, 0.0, 0.0, 0
        self._reward, self._cost = np.zeros(num_envs), [np.zeros(1)] * num_envs
        self._length = np.zeros(num_envs, np.int64)

    def __enter__(self) -> Tally:
        """Time what is done within."""
        self._paused = _pauses()
        self._started = perf_counter(), process_time()
        return self

    def __exit__(self, *exception: object) -> None:
        wall, worked = self._started
        self.worked += process_time() - worked
        self.seconds += perf_counter() - wall
        self.pauses += _pauses() - self._paused

    def add(self, reward: Any, cost: Any, ended: Any) -> None:
        """Count one step of each environment: rewards (N,), costs (N, K), flags (N,)."""
        self.steps += len(self._length)
        self._length += 1
        self._reward += reward
        self._cost = [
            before + np.asarray(now) for before, now in zip(self._cost, cost, strict=True)
        ]
        for i in np.flatnonzero(ended).tolist():
            self.returns.append(float(self._reward[i]))
            self.costs.append(self._cost[i])
            self.lengths.append(int(self._length[i]))
            self._reward[i], self._cost[i], self._length[i] = 0.0, np.zeros(1), 0

    @property
    def step_seconds(self) -> float | None:
        """Seconds that one step of one environment takes, its share of the resets included.

        Of an environment that does not wait, they are seconds of a core: a machine that is busy
        with something else does not make it slow.
        """
        spent = self.seconds if self.waits else min(self.seconds, self.worked)
        return spent / self.steps if self.steps else None

    @property
    def waits(self) -> bool:
        """Whether most of a step is spent waiting, for another process or a device say.

        Time alone does not tell: on a busy machine everyone waits for a core, but not by choice.
        """
        return self.worked < 0.25 * self.seconds and 2 * self.pauses >= self.steps


def _pauses() -> int:
    """Return how often this process has given up its core by itself.

    Windows does not tell: there a larger number each time leaves the decision to the clock.
    """
    if resource is None:
        return perf_counter_ns()
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)


@dataclass
class Examination:
    """What is known of an environment after a trial; None where the trial did not get so far."""

    problems: list[str] = field(default_factory=list)
    """Everything that is wrong, one sentence each, in the order it was found."""
    faults: list[str] = field(default_factory=list)
    """Those of them at which training would stop."""
    observations: str | None = None
    """What an observation is, in words."""
    actions: str | None = None
    """What an action is, in words."""
    cost_source: str | None = None
    """Where the cost of a step was found."""
    cost_names: tuple[str, ...] = ()
    """Names of the K costs."""
    time_limit: int | None = None
    """Steps after which an episode is cut off."""
    seeds_repeat: bool | None = None
    """Whether `reset(seed=...)` and the same actions give the same episode again."""
    exact_resume: bool | None = None
    """Whether what is random in it can be saved and put back."""
    tally: Tally = field(default_factory=Tally)
    """What random steps gave."""

    @property
    def trainable(self) -> bool:
        """Whether nothing was found at which training would stop."""
        return not self.faults

    def advise(self, problem: str) -> None:
        """Add a problem that training would live with, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def add_fault(self, problem: str) -> None:
        """Add a problem at which training would stop, once."""
        if problem not in self.faults:
            self.faults.append(problem)
        self.advise(problem)
