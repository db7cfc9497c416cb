"""Sinks: where the numbers of an epoch go. The folder has its own, and a caller may add others."""

from __future__ import annotations

from typing import Protocol

from cspo.types import EpochReport


class Sink(Protocol):
    """What `cspo.train(..., sinks=[...])` takes: any object with these two methods."""

    def write(self, report: EpochReport) -> None:
        """Take one epoch; the run's own files, and its checkpoint if one was due, are on disk."""
        ...

    def close(self) -> None:
        """Release what is held; called once the run has ended, however it ended."""
        ...
