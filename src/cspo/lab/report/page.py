"""The page of a report: one HTML file that works offline, from the templates in page/."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cspo import __version__
from cspo.algorithms.registry import Look
from cspo.lab.metrics import Estimate
from cspo.lab.report import paper
from cspo.lab.report.curves import curve_data
from cspo.lab.report.formats import UNDEFINED, Table, fixed
from cspo.lab.report.looks import looks_of, name_of
from cspo.lab.report.results import Cell, Results
from cspo.lab.report.runs import RunResult
from cspo.lab.report.tables import notes_of

TABLES, FIGURES = "tables", "figures"  # folders beside the page
MANY_ROWS = 24  # more than these scroll in a box of their own, but for the main table
SIGNED_NUMBER = re.compile(r"[+\-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


class PageCell(NamedTuple):
    """One cell of a table on the page."""

    text: str
    key: str | float  # what it is sorted by; "" comes last
    classes: str = ""
    detail: str = ""  # a smaller line below
    tooltip: str = ""
    link: str = ""
    look: Look | None = None  # of a small square in front


class PageRow(NamedTuple):
    """One row of a table on the page."""

    cells: list[PageCell]
    classes: str = ""
    task: str = ""  # by which the main table is filtered


class PageTable(NamedTuple):
    """A table on the page."""

    label: str  # what it is, for those who do not see it
    header: list[tuple[str, bool]]  # titles of the columns, and whether they hold numbers
    rows: list[PageRow]
    id: str = ""
    classes: str = ""
    sortable: bool = False
    tall: bool = False  # scrolls up and down too


def make_page(results: Results, tables: Sequence[Table], figures: Sequence[tuple[str, str]]) -> str:
    """Return the page.

    Args:
        results: What it is about.
        tables: Tables in the paper's layout; their files are in tables/.
        figures: File name without its ending, and caption, of every figure in figures/.
    """
    notes, common = notes_of(results), _common_facts(results.runs)
    few_of = f"{len(results.left_out)} of {len(results.runs)} runs"
    varied = any(cell.variant for cell in results.cells)
    template = _environment().get_template("index.html")
    return template.render(
        title=results.name or "Report",
        description=results.description,
        labels=_count(results.labels, "variant" if varied else "algorithm"),
        tasks=results.tasks,
        tiles=_tiles(results),
        notes=notes,
        main=_main_table(results),
        curves=curve_data(results),
        several_seeds=any(cell.seeds > 1 for cell in results.cells),
        tables=[_paper_table(table, notes) for table in tables],
        figures=[(f"{FIGURES}/{name}", caption) for name, caption in figures],
        common=common,
        provenance=[_provenance(cell, common) for cell in results.cells],
        left_out=_runs_table(f"{few_of} are not finished and left out", results.left_out, common),
        version=__version__,
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
    return environment


def _escaped(value: Any) -> Any:
    """Escape as `html.escape` does; jinja2 writes quotes as other, equal, entities.

    Pages that are kept stay the same byte for byte when they are written again.
    """
    return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))


def _count(items: Sequence[Any], word: str) -> str:
    return f"{len(items)} {word}{'s' * (len(items) != 1)}"


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


def _text(value: str) -> PageCell:
    return PageCell(value, value)


def _number(value: float, text: str, classes: str = "", detail: str = "") -> PageCell:
    key = "" if math.isnan(value) else value
    return PageCell(text, key, f"number {classes}".rstrip(), detail)


def _estimate(found: Estimate, digits: int, classes: str = "") -> PageCell:
    low, high = fixed(found.low, digits), fixed(found.high, digits)
    interval = "" if math.isnan(found.low) else f"{low} to {high}"
    return _number(found.value, fixed(found.value, digits), classes, interval)


def _main_table(results: Results) -> PageTable:
    titles = ("Task", "Algorithm", "Return", "Cost", "Limit", "Kept", "VF", "TTS", "RP", "Seeds")
    looks, rows = looks_of(results.cells), []
    for place, cell in enumerate(results.cells):
        rivals = [other for other in results.cells if other.task == cell.task and other.feasible]
        best = cell.feasible and cell.returns.value == max(one.returns.value for one in rivals)
        name, found = name_of(cell.label), cell.recovery
        state = "" if cell.finished else "not finished"
        look, link = looks[cell.label], f"#cell-{place}"
        kept = "yes" if cell.feasible else "no"
        cells = [
            PageCell(paper.task_name(cell.task), cell.task, tooltip=cell.task),
            PageCell(name, name, detail=state, link=link, look=look),
            _estimate(cell.returns, 2),
            _estimate(cell.cost, 1, "" if cell.feasible else "above"),
            _number(cell.limit, f"{cell.limit:g}"),
            PageCell(kept, kept, f"number {kept}"),
            _number(found.vf.mean, fixed(found.vf.mean, 2)),
            _number(found.tts.mean, fixed(found.tts.mean, 1)),
            _number(found.rp.mean, fixed(found.rp.mean, 2)),
            _number(cell.seeds, str(cell.seeds)),
        ]
        rows.append(PageRow(cells, "best" if best else "", cell.task))
    header = [(title, place > 1) for place, title in enumerate(titles)]
    return PageTable("Results", header, rows, "main-table", "wide sortable", sortable=True)


def _paper_table(item: Table, said: Sequence[str]) -> dict[str, Any]:
    """Return a table in the paper's layout, without the notes that the page says elsewhere."""
    is_number = [place >= item.text_columns for place in range(len(item.header))]
    rows = []
    for count, row in enumerate(item.rows, start=1):
        cells = []
        for entry, numeric in zip(row, is_number, strict=True):
            classes = ("number" if numeric else "") + (" bold" if entry.bold else "")
            cells.append(PageCell(entry.text, _sort_key(entry.text), classes.strip()))
        rows.append(PageRow(cells, "end" if count % item.group == 0 else ""))
    # Where rows stand in groups, one row means nothing without the one above it.
    sortable = item.group == 1 or item.text_columns == 3
    table = PageTable(
        item.title,
        list(zip(item.header, is_number, strict=True)),
        rows,
        f"table-{item.name}",
        "sortable" if sortable else "grouped",
        sortable,
        tall=len(rows) > MANY_ROWS,
    )
    notes = [note for note in item.notes if note not in said]
    return {"table": table, "notes": notes, "file": f"{TABLES}/{item.name}"}


def _sort_key(text: str) -> str | float:
    if match := SIGNED_NUMBER.match(text):
        return float(match[0].replace(",", "").replace("−", "-"))
    return text if re.search(r"\w", text) else ""


def _provenance(cell: Cell, common: dict[str, str]) -> dict[str, Any]:
    """Return the runs behind a row of the main table."""
    seeds = ", ".join(str(run.seed) for run in cell.runs)
    runs = (
        f"{_count(cell.runs, 'run')}, seed{'s' * (cell.seeds != 1)} {seeds}, {cell.steps:,} steps"
    )
    return {
        "title": f"{cell.task}, {name_of(cell.label)}",
        "detail": f"{runs}; return and cost over the last {cell.epochs} epochs",
        "table": _runs_table("Runs", cell.runs, common),
    }


def _common_facts(runs: Sequence[RunResult]) -> dict[str, str]:
    """Return the facts that all runs share."""
    first = runs[0].facts.items()
    return {name: text for name, text in first if all(run.facts.get(name) == text for run in runs)}


def _runs_table(label: str, runs: Sequence[RunResult], common: dict[str, str]) -> PageTable:
    """Return what runs recorded of themselves, but for what all of them share."""
    names = list(dict.fromkeys(name for run in runs for name in run.facts if name not in common))
    header = [("Run", False), ("Seed", True), ("Epochs", True), ("Steps", True)]
    header += [(name.replace("_", " "), False) for name in names]
    rows = []
    for run in runs:
        done, steps = len(run.series), int(run.series.steps[-1])
        epochs = str(done) if run.finished else f"{done} of {run.series.planned_epochs}"
        cells = [_text(run.id), _number(run.seed, str(run.seed))]
        cells += [_number(done, epochs), _number(steps, f"{steps:,}")]
        rows.append(PageRow([*cells, *(_text(run.facts.get(name) or UNDEFINED) for name in names)]))
    return PageTable(label, header, rows, tall=len(rows) > MANY_ROWS)
