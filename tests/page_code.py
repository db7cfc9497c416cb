"""Reads the commands and the Python of the pages, and runs them; a program of its own.

python page_code.py parse           every `cspo` command of all pages, by the program's own parser
python page_code.py PAGE WHAT ...   what there is on pages, made short: commands, python, both

Prints how many there were. In a process of its own, since plugins register what they have.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import cspo
from cspo.cli import COMMANDS, _run

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```[ \t]*$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`cspo ([^`]+)`(?!`)")
SHELLS = ("", "sh", "bash", "shell")
BELOW = ("run", "status", "archive", "list", "env", "train")  # `study run`, `bench env` ...
VALUED = ("--resume", "--config")  # `train --resume` without a value, to talk about it
STAND_INS = {"TASK": "SafetyHopperVelocity-v1", "RUN": "runs/mine", "NAME": "cpo"}
PLACEHOLDER = re.compile(r"\b(?!CSPO\b|TOML\b)[A-Z]{3,}\b|\.\.\.|…")
# Made short: what a command is given instead, and what takes minutes or needs files of others.
SIZE: dict[str, Any] = {"total_steps": 800, "steps_per_epoch": 400, "num_envs": 4}
SMALL = {
    "train": {"--total-steps": "800", "--steps-per-epoch": "400", "--num-envs": "4"},
    "resume": {"--total-steps": "1200"},
    "eval": {"--episodes": "1", "--width": "64", "--height": "48"},
    "check-env": {"--seconds": "0.2"},
    "probe": {"--total-steps": "8000"},
    "export": {"--episodes": "1"},
}
NOT_RUN = re.compile(r"study (run|status|archive)|report|parity|toy|probe|.*(wandb|mlflow)")
NOT_EXECUTED = "runs/mine"  # a run on an environment that the page does not have
BEGIN_WITH_A_RUN = ("docs/warm-start.md", "docs/export.md")
MODULE = """\
import gymnasium
import numpy as np


class Oven(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        heat, noise = abs(float(action[0])), 0.1
        info = {"cost": heat + noise, "cost_heat": heat, "cost_noise": noise}
        seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return seen, float(action[0]), False, False, info


def make_env(top_speed=1.0, track="dry"):
    return gymnasium.wrappers.TimeLimit(Oven(), max_episode_steps=50)
"""


def pages() -> list[Path]:
    """Return the pages that tell users what to type."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*own, ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and content of each block of code."""
    for block in BLOCK.finditer(text):
        yield block[2], textwrap.dedent(block[3])


def commands(block: str) -> Iterator[list[str]]:
    """Yield what is typed after `cspo` in each command of a block."""
    for line in block.replace("\\\n", " ").splitlines():
        if not re.search(r"(^|&& |\w=\w+ )cspo ", line):
            continue
        for part in line.split(" && "):
            words = shlex.split(part, comments=True)
            while words and "=" in words[0]:
                words = words[1:]  # variables of the environment
            if words[:1] == ["cd"]:
                yield words
            elif words[:1] == ["cspo"]:
                yield words[1 : words.index(">") if ">" in words else None]


def of_text(text: str) -> Iterator[list[str]]:
    """Yield the commands that stand in a sentence, with names for what the reader puts in."""
    for found in INLINE.findall(BLOCK.sub("", text)):
        words = [STAND_INS.get(word, word) for word in found.split()]
        if not PLACEHOLDER.search(" ".join(words)):
            is_name = len(words) == 1 or (len(words) == 2 and words[1] in (*BELOW, *VALUED))
            if not is_name:
                yield from commands(" ".join(["cspo", *words]))
            elif words[0] not in COMMANDS:
                yield words  # which then fails


class Parsed(Exception):
    """The options were read."""


def parse(words: list[str]) -> None:
    """Read a command as the program does, and stop before it does anything."""
    if words[0] == "train" and "--resume" not in words and "--help" not in words:
        from cspo.commands.train import read_arguments

        read_arguments(words[1:])
        return
    home = importlib.import_module(
        COMMANDS.get(words[0], ("cspo.commands.train:",))[0].split(":")[0]
    )
    real = home.parse

    def read(*given: Any) -> Any:
        real(*given)
        raise Parsed

    try:
        with mock.patch.object(home, "parse", read):
            _run(words)
    except (Parsed, SystemExit):
        pass  # the help ends the program


def parse_all() -> int:
    """Parse every command of all pages; returns how many different ones there are."""
    seen, wrong = set[str](), []
    Path("runs", "first").mkdir(parents=True)
    shutil.copy("settings.toml", "runs/first/config.toml")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        found = [
            words for kind, block in blocks(text) if kind in SHELLS for words in commands(block)
        ]
        for words in [*found, *of_text(text)]:
            typed = shlex.join(words)
            if typed in seen or words[0] == "cd":
                continue
            seen.add(typed)
            try:
                parse([word.strip("[]") for word in words])
            except Exception as error:
                wrong.append(f"{page.relative_to(ROOT)}: cspo {typed}\n  {error!r}")
    if wrong:
        sys.exit("\n".join(wrong))
    return len(seen)


class Shortened:
    """Runs commands with little to do; trainings that would write to one folder have their own."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, ...]] = []

    def __call__(self, words: list[str]) -> None:
        kind = "resume" if "--resume" in words else words[0]
        for option, value in SMALL.get(kind, {}).items():
            if option in words:
                words[words.index(option) + 1] = value
            elif option in ("--width", "--height") and "--video" not in words:
                continue
            elif "--help" not in words:
                words += [option, value]
        if kind == "train" and "--run-dir" not in words:
            named = [words[i + 1] for i, word in enumerate(words) if word in ("--algo", "--seed")]
            if (key := (words[1], *named)) in self.trained:
                words += ["--run-dir", f"runs/again-{len(self.trained)}"]
            self.trained.append(key)
        try:
            code: Any = _run(words)
        except SystemExit as leaving:  # the help ends the program
            code = leaving.code
        assert not code, f"cspo {shlex.join(words)}: exit code {code}"


def run_python(code: str, name: str) -> None:
    """Execute a block of a page with little to do."""
    first = re.match(r"# (\w+\.py)\n", code)
    if first:  # a file, which other blocks import
        Path(first[1]).write_text(code, encoding="utf-8")
    real = {
        one: getattr(cspo, one) for one in ("train", "make_config", "resume", "evaluate", "probe")
    }

    def shorter(one: str, **changed: Any) -> Any:
        return lambda *given, **more: real[one](*given, **{**more, **changed})

    changes = {
        "train": shorter("train", **SIZE, quiet=True),
        "make_config": shorter("make_config", **SIZE),
        "resume": shorter("resume", total_steps=1200, quiet=True),
        "evaluate": shorter("evaluate", episodes=1),
        "probe": shorter("probe", total_steps=8000),
    }
    with mock.patch.multiple(cspo, **changes):
        exec(compile(code, name, "exec"), {"__name__": "page"})


def run(page: str, what: str) -> str:
    """Run the commands and the Python of a page in this folder; returns their numbers."""
    without_wandb = ModuleType("wandb")
    without_wandb.__spec__ = ModuleSpec("wandb", None)
    without_wandb.init = lambda **_: mock.Mock()  # type: ignore[attr-defined]
    sys.modules["wandb"] = without_wandb
    shorten, typed, executed, home = Shortened(), 0, 0, Path.cwd()
    text = (ROOT / page).read_text(encoding="utf-8")
    if page in BEGIN_WITH_A_RUN:
        shorten(["train", "SafetyHopperVelocity-v1"])
    for kind, block in blocks(text):
        os.chdir(home)
        if kind == "python" and what != "commands" and NOT_EXECUTED not in block:
            run_python(block, page)
            executed += 1
        for words in commands(block) if kind in SHELLS and what != "python" else ():
            if words[0] == "cd":
                os.chdir(words[1])
            elif not NOT_RUN.match(" ".join(words)):
                shorten(words)
                typed += 1
    return f"{typed} commands, {executed} blocks of Python"


def prepare() -> None:
    """Put here what the pages take for granted: files of a user, and those of the checkout."""
    for name in ("examples", "results"):
        Path(name).symlink_to(ROOT / name)
    _run(["init", ".", "--discrete"])  # my_env.py
    Path("my_module.py").write_text(MODULE, encoding="utf-8")
    for name in ("my_algorithm.py", "my_task.py"):
        shutil.copy(ROOT / "examples" / name, name)
    Path("settings.toml").write_text('task = "SafetyHopperVelocity-v1"\n', encoding="utf-8")


def run_pages(chosen: list[str]) -> None:
    """Run pages, each in a folder of its own, and print the numbers."""
    place = Path.cwd()
    for number, (page, what) in enumerate(zip(chosen[::2], chosen[1::2], strict=True)):
        folder = place / str(number)
        folder.mkdir()
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        prepare()
        said = run(page, what)
        os.chdir(folder)
        sys.path.remove(str(folder))
        for name in ("my_module", "my_env"):  # another page may have another
            sys.modules.pop(name, None)
        print(f"\n{page}: {said}")


if __name__ == "__main__":
    if sys.argv[1] == "parse":
        prepare()
        print(f"{parse_all()} commands")
    else:
        with mock.patch("cspo.use.record.LONGEST", 20):  # a film of a second
            run_pages(sys.argv[1:])
