"""progress.jsonl: the columns of progress.csv, one JSON object per line and epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from cspo.runs.files import APPEND, open_plain, read_bytes, write_bytes
from cspo.runs.plain import without_nan
from cspo.runs.progress import as_row
from cspo.types import EpochReport


class JsonLines:
    """The sink that appends lines; a resumed run removes those past its checkpoint first."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self._path = path
        self._file: IO[str] | None = None

    def write(self, report: EpochReport) -> None:
        """Add one line; null stands for a number that is not known."""
        if self._file is None:
            if self._path.exists():
                write_bytes(self._path, b"".join(self._lines_before(report.epoch)))
            opened = open_plain(self._path, APPEND)
            self._file = open(opened, "a", encoding="utf-8")  # noqa: SIM115  # kept open
        # NumPy's numbers, which an algorithm may log, are not known to JSON.
        row = {name: _plain(value) for name, value in as_row(report).items()}
        self._file.write(json.dumps(without_nan(row)) + "\n")
        self._file.flush()

    def _lines_before(self, epoch: int) -> list[bytes]:
        """Return the lines of earlier epochs, as far as they are whole."""
        kept: list[bytes] = []
        for line in read_bytes(self._path).splitlines(keepends=True):
            try:
                row = json.loads(line)
                whole = line.endswith(b"\n") and row["epoch"] == len(kept)
            except (ValueError, TypeError, KeyError, RecursionError):
                break
            if not whole or len(kept) == epoch:
                break
            kept.append(line)
        return kept

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _plain(value: float) -> float:
    return int(value) if isinstance(value, int) else float(value)
