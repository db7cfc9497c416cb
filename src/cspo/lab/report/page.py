"""The page of a report: one HTML file that works from a disk, offline. Its templates are in page/."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cspo import __version__
from cspo.lab.report import paper
from cspo.lab.report.curves import curve_data
from cspo.lab.report.formats import UNDEFINED, Table, fixed
from cspo.lab.report.looks import looks_of, name_of
from cspo.lab.report.results import Results
from cspo.lab.report.runs import RunResult
from cspo.lab.report.tables import notes_of

TABLES, FIGURES = "tables", "figures"  # folders beside the page
MANY_ROWS = 24  # more than these scroll in a box of their own
SIGNED_NUMBER = re.compile(r"[+\-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def make_page(results: Results, tables: Sequence[Table], figures: Sequence[tuple[str, str]]) -> str:
    """Return the page.

    Args:
        results: What it is about.
        tables: Tables in the paper's layout; their files are in tables/.
        figures: File name without its ending, and caption, of every figure in figures/.
    """
    return (
        _environment()
        .get_template("index.html")
        .render(
            results=results,
            version=__version__,
            tiles=_tiles(results),
            notes=notes_of(results),
            looks=looks_of(results.cells),
            best=_best_returns(results),
            curves=curve_data(results),
            tables=tables,
            figures=figures,
            common=_common_facts(results.runs),
            folders={"tables": TABLES, "figures": FIGURES},
            many_rows=MANY_ROWS,
            undefined_text=UNDEFINED,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cspo.lab.report", "page"),
        autoescape=True,
        finalize=_escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "fixed": fixed,
        "sort_key": _sort_key,
        "name": name_of,
        "task_name": paper.task_name,
        "fact_names": _fact_names,
    }
    environment.tests["nan"] = math.isnan
    return environment


def _escaped(value: Any) -> Any:
    """Escape as `html.escape` does; jinja2's own escapes quotes with other, equal, entities.

    Pages that were written before jinja2 wrote them stay the same byte for byte.
    """
    return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))


def _sort_key(text: str) -> str:
    """Return what an entry is sorted by: the number it begins with, else its text."""
    if match := SIGNED_NUMBER.match(text):
        return str(float(match[0].replace(",", "").replace("−", "-")))
    return text if re.search(r"\w", text) else ""


def _tiles(results: Results) -> dict[str, str]:
    finished = sum(run.finished for run in results.runs)
    seeds = sorted({cell.seeds for cell in results.cells})
    steps = sorted({cell.steps for cell in results.cells})
    return {
        "Runs finished": f"{finished} of {len(results.runs)}",
        "Tasks": str(len(results.tasks)),
        "Algorithms": str(len({cell.algo for cell in results.cells})),
        "Seeds per cell": "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))),
        "Steps per run": "–".join(f"{n:,}" for n in dict.fromkeys((steps[0], steps[-1]))),
    }


def _best_returns(results: Results) -> dict[str, float]:
    """Return the best return of every task among the cells that keep the limit."""
    best: dict[str, float] = {}
    for cell in results.cells:
        if cell.feasible:
            best[cell.task] = max(best.get(cell.task, -math.inf), cell.returns.value)
    return best


def _common_facts(runs: Sequence[RunResult]) -> dict[str, str]:
    """Return the facts that all runs share."""
    first = runs[0].facts.items()
    return {name: text for name, text in first if all(run.facts.get(name) == text for run in runs)}


def _fact_names(runs: Sequence[RunResult]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.facts))
