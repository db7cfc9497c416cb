"""Environments that are not native: slow ones in workers, quick ones in one process.

    python benchmarks/slow_environments.py [--json] [--rounds 20]

Slow: a step that sleeps 10 ms, 16 copies, with 16 workers against one after another. Quick: a step
of about 5 microseconds, 16 copies in this process; what is measured is everything around the
environment, per step and copy, beside Stable-Baselines3's DummyVecEnv (`pip install
'cspo[examples]'`). Short rounds alternate, and the best of each counts: what else runs on the
machine only ever adds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from cspo.envs import make_batch

COPIES, SLEEP = 16, 0.010
SLOW_STEPS, QUICK_STEPS = 10, 200


class Quick(gymnasium.Env[Any, Any]):
    """A few small products per step; episodes of 1000 steps."""

    num_costs = 1
    observation_space = Box(-np.inf, np.inf, (4,), np.float64)
    action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start at zero."""
        super().reset(seed=seed)
        self.t, self.x = 0, np.zeros(4)
        return self.x, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move by the action."""
        self.t += 1
        x = self.x
        for _ in range(3):
            x = x * 0.9
        x = x + float(action[0])
        return x, 1.0, False, self.t >= 1000, {"cost": 0.0}


class Sleeping(Quick):
    """The same, and 10 ms of waiting, as for a simulator in a program of its own."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait, and move by the action."""
        time.sleep(SLEEP)
        return super().step(action)


def seconds(step: Callable[[Any], Any], actions: Any, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        step(actions)
    return (time.perf_counter() - started) / steps


def best(
    steppers: dict[str, Callable[[Any], Any]], actions: Any, steps: int, rounds: int
) -> dict[str, float]:
    """Return the least seconds per step of each, measured in turn."""
    for step in steppers.values():
        step(actions)
    measured = [
        {name: seconds(step, actions, steps) for name, step in steppers.items()}
        for _ in range(rounds)
    ]
    return {name: min(one[name] for one in measured) for name in steppers}


def slow(rounds: int) -> dict[str, float]:
    # Here, since workers import this file, and with Stable-Baselines3 they would import PyTorch.
    from stable_baselines3.common.vec_env import SubprocVecEnv

    serial = make_batch(Sleeping, COPIES)
    started = time.perf_counter()
    spread = make_batch("slow_environments:Sleeping", COPIES, workers=COPIES)
    start_up = time.perf_counter() - started
    theirs = SubprocVecEnv([Sleeping] * COPIES)
    for env in (serial, spread, theirs):
        env.reset()
    steppers = {"workers": spread.step, "SubprocVecEnv": theirs.step}
    actions = np.zeros((COPIES, 2), np.float32)
    try:
        alone = best({"serial": serial.step}, actions, SLOW_STEPS, 1)
        times = alone | best(steppers, actions, SLOW_STEPS, rounds)
    finally:
        spread.close()
        theirs.close()
    return {f"{name}_ms_per_step": 1e3 * value for name, value in times.items()} | {
        "workers_times_serial": times["serial"] / times["workers"],
        "SubprocVecEnv_times_serial": times["serial"] / times["SubprocVecEnv"],
        "start_up_s": start_up,
    }


def quick(rounds: int) -> dict[str, float]:
    from stable_baselines3.common.vec_env import DummyVecEnv

    ours, theirs = make_batch(Quick, COPIES), DummyVecEnv([Quick] * COPIES)
    bare = [Quick() for _ in range(COPIES)]
    for env in (ours, theirs, *bare):
        env.reset()

    def bare_step(actions: Any) -> None:
        for env, action in zip(bare, actions, strict=True):
            if env.step(action)[3]:
                env.reset()

    steppers = {"bare": bare_step, "cspo": ours.step, "DummyVecEnv": theirs.step}
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (COPIES, 2)).astype(np.float32)
    times = best(steppers, actions, QUICK_STEPS, rounds)
    each = {name: 1e6 * value / COPIES for name, value in times.items()}
    around = {f"{name}_around_us": each[name] - each["bare"] for name in ("cspo", "DummyVecEnv")}
    return {f"{name}_us": value for name, value in each.items()} | around


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = {"load": os.getloadavg()[0], **quick(2 * options.rounds), **slow(options.rounds)}
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<28} {value:.2f}")


if __name__ == "__main__":
    main()
