"""The figures of a report. Each function returns one figure, or None where nothing is to draw."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from cspo.algorithms.registry import Look
from cspo.lab.metrics import Estimate
from cspo.lab.report.curves import Quantity, band, quantities
from cspo.lab.report.looks import looks_of, name_of
from cspo.lab.report.panels import (
    LIMIT,
    STYLE,
    begin_at_zero,
    draw_bands,
    draw_limits,
    draw_seeds,
    escape,
    head,
    label_steps,
    legend_of,
    new_figure,
    wrapped,
)
from cspo.lab.report.results import Cell, Results

# Algorithms with a multiplier that follows the violation, and CSPO: what the oscillation figure
# lays side by side.
LAGRANGIAN = ("cspo", "ppo-lag", "cppo-pid", "trpo-pid", "appo")
RATIOS = "RdBu"  # colours of reward preservation: red loses, white keeps, blue gains
DOTS_PER_INCH = 150
MOST_ACROSS = 6  # panels side by side that a page has room for
Looks = dict[str, Look]


def draw_figures(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a file without its ending, what the figure shows, and the figure."""
    from matplotlib import rc_context

    tasks = {task: file_name(task) for task in results.tasks}
    recovered = "How often the limit is violated, how long recovery takes and what it costs"
    varied = "Return and cost of every variant, with 95 % intervals over seeds"
    traced = "multiplier and sensitivity; what is always zero is left out"
    figures: list[tuple[str, str, Callable[..., Any], Sequence[Cell]]] = [
        *(
            (f"curves-{name}", f"{task}: return and cost", learning_curves, results.of_task(task))
            for task, name in tasks.items()
        ),
        ("oscillation", "Cost of every seed against the limit", oscillation, results.cells),
        ("recovery", recovered, recovery, results.cells),
        ("ablation", varied, ablation, results.cells),
        *(
            (f"traces-{name}", f"{task}: {traced}", traces, results.of_task(task))
            for task, name in tasks.items()
        ),
    ]
    looks = looks_of(results.cells)
    for name, caption, draw, cells in figures:
        with rc_context(STYLE):
            figure = draw(cells, {cell.label: looks[cell.label] for cell in cells})
        if figure is not None:
            yield name, caption, figure


def render(figure: Any, kind: str) -> bytes:
    """Return a figure as a PNG or SVG file, the same bytes every time."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    content = io.BytesIO()
    # Neither date nor version of the program belongs into a file that must not change by itself.
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with rc_context(STYLE):
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


def file_name(task: str) -> str:
    """Return a task's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task).strip("-.") or "task"


def _short(task: str) -> str:
    """Return a benchmark task without what all their names share."""
    return re.sub(r"^Safety(.+?)(Velocity)?-v\d+$", r"\1", task)


def learning_curves(cells: Sequence[Cell], looks: Looks) -> Any:
    """Return above, every cost below with its limit."""
    shown = [(item, cells) for item in quantities(cells) if item.is_result]
    return _stacked(cells, shown, looks, 2.5)


def traces(cells: Sequence[Cell], looks: Looks) -> Any:
    """Multiplier, effective multiplier, weight and gradient norm, as far as they were logged."""
    items = [item for item in quantities(cells) if not item.is_result]
    acting = [(item, [cell for cell in cells if _acts(cell, item)]) for item in items]
    logged = [(item, chosen) for item, chosen in acting if chosen]
    return _stacked(cells, logged, looks, 1.9) if logged else None


def _acts(cell: Cell, item: Quantity) -> bool:
    """Return whether a trace is more than the zero that an algorithm without it logs."""
    values = band(cell, item)
    return values is not None and bool(np.nanmax(np.abs(values.seeds)) > 0.0)


def _stacked(
    cells: Sequence[Cell],
    drawn: Sequence[tuple[Quantity, Sequence[Cell]]],
    looks: Looks,
    height: float,
) -> Any:
    """Return quantities over steps, one panel above the other, each with the cells that have it."""
    figure, panels = new_figure(len(drawn), 1, 7.2, height, sharex=True)
    for (item, chosen), panel in zip(drawn, panels[:, 0], strict=True):
        draw_bands(panel, chosen, item, looks)
    label_steps(panels[-1, 0], cells)
    head(figure, cells)
    figure.align_ylabels(panels)
    shown = {cell.label for _, chosen in drawn for cell in chosen}
    limited = any(item.constraint is not None for item, _ in drawn)
    legend_of(figure, {label: looks[label] for label in looks if label in shown}, limited)
    return figure


def oscillation(cells: Sequence[Cell], looks: Looks) -> Any:
    """Cost of single seeds: a row per task and constraint, a column per Lagrangian algorithm.

    The reverse if there are many algorithms.
    """
    chosen = [cell for cell in cells if cell.algo in LAGRANGIAN]
    chosen.sort(key=lambda cell: LAGRANGIAN.index(cell.algo))
    labels = list(dict.fromkeys(cell.label for cell in chosen))
    if len(labels) < 2:
        return None  # a comparison takes two
    tasks = {cell.task: [one for one in chosen if one.task == cell.task] for cell in cells}
    rows = [
        (task, item)
        for task, here in tasks.items()
        for item in quantities(here)
        if item.constraint is not None
    ]
    across = len(labels) <= MOST_ACROSS
    if across:
        size = len(rows), len(labels), 13 / max(4, len(labels)), 2.0
        figure, panels = new_figure(*size, sharex="row", sharey="row")
    else:
        size = len(labels), len(rows), 3.4, 1.25
        figure, turned = new_figure(*size, sharex="col", sharey="col")
        panels = turned.T
    for (task, item), line in zip(rows, panels, strict=True):
        here = {cell.label: cell for cell in tasks[task]}
        for label, panel in zip(labels, line, strict=True):
            if label in here and (values := band(here[label], item)) is not None:
                draw_seeds(panel, values, looks[label])
            draw_limits(panel, [here[label]] if label in here else [], item)
            label_steps(panel, tasks[task])
            panel.set_xlabel("")
        if across:
            line[0].set_ylabel(f"{wrapped(_short(task), 22)}\n{item.title}")
        else:
            line[0].set_title(f"{wrapped(_short(task), 34)}: {item.title}")
        begin_at_zero(max(line, key=lambda panel: panel.dataLim.y1))
    for label, panel in zip(labels, panels[0], strict=True):
        name, bold = wrapped(name_of(label), 24), {"color": looks[label].colour, "weight": "bold"}
        if across:
            panel.set_title(name, **bold)
        else:
            panel.set_ylabel(name, rotation=0, ha="right", va="center", **bold)
    figure.supxlabel("environment steps", fontsize=9.5)
    figure.suptitle("Cost of single seeds; the dashed line is the limit", fontsize=11)
    return figure


def recovery(cells: Sequence[Cell], looks: Looks) -> Any:
    """VF across, TTS up, RP as colour, the algorithm as the mark; one panel per task."""
    from matplotlib.colors import Normalize

    ratios = [cell.recovery.rp.mean for cell in cells if math.isfinite(cell.recovery.rp.mean)]
    # Symmetric around 1, where nothing is lost; one wild ratio must not make all others look alike.
    reach = float(np.clip(np.quantile(np.abs(np.array(ratios or [1.0]) - 1.0), 0.8), 0.05, 0.5))
    scale = Normalize(1.0 - reach, 1.0 + reach)
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    columns = min(3, math.ceil(math.sqrt(len(tasks))))
    width = 3.6 if columns > 1 else 4.8
    figure, panels = new_figure(math.ceil(len(tasks) / columns), columns, width, 3.0)
    hollow = False
    for task, panel in zip(tasks, panels.flat, strict=False):
        for cell in (cell for cell in cells if cell.task == task):
            hollow |= _mark(panel, cell, looks[cell.label], scale)
        panel.set_title(wrapped(task, 34))
        panel.set_xlim(-0.05, 1.05)
        top = max(panel.dataLim.y1, 1.0)
        panel.set_ylim(bottom=-0.05 * top, top=1.12 * top)
    for place, panel in enumerate(panels.flat):
        panel.set_visible(place < len(tasks))
        if place + columns >= len(tasks):
            panel.set_xlabel("violation frequency (VF)")
        if place % columns == 0:
            panel.set_ylabel("time to safety (TTS), epochs")
    _colour_bar(figure, panels, scale)
    legend_of(figure, looks, markers=True)
    if hollow:
        said = "Hollow at zero: no violation that ended; grey: reward preservation is undefined"
        figure.suptitle(wrapped(said, int(12 * figure.get_figwidth())), fontsize=9)
    return figure


def _mark(panel: Any, cell: Cell, look: Look, scale: Any) -> bool:
    """Draw one cell; returns whether it is hollow because it has no time to safety."""
    from matplotlib import colormaps

    vf, tts, rp = cell.recovery.vf.mean, cell.recovery.tts.mean, cell.recovery.rp.mean
    if not math.isfinite(vf):
        return False
    ended = math.isfinite(tts)
    filled = colormaps[RATIOS](scale(rp)) if math.isfinite(rp) else "#bbbbbb"
    panel.scatter(
        [vf],
        [tts if ended else 0.0],
        s=210 if look.marker in "*." else 75,
        marker=look.marker,
        facecolor=filled if ended else "none",
        clip_on=False,
        edgecolor=LIMIT,
        linewidth=1.1 if ended else 1.4,
        zorder=4 if look.stands_out else 3,
    )
    return not ended


def _colour_bar(figure: Any, panels: Any, scale: Any) -> None:
    from matplotlib.cm import ScalarMappable

    colours = ScalarMappable(scale, RATIOS)
    bar = figure.colorbar(colours, ax=panels, shrink=0.8, aspect=25, pad=0.02, extend="both")
    bar.set_label("reward preservation (RP)")
    bar.outline.set_visible(False)


def ablation(cells: Sequence[Cell], looks: Looks) -> Any:
    """A row per task and algorithm: return and cost of every variant with their intervals."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.algo), []).append(cell)
    shown = {key: group for key, group in groups.items() if len(group) > 1}
    if not shown:
        return None
    most = max(map(len, shown.values()))
    # Names are read across: they stand at the side.
    figure, panels = new_figure(len(shown), 2, 3.9, 0.6 + 0.26 * most)
    for ((task, algo), group), (returns, costs) in zip(shown.items(), panels, strict=True):
        returns.set_title(wrapped(f"{_short(task)}, {name_of(algo)}: return", 46))
        costs.set_title("cost (dashed: limit)")
        for place, cell in enumerate(group):
            _interval(returns, place, cell.returns, looks[cell.label])
            _interval(costs, place, cell.cost, looks[cell.label])
            for limit in {float(value) for run in cell.runs for value in run.series.limit[-1]}:
                if math.isfinite(limit):
                    across = ([limit, limit], [place - 0.5, place + 0.5])
                    costs.plot(*across, color=LIMIT, linewidth=1.2, linestyle="--")
        for panel in (returns, costs):
            panel.set_ylim(len(group) - 0.4, -0.6)  # the first on top
            names = [escape(cell.variant or "default") for cell in group]
            panel.set_yticks(range(len(group)), names)
        costs.tick_params(labelleft=False)
        if costs.dataLim.x0 >= 0:
            costs.set_xlim(left=0)
    return figure


def _interval(panel: Any, place: float, estimate: Estimate, look: Look) -> None:
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        bounds = [estimate.low, estimate.high]
        panel.plot(bounds, [place, place], color=look.colour, linewidth=2.2, zorder=3)
    if math.isfinite(estimate.value):
        mark = {"marker": look.marker, "markersize": 6.5, "color": look.colour, "zorder": 4}
        panel.plot([estimate.value], [place], **mark)
