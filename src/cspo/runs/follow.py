"""A progress.csv that another process writes, read row by row as it grows.

Every call does a bounded amount of work: it reads what is new, and never more than a megabyte. What
is read is what `read_progress` would read; a line that is half written waits for its end.
"""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from pathlib import Path

from cspo.errors import CspoError
from cspo.runs.files import open_file
from cspo.runs.progress import numeric_rows, progress_file, read_progress, rows_in

MOST = 2**20  # bytes that are read at once
REMEMBERED = 64  # bytes before the place where reading goes on, by which a new file is noticed
MOST_EPOCHS = 2**53  # whole numbers below are themselves as floating-point numbers


class Follower:
    """Hands out the rows of a run's progress.csv, each of them once.

    A file that was replaced or cut short, as a resumed run may do, is read from its beginning.

    Attributes:
        header: Names of the columns; empty until the first line is complete.
        generation: How often reading began; rows of an earlier one are no longer true.
        behind: Whether there is more to read at once.
        changed: When the file was last written, in seconds since 1970; 0 if there is none.
    """

    def __init__(self, folder: Path) -> None:
        """Open nothing yet."""
        self.folder = folder
        self.generation = 0
        self._begin(None)

    def _begin(self, identity: tuple[int, ...] | None) -> None:
        self.header: list[str] = []
        self.behind, self.changed = False, 0.0
        self._identity, self._offset, self._before, self._newest = identity, 0, b"", -1.0
        self.generation += 1

    def restart(self) -> None:
        """Read from the beginning again."""
        self._begin(None)

    def read(self) -> list[list[float]]:
        """Return the rows that were added since the last call, in their order."""
        file = progress_file(self.folder)
        try:
            return self._read_packed(file) if file.suffix == ".gz" else self._read_plain(file)
        except OSError:  # not there yet, or no longer
            if self._identity is not None:
                self._begin(None)
            return []

    def _read_plain(self, file: Path) -> list[list[float]]:
        with open_file(file) as source:
            found = os.fstat(source.fileno())
            identity = (found.st_dev, found.st_ino)
            source.seek(max(0, self._offset - len(self._before)))
            same = identity == self._identity and source.read(len(self._before)) == self._before
            if not same or found.st_size < self._offset:
                self._begin(identity)
                source.seek(0)
            content = source.read(MOST)
        self.changed = found.st_mtime
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and len(content) == MOST:
            whole = content  # a line without end is no row: it is passed over
        self._before = (self._before + whole)[-REMEMBERED:]
        self._offset += len(whole)
        self.behind = bool(whole) and self._offset < found.st_size
        return self._rows(whole)

    def _rows(self, whole: bytes) -> list[list[float]]:
        try:
            lines = [cells for _, cells in rows_in(whole)]
        except csv.Error:
            return []
        if not self.header and lines:
            self.header = lines.pop(0)
        return self._later(numeric_rows(self.header, lines))

    def _read_packed(self, file: Path) -> list[list[float]]:
        """Read the file of an archived run, which is complete: at once, and once."""
        found = os.stat(file)
        identity = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if identity == self._identity:
            return []
        self._begin(identity)
        self.changed = found.st_mtime
        columns: dict[str, list[float]] = {}
        with suppress(CspoError):  # cut short, or altered
            columns = read_progress(file)
        self.header = list(columns)
        return self._later([list(row) for row in zip(*columns.values(), strict=True)])

    def _later(self, rows: list[list[float]]) -> list[list[float]]:
        """Return the rows whose epoch comes after those before."""
        if "epoch" not in self.header:
            return []
        place, kept = self.header.index("epoch"), []
        for row in rows:
            if self._newest < row[place] < MOST_EPOCHS:
                self._newest = row[place]
                kept.append(row)
        return kept
