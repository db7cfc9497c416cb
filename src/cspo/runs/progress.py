"""progress.csv: one row per epoch. docs/metrics.md explains every column.

The one reader of epochs in CSV files is here, for our own files and for those of other programs.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from cspo.errors import CspoError
from cspo.runs.files import APPEND, LARGEST, open_file, open_plain, read_bytes
from cspo.runs.mend import Numbers, mend, read_lines
from cspo.types import EpochReport, FloatArray, per_constraint

Column = TypeVar("Column")
Row = tuple[int, list[str]]  # the number of a line, and its cells


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
    """The sink that appends rows, numbers in full, so that equal runs give equal rows.

    Attributes:
        path: Where it is.
        numbers: The rows, as checkpoints keep them.
    """

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path, self.numbers = path, Numbers()
        self._file: IO[str] | None = None

    def write(self, report: EpochReport) -> None:
        """Add one row."""
        row = as_row(report)
        if not self.numbers.columns:
            self.numbers = Numbers(list(row))
        if self._file is None:
            new = not self.path.exists() or self.path.stat().st_size == 0
            # Kept open over the run.
            opened = open_plain(self.path, APPEND)
            self._file = open(opened, "a", newline="", encoding="utf-8")  # noqa: SIM115
            if new:
                self._file.write(",".join(self.numbers.columns) + "\n")
        # By the names of the first row: a version that logs more may go on with a run.
        cells = [_in_full(row.get(name, math.nan)) for name in self.numbers.columns]
        self._file.write(",".join(cells) + "\n")
        self._file.flush()
        self.numbers.add(cells)

    def sync(self) -> None:
        """Force the rows to disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def complete_rows(self) -> int:
        """Return how many epochs, from the first on, have a complete row."""
        return read_lines(self.path)[1].complete

    def rewind(self, epochs: int, saved: dict[str, Any] | None = None) -> list[str]:
        """Keep the rows of the first `epochs` epochs, and build those again that are damaged.

        Args:
            epochs: Epochs done.
            saved: The rows that the checkpoint of these epochs has.

        Returns:
            A sentence for everything that was wrong.
        """
        self.numbers, notes = mend(self.path, epochs, saved)
        return notes

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def _in_full(value: Any) -> str:
    """Return a number in full; an algorithm may give NumPy's, whose `repr` is not one."""
    return repr(int(value)) if isinstance(value, int | np.integer) else repr(float(value))


def progress_file(folder: Path) -> Path:
    """Return the file with the epochs of a run; that of an archived one is progress.csv.gz."""
    plain, packed = folder / "progress.csv", folder / "progress.csv.gz"
    return packed if packed.is_file() and not plain.is_file() else plain


def read_rows(file: Path, *, tail: int | None = None, foreign: bool = False) -> list[Row]:
    """Return the lines of a CSV file that are not empty, the header first.

    Args:
        file: The file, also compressed (.gz).
        tail: Read the header and the lines in the last `tail` bytes only.
        foreign: Another program wrote it, so it may be anything, and may lack the last line end. In
            ours, a line without an end is a row that is being written, or was cut short by a kill.

    Raises:
        CspoError: If the file cannot be read, or is not a CSV file.
    """
    try:
        return rows_in(_content(file, tail), foreign)
    except UnicodeDecodeError:
        raise CspoError(f"{file} is not a text file.") from None
    except csv.Error as error:
        raise CspoError(f"{file} is not a CSV file: {error}.") from None
    except OSError as error:
        raise CspoError(f"Cannot read {file}: {error.strerror or error}.") from error


def rows_in(data: bytes, foreign: bool = False) -> list[Row]:
    """Return the lines of a CSV text that are not empty."""
    text = data.decode("utf-8-sig", errors="strict" if foreign else "replace")
    lines = text.splitlines(keepends=True)
    if not foreign:  # zeros are what a power cut may leave
        lines = [line for line in lines if line.endswith("\n") and "\0" not in line]
    reader = csv.reader(lines)
    return [(reader.line_num, cells) for cells in reader if cells]


def _read_cells(file: Path, tail: int | None = None) -> list[list[str]]:
    """Return the cells of our own file, line by line; nothing if there is no such file."""
    return [cells for _, cells in read_rows(file, tail=tail)] if file.exists() else []


def _content(file: Path, tail: int | None) -> bytes:
    """Return what is in a file, or its first line and the whole lines in its last bytes."""
    if tail is None:
        return read_bytes(file)
    with io.BytesIO(read_bytes(file)) if file.suffix == ".gz" else open_file(file) as source:
        header = source.readline(LARGEST)
        start = max(len(header), source.seek(0, os.SEEK_END) - tail)
        source.seek(max(start - 1, 0))  # so that a line that begins just there counts as whole
        return header + source.read(tail + 1).partition(b"\n")[2]


def read_progress(file: Path, tail: int | None = None) -> dict[str, list[float]]:
    """Return the columns of a progress.csv, complete rows only; nothing if there is no such file.

    Args:
        file: The file, also compressed (.gz).
        tail: Read the newest rows only, those in the last `tail` bytes.
    """
    table = _read_cells(file, tail)
    header = table[0] if table else []
    rows = numeric_rows(header, table[1:])
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def numeric_rows(header: list[str], table: Iterable[list[str]]) -> list[list[float]]:
    """Return the rows of a progress.csv that are complete, as numbers."""
    rows = []
    for cells in table:
        with suppress(ValueError):  # not numbers: a damaged row is not complete either
            rows.append([float(cell) for cell, _ in zip(cells, header, strict=True)])
    return rows


def read_columns(file: Path, needed: Collection[str], foreign: bool) -> dict[str, FloatArray]:
    """Return the columns of a CSV file that hold numbers, without a last row that was cut short.

    A column that holds text is left out too, unless it is `needed` or the one of a constraint.

    Raises:
        CspoError: If the file is not a table with a row per epoch: says what is wrong, and where.
    """
    table = read_rows(file, foreign=foreign)
    header = [cell.strip() for cell in table[0][1]] if table else []
    rows = table[1:]
    if rows and len(rows[-1][1]) < len(header):
        rows.pop()  # a run that is going on, or was killed, while writing it
    if not rows:
        why = "there is nothing below its header" if table else "it is empty"
        raise CspoError(f"{file} holds no epoch: {why}.")
    if len(set(header)) < len(header):
        twice = next(name for i, name in enumerate(header) if name in header[:i])
        raise CspoError(f"{file} has two columns named {twice!r}.")
    for line, cells in rows:
        if len(cells) != len(header):
            found = f"{len(cells)} cells under {len(header)} column name(s)"
            raise CspoError(f"{file}, line {line}: {found}.{'' if foreign else _advice(file)}")
    columns = {}
    for i, name in enumerate(header):
        try:
            columns[name] = _numbers([(line, cells[i]) for line, cells in rows])
        except ValueError as error:
            if name in needed or _is_numbered(name):
                advice = "" if foreign else _advice(file)
                raise CspoError(f"{file}, column {name!r}, {error}{advice}") from None
    if not columns:
        raise CspoError(f"{file} has no column of numbers.")
    return columns


def _advice(file: Path) -> str:
    """Return what to do about a damaged file of ours."""
    if file.name != "progress.csv":
        return ""
    return f" `cspo train --resume {file.parent}` mends it, if there is a checkpoint."


def _is_numbered(name: str) -> bool:
    """Whether a column is the one of constraint 0, 1, ..."""
    stem, _, number = name.rpartition("_")
    return number.isdigit() and stem in ("cost", "cost_limit")


def _numbers(cells: list[tuple[int, str]]) -> FloatArray:
    """Return cells, each with its line, as numbers, (n,); an empty one is nan."""
    values = np.empty(len(cells))
    for i, (line, cell) in enumerate(cells):
        try:
            values[i] = float(cell) if cell.strip() else math.nan
        except ValueError:
            raise ValueError(f"line {line}: {cell!r} is not a number.") from None
    return values


def constraint_columns(columns: Mapping[str, Column], name: str) -> list[Column]:
    """Return the column `name`, or `name_0`, `name_1`, ... where there are several constraints."""
    if name in columns:
        return [columns[name]]
    found: list[Column] = []
    while f"{name}_{len(found)}" in columns:
        found.append(columns[f"{name}_{len(found)}"])
    return found
