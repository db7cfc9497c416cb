"""progress.csv after something went wrong: what can be read stays, what cannot is put aside.

A checkpoint has the rows of its epochs as numbers, so that a row that was damaged, or is gone, is
built again from there: all of it but the speed, which differs between equal runs. No line that
cannot be read is ever written over: the file it stands in is kept beside the mended one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cspo.errors import CspoError
from cspo.runs.files import name_aside, read_bytes, write_bytes, write_text

TIMED = "steps_per_second"  # the one column that no seed decides; nan in a row built again
Rows = dict[int, list[str]]  # cells by epoch


class Numbers:
    """The rows of a run as a checkpoint keeps them, added one by one."""

    def __init__(self, columns: Sequence[str] = ()) -> None:
        """Start with no row."""
        self.columns = list(columns)
        self._values, self._fractions = array("d"), {TIMED}

    def add(self, cells: Sequence[str]) -> None:
        """Add a row, as it stands in the file."""
        for name, cell in zip(self.columns, cells, strict=True):
            self._values.append(math.nan if name == TIMED else float(cell))
            if not cell.removeprefix("-").isdigit():
                self._fractions.add(name)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, the names of their columns, and which of them hold whole numbers."""
        rows = np.array(self._values).reshape(-1, len(self.columns) or 1)
        whole = [name for name in self.columns if name not in self._fractions]
        return {"columns": list(self.columns), "whole": whole, "rows": rows}


def _cells_of(saved: dict[str, Any] | None) -> tuple[list[str], Rows]:
    """Return the columns and the rows that a checkpoint has, as cells; nothing if it has none."""
    if saved is None or not len(saved["rows"]):
        return [], {}
    columns, whole = saved["columns"], set(saved["whole"])
    kinds = [int if name in whole else float for name in columns]
    rows = saved["rows"].tolist()
    texts = [[repr(kind(x)) for kind, x in zip(kinds, row, strict=True)] for row in rows]
    return columns, {int(row[0]): cells for row, cells in zip(rows, texts, strict=True)}


@dataclass
class Lines:
    """What stands in a progress.csv."""

    header: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    fault: str = ""  # the first line that cannot be read, and why; "" if every line can

    @property
    def complete(self) -> int:
        """How many epochs, from the first on, have a row."""
        return next(epoch for epoch in range(len(self.rows) + 1) if epoch not in self.rows)


def sort_lines(content: bytes) -> Lines:
    """Tell the lines of a progress.csv that can be read from those that cannot.

    A last line without an end is a row that is being written, or was cut short by a kill; zeros are
    what a power cut may leave. Neither was ever a row.
    """
    lines = content.decode("utf-8-sig", errors="replace").split("\n")[:-1]
    found = Lines()
    for number, line in enumerate(lines, 1):
        text = line.strip("\0\r")
        if not text:
            continue
        cells = text.split(",")
        if not found.header:
            fault = "" if cells[0] == "epoch" and len(set(cells)) == len(cells) else "no header"
            found.header = cells
        else:
            fault = _fault_of(cells, found)
            if not fault:
                found.rows[int(cells[0])] = cells
        if fault:
            found.fault = found.fault or f"line {number}: {fault}"
    return found


def _fault_of(cells: list[str], found: Lines) -> str:
    """Return what is wrong with a row, or nothing."""
    if len(cells) != len(found.header):
        return f"{len(cells)} cells under {len(found.header)} column names"
    if not (cells[0].isascii() and cells[0].isdigit() and len(cells[0]) < 10):
        return "it does not begin with the number of an epoch"
    if int(cells[0]) in found.rows:
        return f"epoch {int(cells[0])} is there already"
    for cell in cells:
        try:
            float(cell)
        except ValueError:
            return f"{cell!r:.40} is not a number"
    return ""


def read_lines(path: Path) -> tuple[bytes | None, Lines]:
    """Return what is in a progress.csv, None if there is none, and its lines."""
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None, Lines()
    except OSError as error:
        raise CspoError(f"Cannot read {path}: {error.strerror or error}.") from error
    return content, sort_lines(content)


def mend(path: Path, epochs: int, saved: dict[str, Any] | None) -> tuple[Numbers, list[str]]:
    """Leave the rows of the first `epochs` epochs in a progress.csv.

    Args:
        path: The file.
        epochs: Epochs done.
        saved: The rows in the checkpoint of these epochs, if it has any.

    Returns:
        The rows that are there now, and a sentence if some had to be built again or are missing.
    """
    content, found = read_lines(path)
    columns, known = _cells_of(saved)
    if columns and columns != found.header:
        if found.header:
            found.fault = found.fault or "line 1: the columns are not those of the run"
        found.header, found.rows = columns, {}
    rows, built = _merge(found, known, epochs)
    text = "".join(",".join(cells) + "\n" for cells in (found.header, *rows) if cells)
    numbers = Numbers(found.header)
    for cells in rows:
        numbers.add(cells)
    notes = []
    missing = len(rows) < epochs
    if text.encode() != (content or b""):
        aside = ""
        if content and (found.fault or built or missing):
            kept = name_aside(path)
            write_bytes(kept, content)
            aside = f" The damaged file is kept as {kept.name}."
        write_text(path, text)
        if found.fault or built:
            state = (
                f"damaged ({found.fault})" if found.fault else "damaged" if content else "missing"
            )
            notes.append(f"progress.csv was {state}: {_said(built, len(rows))}.{aside}")
    if missing:
        held = f"progress.csv holds {len(rows)} of the {epochs} epochs done"
        notes.append(f"{held}; the others are lost.")
    return numbers, notes


def _merge(found: Lines, known: Rows, epochs: int) -> tuple[list[list[str]], int]:
    """Return the rows of these epochs, and how many of them are from the checkpoint."""
    rows, built = [], 0
    for epoch in range(epochs):
        ours, theirs = found.rows.get(epoch), known.get(epoch)
        if theirs is not None and (ours is None or _differ(ours, theirs, found.header)):
            rows.append(theirs)
            built += 1
        elif ours is not None:
            rows.append(ours)
    return rows, built


def _differ(ours: list[str], theirs: list[str], header: list[str]) -> bool:
    """Whether a row is not the one that the run wrote, but for its speed."""
    pairs = zip(header, map(float, ours), map(float, theirs), strict=True)
    return any(a != b and not (a != a and b != b) for name, a, b in pairs if name != TIMED)


def _said(built: int, rows: int) -> str:
    if not built:
        return f"{rows} rows can be read"
    was = "was" if built == 1 else "were"
    return f"{built} of {rows} rows {was} built again from the checkpoint"
