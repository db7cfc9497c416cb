"""`cspo init`: a starter to change into one's own problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import tyro

from cspo.commands.options import parse
from cspo.errors import CspoError
from cspo.runs.files import write_text

# In the order in which a reader opens them.
STARTER = ("README.md", "my_env.py", "settings.toml", "test_my_env.py")
# What differs with `--discrete`: in each file, lines that take the place of others.
DISCRETE = {
    "my_env.py": (
        ("import Box\n", "import Box, Discrete\n"),
        (
            "SPEED = 0.06  # the farthest that one step goes\n",
            "SPEED = 0.06  # how far one step goes\n"
            "MOVES = np.array([[0, 0], [0, 1], [1, 0], [0, -1], [-1, 0]])"
            "  # stay, north, east, south, west\n",
        ),
        (
            "        # What it does: a direction and how fast, each from -1 to 1.\n"
            "        self.action_space = Box(-1.0, 1.0, (2,), np.float64)\n",
            "        # What it does: one of the moves, by its number.\n"
            "        self.action_space = Discrete(len(MOVES))\n",
        ),
        (
            "SPEED * np.asarray(action) / max(1.0, float(np.hypot(*action)))\n",
            "SPEED * MOVES[action]\n",
        ),
    ),
    "test_my_env.py": (("ferry.step([0.0, 0.0])", "ferry.step(0)"),),
}


@dataclass(frozen=True)
class InitOptions:
    """Write a starter into a folder: an environment with a cost, settings, a test, a README.

    A file that is already there is not replaced.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "my-problem"
    """Where to write it; made if it is not there."""
    discrete: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let its actions be choices (stay, north, east ...) instead of numbers."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo init`."""
    options = parse(InitOptions, "init", arguments)
    folder = Path(options.folder)
    for path in write_starter(folder, options.discrete):
        print(f"wrote {path}")
    go = "" if folder.resolve() == Path.cwd().resolve() else f"cd {folder} && "
    print(f"\nNext: {go}cspo check-env my_env:make\nREADME.md has the rest.")
    return 0


def write_starter(folder: Path, discrete: bool = False) -> list[Path]:
    """Write the starter, and return its files; nothing is written if one of them is there.

    Args:
        folder: Where to.
        discrete: Whether its actions are choices.

    Raises:
        CspoError: If a file is in the way.
    """
    if folder.exists() and not folder.is_dir():
        raise CspoError(f"{folder} is a file: name a folder for the starter.")
    for name in STARTER:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise CspoError(
                f"{folder / name} is already there, and nothing was written: name a new folder, "
                "as in `cspo init my-problem`."
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in STARTER:
        write_text(folder / name, _text(name, discrete))
    return [folder / name for name in STARTER]


def _text(name: str, discrete: bool) -> str:
    """Return a file of the starter."""
    text = (files("cspo.commands") / "starter" / name).read_text(encoding="utf-8")
    for lines, others in DISCRETE.get(name, ()) if discrete else ():
        assert text.count(lines) == 1, lines
        text = text.replace(lines, others)
    return text
