"""Ways to damage a file, by name; each takes the path of a file that is whole."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path], None]
BOMB = 3 << 30  # bytes that 3 MB unpack to


def changed(change: Callable[[bytes], bytes]) -> Damage:
    """Write a file again, changed."""

    def apply(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return apply


def cut(share: float) -> Damage:
    """Keep the first part of a file."""
    return changed(lambda data: data[: int(len(data) * share)])


def content(data: bytes) -> Damage:
    """Put something else into a file."""
    return changed(lambda before: data)


def appended(data: bytes) -> Damage:
    """Add to the end of a file."""
    return changed(lambda before: before + data)


def in_line(number: int, change: Callable[[bytes], bytes]) -> Damage:
    """Change one line of a file."""

    def apply(data: bytes) -> bytes:
        lines = data.split(b"\n")
        lines[number] = change(lines[number])
        return b"\n".join(lines)

    return changed(apply)


def replaced(old: bytes, new: bytes) -> Damage:
    """Change the first occurrence of a text; it must be there."""

    def apply(data: bytes) -> bytes:
        assert old in data, f"there is no {old!r} to replace"
        return data.replace(old, new, 1)

    return changed(apply)


def scrambled(random: Random, places: int) -> Damage:
    """Change some bytes of a file."""
    chosen = [(random.random(), random.randrange(1, 256)) for _ in range(places)]

    def apply(before: bytes) -> bytes:
        data = bytearray(before)
        for share, mask in chosen:
            data[int(share * len(data))] ^= mask
        return bytes(data)

    return changed(apply)


def missing(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def folder(path: Path) -> None:
    """Put a folder in the place of a file."""
    path.unlink()
    path.mkdir()
    (path / "inside.txt").write_text("x", encoding="utf-8")


def unreadable(path: Path) -> None:
    """Take all permissions from a file."""
    path.chmod(0)


def pipe(path: Path) -> None:
    """Put a named pipe, which nobody writes to, in the place of a file."""
    path.unlink()
    os.mkfifo(path)


def link(target: str) -> Damage:
    """Put a symbolic link in the place of a file; a relative one starts at the folder it is in."""

    def apply(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return apply


def link_to_itself(path: Path) -> None:
    """Put a symbolic link in the place of a file that leads back to itself."""
    path.unlink()
    path.symlink_to(path.name)


def packed(path: Path) -> None:
    """Compress a file, as an archive does."""
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def bomb(begin: bytes, again: bytes, size: int = BOMB) -> bytes:
    """Return gzip data of a few megabytes that unpacks to `begin` and `again` up to `size`."""
    # A block that ends on a byte boundary can be repeated without being compressed again.
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(begin) + packer.flush(zlib.Z_FULL_FLUSH)
    repeated = again * max(1, (1 << 20) // len(again))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(repeated) + packer.flush(zlib.Z_FULL_FLUSH)
    count = size // len(repeated)
    whole = len(begin) + count * len(repeated)
    check = zlib.crc32(begin)
    # The checksum of a repetition is not worth computing over gigabytes: readers that get that
    # far have unpacked everything already.
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush(zlib.Z_FINISH)
    trailer = check.to_bytes(4, "little") + (whole & 0xFFFFFFFF).to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + head + block * count + end + trailer


def as_bomb(path: Path) -> None:
    """Put progress.csv.gz, whose rows go on and on, in the place of progress.csv."""
    lines = path.read_bytes().split(b"\n")
    path.with_name("progress.csv.gz").write_bytes(bomb(lines[0] + b"\n", lines[1] + b"\n"))
    path.unlink()
