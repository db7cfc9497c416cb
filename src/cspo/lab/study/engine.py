"""Where the runs of a study are trained: what the scheduler asks of an engine, and the local one.

The local engine gives every run a process of its own. On Linux the processes are forked from a
server that has imported everything already, which saves each about two seconds; elsewhere they
start from nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.study.grid import RunSpec
from cspo.runs.files import APPEND, open_plain, own_folder

TASKS = ("cspo.envs.gym", "cspo.envs.velocity.task", "cspo.envs.navigation.task")
PICTURES = ("cspo.runs.curves", "matplotlib.backends.backend_agg", "matplotlib.figure")
PRELOADED = ["cspo.lab.study.worker", *TASKS, *PICTURES]
SAFE = "PYTHONSAFEPATH"
FILES, FILES_PER_RUN = 32, 4  # descriptors that the scheduler and each of its runs may need
UNKNOWN = 255  # exit code of a process whose server was killed


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    error: str | None  # None: the run is finished; else one line saying what went wrong


class Handle(Protocol):
    """One run that has been started."""

    def poll(self) -> Outcome | None:
        """Return how it ended, or None while it is going on."""

    def interrupt(self) -> None:
        """Ask it to stop after the epoch under way, with a checkpoint; or now, if it cannot."""


class Engine(Protocol):
    """Trains runs, several at once."""

    slots: int  # how many runs go on at once

    def start(self, spec: RunSpec, folder: Path) -> Handle:
        """Train the run in `folder`, or continue the one that is there."""

    def close(self) -> None:
        """End everything that is still going on."""


def is_address(place: str) -> bool:
    """Whether a place of runs is an address of fsspec, such as s3://bucket, and no folder."""
    return "://" in place


def _check_open_files(needed: int) -> None:
    """Refuse to start where the system allows too few open files; Windows has no such limit."""
    if sys.platform == "win32":
        return
    import resource

    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        few = f"This process may open {allowed} files, and the study needs {needed}"
        raise CspoError(f"{few}: raise the limit (`ulimit -n 1024`), or lower --jobs.")


class LocalEngine:
    """One process per run on this machine; none of them outlives the program that started it."""

    def __init__(self, slots: int) -> None:
        """Train `slots` runs at once."""
        self.slots = slots
        _check_open_files(FILES + slots * FILES_PER_RUN)
        forks = sys.platform == "linux"
        self._context: Any = multiprocessing.get_context("forkserver" if forks else "spawn")
        if forks:
            from multiprocessing import forkserver

            self._context.set_forkserver_preload(PRELOADED)
            with _only_installed_modules():
                forkserver.ensure_running()  # it imports while this process does
        self._handles: list[LocalHandle] = []

    def start(self, spec: RunSpec, folder: Path) -> LocalHandle:
        """Train the run in a process that writes what it prints to the study's folder logs."""
        ours, theirs = self._context.Pipe(duplex=False)
        folder = folder.absolute()  # an environment may change the current directory
        log = folder.parent.with_name("logs") / f"{spec.id}.log"
        # Plain data: the class of a plugin's settings is not known there yet.
        arguments = (theirs, to_dict(spec.config), str(folder), str(log), os.environ.get(SAFE))
        process = self._context.Process(target=_main, args=arguments, name=spec.id)
        # A new process would import the program that starts it: a run needs nothing of that.
        program, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            with _only_installed_modules():
                process.start()
        finally:
            sys.modules["__main__"] = program
        theirs.close()
        handle = LocalHandle(process, ours)
        self._handles = [one for one in self._handles if one.poll() is None] + [handle]
        return handle

    def close(self) -> None:
        """Kill the processes that are still there."""
        for handle in self._handles:
            if handle.poll() is None:
                handle.process.kill()
                handle.process.join()


@contextlib.contextmanager
def _only_installed_modules() -> Iterator[None]:
    """Keep a new interpreter from importing what lies in the current directory for what it needs.

    A study may have been downloaded into it. Python 3.10 does not know the variable.
    """
    before = os.environ.get(SAFE)
    os.environ[SAFE] = "1"
    try:
        yield
    finally:
        _set_variable(SAFE, before)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@dataclass
class LocalHandle:
    """A run in a process of this machine."""

    process: Any
    answer: Any  # the pipe through which the process says how the run ended
    outcome: Outcome | None = None

    def poll(self) -> Outcome | None:
        """Read what the process answered, or how it died without an answer."""
        if self.outcome is None:
            alive = self.process.is_alive()  # asked first: what it said before is in the pipe
            if answered := self.answer.poll():
                with contextlib.suppress(EOFError):  # it is closed, and nothing was said
                    self.outcome = Outcome(self.answer.recv())
                self.process.join()
            if self.outcome is None and (answered or not alive):
                self.outcome = Outcome(self._death())
        return self.outcome

    def _death(self) -> str:
        """Return how the process died without an answer."""
        code = self.process.exitcode
        if code == UNKNOWN and sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, signal.SIGKILL)  # nobody could tell when it ends
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code} and without a word"

    def interrupt(self) -> None:
        """Let the process finish the epoch under way."""
        self.process.terminate()


def _main(
    answer: Any, settings: dict[str, Any], folder: str, log: str, safe_path: str | None
) -> None:
    """Train one run in a process of its own; answer None, or one line about what went wrong."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpgid(0, 0)  # Ctrl-C is for the program that started this one, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _set_variable(SAFE, safe_path)  # as a user's own processes expect it
    _write_to(log)
    try:
        from cspo.lab.study.worker import work

        work(settings, folder)
        with contextlib.suppress(OSError):
            if os.path.getsize(log) == 0:
                os.unlink(log)
        answer.send(None)
    except BaseException as error:
        answer.send(in_one_line(error))
        with contextlib.suppress(OSError):
            traceback.print_exc()


def _end_with_parent() -> None:
    """End at once when the parent does; like SIGKILL, this leaves the run resumable."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_to(log: str) -> None:
    """Send everything this process prints to a file."""
    # On a full disk what is printed is lost, and training says why it stops.
    with contextlib.suppress(OSError):
        own_folder(Path(log).parent)
        with open(open_plain(Path(log), APPEND), "ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)


def in_one_line(error: BaseException) -> str:
    """Return what went wrong in one line; an unforeseen error comes with its type and place."""
    if isinstance(error, CspoError):
        return " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    trace = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(trace[-1].filename).name}, line {trace[-1].lineno})" if trace else ""
    return " ".join(f"{type(error).__name__}: {error}{place}".split())
