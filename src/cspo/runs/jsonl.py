"""progress.jsonl: the columns of progress.csv, one JSON object per line and epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from cspo.runs.files import APPEND, open_plain, write_text
from cspo.runs.plain import without_nan
from cspo.runs.progress import as_row, read_rows
from cspo.types import EpochReport


class JsonLines:
    """The sink that appends lines; null stands for a number that is not known.

    When it begins, and when a run is resumed, the lines of earlier epochs are made from
    progress.csv, which was brought to the epoch of the checkpoint then.
    """

    def __init__(self, path: Path, progress: Path) -> None:
        """Open nothing yet."""
        self._path, self._progress = path, progress
        self._file: IO[str] | None = None

    def write(self, report: EpochReport) -> None:
        """Add one line."""
        if self._file is None:
            write_text(self._path, "".join(map(_line, self._earlier(report.epoch))))
            opened = open_plain(self._path, APPEND)
            self._file = open(opened, "a", encoding="utf-8")  # noqa: SIM115  # kept open
        self._file.write(_line(as_row(report)))
        self._file.flush()

    def _earlier(self, epoch: int) -> list[dict[str, Any]]:
        """Return the rows of progress.csv before an epoch."""
        if not self._progress.exists():
            return []
        header, *rows = [cells for _, cells in read_rows(self._progress)] or [[]]
        return [
            {name: _number(cell) for name, cell in zip(header, cells, strict=True)}
            for cells in rows[:epoch]
        ]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _line(row: dict[str, Any]) -> str:
    # NumPy's numbers, which an algorithm may log, are not known to JSON.
    plain = {name: value if type(value) is int else float(value) for name, value in row.items()}
    return json.dumps(without_nan(plain)) + "\n"


def _number(cell: str) -> float:
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)
