"""Tab completion in the shells themselves: bash, and zsh and fish where they are installed."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.algorithms.registry import is_built_in
from cspo.cli import COMMANDS, main
from cspo.commands.completion_scripts import script
from cspo.commands.completion_words import described_commands, names
from cspo.envs import native_tasks

DESCRIBED = described_commands()

# What is typed: what is offered, all of it.
CASES = {
    "cspo alg": ["algos"],
    "cspo st": ["study"],
    "cspo study ": ["run", "status", "archive", "list"],
    "cspo study run paper-m": ["paper-main", "paper-main-small"],
    "cspo train SafetyHopperVel": ["SafetyHopperVelocity-v0", "SafetyHopperVelocity-v1"],
    "cspo bench env SafetyAntGoal": [f"SafetyAntGoal{level}-v0" for level in range(3)],
    "cspo train --algo ppo": ["ppo", "ppo-lag"],
    "cspo bench train --algo ppo-": ["ppo-lag"],
    "cspo train X --algo ppo-lag --multiplier-l": ["--multiplier-lr"],
    "cspo train X --total-s": ["--total-steps"],
    "cspo train X --alph": ["--alpha"],  # the default algorithm's own
    "cspo train X --algo ppo --alph": [],
    "cspo train X --kl-check ": ["pass", "minibatch"],
    "cspo eval ": ["runs/first", "runs/second"],
    "cspo eval runs/f": ["runs/first"],
    "cspo train --resume runs/s": ["runs/second"],
    "cspo completion ": ["bash", "zsh", "fish"],
}


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three scripts, and beside them two runs and a folder that is none."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(script(shell, DESCRIBED, names()))
    for name in ("first", "second"):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "config.toml").touch()
    (folder / "runs" / "fist").mkdir()
    return folder


@pytest.mark.parametrize("typed", CASES)
@needs("bash")
def test_bash(scripts: Path, typed: str) -> None:
    code = (
        'compopt() { :; }; source ./bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cspo\n'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        # Nothing is found on PATH: completing starts no program, Python least of all.
        [shutil.which("bash"), "-c", code, "_", *typed.split(" ")],
        cwd=scripts,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and sorted(done.stdout.split()) == sorted(CASES[typed])


@needs("fish")
@pytest.mark.parametrize("typed", CASES)
def test_fish(scripts: Path, typed: str) -> None:
    done = subprocess.run(
        ["fish", "-N", "-c", f"source fish; complete -C {typed!r}"],
        cwd=scripts,
        env={"PATH": os.environ["PATH"], "HOME": str(scripts)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    offered = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert sorted(offered) == sorted(CASES[typed])


@needs("zsh")
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_zsh(scripts: Path) -> None:
    """In an interactive shell, since zsh completes nowhere else: what Tab makes of a line."""
    wanted = {
        "cspo alg": "cspo algos",
        "cspo train --algo ppo-": "cspo train --algo ppo-lag",
        "cspo train --algo=ppo-": "cspo train --algo=ppo-lag",
        "cspo train SafetyHopperVel": "cspo train SafetyHopperVelocity-v",
        "cspo train X --algo ppo-lag --multiplier-l": "ppo-lag --multiplier-lr",
        "cspo eval runs/fir": "cspo eval runs/first",
    }
    import pty

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(scripts)
        own = {"PATH": os.environ["PATH"], "HOME": str(scripts), "TERM": "dumb", "COLUMNS": "200"}
        os.execvpe("zsh", ["zsh", "-f", "-i"], own)
    try:
        setup = "PS1='> '; autoload -Uz compinit; compinit -u -D; source ./zsh; echo re''ady\r"
        assert "ready" in _typed(terminal, setup, "ready")
        for line, completed in wanted.items():
            # Ctrl-U empties the line before.
            assert completed in _typed(terminal, f"\x15{line}\t", completed), line
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _typed(terminal: int, keys: str, until: str) -> str:
    """Type into a terminal and return what it shows, at the latest after some seconds."""
    os.write(terminal, keys.encode())
    shown, deadline = "", time.monotonic() + 8
    while until not in shown and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += re.sub(
                r"\x1b\[[0-9;?]*[a-zA-Z]|\x07|\x08", "", os.read(terminal, 4096).decode()
            )
    return shown


def test_every_command_and_name_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert {name.split(" ")[0] for name in DESCRIBED} == {*COMMANDS}
    assert all(one.flags or isinstance(one.argument, tuple) for one in DESCRIBED.values())
    assert names()["task"] == [row.name for row in native_tasks()]
    ours = [name for name in algorithm_names() if is_built_in(get_algorithm(name))]
    assert names()["algo"] == ours  # other tests may have registered more
    assert "--algorithm" not in {flag.name for flag in DESCRIBED["train"].flags}
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script("bash", DESCRIBED, names())
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(
    "command",
    [name for name, one in DESCRIBED.items() if one.flags and not name.startswith("train")]
    + ["train --algo ppo-lag"],
)
def test_the_options_are_those_of_the_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read from the help, which tyro writes."""
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = set(re.findall(r"(?<![\w`-])--[a-z][a-z0-9-]+", capsys.readouterr().out))
    own = DESCRIBED[command].flags + (DESCRIBED["train"].flags if "train -" in command else ())
    assert {flag.name for flag in own} <= shown
