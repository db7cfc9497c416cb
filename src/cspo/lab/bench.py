"""How fast training is, measured with the paper's settings."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, cast

from cspo.config import TrainConfig, from_dict, make_config, to_dict
from cspo.envs import BatchEnv
from cspo.errors import CspoError


class EpochTimes(NamedTuple):
    """Seconds of one epoch; `end` is on the machine-wide clock."""

    end: float
    epoch: float
    rollout: float
    update: float
    physics: float  # inside env.step


def bench_train(
    task: str,
    algo: str = "cspo",
    *,
    epochs: int = 5,
    threads: int = 0,
    runs: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """Train for a few epochs and return where the time goes.

    Everything a real run does is counted, progress.csv, TensorBoard and checkpoints included. The
    KL stop is disabled, so that every update does all its passes. The first epoch only warms up;
    times are medians over the others.

    Args:
        task: A task name.
        algo: An algorithm.
        epochs: Epochs to measure, after one to warm up.
        threads: Threads of the simulators; 0 means one per core. With several runs each has one.
        runs: Runs side by side, each in a process of its own, started together.
        **settings: Other settings, for a measurement that is not of the paper's.

    Returns:
        `task, algo, threads, runs`; environment steps per second of all runs together,
        `steps_per_s`; seconds of a median epoch, `rollout_s`, `update_s`, `epoch_s`, and
        `physics_s`, the part of the rollout inside the environment; `other_share`, the share of an
        epoch that is neither physics nor update, a median too: it is taken epoch by epoch.
    """
    if epochs < 1 or runs < 1:
        raise CspoError("--epochs and --runs must be at least 1.")
    settings = {"target_kl": math.inf, "threads": threads if runs == 1 else 1, **settings}
    config = make_config(task, algo, **settings)
    length = (epochs + 1) * config.steps_per_epoch
    config = make_config(task, algo, **settings, total_steps=length)
    each = [measure(config)] if runs == 1 else _side_by_side(config, runs)
    times = [epoch for one in each for epoch in one]
    steps, epoch_s = config.steps_per_epoch, median(e.epoch for e in times)
    return {
        "task": config.task,
        "algo": config.algo,
        "threads": config.resolved_threads,
        "runs": runs,
        "steps_per_s": steps / epoch_s if runs == 1 else _common_speed(each, steps),
        "rollout_s": median(e.rollout for e in times),
        "update_s": median(e.update for e in times),
        "epoch_s": epoch_s,
        "physics_s": median(e.physics for e in times),
        "other_share": median((e.epoch - e.physics - e.update) / e.epoch for e in times),
    }


def measure(config: TrainConfig, barrier: Any = None) -> list[EpochTimes]:
    """Train in a temporary folder and return the times of every epoch but the first."""
    from cspo.runs.trainer import Trainer

    times: list[EpochTimes] = []
    with (
        tempfile.TemporaryDirectory(prefix="cspo-bench-") as folder,
        Trainer(config, run_dir=f"{folder}/run") as trainer,
    ):
        env = _TimedEnv(trainer.env)
        trainer.env = cast("BatchEnv", env)
        started: float | None = None
        for report in trainer:
            now = perf_counter()
            if started is not None:
                parts = report.seconds_rollout, report.seconds_update, env.seconds
                times.append(EpochTimes(now, now - started, *parts))
            elif barrier is not None:
                barrier.wait(timeout=600)
            env.seconds = 0.0
            started = perf_counter()
    return times


class _TimedEnv:
    """Passes everything on to an environment and adds up the time spent in its `step`."""

    def __init__(self, env: Any) -> None:
        self._env, self._step = env, env.step
        self.seconds = 0.0

    def step(self, actions: Any) -> Any:
        started = perf_counter()
        result = self._step(actions)
        self.seconds += perf_counter() - started
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def _side_by_side(config: TrainConfig, runs: int) -> list[list[EpochTimes]]:
    context = multiprocessing.get_context("spawn")  # each run starts as clean as one by hand
    barrier, results = context.Barrier(runs), context.SimpleQueue()
    settings = to_dict(config)  # plain data: a plugin's classes are not known there yet
    task = (settings, barrier, results)
    processes = [context.Process(target=_measure_into, args=task) for _ in range(runs)]
    for process in processes:
        process.start()
    collected = [results.get() for _ in processes]
    for process in processes:
        process.join()
    if failures := [one for one in collected if isinstance(one, str)]:
        raise CspoError(f"A run of the benchmark failed: {failures[0]}")
    return collected


def _measure_into(settings: dict[str, Any], barrier: Any, results: Any) -> None:
    try:
        results.put(measure(from_dict(settings), barrier))
    except BaseException as error:  # the parent waits for one answer from every process
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")


def _common_speed(each: list[list[EpochTimes]], steps: int) -> float:
    """Return the steps per second of all runs over the time in which all were running."""
    start = max(one[0].end - one[0].epoch for one in each)
    end = min(one[-1].end for one in each)
    # perf_counter counts from the same moment in all processes of a machine.
    done = 0.0  # epochs, and parts of epochs, within that time
    for epoch in (epoch for one in each for epoch in one):
        overlap = min(epoch.end, end) - max(epoch.end - epoch.epoch, start)
        done += max(0.0, overlap) / epoch.epoch
    return steps * done / (end - start)
