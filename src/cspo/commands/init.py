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


@dataclass(frozen=True)
class InitOptions:
    """Write a starter into a folder: an environment with a cost, settings, a test, a README.

    A file that is already there is not replaced.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")] = "my-problem"
    """Where to write it; made if it is not there."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo init`."""
    folder = Path(parse(InitOptions, "init", arguments).folder)
    for path in write_starter(folder):
        print(f"wrote {path}")
    go = "" if folder.resolve() == Path.cwd().resolve() else f"cd {folder} && "
    print(f"\nNext: {go}cspo check-env my_env:make\nREADME.md has the rest.")
    return 0


def write_starter(folder: Path) -> list[Path]:
    """Write the starter, and return its files; nothing is written if one of them is there.

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
    source = files("cspo.commands") / "starter"
    for name in STARTER:
        write_text(folder / name, (source / name).read_text(encoding="utf-8"))
    return [folder / name for name in STARTER]
