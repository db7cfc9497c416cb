"""Whose a run folder is: a free one for a new run, and the lock of the one at work in it."""

from __future__ import annotations

from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from cspo.errors import CspoError
from cspo.runs.files import open_lock, wait_for_lock, writes_to


class RunInUse(CspoError):
    """A run that another process is training."""


def free_folder(root: Path, name: str) -> Path:
    """Create and return root/name, or root/name-2, -3, ... if that is taken."""
    path, number = root / name, 2
    while True:
        try:
            path.mkdir(parents=True)  # what claims a name when several runs start together
            return path
        except FileExistsError:
            path, number = root / f"{name}-{number}", number + 1
        except OSError as error:
            fault = f"Cannot create run folder {path}: {error.strerror}. Try --run-dir."
            raise CspoError(fault) from error


_held: WeakValueDictionary[Path, IO[str]] = WeakValueDictionary()  # by this process


def hold(path: Path) -> IO[str]:
    """Hold the folder for this process; released when the process ends, however it ends."""
    with writes_to(f"run folder {path}"):
        file = open_lock(path / ".lock")  # held for the life of the run
    place = path.resolve()
    if not wait_for_lock(file, 0.2):  # `cspo watch` may be looking at it just now
        file.close()
        holder = _held.get(place)
        if holder is not None and not holder.closed:
            this = f"A trainer of this program is at work in {path}"
            raise RunInUse(f"{this}: close it first, with trainer.run.close().")
        raise RunInUse(f"Another process is training in {path}. Wait for it, or stop it first.")
    _held[place] = file
    return file
