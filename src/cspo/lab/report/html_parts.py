"""Pieces of HTML; every text that comes from outside is escaped here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from cspo.lab.report.formats import Table
from cspo.lab.report.looks import Look

MANY_ROWS = (
    24  # more than these scroll in a box of their own, unless the table is a main thing of the page
)
SIGNED_NUMBER = re.compile(r"[+\-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Shown:
    """One cell of a table: its HTML, what it is sorted by, and its class."""

    html: str
    key: str | float | None = None  # None sorts last
    kind: str = ""


def text(value: str) -> Shown:
    """Return a cell with a text."""
    return Shown(escape(value), value)


def number(value: float, shown: str, detail: str = "", kind: str = "") -> Shown:
    """Return a cell with a number, and a smaller line under it."""
    html = escape(shown) + (f'<span class="interval">{escape(detail)}</span>' if detail else "")
    return Shown(html, None if math.isnan(value) else value, f"number {kind}".strip())


def table(
    header: Sequence[tuple[str, bool]],
    rows: Iterable[tuple[str, Sequence[Shown]]],
    *,
    label: str,
    identity: str = "",
    sortable: bool = True,
    kind: str = "",
) -> str:
    """Return a table in a box of its own that scrolls sideways.

    Args:
        header: Titles of the columns, and whether they hold numbers.
        rows: Attributes of a row as HTML, and its cells.
        label: What the table is, for those who do not see it.
        identity: Its id.
        sortable: Make the headers buttons.
        kind: Its class.
    """
    heads = []
    for title, numeric in header:
        inner = (
            f'<button type="button">{escape(title)}</button>'
            if sortable and title
            else escape(title)
        )
        heads.append(f'<th scope="col"{_class("number" if numeric else "")}>{inner}</th>')
    lines = [f"<tr{attributes}>{''.join(map(_cell, cells))}</tr>" for attributes, cells in rows]
    name = f' id="{escape(identity)}"' if identity else ""
    classes = " ".join(filter(None, (kind, "sortable" if sortable else "")))
    tall = " tall" if len(lines) > MANY_ROWS and kind != "wide" else ""
    return "\n".join(
        [
            f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="{escape(label)}">',
            f"<table{name}{_class(classes)}><thead><tr>{''.join(heads)}</tr></thead>",
            "<tbody>",
            *lines,
            "</tbody></table></div>",
        ]
    )


def _cell(cell: Shown) -> str:
    key = "" if cell.key is None else str(cell.key)
    return f'<td data-sort="{escape(key)}"{_class(cell.kind)}>{cell.html}</td>'


def _class(names: str) -> str:
    return f' class="{escape(names)}"' if names else ""


def paper_table(item: Table, folder: str, said: Sequence[str]) -> str:
    """Return a table in the paper's layout, with its notes and links to its files.

    Args:
        item: The table.
        folder: Where its files are, relative to the page.
        said: Notes that stand elsewhere on the page already.
    """
    header = [(title, place >= item.text_columns) for place, title in enumerate(item.header)]
    # Where rows stand in groups, one row means nothing without the one above it.
    sortable = item.group == 1 or item.text_columns == 3
    rows = []
    for count, row in enumerate(item.rows, start=1):
        cells = []
        for place, entry in enumerate(row):
            kind = ("number" if place >= item.text_columns else "") + (
                " bold" if entry.bold else ""
            )
            cells.append(Shown(escape(entry.text), _sort_key(entry.text), kind.strip()))
        rows.append((' class="end"' if count % item.group == 0 else "", cells))
    files = ", ".join(
        f'<a href="{escape(folder)}/{escape(item.name)}.{ending}">{name}</a>'
        for ending, name in (("csv", "CSV"), ("md", "Markdown"), ("tex", "LaTeX"))
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in item.notes if note not in said)
    return "\n".join(
        [
            f"<h3>{escape(item.title)}</h3>",
            table(
                header,
                rows,
                label=item.title,
                identity=f"table-{item.name}",
                sortable=sortable,
                kind="" if sortable else "grouped",
            ),
            f'<ul class="table-notes">{notes}</ul>' if notes else "",
            f'<p class="files">Files: {files}</p>',
        ]
    )


def _sort_key(shown: str) -> str | float | None:
    match = SIGNED_NUMBER.match(shown)
    if match:
        return float(match[0].replace(",", "").replace("−", "-"))
    return shown if re.search(r"\w", shown) else None


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names with what they are."""
    inner = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f'<dl class="facts">{inner}</dl>'


def mark(look: Look) -> str:
    """Return a small square in the colour of an algorithm."""
    return f'<span class="mark" style="--light:{look.colour};--dark:{look.dark}"></span>'
