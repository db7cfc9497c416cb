"""Environments that fail in every call and in every way, in training and in `check_env`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from hostile.bases import SHORT, TINY
from hostile.case import EITHER, FINE, REFUSED, Case

KIND = "environments"
LATE = 60  # steps of a copy, which is in the second of two epochs
# An environment that does `what` where it is asked to: the text of a module.
FAULTY = '''"""An environment that goes wrong in one call, in one way."""

import os
import sys
import time

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from tiny_env import Make as Tiny

WAYS = {
    "raises": lambda: 1 / 0,
    "raises without words": lambda: raise_(ValueError()),
    "raises with many lines": lambda: raise_(RuntimeError("first\\n" * 50)),
    "raises what prints badly": lambda: raise_(Unprintable()),
    "leaves with 0": lambda: sys.exit(0),
    "leaves with 3": lambda: sys.exit(3),
    "leaves with words": lambda: sys.exit("enough"),
    "breaks a pipe": lambda: raise_(BrokenPipeError()),
    "interrupts": lambda: raise_(KeyboardInterrupt()),
    "stops iteration": lambda: raise_(StopIteration()),
    "ends a generator": lambda: raise_(GeneratorExit()),
    "runs out of memory": lambda: raise_(MemoryError()),
    "asserts": lambda: raise_(AssertionError()),
    "recurses": lambda: recurse(),
    "is not finished": lambda: raise_(NotImplementedError()),
    "raises a base": lambda: raise_(BaseException("base")),
    "raises an OSError": lambda: raise_(OSError(28, "No space left on device")),
    "raises no text": lambda: raise_(UnicodeDecodeError("utf-8", b"\\xff", 0, 1, "bad")),
    "raises a lone surrogate": lambda: raise_(ValueError("\\ud800")),
}


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raise_(fault):
    raise fault


def recurse():
    return recurse()


VALUES = {
    "None": None, "text": "x", "complex": 1 + 2j, "nan": float("nan"), "inf": float("inf"),
    "shape (1,)": np.zeros(1), "shape (2,)": np.zeros(2), "shape (7,)": np.zeros(7),
    "list": [1.0], "dict": {"a": 1}, "huge": 10**400, "object": object(), "bytes": b"x",
    "empty": np.zeros(0), "objects": np.array([None, "x"], dtype=object), "bool": True,
    "two dimensions": np.zeros((2, 2)), "negative": -1.0, "masked": np.ma.masked,
    "strings": np.array(["a", "b"]), "1e300": 1e300, "function": lambda: 0, "set": {1.0},
}


class Make(Tiny):
    """Args: `where` and `what` go wrong, after `after` steps."""

    def __init__(self, where="", what="", after=0):
        self.where, self.what, self.after, self.steps = where, what, after, 0
        super().__init__()
        self.go_wrong("constructor")
        if where == "observation space":
            self.observation_space = SPACES[what]
        if where == "action space":
            self.action_space = SPACES[what]

    def go_wrong(self, call):
        if self.where == call and self.steps >= self.after:
            WAYS[self.what]()

    def reset(self, *, seed=None, options=None):
        self.go_wrong("reset")
        observation, info = super().reset(seed=seed, options=options)
        if self.where == "first observation":
            observation = VALUES[self.what]
        if self.where == "what reset returns":
            return VALUES[self.what]
        return observation, VALUES[self.what] if self.where == "info of reset" else info

    def step(self, action):
        self.steps += 1
        self.go_wrong("step")
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps < self.after:
            return observation, reward, terminated, truncated, info
        if self.where == "folder":
            os.chdir("/")
        if self.where == "what step returns":
            return VALUES[self.what]
        value = VALUES.get(self.what)
        if self.where == "observation":
            observation = value
        if self.where == "reward":
            reward = value
        if self.where == "cost":
            info["cost"] = value
        if self.where == "terminated":
            terminated = value
        if self.where == "truncated":
            truncated = value
        if self.where == "info":
            info = value
        return observation, reward, terminated, truncated, info

    def close(self):
        self.go_wrong("close")


SPACES = {
    "None": None, "text": "x", "Discrete": Discrete(3), "Dict": Dict({"a": Discrete(2)}),
    "empty": Box(-1.0, 1.0, (0,)), "unbounded": Box(-np.inf, np.inf, (1,)),
    "two dimensions": Box(-1.0, 1.0, (2, 2)), "integers": Box(0, 5, (2,), np.int64),
    "MultiDiscrete": MultiDiscrete([2, 2]), "a class": Box, "huge": Box(-1.0, 1.0, (3,)),
}
'''
FAULTS_OF_CALLS = (
    *("raises", "raises without words", "raises with many lines", "raises what prints badly"),
    *("leaves with 0", "leaves with 3", "leaves with words", "breaks a pipe", "stops iteration"),
    *("ends a generator", "runs out of memory", "asserts", "recurses", "is not finished"),
    *("raises a base", "raises an OSError", "raises no text", "raises a lone surrogate"),
)
CALLS = ("constructor", "reset", "step", "close")
# Values of `VALUES`, or of `SPACES`, that are wrong in a place; they are split at the semicolons.
WRONG = {
    "reward": "None;text;complex;nan;inf;shape (1,);shape (2,);list;dict;huge;object;bytes;empty;"
    "masked;function",
    "cost": "None;text;complex;nan;inf;shape (2,);dict;huge;object;bytes;empty;strings;function",
    "observation": "None;text;nan;inf;shape (7,);dict;huge;object;empty;objects;two dimensions;"
    "strings;function",
    "first observation": "None;text;nan;shape (7,);objects;dict",
    "terminated": "None;text;shape (2,);object;empty;dict",
    "truncated": "shape (2,);text;strings",
    "info": "None;text;list;huge;function",
    "info of reset": "None;text;huge",
    "what step returns": "None;text;list;dict;shape (2,);huge",
    "what reset returns": "None;text;list;dict;shape (7,);huge",
    "observation space": "None;text;Discrete;Dict;empty;a class",
    "action space": "None;text;Discrete;Dict;empty;unbounded;MultiDiscrete",
}
# What has an obvious meaning, though it is of another kind than asked for; anything is true or not.
DEFENSIBLE = {"list", "None", "empty", "masked"}
TRUTHS = {"text", "object", "dict"}


def cases(random: Random) -> Iterator[Case]:
    """Yield every fault of every call, in training and in `check_env`."""
    for where in CALLS:
        for what in FAULTS_OF_CALLS if where != "close" else random.sample(FAULTS_OF_CALLS, 6):
            after = random.choice([0, LATE]) if where in ("step", "reset") else 0
            expected = FINE if where == "close" else REFUSED
            yield _training(where, what, after, expected)
    yield _training("step", "interrupts", LATE, (130, 2, 0))
    for where, values in WRONG.items():
        for what in values.split(";"):
            after = 1 if "space" in where or "reset" in where else random.choice([1, LATE])
            ended = where in ("terminated", "truncated") and what in TRUTHS
            lenient = what in DEFENSIBLE or "info" in where or ended
            expected = EITHER if lenient else REFUSED
            yield _training(where, what, after, expected)
    yield _training("folder", "chdir", LATE, FINE)
    for name, text in _modules().items():
        words = ("train", "faulty_env:Make", *SHORT, "--run-dir", "run")
        yield Case(KIND, name, words, prepare=partial(_write, text))
    pairs = [(call, what) for call in CALLS for what in FAULTS_OF_CALLS]
    pairs += [(where, what) for where, values in WRONG.items() for what in values.split(";")]
    for where, what in random.sample(pairs, 60):
        yield Case(
            KIND,
            f"check_env: {where}, {what}",
            prepare=partial(_write, FAULTY),
            call=partial(_check, where, what),
            expected=FINE,
        )


def _training(where: str, what: str, after: int, expected: tuple[int, ...]) -> Case:
    options = f'where="{where}",what="{what}",after={after}'
    words = ("train", "faulty_env:Make", "--env-options", options, *SHORT, "--run-dir", "run")
    return Case(
        KIND,
        f"{where}, {what}",
        words,
        prepare=partial(_write, FAULTY),
        expected=expected,
        verify=_complete if expected == FINE else None,
        process=where == "step" and what in ("leaves with 0", "breaks a pipe"),
    )


def _write(text: str, space: Path) -> None:
    (space / "tiny_env.py").write_text(TINY, encoding="utf-8")
    (space / "faulty_env.py").write_text(text, encoding="utf-8", errors="surrogatepass")


def _complete(space: Path, output: str) -> str | None:
    names = ("config.toml", "progress.csv", "summary.json", "checkpoints")
    lacking = [name for name in names if not (space / "run" / name).exists()]
    return f"the run has no {lacking[0]}" if lacking else None


def _check(where: str, what: str) -> None:
    import sys

    import cspo

    sys.path.insert(0, ".")
    import faulty_env  # type: ignore[import-not-found]

    cspo.check_env(lambda: faulty_env.Make(where, what))


def _modules() -> dict[str, str]:
    """Return modules that cannot be imported, or have nothing to make an environment with."""
    return {
        "import: raises": "1 / 0\n",
        "import: leaves with 0": "import sys\nsys.exit(0)\n",
        "import: breaks a pipe": "raise BrokenPipeError\n",
        "import: no Python": "def Make(:\n",
        "import: indentation": "  x = 1\n y = 2\n",
        "import: zero bytes": "x = '\0'\n",
        "import: imports what is missing": "import there_is_no_such_module\n",
        "import: imports a name that is missing": "from os import there_is_no_such_name\n",
        "import: recurses": "def f():\n    return f()\nf()\n",
        "import: raises a base": "raise BaseException('x')\n",
        "Make is None": "Make = None\n",
        "Make is a number": "Make = 3\n",
        "Make is an abstract class": (
            "import abc\n\nclass Make(abc.ABC):\n    @abc.abstractmethod\n    def step(self): ...\n"
        ),
        "Make returns None": "def Make():\n    return None\n",
        "Make returns text": "def Make():\n    return 'x'\n",
        "Make returns a class": (
            "from tiny_env import Make as Tiny\n\ndef Make():\n    return Tiny\n"
        ),
        "Make needs arguments": "def Make(a, b):\n    return None\n",
        "Make returns an empty object": "class Make:\n    pass\n",
        "Make has no spaces": (
            "class Make:\n    def reset(self, **k): return [0.0], {}\n"
            "    def step(self, a): return [0.0], 0.0, False, False, {}\n"
        ),
        "Make takes num_envs and returns one": (
            "from tiny_env import Make as Tiny\n\ndef Make(num_envs):\n    return Tiny()\n"
        ),
        "attributes raise": (
            "class Make:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\n"
        ),
        "module is missing its attribute": "x = 1\n",
    }
