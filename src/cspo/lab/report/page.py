"""The page of a report: one HTML file that works from a disk, offline."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from cspo import __version__
from cspo.lab.report import paper
from cspo.lab.report.curve_data import as_json, curve_data
from cspo.lab.report.formats import UNDEFINED, Table
from cspo.lab.report.html_parts import Shown, facts, mark, number, paper_table, table, text
from cspo.lab.report.looks import Look, looks_of
from cspo.lab.report.wording import display, notes_of
from cspo.lab.report.wording import number as rounded

if TYPE_CHECKING:
    from cspo.lab.report.results import Cell, Results, RunResult

SECTIONS = {
    "results": "Results",
    "curves": "Curves",
    "tables": "Tables",
    "figures": "Figures",
    "provenance": "Where the numbers come from",
}
EXPLAINED = """Interquartile mean over the last fifth of training and all seeds, its 95 % interval below. Bold: the
best return of a task among those that keep the limit. VF: share of epochs above the limit after 30 % of training; TTS:
epochs until the limit is kept again; RP: return then, over return when the violation began.
Click a header to sort."""
TABLES, FIGURES = "tables", "figures"  # folders beside the page


def make_page(results: Results, tables: Sequence[Table], figures: Sequence[tuple[str, str]]) -> str:
    """Return the page.

    Args:
        results: What it is about.
        tables: Tables in the paper's layout; their files are in tables/.
        figures: File name without its ending, and caption, of every figure in figures/.
    """
    notes, curves = notes_of(results), curve_data(results)
    main = [
        _results(results),
        _curves(results) if curves["tasks"] else "",
        _tables(tables, notes),
        _figures(figures),
        _provenance(results),
    ]
    body = "\n".join(main)
    tiles = [
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in _tiles(results)
    ]
    there = {name: title for name, title in SECTIONS.items() if f'<section id="{name}">' in body}
    parts = {
        "title": escape(results.name or "Report"),
        "css": _file("page.css"),
        "description": "".join(f'<p class="lead">{escape(said)}</p>' for said in _lead(results)),
        "tiles": "\n".join(tiles),
        "notes": "\n".join(f"<li>{escape(note)}</li>" for note in notes),
        "sections": "".join(
            f'<a href="#{name}">{escape(title)}</a>' for name, title in there.items()
        ),
        "main": body,
        "footer": f"Written by <code>cspo report</code>, version {escape(__version__)}.",
        "data": as_json(curves),
        "script": _file("tables.js") + _file("curves.js"),
    }
    return _filled(_file("template.html"), parts)


def _file(name: str) -> str:
    return (resources.files("cspo.lab.report") / "page" / name).read_text(encoding="utf-8")


def _filled(template: str, parts: dict[str, str]) -> str:
    """Put every part in its place, in one pass: braces inside a part stay what they are."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _lead(results: Results) -> list[str]:
    return [*([results.description] if results.description else []), _sentence(results)]


def _sentence(results: Results) -> str:
    tasks, labels = len(results.tasks), len(results.labels)
    what = "variant" if any(cell.variant for cell in results.cells) else "algorithm"
    return (
        f"{labels} {what}{'s' * (labels != 1)} on {tasks} task{'s' * (tasks != 1)}. "
        "Return should be high, cost within its limit."
    )


def _tiles(results: Results) -> list[tuple[str, str]]:
    finished = sum(run.finished for run in results.runs)
    seeds = sorted({cell.seeds for cell in results.cells})
    steps = sorted({cell.steps for cell in results.cells})
    return [
        ("Runs finished", f"{finished} of {len(results.runs)}"),
        ("Tasks", str(len(results.tasks))),
        ("Algorithms", str(len({cell.algo for cell in results.cells}))),
        ("Seeds per cell", "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))),
        ("Steps per run", "–".join(f"{value:,}" for value in dict.fromkeys((steps[0], steps[-1])))),
    ]


def _results(results: Results) -> str:
    titles = ("Task", "Algorithm", "Return", "Cost", "Limit", "Kept", "VF", "TTS", "RP", "Seeds")
    header = [(title, place > 1) for place, title in enumerate(titles)]
    looks = looks_of(results.cells)
    rows = [
        (_row_attributes(cell, results), _row(cell, place, looks[cell.label]))
        for place, cell in enumerate(results.cells)
    ]
    options = "".join(
        f'<option value="{escape(task)}">{escape(task)}</option>' for task in results.tasks
    )
    return "\n".join(
        [
            '<section id="results">',
            f"<h2>{SECTIONS['results']}</h2>",
            f'<p class="lead">{EXPLAINED}</p>',
            '<div class="controls"><label>Task <select id="main-task"><option value="">all</option>',
            f"{options}</select></label></div>",
            table(header, rows, label="Results", identity="main-table", kind="wide"),
            "</section>",
        ]
    )


def _row_attributes(cell: Cell, results: Results) -> str:
    rivals = [
        other.returns.value for other in results.cells if other.task == cell.task and other.feasible
    ]
    best = ' class="best"' if cell.feasible and cell.returns.value == max(rivals) else ""
    return f' data-task="{escape(cell.task)}"{best}'


def _row(cell: Cell, place: int, look: Look) -> list[Shown]:
    unfinished = (
        ""
        if all(run.finished for run in cell.runs)
        else ' <span class="interval">not finished</span>'
    )
    name = f'{mark(look)}<a href="#cell-{place}">{escape(display(cell.label))}</a>{unfinished}'
    found = cell.recovery
    return [
        Shown(
            f'<span title="{escape(cell.task)}">{escape(paper.task_name(cell.task))}</span>',
            cell.task,
        ),
        Shown(name, display(cell.label)),
        number(
            cell.returns.value,
            rounded(cell.returns.value, 2),
            _interval(cell.returns.low, cell.returns.high, 2),
        ),
        number(
            cell.cost.value,
            rounded(cell.cost.value, 1),
            _interval(cell.cost.low, cell.cost.high, 1),
            "" if cell.feasible else "above",
        ),
        number(cell.limit, f"{cell.limit:g}"),
        Shown(*(("yes", "yes", "number yes") if cell.feasible else ("no", "no", "number no"))),
        number(found.vf.mean, rounded(found.vf.mean, 2)),
        number(found.tts.mean, rounded(found.tts.mean, 1)),
        number(found.rp.mean, rounded(found.rp.mean, 2)),
        number(cell.seeds, str(cell.seeds)),
    ]


def _interval(low: float, high: float, digits: int) -> str:
    return "" if math.isnan(low) else f"{rounded(low, digits)} to {rounded(high, digits)}"


def _curves(results: Results) -> str:
    seeds = max((cell.seeds for cell in results.cells), default=0)
    shaded = (
        "The line is the mean over seeds, shaded from the smallest to the largest seed. "
        if seeds > 1
        else ""
    )
    lead = f"{shaded}The dashed line is the cost limit; red values are above it."
    return _filled(_file("curves.html"), {"lead": escape(lead)})


def _tables(tables: Sequence[Table], said: Sequence[str]) -> str:
    shown = [paper_table(item, TABLES, said) for item in tables]
    return (
        "\n".join(['<section id="tables">', f"<h2>{SECTIONS['tables']}</h2>", *shown, "</section>"])
        if shown
        else ""
    )


def _figures(figures: Sequence[tuple[str, str]]) -> str:
    if not figures:
        return ""
    items = []
    for name, caption in figures:
        file, said = f"{FIGURES}/{escape(name)}", escape(caption)
        items += [
            f'<figure><a class="picture" href="{file}.svg"><img src="{file}.svg" loading="lazy" alt="{said}"></a>',
            f'<figcaption>{said}. <a href="{file}.svg">SVG</a>, <a href="{file}.png">PNG</a></figcaption></figure>',
        ]
    head = ['<section id="figures">', f"<h2>{SECTIONS['figures']}</h2>", '<div class="figures">']
    return "\n".join([*head, *items, "</div></section>"])


def _provenance(results: Results) -> str:
    common = _common_facts(results.runs)
    used = {id(run) for cell in results.cells for run in cell.runs}
    left_out = [run for run in results.runs if id(run) not in used]
    parts = [
        '<section id="provenance">',
        f"<h2>{SECTIONS['provenance']}</h2>",
        '<p class="lead">The runs behind every row above, and what they recorded of themselves.</p>',
        "<h3>The same in all runs</h3>" + facts(common.items()) if common else "",
        "<h3>Runs</h3>",
    ]
    for place, cell in enumerate(results.cells):
        seeds = ", ".join(str(run.seed) for run in cell.runs)
        what = f"{cell.seeds} run{'s' * (cell.seeds != 1)}, seed{'s' * (cell.seeds != 1)} {seeds}, {cell.steps:,} steps"
        what += f"; return and cost over the last {cell.epochs} epochs"
        parts += [
            f'<details id="cell-{place}"><summary>{escape(cell.task)}, {escape(display(cell.label))} '
            f'<span class="quiet">{escape(what)}</span></summary>',
            _runs(cell.runs, common),
            "</details>",
        ]
    if left_out:
        title = f"{len(left_out)} of {len(results.runs)} runs are not finished and left out"
        parts += [
            f'<details id="left-out"><summary>{title}</summary>',
            _runs(left_out, common),
            "</details>",
        ]
    return "\n".join([*parts, "</section>"])


def _common_facts(runs: Sequence[RunResult]) -> dict[str, str]:
    """Return the facts that all runs share."""
    first = runs[0].facts if runs else {}
    return {
        name: value
        for name, value in first.items()
        if all(run.facts.get(name) == value for run in runs)
    }


def _runs(runs: Sequence[RunResult], common: dict[str, str]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.facts if name not in common))
    header = [("Run", False), ("Seed", True), ("Epochs", True), ("Steps", True)]
    header += [(name.replace("_", " "), False) for name in names]
    rows = []
    for run in runs:
        done, planned = len(run.series), run.series.planned_epochs
        epochs = str(done) if done >= planned else f"{done} of {planned}"
        steps = int(run.series.steps[-1])
        cells = [
            text(run.id),
            number(run.seed, str(run.seed)),
            number(done, epochs),
            number(steps, f"{steps:,}"),
        ]
        rows.append(("", [*cells, *(text(run.facts.get(name) or UNDEFINED) for name in names)]))
    return table(header, rows, label="Runs", sortable=False)
