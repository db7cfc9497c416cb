"""The page of a report: one HTML file that works offline, from the templates in page/."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cspo import __version__
from cspo.lab.report.curves import curve_data
from cspo.lab.report.formats import UNDEFINED, Table, fixed, render, span, yes_no
from cspo.lab.report.looks import looks_of, name_of
from cspo.lab.report.paper import task_name
from cspo.lab.report.results import Results
from cspo.lab.report.tables import notes_of, seeds_apart

SIGNED_NUMBER = re.compile(r"[+\-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def make_page(results: Results, tables: Sequence[Table], figures: Sequence[tuple[str, str]]) -> str:
    """Return the page.

    Args:
        results: What it is about.
        tables: Tables in the paper's layout; their files are in tables/.
        figures: File name without its ending, and caption, of every figure in figures/.
    """
    first, *others = (run.facts for run in results.runs)
    shared = set(first.items()).intersection(*(facts.items() for facts in others))
    return render(
        "index.html",
        results=results,
        notes=notes_of(results),
        apart=seeds_apart(results.cells),
        tables=tables,
        figures=figures,
        curves=curve_data(results),
        looks=looks_of(results.cells),
        common={name: text for name, text in first.items() if (name, text) in shared},
        version=__version__,
        # How things are written.
        fixed=fixed,
        span=span,
        yes_no=yes_no,
        task_name=task_name,
        name_of=name_of,
        sort_key=sort_key,
        undefined=UNDEFINED,
    )


def sort_key(text: str) -> str | float:
    """Return what a cell of a table is sorted by; "" comes last."""
    if match := SIGNED_NUMBER.match(text):
        return float(match[0].replace(",", "").replace("−", "-"))
    return text if re.search(r"\w", text) else ""
