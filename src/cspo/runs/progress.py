"""progress.csv: one row per epoch. docs/metrics.md explains every column."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from cspo.runs.files import write_text
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
        self._file.write(",".join(map(_written, row.values())) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Force the rows to disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def complete_rows(self) -> int:
        """Return how many epochs, from the first on, have a complete row."""
        return len(self._read()[1])

    def rewind(self, epochs: int) -> list[str]:
        """Keep the rows of the first `epochs` epochs; returns a sentence if some are missing."""
        header, rows = self._read()
        kept = rows[:epochs]
        write_text(self.path, "".join(line + "\n" for line in header + kept))
        if len(kept) < epochs:
            return [
                f"progress.csv holds {len(kept)} of the {epochs} epochs done; the others are lost."
            ]
        return []

    def _read(self) -> tuple[list[str], list[str]]:
        """Return the header and the rows of epochs 0, 1, 2, ... up to the first that is missing or cut short."""
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
        lines = text.splitlines(keepends=True)
        whole = [
            line.rstrip("\r\n") for line in lines if line.endswith("\n")
        ]  # a cut line has no end
        rows: list[str] = []
        for line in whole[1:]:
            if line.split(",", 1)[0] != str(len(rows)) or line.count(",") != whole[0].count(","):
                break
            rows.append(line)
        return whole[:1], rows

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_progress(path: Path) -> dict[str, list[float]]:
    """Return the columns of a progress.csv; a last row that was cut short is left out."""
    if not path.exists():
        return {}
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.reader(line for line in file if line.endswith("\n"))
        header = next(reader, [])
        rows = [row for row in reader if len(row) == len(header)]
    return {name: [float(row[i]) for row in rows] for i, name in enumerate(header)}


def constraint_columns(columns: dict[str, list[float]], name: str) -> list[list[float]]:
    """Return the column `name`, or `name_0`, `name_1`, ... where there are several constraints."""
    if name in columns:
        return [columns[name]]
    found: list[list[float]] = []
    while f"{name}_{len(found)}" in columns:
        found.append(columns[f"{name}_{len(found)}"])
    return found


def _written(value: Any) -> str:
    """Return a number in full; an algorithm may give NumPy's, whose `repr` is not one."""
    return repr(int(value)) if isinstance(value, int | np.integer) else repr(float(value))
