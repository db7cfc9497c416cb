"""The training process's hold on one worker: start it, ask it, name what became of it, end it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from cspo.envs.workers.channel import CALL, CLOSE, CLOSED, FAULT, STEP, Channel, Report, head
from cspo.envs.workers.memory import nameless_file
from cspo.envs.workers.recipe import Order
from cspo.errors import CspoError, EnvironmentFault, RemoteTraceback, is_users

GRACE = 5.0  # seconds for environments to close, and for a process to end, before it is killed
START = 600.0  # seconds at least for importing and making environments
LOOK = 1.0  # seconds between two looks whether a worker still lives
# A group of its own keeps Ctrl-C away, which the training process gets. A session of its own would
# too, but Linux gives every session the same share of a core: 16 workers wake up 3 ms late then.
# The path is that of this process: what lies in the current directory is found only where it is.
PROGRAM = """import os, sys; os.setpgid(0, 0); sys.path[:] = sys.argv[5:]
from cspo.envs.workers.process import main
main(*map(int, sys.argv[1:5]))"""


_STEP = head(STEP)
_GONE = contextlib.suppress(OSError)  # of a worker that is gone, which shows in its answer


class WorkerFault(Exception):
    """A worker did not do as it was told.

    Attributes:
        error: What to raise, if that is the end.
        restartable: Whether another process might fare better with new episodes.
    """

    def __init__(self, error: BaseException, restartable: bool) -> None:
        super().__init__(str(error))
        self.error, self.restartable = error, restartable


class Worker:
    """One process and the copies it steps.

    Args:
        index: Its number, from 0 on.
        order: What it is told to make.
        memory: The file of the shared arrays.
        timeout: Seconds it has for an answer; None if it may take for ever.
    """

    def __init__(self, index: int, order: Order, memory: int, timeout: float | None) -> None:
        self.order, self._timeout = order, timeout
        last = order.first + order.copies - 1
        copies = f"copy {last}" if order.copies == 1 else f"copies {order.first} to {last}"
        self.title, self.owner = f"worker {index} ({copies})", ""
        ours, theirs = socket.socketpair()
        alive, self._alive = os.pipe()
        self._trace = nameless_file()
        passed = (theirs.fileno(), alive, memory, self._trace)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, passed), *map(os.fspath, sys.path)],
                pass_fds=passed,
                stdin=subprocess.DEVNULL,
            )
        except OSError as fault:
            raise CspoError(f"{self.title} could not be started: {fault.strerror}.") from fault
        finally:
            theirs.close()
            os.close(alive)
        self._talk, self._poll = Channel(ours), select.poll()
        self._poll.register(ours, select.POLLIN)
        self._unanswered = 1
        self._slice = 1000 * min(LOOK, LOOK if timeout is None else timeout / 10)
        self.tell(order)

    def tell(self, value: Any, letter: bytes = CALL) -> None:
        """Send a message; that a worker is gone shows when its answer is waited for."""
        with _GONE:
            self._talk.send(letter, value)

    def step(self) -> None:
        """Let all copies take a step; `answer` waits for it."""
        self._unanswered += 1
        with _GONE:
            self._talk.connection.send(_STEP)

    def ask(self, method: str, *arguments: Any) -> None:
        """Call a method there; `answer` waits for what it returns."""
        self._unanswered += 1
        self.tell((method, *arguments))

    def made(self) -> Any:
        """Wait for what construction returned, which may take long before the timeout counts."""
        return self.answer("construction", START)

    def answer(self, call: str, at_least: float = 0.0) -> Any:
        """Wait for what a call, named for the message, returned.

        Args:
            call: Its name.
            at_least: Seconds it has, if the timeout is less.

        Raises:
            WorkerFault: It raised, or the worker died or gave no answer in time.
        """
        limit = None if self._timeout is None else max(self._timeout, at_least)
        started = time.monotonic()
        while True:
            # In slices: a process that an environment started may hold a dead worker's connection.
            while not self._poll.poll(self._slice):
                if self.process.poll() is not None:
                    raise self._died(call)
                if limit is not None and time.monotonic() >= started + limit:
                    raise self._hung(call, limit)
            try:
                letter, value = self._talk.receive()
            except (EOFError, OSError):
                raise self._died(call) from None
            self._unanswered -= 1
            if self._unanswered == 0:  # else it is of a call that Ctrl-C broke off
                break
        if letter == FAULT:
            raise self._failed(value)
        return value

    def _failed(self, report: Report) -> WorkerFault:
        """Return the fault that the worker reported, as one process would have told it."""
        error: BaseException
        if report.kind == "interrupt":
            return WorkerFault(KeyboardInterrupt(report.text), False)
        if report.kind == "worker":
            error = CspoError(f"{self.title}{self.owner} failed: {report.text}.")
        else:
            error = (EnvironmentFault if report.kind == "environment" else CspoError)(report.text)
        if report.raised:
            error.__cause__ = RemoteTraceback(report.trace, report.places)
        return WorkerFault(error, report.kind == "environment" and report.raised)

    def _died(self, call: str) -> WorkerFault:
        """Return how the worker ended: by which signal, or with which exit code."""
        try:
            code = self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            what = f"left {call} without an answer"
        else:
            what = f"ended with exit code {code} in {call}"
            if code < 0:
                what = f"was killed by {_signal_name(-code)} in {call}"
            if code == -signal.SIGKILL:
                what += ", as the system does when memory runs out"
        return self._fault(f"{what}{self._place()}.")

    def _hung(self, call: str, limit: float) -> WorkerFault:
        """Return where the worker was when its time was over, and end it."""
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGUSR1)  # which writes the stack
            time.sleep(0.2)
        place = self._place()
        self.kill()
        within = f"gave no answer to {call} within {limit:g} s{place}"
        return self._fault(f"{within}: it was ended; --worker-timeout is the limit.")

    def _fault(self, what: str) -> WorkerFault:
        return WorkerFault(EnvironmentFault(f"{self.title}{self.owner} {what}"), True)

    def _place(self) -> str:
        """Return the user's line that the worker was in, if its stack was written."""
        with open(os.dup(self._trace), encoding="utf-8", errors="replace") as file:
            file.seek(0)
            lines = re.findall(r'File "(.*)", line (\d+) in ', file.read())
        return next((f" ({name}, line {line})" for name, line in lines if is_users(name)), "")

    def ask_to_end(self) -> None:
        """Let it close its environments; `end` waits for that."""
        self.tell(None, CLOSE)

    def end(self, deadline: float) -> list[str]:
        """Wait for the worker to end, and make it; return what closing environments warned of."""
        warned: list[str] = []
        with contextlib.suppress(EOFError, OSError):
            while self._poll.poll(1000 * max(0.0, deadline - time.monotonic())):
                letter, value = self._talk.receive()  # of a step that was left, perhaps
                if letter == CLOSED:
                    warned = value or []
                    break
        self._talk.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()
        return warned

    def kill(self) -> None:
        """End the process now, if it still lives, and let go of it; safe twice."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._talk.close()
        for name in ("_alive", "_trace"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
