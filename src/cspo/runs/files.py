"""Files that a crash cannot spoil, and locks that end with their process.

A run or a study may come from somebody else, and a link in it may lead anywhere: what is written
inside of one never follows a link. The folder that a user names may itself be one.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cspo.errors import CspoError

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
LARGEST = 64 * 2**20  # bytes of a table or of settings that are read: a run of 100,000 epochs


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading, or raise `OSError` for what is not one: a folder, a pipe, a device.

    Opening a pipe would wait for whoever writes to it.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return open(path, "rb")


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a file of at most so many bytes, unpacked if its name ends with .gz.

    Whatever is wrong with it is an `OSError` that says so; of a packed file that would unpack to
    more, no more than that is ever unpacked.
    """
    with open_file(path) as file:
        try:
            packed = path.suffix == ".gz"
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(most + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(errno.EIO, f"it is damaged ({error})", str(path)) from error
    if len(content) > most:
        said = f"it holds more than {most / 2**20:g} MB"
        raise OSError(errno.EFBIG, said, str(path))
    return content


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: to a temporary file beside it, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.partial")
    temporary.unlink(missing_ok=True)  # whatever it is: a file of a killed process, or a link
    try:
        with open(open_plain(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:  # a full disk, say, on which it would take up room
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    # What a stranger's JSON may hold, halves of characters, cannot be written as it is.
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def refuse_link(path: Path) -> None:
    """Raise `OSError` for a link where a file or a folder of ours should be."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a link, and links in it are not followed")


def open_plain(path: Path, flags: int) -> int:
    """Open a file and return its descriptor; anything but a plain file is refused.

    Raises:
        OSError: Also for a link, a device or a pipe, which could keep a reader waiting for ever.
    """
    refuse_link(path)
    also = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # as far as the system has them
    for name in also:
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a plain file")
    return descriptor


def read_plain(path: Path, most: int) -> bytes | None:
    """Return the first bytes of a plain file, or None if there is none."""
    try:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            return file.read(most)
    except OSError:
        return None


def own_folder(path: Path) -> Path:
    """Create a folder inside of a run or a study, if it is not there; a link is refused."""
    refuse_link(path)
    path.mkdir(exist_ok=True)
    return path


def name_aside(path: Path) -> Path:
    """Return a free name beside a damaged file, under which what it holds is kept."""
    aside, number = path.with_name(f"{path.name}.damaged"), 2
    while os.path.lexists(aside):
        aside, number = path.with_name(f"{path.name}.damaged-{number}"), number + 1
    return aside


def remove_partial_files(folder: Path) -> None:
    """Remove what a process that was killed while writing left behind; it was never complete."""
    for path in folder.glob(".*.partial"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def user_cache() -> Path:
    """Return this program's folder in the user's cache; it need not be there."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "cspo"
    try:
        home = Path.home()
    except RuntimeError as error:  # neither a variable nor the system knows one
        raise OSError(errno.ENOENT, "there is no home folder") from error
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "cspo"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "cspo"
    return home / ".cache" / "cspo"


def open_lock(path: Path) -> IO[str]:
    """Open the lock file of a run or a study, whose content does not matter."""
    return open(open_plain(path, os.O_RDWR | os.O_CREAT), "r+", encoding="utf-8")


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


def wait_for_lock(file: IO[str], seconds: float) -> bool:
    """Lock an open file, waiting a moment for whoever only looks at the lock (`is_locked`)."""
    deadline = time.monotonic() + seconds
    while not try_lock(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock file; looking at it creates nothing."""
    try:
        with open(open_plain(path, os.O_RDONLY), encoding="utf-8") as file:
            return not try_lock(file, exclusive=False)
    except OSError:
        return False


@contextlib.contextmanager
def writes_to(place: str) -> Iterator[None]:
    """Turn a full disk or a missing permission into a sentence."""
    try:
        yield
    except BrokenPipeError:  # who read the output has left: nothing to do with the place
        raise
    except OSError as error:
        raise CspoError(f"Cannot write to {place}: {error.strerror or error}.") from error
