"""What a process is confined to: no override of permissions, small files, small or locked disks."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from pathlib import Path

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
CAPABILITY_VERSION = 0x20080522
PAGE = 4096  # bytes that such a disk gives a file at once
CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def without_override(space: Path) -> None:
    """Let permissions of files hold for the superuser as well."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    held = (ctypes.c_uint32 * 6)()  # twice: effective, permitted, inheritable
    library = _library()
    _checked(library.capget(header, held), "capget")
    for i in range(3):
        held[i] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    _checked(library.capset(header, held), "capset")


def small_files(size: int) -> Callable[[Path], None]:
    """Let no file become larger than `size` bytes, as on a disk that is full."""
    return lambda space: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def few_files(count: int) -> Callable[[Path], None]:
    """Let only so many files be open at once."""
    return lambda space: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def output_to(path: str) -> Callable[[Path], None]:
    """Send what is printed to standard output to a file."""
    return lambda space: os.dup2(os.open(path, os.O_WRONLY), 1) and None


def output_closed(space: Path) -> None:
    """Print into a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


def small_disk(name: str, spare: int) -> Callable[[Path], None]:
    """Mount a disk over a folder, with what was in the folder on it and so many kilobytes free."""

    def confine(space: Path) -> None:
        place = space / name
        held = {path.relative_to(place): path for path in sorted(place.rglob("*"))}
        contents = {name: p.read_bytes() for name, p in held.items() if p.is_file()}
        _own_mounts()
        pages = sum(-(-len(data) // PAGE) for data in contents.values())
        options = f"size={pages * PAGE + (spare << 10)}".encode()
        _checked(_library().mount(b"none", bytes(place), b"tmpfs", 0, options), "mount")
        for relative, data in contents.items():
            (place / relative).parent.mkdir(parents=True, exist_ok=True)
            (place / relative).write_bytes(data)

    return confine


def read_only(name: str) -> Callable[[Path], None]:
    """Make a folder one of a disk that cannot be written."""

    def confine(space: Path) -> None:
        place = bytes(space / name)
        _own_mounts()
        library = _library()
        _checked(library.mount(place, place, None, MS_BIND, None), "mount")
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY
        _checked(library.mount(place, place, None, flags, None), "mount")

    return confine


def _own_mounts() -> None:
    """Mount for this process alone: nothing has to be unmounted."""
    library = _library()
    _checked(library.unshare(CLONE_NEWNS), "unshare")
    _checked(library.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
