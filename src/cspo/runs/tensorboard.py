"""TensorBoard events: the columns of progress.csv over environment steps, and timings."""

from __future__ import annotations

from pathlib import Path

from cspo.runs.progress import as_row
from cspo.types import EpochReport


class EventWriter:
    """Writes scalars; a run that was resumed hides what it had written past its checkpoint."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Write into `folder`; events at or after `first_step` from an earlier process are superseded."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=first_step)  # type: ignore[no-untyped-call]

    def log(self, report: EpochReport) -> None:
        """Add one epoch."""
        timings = {
            "seconds_rollout": report.seconds_rollout,
            "seconds_update": report.seconds_update,
        }
        for name, value in {**as_row(report), **timings}.items():
            if name not in ("epoch", "steps"):
                self._writer.add_scalar(name, value, report.steps)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()  # type: ignore[no-untyped-call]
