"""TensorBoard events: the columns of progress.csv over environment steps, and timings."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path
from time import time
from typing import Any

from cspo.runs.files import own_folder
from cspo.runs.progress import as_row
from cspo.types import EpochReport

_FILES = itertools.count()  # those of one process in one second need different names


class TensorBoard:
    """The sink that writes scalars; a resumed run hides what was written past its checkpoint.

    Epochs are few: they are written when they come. TensorBoard's own writer would start a thread,
    which lives on where a loop is abandoned and says nothing of a disk that is full.
    """

    def __init__(self, folder: Path) -> None:
        """Open nothing yet: importing TensorBoard takes a second."""
        self._folder = folder
        self._writer: Any = None

    def write(self, report: EpochReport) -> None:
        """Add one epoch."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is None:
            self._writer = self._open()
            self._add(Event(wall_time=time(), file_version="brain.Event:2"))
            # Tells readers that what an earlier process wrote from this step on is superseded.
            start = SessionLog(status=SessionLog.START)
            self._add(Event(wall_time=time(), step=report.steps, session_log=start))
        row = as_row(report)
        del row["epoch"], row["steps"]
        row["seconds_rollout"] = report.seconds_rollout
        row["seconds_update"] = report.seconds_update
        values = [Summary.Value(tag=name, simple_value=float(row[name])) for name in row]
        self._add(Event(wall_time=time(), step=report.steps, summary=Summary(value=values)))
        self._writer.flush()

    def _open(self) -> Any:
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = own_folder(self._folder)
        unique = f"{int(time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_FILES)}"
        return RecordWriter(open(folder / f"events.out.tfevents.{unique}", "ab"))

    def _add(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()
