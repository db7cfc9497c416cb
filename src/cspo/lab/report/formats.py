"""A table, how its numbers are written, and its files: CSV for programs, Markdown, LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cspo.lab.metrics import Estimate, Spread
from cspo.runs.files import write_text

UNDEFINED = "–"  # what a reader sees where there is no number
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Entry:
    """One cell as a reader sees it."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table in two shapes: laid out for a reader, and as one record per number for a program."""

    name: str  # of its files
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    records: Sequence[dict[str, Value]]  # the same keys in each; nan where undefined
    notes: Sequence[str] = ()
    group: int = 1  # rows that belong together; a gap follows each group
    text_columns: int = 1  # first columns that hold names, the others hold numbers


def row_of(*texts: str) -> tuple[Entry, ...]:
    """Return a row in which nothing is bold."""
    return tuple(map(Entry, texts))


def fixed(value: float, digits: int, sign: str = "") -> str:
    """Return a number for people, or a dash; `sign="+"` writes the sign of positive ones too."""
    return UNDEFINED if math.isnan(value) else f"{value:{sign}.{digits}f}"


def plus_minus(value: float, width: float | None, digits: int) -> str:
    """Return "value ± width"; the value alone where there is no width."""
    shown = fixed(value, digits)
    return shown if width is None or math.isnan(width) else f"{shown} ± {width:.{digits}f}"


def with_interval(value: Estimate, digits: int) -> str:
    """Return "value ± half-width", as the paper prints; the value alone without an interval."""
    return plus_minus(value.value, value.half_width, digits)


def with_std(value: Spread, digits: int, seeds: int) -> str:
    """Return "mean ± std"; "(1/3)" follows where only one of three seeds has a value."""
    shown = plus_minus(value.mean, value.std, digits)
    return f"{shown} ({value.count}/{seeds})" if 0 < value.count < seeds else shown


def with_bounds(value: Estimate, digits: int, sign: str = "") -> str:
    """Return "value [low, high]"; the value alone where there is no interval."""
    shown, low, high = (fixed(one, digits, sign) for one in (value.value, value.low, value.high))
    return shown if math.isnan(value.low) else f"{shown} [{low}, {high}]"


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write NAME.csv, NAME.md and NAME.tex, and return their paths."""
    written = {"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)}
    paths = [folder / f"{table.name}.{ending}" for ending in written]
    for path, text in zip(paths, written.values(), strict=True):
        write_text(path, text)
    return paths


def to_csv(table: Table) -> str:
    """Return the records, numbers in full; undefined ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.records[0] if table.records else [])
    writer.writerows([_plain(value) for value in record.values()] for record in table.records)
    return text.getvalue()


def _plain(value: Value) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(float(value)) if isinstance(value, float) else str(value)


def to_markdown(table: Table) -> str:
    """Return the table as GitHub draws it, with its title above and its notes below."""
    numbers = len(table.header) - table.text_columns
    rows = [
        [_markdown(title) for title in table.header],
        ["---"] * table.text_columns + ["---:"] * numbers,
        *([_markdown(entry.text, entry.bold) for entry in row] for row in table.rows),
    ]
    lines = [f"## {table.title}", "", *(f"| {' | '.join(row)} |" for row in rows)]
    if table.notes:
        lines += ["", *(f"- {_markdown(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _markdown(text: str, bold: bool = False) -> str:
    escaped = re.sub(r"([\\|*_<`])", r"\\\1", text).replace("\n", " ")
    return f"**{escaped}**" if bold else escaped


LATEX = r"""% needs \usepackage{{booktabs,graphicx}}
\begin{{table*}}[t]
\centering
\scriptsize
\setlength{{\tabcolsep}}{{2pt}}
\caption{{{title}.}}
\label{{tab:{name}}}
\resizebox{{\ifdim\width>\textwidth\textwidth\else\width\fi}}{{!}}{{%
\begin{{tabular}}{{@{{}}{columns}@{{}}}}
\toprule
{header} \\
\midrule
{rows}
\bottomrule
\end{{tabular}}%
}}{notes}
\end{{table*}}
"""


def to_latex(table: Table) -> str:
    r"""Return a `table*` environment; it needs `\usepackage{booktabs,graphicx}`."""
    lines = []
    for count, row in enumerate(table.rows, start=1):
        cells = (rf"\textbf{{{latex(e.text)}}}" if e.bold else latex(e.text) for e in row)
        lines.append(" & ".join(cells) + r" \\")
        if table.group > 1 and count % table.group == 0 and count < len(table.rows):
            lines.append(r"\addlinespace")
    notes = " \\\\\n".join(map(latex, table.notes))
    return LATEX.format(
        title=latex(table.title),
        name=table.name,
        columns="l" * table.text_columns + "r" * (len(table.header) - table.text_columns),
        header=" & ".join(map(latex, table.header)),
        rows="\n".join(lines),
        notes=f"\n\\par\\smallskip\\raggedright\\footnotesize\n{notes}" if notes else "",
    )


LATEX_OF: dict[str, str | int | None] = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "[": "{[}",  # after \\ a bracket would be read as its argument
    "]": "{]}",
    "±": r"$\pm$",
    "≤": r"$\le$",
    UNDEFINED: "--",
}


def latex(text: str) -> str:
    """Return text in which LaTeX sees nothing special."""
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text.translate(str.maketrans(LATEX_OF)))
