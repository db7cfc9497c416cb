"""Where compiled kernels are kept, so that a machine compiles them once.

They go to the user's cache folder, below a name that changes with the sources they are made of and
with what compiles them: a new version never runs code of an old one, environments with the same
share them, and site-packages may be read-only. Numba's files are trusted like programs (they are
unpickled), so the folder of another user is not used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from numba.core import caching, config

import cspo
from cspo.runs.files import open_lock, try_lock, user_cache

_config: Any = config  # which has its settings as attributes, unknown to a type checker
_FunctionCache: Any = caching.FunctionCache
_CacheFile: Any = caching.IndexDataCacheFile
SECONDS = 20  # that compiling for a first run takes: 18 on a core of 2.6 GHz
PATIENCE = 5.0  # seconds that a process waits for others that save
UNUSED = 60 * 24 * 3600.0  # seconds after which the kernels of another version are removed
_HOLDS_KERNELS = re.compile(
    rb"^(from cspo\.arithmetic import .*kernel|from numba import|import numba\.extending)",
    re.MULTILINE,
)
_IMPORTED = re.compile(rb"^from (cspo\.[\w.]+) import", re.MULTILINE)


class Place(NamedTuple):
    """Where kernels are kept."""

    folder: Path | None  # None: nowhere
    fault: str = ""  # why not where they belong


@cache
def place() -> Place:
    """Return where this process keeps its kernels: the first folder that can be used."""
    given, fault = _config.CACHE_DIR, ""  # NUMBA_CACHE_DIR
    finders = [partial(Path, given)] if given else [user_cache, _temporary]
    for find in finders:
        try:
            parent = find() / "numba"
            folder = parent / f"{cspo.__version__}-{sources_digest()}-{_compiler_digest()}"
            _prepare(folder, private=not given)
        except OSError as error:
            fault = fault or f"{error.filename or 'cache'}: {error.strerror or error}"
            continue
        _remove_unused(parent, folder)
        return Place(folder, fault)
    return Place(None, fault)


def _temporary() -> Path:
    """Return a folder for kernels of a user without a cache folder."""
    return Path(tempfile.gettempdir(), f"cspo-{os.getuid() if hasattr(os, 'getuid') else 'user'}")


def _prepare(folder: Path, private: bool) -> None:
    """Make a folder and try to write to it, or raise `OSError`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    if private and hasattr(os, "getuid"):
        for path in (folder.parent.parent, folder.parent, folder):
            if path.lstat().st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        folder.parent.chmod(0o700)
    tempfile.TemporaryFile(dir=folder).close()
    os.utime(folder)  # it is in use


def _remove_unused(parent: Path, folder: Path) -> None:
    """Remove kernels of versions that nobody has used for long."""
    with contextlib.suppress(OSError):
        for other in parent.iterdir():
            if other != folder and time.time() - other.stat().st_mtime > UNUSED:
                shutil.rmtree(other, ignore_errors=True)


@cache
def sources_digest(root: Path = Path(cspo.__file__).parent) -> str:
    """Return a digest of all modules with kernels, and of those from which they import.

    Numba itself looks at the file of a kernel alone, and not at those of what it calls.
    """
    texts = {path: path.read_bytes() for path in root.rglob("*.py")}
    compiled = [path for path, text in texts.items() if _HOLDS_KERNELS.search(text)]
    used = set(compiled)
    for path in compiled:
        for name in _IMPORTED.findall(texts[path]):
            module = root.parent.joinpath(*name.decode().split("."))
            used |= {module.with_suffix(".py"), module / "__init__.py"} & texts.keys()
    digest = hashlib.sha256()
    for path in sorted(used):
        digest.update(f"{path.relative_to(root).as_posix()} {len(texts[path])} ".encode())
        digest.update(texts[path])
    return digest.hexdigest()[:12]


def _compiler_digest() -> str:
    """Return a digest of the versions that decide what the same sources are compiled to."""
    names = ("numba", "llvmlite", "numpy")
    found = [f"{name} {version(name)}" for name in names]
    return hashlib.sha256(" ".join(found).encode()).hexdigest()[:6]


class KernelCache(_FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, which neither other processes nor damaged files can spoil.

    Numba's own gives two signatures that two processes save at once the same file: one of them is
    then called with the code of the other. And a file cut short, or a disk that is full, raises.
    """

    def __init__(self, function: Any) -> None:
        """Keep what `function` is compiled to; of a user's own, where and while Numba would."""
        super().__init__(function)
        if function.__module__.startswith("cspo."):
            # By its name, not by the path of its file, which differs between environments; the
            # name of the folder already tells which sources these are.
            self._cache_path = str(Path(_config.CACHE_DIR, function.__module__))
            Path(self._cache_path).mkdir(exist_ok=True)
            base = self._impl.filename_base
            self._cache_file = _CacheFile(self._cache_path, base, "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled function, or None if there is none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever reading a damaged file raises: it is written anew
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        with contextlib.suppress(OSError), _alone(Path(self.cache_path)) as alone:
            if alone:
                super().save_overload(sig, data)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Keep other processes from saving; False if they do not let this one for long."""
    with open_lock(folder / ".lock") as file:
        deadline = time.monotonic() + PATIENCE
        while not (locked := try_lock(file)) and time.monotonic() < deadline:
            time.sleep(0.01)
        yield locked


def keep(dispatcher: Any) -> None:
    """Let a function that Numba compiles be kept on disk, where there is a place."""
    if place().folder is None or not hasattr(dispatcher, "py_func"):  # NUMBA_DISABLE_JIT
        return
    before, _config.CACHE_DIR = _config.CACHE_DIR, str(place().folder)
    try:
        # In place of `cache=True`, which does just this with Numba's own class.
        dispatcher._cache = KernelCache(dispatcher.py_func)
    except (RuntimeError, OSError):  # the folder is gone again
        pass
    finally:
        _config.CACHE_DIR = before


def announcement() -> str | None:
    """Return what to say before the first compilation; None if there are kernels already."""
    folder, fault = place()
    if folder is None:
        advice = "Set NUMBA_CACHE_DIR to a folder that can be written, and they are kept."
        return f"compiling the inner loops: about {SECONDS} s, each time ({fault}). {advice}"
    if next(folder.glob("*/*.nbi"), None) is not None:
        return None
    return f"compiling the inner loops, once: about {SECONDS} s."


def describe() -> str:
    """Return where kernels are kept, and how much there is, in words."""
    folder, fault = place()
    if folder is None:
        return f"kept nowhere, compiled each time ({fault})"
    sizes = [path.stat().st_size for path in folder.rglob("*.nb*")]
    there = f"{sum(sizes) / 1e6:.1f} MB in {folder}"
    return f"{there} ({fault})" if fault else there
