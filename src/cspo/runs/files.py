"""Files that a crash cannot spoil, and locks that end with their process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cspo.errors import CspoError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary file beside it, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.partial")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def remove_partial_files(folder: Path) -> None:
    """Remove what a process that was killed while writing left behind; it was never complete."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def try_lock(file: IO[str], *, exclusive: bool = True) -> bool:
    """Lock an open file if it is free; closing it, or the end of the process, frees it again."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock, the folder is simply not protected
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def writes_to(place: str) -> Iterator[None]:
    """Turn a full disk or a missing permission into a sentence."""
    try:
        yield
    except BrokenPipeError:  # who read the output has left: nothing to do with the place
        raise
    except OSError as error:
        raise CspoError(f"Cannot write to {place}: {error.strerror or error}.") from error
