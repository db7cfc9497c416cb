"""Sinks: where the numbers of an epoch go. The folder has its own, and a caller may add others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cspo.errors import CspoError
from cspo.types import EpochReport


class Sink(Protocol):
    """What `cspo.train(..., sinks=[...])` takes: any object with these two methods."""

    def write(self, report: EpochReport) -> None:
        """Take one epoch; the run's own files, and its checkpoint if one was due, are on disk."""
        ...

    def close(self) -> None:
        """Release what is held; called once the run has ended, however it ended."""
        ...


@contextmanager
def in_words(package: str, title: str, advice: str) -> Iterator[None]:
    """Say in a sentence what a service does not accept, by exceptions of its package."""
    try:
        yield
    except Exception as fault:
        if not type(fault).__module__.startswith(package):
            raise
        raise CspoError(f"{title}: {fault} ({advice}).") from fault
