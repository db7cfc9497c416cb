"""progress.csv: one row per epoch. docs/metrics.md explains every column.

The one reader of epochs in CSV files is here, for our own files and for those of other programs.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from cspo.errors import CspoError
from cspo.runs.files import write_text
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
    """The sink that appends rows, numbers in full, so that equal runs give equal rows."""

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path = path
        self._file: IO[str] | None = None

    def write(self, report: EpochReport) -> None:
        """Add one row."""
        row = as_row(report)
        if self._file is None:
            new = not self.path.exists() or self.path.stat().st_size == 0
            # Kept open over the run.
            self._file = open(self.path, "a", newline="", encoding="utf-8")  # noqa: SIM115
            if new:
                self._file.write(",".join(row) + "\n")
        self._file.write(",".join(map(_in_full, row.values())) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Force the rows to disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def complete_rows(self) -> int:
        """Return how many epochs, from the first on, have a complete row."""
        return max(len(self._complete()) - 1, 0)

    def rewind(self, epochs: int) -> list[str]:
        """Keep the rows of the first `epochs` epochs; returns a sentence if some are missing."""
        kept = self._complete()[: 1 + epochs]
        write_text(self.path, "".join(",".join(cells) + "\n" for cells in kept))
        found = max(len(kept) - 1, 0)
        if found == epochs:
            return []
        return [f"progress.csv holds {found} of the {epochs} epochs done; the others are lost."]

    def _complete(self) -> list[list[str]]:
        """Return the header and the rows of epochs 0, 1, ... up to the first that is not whole."""
        table = _read_cells(self.path)
        for epoch, cells in enumerate(table[1:]):
            if cells[0] != str(epoch) or len(cells) != len(table[0]):
                return table[: 1 + epoch]
        return table

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


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
        data = _content(file, tail)
        text = data.decode("utf-8-sig", errors="strict" if foreign else "replace")
        lines = text.splitlines(keepends=True)
        if not foreign:  # zeros are what a power cut may leave
            lines = [line for line in lines if line.endswith("\n") and "\0" not in line]
        reader = csv.reader(lines)
        return [(reader.line_num, cells) for cells in reader if cells]
    except UnicodeDecodeError:
        raise CspoError(f"{file} is not a text file.") from None
    except csv.Error as error:
        raise CspoError(f"{file} is not a CSV file: {error}.") from None
    except (OSError, EOFError, zlib.error) as error:  # the last two: an archive that is damaged
        reason = getattr(error, "strerror", None) or error
        raise CspoError(f"Cannot read {file}: {reason}.") from error


def _read_cells(file: Path, tail: int | None = None) -> list[list[str]]:
    """Return the cells of our own file, line by line; nothing if there is no such file."""
    return [cells for _, cells in read_rows(file, tail=tail)] if file.exists() else []


def _content(file: Path, tail: int | None) -> bytes:
    """Return what is in a file, or its first line and the whole lines in its last bytes."""
    with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as source:
        if tail is None:
            return source.read()
        header = source.readline()
        start = max(len(header), source.seek(0, os.SEEK_END) - tail)
        source.seek(max(start - 1, 0))  # so that a line that begins just there counts as whole
        return header + source.read().partition(b"\n")[2]


def read_progress(file: Path, tail: int | None = None) -> dict[str, list[float]]:
    """Return the columns of a progress.csv, complete rows only; nothing if there is no such file.

    Args:
        file: The file, also compressed (.gz).
        tail: Read the newest rows only, those in the last `tail` bytes.
    """
    table = _read_cells(file, tail)
    header, rows = table[0] if table else [], []
    for cells in table[1:]:
        with suppress(ValueError):  # not numbers: a damaged row is not complete either
            rows.append([float(cell) for cell, _ in zip(cells, header, strict=True)])
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


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
    if twice := [name for name in header if header.count(name) > 1]:
        raise CspoError(f"{file} has two columns named {twice[0]!r}.")
    for line, cells in rows:
        if len(cells) != len(header):
            found = f"{len(cells)} cells under {len(header)} column name(s)"
            raise CspoError(f"{file}, line {line}: {found}.")
    columns = {}
    for i, name in enumerate(header):
        try:
            columns[name] = _numbers([(line, cells[i]) for line, cells in rows])
        except ValueError as error:
            if name in needed or _is_numbered(name):
                raise CspoError(f"{file}, column {name!r}, {error}") from None
    if not columns:
        raise CspoError(f"{file} has no column of numbers.")
    return columns


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
