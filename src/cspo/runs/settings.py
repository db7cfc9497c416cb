"""Settings of the run and of its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from cspo.runs.stopping import read_rule
from cspo.settings import not_negative, positive, setting


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class RunSettings:
    """How long to train, and with how much in parallel."""

    total_steps: int = setting(10_000_000, positive)
    """Environment steps of the whole run."""
    steps_per_epoch: int = setting(20_000, positive)
    """Environment steps between two updates, over all environments together."""
    num_envs: int = setting(20, positive)
    """Parallel environments; all are reset at the start of every epoch."""
    seed: int = setting(0, not_negative)
    """The run's only source of randomness."""
    threads: int = setting(0, not_negative, changes_results=False)
    """Threads that step the simulators; 0 means one per available core. Does not change results."""
    episode_window: int = setting(100, positive)
    """Finished episodes over which return, cost J_c and length are averaged."""
    stop_when: str | None = setting(None, read=read_rule)
    """Rule that ends the run early, as "cost<limit and return>2000 for 20" (epochs in a row)."""

    @property
    def epochs(self) -> int:
        """Number of epochs of the run."""
        return self.total_steps // self.steps_per_epoch

    @property
    def resolved_threads(self) -> int:
        """Number of threads that step the simulators."""
        return self.threads or available_cores()


@dataclass(frozen=True)
class FileSettings:
    """What is kept in the run folder."""

    checkpoint_every: int = setting(1, positive, changes_results=False)
    """Epochs between checkpoints; the last epoch always gets one."""
    keep_checkpoints: int = setting(2, positive, changes_results=False)
    """Newest checkpoints kept."""
    log: tuple[Literal["csv", "tensorboard", "jsonl", "wandb", "mlflow"], ...] = setting(
        ("csv", "tensorboard"), changes_results=False
    )
    """Where the numbers of every epoch go; progress.csv, which resuming and reports read, is
    written whether csv is named or not. See docs/logging.md."""
    tensorboard: bool = setting(True, changes_results=False)
    """Write TensorBoard events, if --log names them."""
