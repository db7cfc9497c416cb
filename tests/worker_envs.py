"""Environments for tests of workers: each leaves its process id behind, and may fail once."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from run_helpers import NamedCosts, TinyEnv

FIRST_SEED = 3  # what the runs of the tests are seeded with: copy i is reset with it + i


class Failing(TinyEnv):
    """Fails in one way, in one copy, at one step of a process, and never again.

    Args:
        fault: What happens.
        copy: To which copy.
        step: In which of its steps.
        place: Folder for process ids, and for the mark that it has happened.
    """

    def __init__(self, fault: str = "", copy: int = 2, step: int = 130, place: str = "") -> None:
        super().__init__()
        self.fault, self.copy, self.at, self.place = fault, copy, step, place
        self.seed = -1
        if place:
            Path(place, f"{os.getpid()}.pid").touch()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed = self.seed if seed is None else seed
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        mark = Path(self.place, "happened")
        if self.seed == FIRST_SEED + self.copy and self.steps == self.at and not mark.exists():
            mark.touch()
            reward = self.fail(reward)
        return observation, reward, terminated, truncated, info

    def fail(self, reward: float) -> Any:
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "exit":
            os._exit(3)
        if self.fault == "crash":
            ctypes.string_at(0)
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "lock":  # no other thread of the process gets its turn
            ctypes.PyDLL(None).sleep(1000)
        if self.fault == "raise":
            raise ZeroDivisionError("on purpose")
        return {"nan": float("nan"), "text": "much"}.get(self.fault, reward)


class Counting(TinyEnv):
    """Has a memory that outlives its episodes, and does not say how many costs it has."""

    num_costs = None

    def __init__(self) -> None:
        super().__init__()
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        observation, info = super().reset(seed=seed)
        return observation + 0.01 * self.episodes, info


class Rude(TinyEnv):
    """Prints, closes standard input, goes elsewhere and handles signals itself."""

    def __init__(self) -> None:
        super().__init__()
        print("hello from an environment", flush=True)
        sys.stdin.close()
        os.chdir("/")
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(kind, signal.default_int_handler)


class BadClose(TinyEnv):
    def close(self) -> None:
        raise OSError("will not close")


def make_named(**options: Any) -> NamedCosts:
    return NamedCosts(**options)


def cost_of_place(before: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    return float(np.abs(after).sum() + np.abs(before).sum() > 1.0)
