"""progress.csv: one row per epoch. docs/metrics.md explains every column."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import IO

from cspo.checkpoint import write_text
from cspo.types import EpochReport, per_constraint


def as_row(report: EpochReport) -> dict[str, float]:
    """Return the columns of one epoch, in their order in the file."""
    return {
        "epoch": report.epoch,
        "steps": report.steps,
        "return": report.episode_return,
        **per_constraint("cost", report.cost),
        **per_constraint("cost_limit", report.cost_limit),
        "episode_length": report.episode_length,
        **per_constraint("multiplier", report.multiplier),
        "kl": report.kl,
        "steps_per_second": round(report.steps_per_second, 1),
        **report.metrics,
    }


class ProgressFile:
    """Appends rows; numbers are written in full, so that equal runs give equal rows."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path = path
        self._file: IO[str] | None = None

    def append(self, report: EpochReport) -> None:
        """Add one row."""
        row = as_row(report)
        if self._file is None:
            new = not self.path.exists() or self.path.stat().st_size == 0
            self._file = open(self.path, "a", newline="", encoding="utf-8")  # noqa: SIM115 (kept open)
            if new:
                self._file.write(",".join(row) + "\n")
        self._file.write(",".join(map(repr, row.values())) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Force the rows to disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def rewind(self, epochs: int) -> list[str]:
        """Keep the rows of the first `epochs` epochs; returns a sentence if some are missing."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        rows = [line for line in lines[1:] if line.count(",") == lines[0].count(",")]
        kept = [line for line in rows if line.split(",", 1)[0].isdigit() and int(line.split(",", 1)[0]) < epochs]
        write_text(self.path, "".join(line + "\n" for line in lines[:1] + kept))
        if len(kept) < epochs:
            return [f"progress.csv holds {len(kept)} of the {epochs} epochs done; the others are lost."]
        return []

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_progress(path: Path) -> dict[str, list[float]]:
    """Return the columns of a progress.csv."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in (rows[0] if rows else {})}
