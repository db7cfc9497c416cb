"""A table, how its numbers are written, and its files: CSV for programs, Markdown, LaTeX."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cspo.lab.metrics import Estimate, Spread
from cspo.runs.files import write_text

UNDEFINED = "–"  # what a reader sees where there is no number
Record = dict[str, Any]  # text, numbers, yes or no; nan or None where undefined


class Bold(str):
    """A text of a table that stands out."""


@dataclass(frozen=True)
class Table:
    """A table in two shapes: laid out for a reader, and as one record per number for a program."""

    name: str  # of its files
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # `Bold` ones stand out
    records: Sequence[Record]  # the same keys in each; nan where undefined
    notes: Sequence[str] = ()
    group: int = 1  # rows that belong together; a gap follows each group
    text_columns: int = 1  # first columns that hold names, the others hold numbers

    @property
    def number_columns(self) -> int:
        """How many columns hold numbers."""
        return len(self.header) - self.text_columns


def yes_no(value: bool) -> str:
    """Return whether something is so."""
    return "yes" if value else "no"


def span(values: Iterable[int]) -> str:
    """Return whole numbers as "7" or "7 to 9"."""
    known = sorted(values)
    return " to ".join(f"{value:,}" for value in dict.fromkeys((known[0], known[-1])))


def fields(name: str, value: Estimate) -> Record:
    """Return a number and its bounds as fields of a record."""
    return {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}


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
    paths = []
    for ending, text in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
        paths.append(folder / f"{table.name}.{ending}")
        write_text(paths[-1], text(table))
    return paths


def to_csv(table: Table) -> str:
    """Return the records, numbers in full; undefined ones are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.records[0] if table.records else [])
    writer.writerows([_plain(value) for value in record.values()] for record in table.records)
    return text.getvalue()


def _plain(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return yes_no(value)
    return repr(float(value)) if isinstance(value, float) else str(value)


def to_markdown(table: Table) -> str:
    """Return the table as GitHub draws it, with its title above and its notes below."""
    return render("table.md", table=table, markdown=markdown)


def to_latex(table: Table) -> str:
    r"""Return a `table*` environment; it needs `\usepackage{booktabs,graphicx}`."""
    return render("table.tex", table=table, latex=latex)


def render(template: str, **values: Any) -> str:
    """Return a file of page/ filled in; what an HTML file is given is escaped."""
    text: str = _environment(Path(template).suffix).get_template(template).render(values)
    return text


@cache
def _environment(ending: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cspo.lab.report", "page"),
        autoescape=ending == ".html",
        finalize=_escaped if ending == ".html" else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **(LATEX_MARKS if ending == ".tex" else {}),
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.tests |= {"bold": lambda text: isinstance(text, Bold), "nan": math.isnan}
    return environment


def _escaped(value: Any) -> Any:
    """Escape as `html.escape` does; jinja2 writes quotes as other, equal, entities.

    Pages that are kept stay the same byte for byte when they are written again.
    """
    from markupsafe import Markup

    return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))


def markdown(text: str) -> str:
    """Return text in which Markdown sees nothing special, but for what is bold."""
    escaped = re.sub(r"([\\|*_<`])", r"\\\1", text).replace("\n", " ")
    return f"**{escaped}**" if isinstance(text, Bold) else escaped


# Braces belong to LaTeX.
LATEX_MARKS: dict[str, Any] = {
    "block_start_string": "<%",
    "block_end_string": "%>",
    "variable_start_string": "<<",
    "variable_end_string": ">>",
}
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
    """Return text in which LaTeX sees nothing special, but for what is bold."""
    escaped = re.sub(r"(?<![\w-])-(?=\d)", "$-$", text.translate(str.maketrans(LATEX_OF)))
    return rf"\textbf{{{escaped}}}" if isinstance(text, Bold) else escaped
