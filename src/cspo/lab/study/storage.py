"""Runs of a study in storage that every node reaches by an address: s3://bucket/study, file:///...

A run trains in a folder of its own node and is copied up as one archive per checkpoint. The archive
gets a name that was never used before, and only then a small file, current.json, is pointed at it,
with its digest: whatever is interrupted, what was there before is intact. In storage a run is

    runs/<id>/owner.json      who may write: the token of the newest start
    runs/<id>/current.json    which archive holds the run, its digest and its epochs
    runs/<id>/epoch-....zip   the run folder
    runs/<id>/progress.csv    for looking at; the archive has it too

Ray's own storage cannot replace this: `ray.train` copies a folder file by file over the one before,
without a digest or an owner, so that a lost node leaves a mixture; and it needs PyArrow. fsspec
does the ordinary work.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import stat
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cspo.errors import CspoError
from cspo.runs.checkpoint import SUFFIX, epoch_of, list_checkpoints
from cspo.runs.plain import parse_json

# Where a write is seen as a whole or not at all, and where there are no folders to be made.
ATOMIC = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
LEFT_OUT = (".lock", ".owner")
MOST_FILES = 10_000  # of an archive: a run has some dozens


class Superseded(CspoError):
    """Another worker has taken this run over: this one must not write any more."""


class Storage:
    """Named files under an address, by fsspec."""

    def __init__(self, address: str) -> None:
        """Open an address; nothing is written yet."""
        self.address = address.rstrip("/")
        self._atomic = address.partition("://")[0] in ATOMIC
        with self._explained():
            import fsspec  # type: ignore[import-untyped]

            self._files, root = fsspec.core.url_to_fs(self.address)
            self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        with self._explained(), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            content: bytes = self._files.cat_file(f"{self._root}/{name}")
            return content
        return None

    def read_json(self, name: str) -> dict[str, Any]:
        """Return a JSON object, or an empty one if it is not there or cannot be read."""
        try:
            data = parse_json(self.read(name) or b"{}")
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it is seen as a whole or not at all."""
        path = f"{self._root}/{name}"
        with self._explained():
            if self._atomic:
                self._files.pipe_file(path, content)
                return
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            temporary = f"{path}.{uuid.uuid4().hex}.partial"
            self._files.pipe_file(temporary, content)
            self._files.mv(temporary, path)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        paths: list[str] = []
        with self._explained(), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            paths = self._files.ls(f"{self._root}/{folder}", detail=False)
        # A store knows no folders: a key may well be "runs/../x".
        names = {path.rstrip("/").rpartition("/")[2] for path in paths}
        return sorted(name for name in names if is_plain(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._explained(), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def check(self) -> None:
        """Raise `CspoError` if nothing can be written here."""
        name = f".check-{uuid.uuid4().hex}"
        self.write(name, b"can be written")
        self.remove(name)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in one line what storage, or the package that reaches it, complains about."""
        try:
            yield
        except ImportError as error:
            needs = f"{self.address} needs a package that is not installed"
            raise CspoError(f"{needs}: {error}") from error
        except Exception as error:  # every kind of storage has its own errors
            fault = " ".join(str(error).split()) or type(error).__name__
            raise CspoError(f"Cannot use {self.address}: {fault}") from error


class StoredRun:
    """One run in storage."""

    ask_every = 2.0  # seconds between two questions who the owner is

    def __init__(self, storage: Storage, name: str) -> None:
        """`name` is the id of the run."""
        self.storage, self.name = storage, name
        self._at = f"runs/{name}"

    def claim(self, token: str, *, stop: bool = False) -> None:
        """Make `token` the owner of the run, and every other process that trains it end."""
        owner = {"token": token, "stop": stop}
        self.storage.write(f"{self._at}/owner.json", json.dumps(owner).encode())

    def owner(self) -> dict[str, Any]:
        """Return who may write."""
        return self.storage.read_json(f"{self._at}/owner.json")

    def is_free(self) -> bool:
        """Whether no process holds the run: storage has no locks, the owner alone decides."""
        return True

    def keep_log(self, text: str) -> None:
        """Keep what is to be known about a failure."""
        self.storage.write(f"logs/{self.name}.log", text.encode())

    def version(self) -> str:
        """Return the name of the current archive; empty if there is none."""
        return str(self._pointer().get("archive", ""))

    def _pointer(self) -> dict[str, Any]:
        return self.storage.read_json(f"{self._at}/current.json")

    def push(self, folder: Path, token: str) -> str:
        """Copy a run folder up and return the name of the archive.

        Raises:
            Superseded: If the run belongs to another worker by now; nothing that is read has
                changed then.
        """
        epochs, content = pack(folder)
        archive = f"epoch-{epochs:06d}-{uuid.uuid4().hex[:12]}.zip"
        self.storage.write(f"{self._at}/{archive}", content)
        if self.owner().get("token") != token:
            self.storage.remove(f"{self._at}/{archive}")
            raise Superseded(f"{self.name} is trained by another worker now.")
        before, digest = self.version(), hashlib.sha256(content).hexdigest()
        pointer = {"archive": archive, "sha256": digest, "epochs": epochs}
        self.storage.write(f"{self._at}/current.json", json.dumps(pointer).encode())
        progress = folder / "progress.csv"
        if progress.exists():
            self.storage.write(f"{self._at}/progress.csv", progress.read_bytes())
        for name in self._archives():
            if name not in (archive, before):  # the one before is kept: somebody may be reading it
                self.storage.remove(f"{self._at}/{name}")
        return archive

    def pull(self, folder: Path) -> str:
        """Replace a folder by the newest intact copy; returns its archive, or "" without one."""
        pointer = self._pointer()
        current = str(pointer.get("archive", ""))
        for name in dict.fromkeys([current, *reversed(self._archives())]):
            content = self.storage.read(f"{self._at}/{name}") if is_plain(name) else None
            digest = pointer.get("sha256") if name == current else None
            if content is not None and holds_plain_files(content) and _is_intact(content, digest):
                unpack(content, folder)
                return name
        return ""

    def _archives(self) -> list[str]:
        return [name for name in self.storage.names(self._at) if name.endswith(".zip")]


def pack(folder: Path) -> tuple[int, bytes]:
    """Return the epochs of a run folder's newest checkpoint, and the folder as a zip file.

    The run may be going on: the checkpoints are read first, as progress.csv always has the rows of
    a checkpoint before it is written; rows after it are taken back when the run is resumed.
    """
    checkpoints = list_checkpoints(folder / "checkpoints")
    epochs = epoch_of(checkpoints[-1]) if checkpoints else 0
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    others = [path for path in files if path.suffix not in (SUFFIX, ".partial")]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in [*checkpoints, *others]:
            if path.name not in LEFT_OUT:
                # Without the time: equal folders are equal archives.
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                archive.writestr(entry, path.read_bytes())
    return epochs, content.getvalue()


def is_plain(name: str) -> bool:
    """Whether a name is that of a file in a folder, and leads nowhere else."""
    fits = len(name.encode(errors="replace")) < 256
    return fits and name not in ("", ".", "..") and not set(name) & set("/\\\0")


def holds_plain_files(content: bytes) -> bool:
    """Whether an archive is such as `pack` makes; whoever can write to storage may put any there.

    Files in folders of it and nothing else, not compressed: it cannot unpack to more than it is.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return False
    names = {entry.filename for entry in entries}
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    return (
        len(names) == len(entries) <= MOST_FILES
        and names.isdisjoint(folders)
        and sum(entry.file_size for entry in entries) <= len(content)
        and all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        and all(_is_file(entry) for entry in entries)
        and all(is_plain(part) for name in names for part in name.split("/"))
    )


def _is_file(entry: zipfile.ZipInfo) -> bool:
    """Whether a member is a file by its mode, no folder, link, pipe or device; and not locked."""
    return not entry.flag_bits & 1 and stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)


def unpack(content: bytes, folder: Path) -> None:
    """Replace a folder by what is in an archive."""
    fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    fresh.mkdir(parents=True)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(fresh)  # leaves out "..", drives and leading slashes by itself
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_intact(content: bytes, digest: Any) -> bool:
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        return False
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Ours are not compressed: one that unpacks to more was made to fill disks.
            sizes = sum(entry.file_size for entry in archive.infolist())
            return sizes <= len(content) and archive.testzip() is None
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError):
        return False  # the last two: encrypted, or packed in a way that Python does not know
