"""A zoo of broken environments: each does one thing wrong, at one moment.

`make(case="step ValueError late")` says where, what and when. Where is a method, or the value that
is wrong; when is "first", "late" (step 300), "second" (only the second environment that is made) or
"again" (after the first episode).
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from cspo.errors import CspoError

LATE, EPISODE = 300, 20


class OwnBase(BaseException):
    """Not an `Exception`."""


class Mute(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Odd:
    """A value that fails wherever it is looked at."""

    def __float__(self) -> float:
        raise ArithmeticError("no number")

    def __bool__(self) -> bool:
        raise ArithmeticError("no truth")

    def __repr__(self) -> str:
        raise ArithmeticError("no picture")


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


def raise_named(name: str) -> None:
    if name == "RecursionError":
        recurse()
    if name == "exit":
        sys.exit(0)
    if name == "exit-text":
        sys.exit("goodbye")
    known: dict[str, BaseException] = {
        "OwnBase": OwnBase("own"),
        "Mute": Mute(),
        "CspoError": CspoError("own sentence"),
        "BrokenPipeError": BrokenPipeError(32, "Broken pipe"),
        "Long": ValueError("x" * 10_000 + "\n\x1b[31m" + "y" * 10_000),
    }
    builtin = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
    raise known[name] if name in known else builtin[name]("broken")


FAULTS = (
    *("ValueError", "KeyError", "ImportError", "OSError", "AssertionError", "TypeError"),
    *("MemoryError", "StopIteration", "RecursionError", "GeneratorExit", "BrokenPipeError"),
    *("exit", "exit-text", "OwnBase", "Mute", "CspoError", "Long"),
)
WRONG: dict[str, dict[str, Any]] = {
    "reward": {
        "none": None, "text": "1.0", "complex": 1 + 2j, "shape": np.ones(1), "list": [1.0, 2.0],
        "huge": 10**400, "nan": np.nan, "odd": Odd(), "object": np.array([None]),
    },
    "cost": {
        "none": None, "text": "1.0", "complex": np.complex128(1j), "two": [0.0, 1.0], "empty": [],
        "nan": np.nan, "dict": {"a": 1.0}, "odd": Odd(), "ragged": [[1.0], [1.0, 2.0]],
    },
    "observation": {
        "none": None, "text": "ab", "texts": ["1", "2"], "complex": np.ones(2) * 1j,
        "short": np.zeros(1), "long": np.zeros(3), "nan": np.full(2, np.nan), "dict": {"a": 1.0},
        "ragged": [[1.0], [1.0, 2.0]], "odd": [Odd(), Odd()], "number": 1.0,
    },
    "terminated": {
        "none": None, "text": "False", "two": np.array([True, False]), "half": 0.5, "odd": Odd(),
    },
    "truncated": {"none": None, "two": [True, False], "complex": 1j},
    "info": {"none": None, "list": [1.0], "text": "cost"},
    "answer": {
        "none": None, "four": (1, 2, 3, 4), "seven": (1,) * 7, "list": [1, 2, 3, 4, 5],
        "odd": Odd(),
    },
    "start": {
        "none": None, "array": np.zeros(2), "three": (np.zeros(2), {}, 1), "text": ("ab", {}),
        "short": (np.zeros(1), {}), "nan": (np.full(2, np.nan), {}), "odd": (Odd(), {}),
    },
}  # fmt: skip


class Broken(gymnasium.Env[Any, Any]):
    """A point that does as it likes, broken in one respect."""

    made = 0  # environments in this process, so far

    def __init__(self, case: str) -> None:
        self.where, self.what, self.when = case.split()
        self.copy, Broken.made = Broken.made, Broken.made + 1
        self.steps = self.episodes = 0
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.fail("construction")

    @property
    def observation_space(self) -> Box:  # type: ignore[override]
        self.fail("observation_space")
        return Box(-10.0, 10.0, (2,), np.float64)

    def due(self) -> bool:
        """Whether the moment has come."""
        moments = {
            "first": True,
            "late": self.steps >= LATE,
            "second": self.copy == 1,
            "again": self.episodes > 1,
        }
        return moments[self.when]

    def fail(self, where: str) -> None:
        if self.where == where and self.due():
            raise_named(self.what)

    def value(self, where: str, sound: Any) -> Any:
        return WRONG[where][self.what] if self.where == where and self.due() else sound

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episodes, self.t = self.episodes + 1, 0
        self.fail("reset")
        return self.value("start", (self.np_random.uniform(-1.0, 1.0, 2), {}))

    def step(self, action: Any) -> Any:
        self.steps, self.t = self.steps + 1, self.t + 1
        self.fail("step")
        observation = self.value("observation", self.np_random.uniform(-1.0, 1.0, 2))
        info = self.value("info", {"cost": self.value("cost", 0.5)})
        ended = self.value("terminated", False), self.value("truncated", self.t == EPISODE)
        return self.value("answer", (observation, self.value("reward", 1.0), *ended, info))

    def random_state(self) -> Any:
        self.fail("random_state")
        return {"steps": Odd()} if self.where == "state" else {}

    def set_random_state(self, state: Any) -> None:
        self.fail("set_random_state")

    def close(self) -> None:
        self.fail("close")


def make(case: str = "none none first") -> Broken:
    return Broken(case)


def calls() -> list[str]:
    """Return the cases in which a call fails."""
    cases = [f"{w} {fault} first" for w in ("construction", "reset", "step") for fault in FAULTS]
    cases += [f"observation_space {fault} first" for fault in ("ValueError", "exit")]
    cases += [f"random_state {fault} first" for fault in ("ValueError", "exit")]
    cases += [f"construction {fault} second" for fault in ("ValueError", "exit")]
    cases += [
        f"reset {fault} {when}" for fault in ("KeyError", "exit") for when in ("second", "again")
    ]
    moments = ("late", "second", "again")
    return cases + [f"step {f} {when}" for f in ("OSError", "BrokenPipeError") for when in moments]


def values() -> list[str]:
    """Return the cases in which a value is of the wrong kind."""
    cases = [f"{where} {what} first" for where, kinds in WRONG.items() for what in kinds]
    cases[cases.index("cost two first")] = "cost two late"  # two from the beginning are just two
    some = ("reward none", "cost text", "observation short", "terminated two", "answer four")
    return cases + [f"{case} {when}" for case in some for when in ("late", "second", "again")]
