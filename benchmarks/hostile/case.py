"""One hostile input: what is prepared, what is typed, what may happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

# What a case is checked for. The names are the columns of the table, in this order.
FAULTS = {
    "traceback": "tracebacks",
    "hang": "hangs",
    "crash": "crashes",
    "exit": "wrong exit codes",
    "silent": "no message",
    "changed": "files changed",
    "lost": "results lost",
    "executed": "code executed",
}
SENTINEL = "PWNED"  # a file whose name begins like this exists only if a stranger's code ran
REFUSED, FINE, EITHER = (2,), (0,), (0, 2)

Prepare = Callable[[Path], Any]
# Gets the folder of the case and everything printed; returns what is wrong, or None.
Verify = Callable[[Path, str], str | None]


@dataclass(frozen=True)
class Case:
    """A command on an input that was made to be wrong.

    Attributes:
        kind: The part of the campaign it belongs to.
        name: What is wrong, in a few words; unique within its kind.
        words: What is typed after `cspo`, in the folder of the case.
        bases: Folders made beforehand that the case gets a copy of, new name: name of the base.
        prepare: Damages them, or writes further files.
        expected: Exit codes that are right.
        reads: The command only reads: of what is there nothing may change.
        writes: What a reading command may write or change nevertheless.
        says: What the output must mention.
        verify: A further check of what must still be there afterwards.
        call: Called instead of the command; a `CspoError` counts as exit code 2.
        confine: Called in the process of the case before the command: limits, mounts. An `OSError`
            means that this machine does not allow it, and the case is skipped.
        process: A new interpreter instead of a fork of one that has imported everything.
    """

    kind: str
    name: str
    words: tuple[str, ...] = ()
    bases: dict[str, str] = field(default_factory=dict)
    prepare: Prepare | None = None
    expected: tuple[int, ...] = REFUSED
    reads: bool = False
    writes: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    verify: Verify | None = None
    call: Callable[[], Any] | None = None
    confine: Prepare | None = None
    process: bool = False


Maker = Callable[[Random], Iterator[Case]]


@dataclass(frozen=True)
class Outcome:
    """What a case did.

    Attributes:
        case: The case.
        faults: Keys of `FAULTS`, each with what was seen.
        last_line: The last line printed.
        seconds: How long it took.
        skipped: Why it could not be tried on this machine, or nothing.
    """

    case: Case
    faults: dict[str, str] = field(default_factory=dict)
    last_line: str = ""
    seconds: float = 0.0
    skipped: str = ""
