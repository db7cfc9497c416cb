"""Runs a case in a process of its own and looks at what it left.

The process is a fork of this one, which has imported everything: that takes milliseconds, and a
crash or an endless loop ends nothing but the case.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import resource
import select
import shutil
import signal
import stat
import sys
import threading
import time
import traceback
from pathlib import Path

import cspo
from hostile.case import SENTINEL, Case, Outcome

TIMEOUT = 60.0  # seconds
MEMORY = 6 << 30  # bytes of address space: what asks for more must not take the machine with it
HASHED = 16 << 20  # bytes of a file that are compared; a bomb need not be read to its end
OUTPUT = 1 << 20  # bytes of output that are kept, the last ones
CANNOT_CONFINE = 99  # exit code of a process that could not be given its limits
LAUNCHER = "import sys\nfrom cspo.cli import main\nsys.exit(main())\n"
# Of what may lie in a folder of a case, what is not the command's business.
OWN = ("home",)


def run(case: Case, bases: Path, space: Path, timeout: float = TIMEOUT) -> Outcome:
    """Prepare a case in the new folder `space`, run it, and say what went wrong."""
    _furnish(case, bases, space)
    before = snapshot(space)
    started = time.monotonic()
    status, output = _watch(case, space, timeout)
    seconds = time.monotonic() - started
    text = output.decode("utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1].strip()[:300] if lines else ""
    if status is not None and os.waitstatus_to_exitcode(status) == CANNOT_CONFINE:
        return Outcome(case, last_line=last, seconds=seconds, skipped=last)
    faults = _ending(case, status, text, timeout)
    faults |= _leavings(case, space, before, text)
    return Outcome(case, faults, last, seconds)


def _furnish(case: Case, bases: Path, space: Path) -> None:
    """Make the folder of a case: copies of its bases, files outside of them, a home."""
    space.mkdir(parents=True)
    for name, base in case.bases.items():
        shutil.copytree(bases / base, space / name, symlinks=True)
    shutil.copytree(bases / "home", space / "home", symlinks=True)
    outside = space / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("not to be touched\n", encoding="utf-8")
    (space / "launcher").mkdir()
    (space / "launcher" / "cspo_command.py").write_text(LAUNCHER, encoding="utf-8")
    if case.prepare is not None:
        case.prepare(space)


def snapshot(space: Path) -> dict[str, tuple[object, ...]]:
    """Return what lies in a folder: kind, permissions, size, time and contents of everything."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, names, files in os.walk(space):
        for name in (*names, *files):
            path = Path(folder, name)
            facts = path.lstat()
            content: object = None
            if stat.S_ISLNK(facts.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read(HASHED)).hexdigest()
                content = (content, facts.st_size, facts.st_mtime_ns)
            found[path.relative_to(space).as_posix()] = (facts.st_mode, content)
    return found


def _watch(case: Case, space: Path, timeout: float) -> tuple[int | None, bytes]:
    """Run the case; return how its process ended (None: it did not) and what it printed."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _become(case, space, writing)
    os.close(writing)
    os.set_blocking(reading, False)
    ended, output = os.pidfd_open(process), bytearray()
    deadline = time.monotonic() + timeout
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select([reading, ended], [], [], left)[0]
            if reading in ready and not _drain(reading, output):
                select.select([ended], [], [], max(0.0, deadline - time.monotonic()))
            if ended in ready:
                break
        finished, status = os.waitpid(process, os.WNOHANG)
        if not finished:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        _drain(reading, output)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process, signal.SIGKILL)  # what it started and left behind
        return (status if finished else None), bytes(output)
    finally:
        os.close(reading)
        os.close(ended)


def _drain(reading: int, output: bytearray) -> bool:
    """Take what is in the pipe; return whether more may come."""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reading, 1 << 16):
            output += chunk
            del output[:-OUTPUT]
        return False
    return True


def _become(case: Case, space: Path, writing: int) -> None:
    """Be the process of the case; never returns."""
    code = CANNOT_CONFINE
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, writing), (2, writing)):
            os.dup2(source, target)
        # Whoever started this may have put something else in their place.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(space)
        _environment(space)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if case.confine is not None:
            case.confine(space)
        if case.process:
            launcher = str(space / "launcher" / "cspo_command.py")
            os.execv(sys.executable, [sys.executable, launcher, *case.words])
        code = _answer(case)
        _leave()
    except BaseException as fault:
        code = code if isinstance(fault, OSError) and code == CANNOT_CONFINE else 1
        if code == CANNOT_CONFINE:
            os.write(2, f"{fault}\n".encode())
        else:
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def _environment(space: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("XDG_", "CSPO_"))]:
        del os.environ[name]
    os.environ["HOME"] = str(space / "home")
    os.environ["PYTHONPATH"] = str(Path(cspo.__file__).parents[1])  # the library that runs here
    # Wide, so that no word is broken over lines, and without colours.
    os.environ |= {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


def _answer(case: Case) -> int:
    """Do what is typed, or called, and return the exit code."""
    from cspo.cli import main
    from cspo.errors import CspoError

    try:
        if case.call is None:
            return main(list(case.words))
        case.call()
        return 0
    except SystemExit as leaving:  # as the interpreter itself does
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)
        return 1
    except CspoError as fault:  # of a call: the command line says it itself
        print(f"cspo: error: {fault}", file=sys.stderr)
        return 2
    except BaseException:
        traceback.print_exc()
        return 1


def _leave() -> None:
    """End as an interpreter does: wait for threads, then what was asked to be done at exit."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()


def _ending(case: Case, status: int | None, text: str, timeout: float) -> dict[str, str]:
    """Return what is wrong with how the process ended and what it said."""
    faults = {}
    if "Traceback (most recent call last)" in text:
        shown = re.findall(r"^(\w[\w.]*(?:Error|Exception|Exit|Interrupt|Fault)\b.*)$", text, re.M)
        faults["traceback"] = shown[-1][:200] if shown else "yes"
    if status is None:
        return faults | {"hang": f"not done after {timeout:g} s"}
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return faults | {"crash": signal.Signals(-code).name}
    if code not in case.expected:
        wanted = " or ".join(map(str, case.expected))
        faults["exit"] = f"exit code {code}, not {wanted}"
    if code != 0 and not text.strip():
        faults["silent"] = f"exit code {code} without a word"
    elif unsaid := [word for word in case.says if word not in text]:
        faults["silent"] = f"nothing is said about {unsaid[0]}"
    return faults


def _leavings(
    case: Case, space: Path, before: dict[str, tuple[object, ...]], text: str
) -> dict[str, str]:
    """Return what is wrong with the files that are there now."""
    faults, after = {}, snapshot(space)
    ran = [name for name in after if Path(name).name.startswith(SENTINEL) and name not in before]
    if ran:
        faults["executed"] = ran[0]
    free = (*OWN, *case.writes) if case.reads else OWN
    watched = before.keys() | after.keys() if case.reads else before.keys()
    changed = sorted(
        name
        for name in watched
        if before.get(name) != after.get(name) and not name.startswith(SENTINEL)
        if (name.startswith("outside") or case.reads)
        if not any(name == one or name.startswith(one + "/") for one in free)
    )
    if changed:
        faults["changed"] = ", ".join(changed[:3])
    if case.verify is not None and (wrong := case.verify(space, text)) is not None:
        faults["lost"] = wrong
    return faults
