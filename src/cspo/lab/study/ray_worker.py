"""One run of a study in a process of a Ray cluster: an actor that trains it, and its guard.

Ray may call a node dead whose processes are alive: its network failed, or only its raylet died. The
run is then started elsewhere while the old process could still write. So a run has an owner, a
token that every start writes anew, and a thread beside training ends the process as soon as the run
is not its own any more or its raylet is gone. The lock of the run folder (or, in storage, the token
itself) holds until then.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cspo import __version__
from cspo.errors import CspoError
from cspo.lab.study.engine import in_one_line, is_address
from cspo.lab.study.storage import Storage, StoredRun, Superseded
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.claim import RunInUse, hold
from cspo.runs.files import (
    APPEND,
    open_plain,
    own_folder,
    refuse_link,
    write_text,
    writes_to,
)
from cspo.runs.plain import read_json_table

WATCH = 1.0  # seconds between two looks at the owner, the raylet and new checkpoints
TRIES = 5  # failed copies to storage, one after the other, before training stops


class SharedRun:
    """One run in a folder that all nodes share; to its owner it looks like a `StoredRun`."""

    ask_every = 0.0  # seconds between two questions who the owner is: at every look

    def __init__(self, folder: Path, name: str) -> None:
        """`name` is the id of the run."""
        self.folder, self.name = folder, name

    def claim(self, token: str, *, stop: bool = False) -> None:
        """Make `token` the owner of the run, and every other process that trains it end."""
        with writes_to(f"run folder {self.folder}"):
            refuse_link(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / ".owner", json.dumps({"token": token, "stop": stop}))

    def owner(self) -> dict[str, Any]:
        """Return who may write."""
        return read_json_table(self.folder / ".owner")

    def is_free(self) -> bool:
        """Whether no process holds the run any more."""
        with contextlib.suppress(RunInUse):
            if self.folder.is_dir():
                hold(self.folder).close()
            return True
        return False

    def keep_log(self, text: str) -> None:
        """Keep what is to be known about a failure, in the study's folder logs."""
        file = self.folder.parent.with_name("logs") / f"{self.name}.log"
        own_folder(file.parent)
        with open(open_plain(file, APPEND), "a", encoding="utf-8") as log:
            log.write(text)


def run_at(place: str, name: str) -> SharedRun | StoredRun:
    """Return the run `name` at a place: its folder that all nodes share, or the study's address."""
    if is_address(place):
        return StoredRun(Storage(place), name)
    return SharedRun(Path(place), name)


class RunActor:
    """Trains one run; the driver asks `where` it is and calls `train` once."""

    def where(self) -> tuple[str, str]:
        """Return the name of the node and the version of this package there."""
        return platform.node(), __version__

    def train(self, settings: dict[str, Any], place: str, name: str, token: str) -> str | None:
        """Train a run (see `run_at`) to its end; returns None, or a line about what went wrong."""
        try:
            run = run_at(place, name)
        except CspoError as error:
            return in_one_line(error)
        guard = Guard(run, token)
        guard.look()  # the run may have another owner since this process was asked to start
        guard.start()
        try:
            with _folder_of(run, token, guard) as folder:
                _work(settings, folder)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                with contextlib.suppress(OSError, CspoError):
                    run.keep_log(traceback.format_exc())
            return guard.error or in_one_line(error)
        finally:
            guard.finish()
        return None


class Guard(threading.Thread):
    """Looks after a run beside its training: ends the process when it must not write any more."""

    def __init__(self, run: SharedRun | StoredRun, token: str) -> None:
        """Nothing is looked at before `start`."""
        super().__init__(name="cspo-guard", daemon=True)
        self.error: str | None = None  # why training was asked to stop
        self.also: Callable[[], None] | None = None  # what to do at every look
        self._watched, self._token = run, token
        self._raylet, self._asked = os.getppid(), False
        self._looked = -run.ask_every
        self._over = threading.Event()

    def run(self) -> None:
        """Look every second until the end."""
        while not self._over.wait(WATCH):
            self.look()
            if self.also is not None:
                self.also()

    def finish(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def look(self) -> None:
        """End this process if it lost its raylet or the run; stop training if asked to."""
        if os.getppid() != self._raylet:
            _end("its raylet is gone")
        if time.monotonic() - self._looked < self._watched.ask_every:
            return
        self._looked = time.monotonic()
        try:
            owner = self._watched.owner()
        except (OSError, ValueError, CspoError):
            return  # not to be read just now: as little can be written
        if owner.get("token") != self._token:
            _end("the run has another owner")
        if owner.get("stop"):
            self.stop(None)

    def stop(self, error: str | None) -> None:
        """Ask training to stop after the epoch under way, once."""
        if not self._asked:
            self._asked, self.error = True, error
            os.kill(os.getpid(), signal.SIGTERM)


def _end(why: str) -> None:
    """End this process at once; like SIGKILL, this leaves the run resumable."""
    with contextlib.suppress(Exception):
        print(f"cspo: {why}: ending.", file=sys.stderr, flush=True)
    os._exit(1)


def _work(settings: dict[str, Any], folder: Path) -> None:
    from cspo.lab.study.worker import work

    # Asked to stop before training listens: the same as Ctrl-C then.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work(settings, str(folder))
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _folder_of(run: SharedRun | StoredRun, token: str, guard: Guard) -> Iterator[Path]:
    """Where to train: a run in storage is fetched, and copied up at every checkpoint."""
    if isinstance(run, SharedRun):
        yield run.folder
        return
    with _scratch(run.name) as folder:
        run.pull(folder)
        copies = _Copies(run, folder, token, guard)
        guard.also = copies.look
        try:
            yield folder
        finally:
            guard.finish()  # from here on nobody else copies
            copies.push()


class _Copies:
    """Copies a run up whenever it has a new checkpoint."""

    def __init__(self, run: StoredRun, folder: Path, token: str, guard: Guard) -> None:
        self._run, self._folder, self._token, self._guard = run, folder, token, guard
        self._newest, self._failed = self._checkpoint(), 0

    def _checkpoint(self) -> list[Path]:
        return list_checkpoints(self._folder / "checkpoints")[-1:]

    def look(self) -> None:
        newest = self._checkpoint()
        if newest == self._newest:
            return
        try:
            self.push()
        except FileNotFoundError:  # a checkpoint was replaced by a newer one meanwhile: next time
            return
        except (CspoError, OSError) as error:
            self._failed += 1
            if self._failed == TRIES:
                self._guard.stop(str(error))
            return
        self._newest, self._failed = newest, 0

    def push(self) -> None:
        try:
            self._run.push(self._folder, self._token)
        except Superseded:
            _end("the run has another owner")


@contextlib.contextmanager
def _scratch(name: str) -> Iterator[Path]:
    """A folder of this node for one run; what a killed process left of the same run is removed."""
    root = Path(tempfile.gettempdir()) / f"cspo-scratch-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise CspoError(f"{root} belongs to another user: set TMPDIR where Ray is started.")
    for left in root.glob(f"{name}.*"):
        with contextlib.suppress(RunInUse, CspoError):
            hold(left / name).close()
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory("", f"{name}.", root, ignore_cleanup_errors=True) as folder:
        yield Path(folder) / name
