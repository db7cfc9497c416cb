"""One run of a study in a process of a Ray cluster: an actor that trains it, and what keeps two of them apart.

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
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cspo.errors import CspoError
from cspo.lab.study.storage import Storage, StoredRun, Superseded
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.files import write_text
from cspo.runs.folder import RunInUse, hold

WATCH = 1.0  # seconds between two looks at the owner, the raylet and new checkpoints
ASK = 2.0  # seconds between two questions to storage who the owner is
TRIES = 5  # failed copies to storage, one after the other, before training stops


@dataclass(frozen=True)
class Place:
    """Where a run is kept: a folder that all nodes share, or an address in storage."""

    folder: (
        str  # shared by all nodes, unless there is an address; its last part is the id of the run
    )
    address: str | None = None  # of the study

    @property
    def name(self) -> str:
        """The id of the run."""
        return Path(self.folder).name

    def stored(self) -> StoredRun:
        """Return the run in storage."""
        assert self.address is not None
        return StoredRun(Storage(self.address), self.name)

    def claim(self, token: str, *, stop: bool = False) -> None:
        """Make `token` the owner of the run, and every other process that trains it end."""
        owner = {"token": token, "stop": stop}
        if self.address is not None:
            self.stored().claim(owner)
            return
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
            write_text(Path(self.folder) / ".owner", json.dumps(owner))
        except OSError as error:
            raise CspoError(
                f"Cannot write to run folder {self.folder}: {error.strerror or error}."
            ) from error

    def owner(self) -> dict[str, Any] | None:
        """Return who owns the run; None if that cannot be read just now."""
        if self.address is not None:
            with contextlib.suppress(CspoError):
                return self.stored().owner()
            return None
        try:
            data = json.loads((Path(self.folder) / ".owner").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else {}

    def keep_log(self, text: str) -> None:
        """Keep what is to be known about a failure, in the study's folder logs, if that can be written."""
        with contextlib.suppress(OSError, CspoError):
            if self.address is not None:
                Storage(self.address).write(f"logs/{self.name}.log", text.encode())
                return
            file = Path(self.folder).parent.with_name("logs") / f"{self.name}.log"
            file.parent.mkdir(exist_ok=True)
            with open(file, "a", encoding="utf-8") as log:
                log.write(text)

    def is_free(self) -> bool:
        """Whether no process holds the run any more; storage has no locks, there the owner alone decides."""
        if self.address is not None or not Path(self.folder).is_dir():
            return True
        try:
            hold(Path(self.folder)).close()
        except RunInUse:
            return False
        return True


class RunActor:
    """Trains one run; the driver asks `where` it is and calls `train` once."""

    def where(self) -> tuple[str, str]:
        """Return the name of the node and the version of this package there."""
        import platform

        from cspo import __version__

        return platform.node(), __version__

    def train(
        self, settings: dict[str, Any], folder: str, address: str | None, token: str
    ) -> str | None:
        """Train the run to its end; returns None, or one line about what went wrong."""
        from cspo.lab.study.engine import in_one_line

        place = Place(folder, address)
        guard = Guard(place, token)
        guard.look()  # the run may have been given to another process while this one was starting
        guard.start()
        try:
            if address is None:
                _work(settings, folder)
            else:
                _work_in_storage(settings, place, token, guard)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                place.keep_log(traceback.format_exc())
            return guard.error or in_one_line(error)
        finally:
            guard.finish()
        return None


class Guard:
    """Looks after a run beside its training: ends the process when it must not write any more."""

    def __init__(self, place: Place, token: str) -> None:
        """Nothing is looked at before `start`."""
        self.error: str | None = None  # why training was asked to stop
        self.also: Callable[[], None] | None = None  # what to do at every look
        self._place, self._token = place, token
        self._parent, self._asked = os.getppid(), False
        self._looked = -ASK
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cspo-guard", daemon=True)

    def start(self) -> None:
        """Look every second from now on."""
        self._thread.start()

    def finish(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(WATCH):
            self.look()
            if self.also is not None:
                self.also()

    def look(self) -> None:
        """End this process if its raylet is gone or the run has another owner; stop training if asked to."""
        if os.getppid() != self._parent:
            _end("its raylet is gone")
        if self._place.address is not None and time.monotonic() - self._looked < ASK:
            return
        self._looked = time.monotonic()
        owner = self._place.owner()
        if owner is None:  # not to be read just now: as little can be written
            return
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


def _work(settings: dict[str, Any], folder: str) -> None:
    from cspo.lab.study.worker import work

    # Asked to stop before training listens: the same as Ctrl-C then.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work(settings, folder)
    finally:
        signal.signal(signal.SIGTERM, before)


def _work_in_storage(settings: dict[str, Any], place: Place, token: str, guard: Guard) -> None:
    """Fetch a run, train it in a folder of this node, and copy it up at every checkpoint."""
    run = place.stored()
    with _scratch(place.name, token) as folder:
        run.pull(folder)
        copies = _Copies(run, folder, token, guard)
        guard.also = copies.look
        try:
            _work(settings, str(folder))
        finally:
            guard.finish()  # from here on nobody else copies
            copies.push()


class _Copies:
    """Copies a run up whenever it has a new checkpoint."""

    def __init__(self, run: StoredRun, folder: Path, token: str, guard: Guard) -> None:
        self._run, self._folder, self._token, self._guard = run, folder, token, guard
        self._newest, self._failed = self._checkpoint(), 0

    def _checkpoint(self) -> str:
        return next(
            (path.name for path in reversed(list_checkpoints(self._folder / "checkpoints"))), ""
        )

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
def _scratch(name: str, token: str) -> Iterator[Path]:
    """A folder of this node for one run; what a killed process left of the same run is removed."""
    root = Path(tempfile.gettempdir()) / f"cspo-scratch-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise CspoError(f"{root} belongs to another user: set TMPDIR where Ray is started.")
    for left in root.glob(f"{name}.*"):
        with contextlib.suppress(RunInUse, CspoError):
            hold(left / name).close()
            shutil.rmtree(left, ignore_errors=True)
    folder = root / f"{name}.{token}"
    folder.mkdir()
    try:
        yield folder / name
    finally:
        shutil.rmtree(folder, ignore_errors=True)
