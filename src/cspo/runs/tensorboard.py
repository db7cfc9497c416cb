"""TensorBoard events: the columns of progress.csv over environment steps, and timings."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import Any

from cspo.runs.progress import as_row
from cspo.types import EpochReport


class TensorBoard:
    """The sink that writes scalars; a resumed run hides what was written past its checkpoint."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet: importing TensorBoard takes a second."""
        self._folder = folder
        self._writer: Any = None

    def write(self, report: EpochReport) -> None:
        """Add one epoch."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(str(self._folder))
            # Tells readers that what an earlier process wrote from this step on is superseded.
            start = SessionLog(status=SessionLog.START)
            self._writer.add_event(Event(wall_time=time(), step=report.steps, session_log=start))
        row = as_row(report)
        del row["epoch"], row["steps"]
        row["seconds_rollout"] = report.seconds_rollout
        row["seconds_update"] = report.seconds_update
        values = [Summary.Value(tag=name, simple_value=float(row[name])) for name in row]
        event = Event(wall_time=time(), step=report.steps, summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
