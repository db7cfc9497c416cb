"""Settings of the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cspo.settings import not_negative, positive, setting


@dataclass(frozen=True)
class EnvironmentSettings:
    """What the environment is made with."""

    cost_terms: tuple[str, ...] = ()
    """Constrain these terms of the task's cost one by one instead of their sum, as
    `hazards,gremlins`."""
    env_options: dict[str, Any] = setting({})
    """Keyword arguments the environment is made with, as `key=value,key=value`; text in quotes."""


@dataclass(frozen=True)
class WorkerSettings:
    """Slow environments in parallel; native tasks are stepped by threads and need none of it."""

    workers: int = setting(0, not_negative, changes_results=False)
    """Processes over which the copies of an environment that is no native task are spread; 0 steps
    them one after another in this process. Does not change results."""
    worker_timeout: float | None = setting(600.0, positive, changes_results=False)
    """Seconds a worker may take for a reset or a step before it counts as hung; none waits for
    ever. Making the environments may take ten minutes in any case."""
    restart_workers: int = setting(0, not_negative, changes_results=False)
    """How often a worker that died, hung or raised is started again, with new episodes for its
    copies, before training stops."""
