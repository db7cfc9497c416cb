"""A table, and how it is written: CSV for programs, Markdown for people, LaTeX (booktabs) for papers."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    records: tuple[dict[str, Value], ...]  # the same keys in each; nan where undefined
    notes: tuple[str, ...] = ()
    group: int = 1  # rows that belong together; a gap follows each group
    text_columns: int = 1  # first columns that hold names, the others hold numbers


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write NAME.csv, NAME.md and NAME.tex, and return their paths."""
    from cspo.runs.files import write_text

    paths = []
    for ending, text in (
        ("csv", to_csv(table)),
        ("md", to_markdown(table)),
        ("tex", to_latex(table)),
    ):
        paths.append(folder / f"{table.name}.{ending}")
        write_text(paths[-1], text)
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
    marks = ["---"] * table.text_columns + ["---:"] * (len(table.header) - table.text_columns)
    lines = [
        f"## {table.title}",
        "",
        _markdown_row(table.header),
        _markdown_row(marks, escape=False),
    ]
    for row in table.rows:
        cells = (
            f"**{_markdown(entry.text)}**" if entry.bold else _markdown(entry.text) for entry in row
        )
        lines.append(_markdown_row(cells, escape=False))
    if table.notes:
        lines += ["", *(f"- {_markdown(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Iterable[str], escape: bool = True) -> str:
    return "| " + " | ".join(_markdown(cell) if escape else cell for cell in cells) + " |"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<`])", r"\\\1", text).replace("\n", " ")


def to_latex(table: Table) -> str:
    r"""Return a `table*` environment; it needs `\usepackage{booktabs,graphicx}`."""
    columns = "l" * table.text_columns + "r" * (len(table.header) - table.text_columns)
    lines = [
        "% needs \\usepackage{booktabs,graphicx}",
        "\\begin{table*}[t]",
        "\\centering",
        "\\scriptsize",
        "\\setlength{\\tabcolsep}{2pt}",
        f"\\caption{{{latex(table.title)}.}}",
        f"\\label{{tab:{table.name}}}",
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        "\\toprule",
        " & ".join(map(latex, table.header)) + " \\\\",
        "\\midrule",
    ]
    for number, row in enumerate(table.rows, start=1):
        cells = (
            f"\\textbf{{{latex(entry.text)}}}" if entry.bold else latex(entry.text) for entry in row
        )
        lines.append(" & ".join(cells) + " \\\\")
        if table.group > 1 and number % table.group == 0 and number < len(table.rows):
            lines.append("\\addlinespace")
    lines += ["\\bottomrule", "\\end{tabular}%", "}"]
    if table.notes:
        lines.append("\\par\\smallskip\\raggedright\\footnotesize")
        lines.append(" \\\\\n".join(latex(note) for note in table.notes))
    return "\n".join([*lines, "\\end{table*}"]) + "\n"


_LATEX = {
    "\\": "\\textbackslash{}",
    "&": "\\&",
    "%": "\\%",
    "$": "\\$",
    "#": "\\#",
    "_": "\\_",
    "{": "\\{",
    "}": "\\}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "[": "{[}",  # after \\ a bracket would be read as its argument
    "]": "{]}",
    "±": "$\\pm$",
    "≤": "$\\le$",
    UNDEFINED: "--",
}


def latex(text: str) -> str:
    """Return text in which LaTeX sees nothing special."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)
