"""The figures of a report. Each function returns one figure, or None where there is nothing to draw."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.lab.report.bands import Quantity, band, quantities
from cspo.lab.report.looks import Look, looks_of
from cspo.lab.report.panels import (
    LIMIT,
    STYLE,
    begin_at_zero,
    draw_bands,
    draw_limits,
    draw_seeds,
    escape,
    label_steps,
    legend_of,
    longest_run,
    new_figure,
    seeds_of,
    title_of,
)
from cspo.lab.report.wording import display

if TYPE_CHECKING:
    from cspo.lab.report.results import Cell, Results

# Algorithms with a multiplier that follows the violation, and CSPO: what the oscillation figure
# lays side by side.
LAGRANGIAN = ("cspo", "ppo-lag", "cppo-pid", "trpo-pid", "appo")
RATIOS = "RdBu"  # colours of reward preservation: red loses, white keeps, blue gains
DOTS_PER_INCH = 150
MOST_ACROSS = 6  # panels side by side that a page has room for


def draw_figures(results: Results) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a file without its ending, what the figure shows, and the figure."""
    from matplotlib import rc_context

    looks = looks_of(results.cells)
    curves = [
        (f"curves-{file_name(t)}", f"{t}: return and cost", learning_curves, t)
        for t in results.tasks
    ]
    left_out = "what is always zero is left out"
    more = [
        (f"traces-{file_name(t)}", f"{t}: multiplier and sensitivity; {left_out}", traces, t)
        for t in results.tasks
    ]
    across = [
        ("oscillation", "Cost of every seed against the limit", oscillation, None),
        (
            "recovery",
            "How often the limit is violated, how long recovery takes and what it costs",
            recovery,
            None,
        ),
        (
            "ablation",
            "Return and cost of every variant, with 95 % intervals over seeds",
            ablation,
            None,
        ),
    ]
    drawn: list[tuple[str, str, Callable[..., Any], str | None]] = [*curves, *across, *more]
    for name, caption, draw, task in drawn:
        cells = [cell for cell in results.cells if cell.runs and task in (None, cell.task)]
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
    with rc_context(STYLE):
        # Neither the date nor the version of the program belongs into a file that should not change
        # by itself.
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
    return content.getvalue()


def file_name(task: str) -> str:
    """Return a task's name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task).strip("-.") or "task"


def learning_curves(cells: Sequence[Cell], looks: dict[str, Look]) -> Any:
    """Return above, every cost below with its limit."""
    if not cells:
        return None
    shown = [
        item for item in quantities(run for cell in cells for run in cell.runs) if _is_result(item)
    ]
    figure, panels = new_figure(len(shown), 1, 7.2, 2.5, sharex=True)
    for item, panel in zip(shown, panels[:, 0], strict=True):
        draw_bands(panel, cells, item, looks)
    label_steps(panels[-1, 0], longest_run(cells))
    figure.suptitle(f"{title_of(cells[0].task, 80)}\n{seeds_of(cells)}", fontsize=10)
    figure.align_ylabels(panels)
    legend_of(figure, looks, limit=True)
    return figure


def _is_result(item: Quantity) -> bool:
    return item.key == "return" or item.constraint is not None


def traces(cells: Sequence[Cell], looks: dict[str, Look]) -> Any:
    """Multiplier, effective multiplier, weight and gradient norm, as far as they were logged."""
    shown = [
        item
        for item in quantities(run for cell in cells for run in cell.runs)
        if not _is_result(item)
    ]
    shown = [item for item in shown if any(_acts(cell, item) for cell in cells)]
    if not shown:
        return None
    figure, panels = new_figure(len(shown), 1, 7.2, 1.9, sharex=True)
    drawn = set()
    for item, panel in zip(shown, panels[:, 0], strict=True):
        logged = [cell for cell in cells if _acts(cell, item)]
        draw_bands(panel, logged, item, looks)
        panel.set_ylabel(title_of(item.title, 20))
        drawn |= {cell.label for cell in logged}
    label_steps(panels[-1, 0], longest_run(cells))
    figure.suptitle(f"{title_of(cells[0].task, 80)}\n{seeds_of(cells)}", fontsize=10)
    figure.align_ylabels(panels)
    legend_of(figure, {label: look for label, look in looks.items() if label in drawn}, limit=False)
    return figure


def _acts(cell: Cell, item: Quantity) -> bool:
    """Return whether a trace is more than the zero that an algorithm without it logs."""
    values = band(cell, item)
    return values is not None and bool(np.nanmax(np.abs(values.seeds)) > 0.0)


def oscillation(cells: Sequence[Cell], looks: dict[str, Look]) -> Any:
    """Cost of single seeds: a row per task, a column per Lagrangian algorithm, or the reverse if there are many."""
    chosen = sorted(
        (cell for cell in cells if cell.algo in LAGRANGIAN), key=lambda c: LAGRANGIAN.index(c.algo)
    )
    labels = list(dict.fromkeys(cell.label for cell in chosen))
    if len(labels) < 2:
        return None  # a comparison takes two
    rows = [
        (task, k)
        for task in dict.fromkeys(c.task for c in cells)
        for k in range(_constraints(chosen, task))
    ]
    across = len(labels) <= MOST_ACROSS
    if across:
        figure, panels = new_figure(
            len(rows), len(labels), 13 / max(4, len(labels)), 2.0, sharex="row", sharey="row"
        )
    else:
        figure, turned = new_figure(len(labels), len(rows), 3.4, 1.25, sharex="col", sharey="col")
        panels = turned.T
    for (task, k), line in zip(rows, panels, strict=True):
        costs = _constraints(chosen, task)
        item = Quantity("cost", "cost" if costs == 1 else f"cost {k}", k)
        here = {cell.label: cell for cell in chosen if cell.task == task}
        for label, panel in zip(labels, line, strict=True):
            if label in here and (values := band(here[label], item)) is not None:
                draw_seeds(panel, values, looks[label])
            draw_limits(panel, [here[label]] if label in here else [], item)
            label_steps(panel, longest_run(list(here.values())))
            panel.set_xlabel("")
        if across:
            line[0].set_ylabel(f"{title_of(_short(task), 22)}\n{item.title}")
        else:
            line[0].set_title(f"{title_of(_short(task), 34)}: {item.title}")
        begin_at_zero(max(line, key=lambda panel: panel.dataLim.y1))
    for label, panel in zip(labels, panels[0], strict=True):
        bold = {"color": looks[label].colour, "fontweight": "bold"}
        if across:
            panel.set_title(title_of(display(label), 24), **bold)
        else:
            panel.set_ylabel(
                title_of(display(label), 24), rotation=0, ha="right", va="center", **bold
            )
    figure.supxlabel("environment steps", fontsize=9.5)
    figure.suptitle("Cost of single seeds; the dashed line is the limit", fontsize=11)
    return figure


def _constraints(cells: Sequence[Cell], task: str) -> int:
    return max(
        (run.series.cost.shape[1] for cell in cells if cell.task == task for run in cell.runs),
        default=0,
    )


def _short(task: str) -> str:
    """Return a benchmark task without what all their names share."""
    return re.sub(r"^Safety(.+?)(Velocity)?-v\d+$", r"\1", task)


def recovery(cells: Sequence[Cell], looks: dict[str, Look]) -> Any:
    """VF across, TTS up, RP as colour, the algorithm as the mark; one panel per task."""
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    if not cells:
        return None
    from matplotlib.colors import Normalize

    ratios = [cell.recovery.rp.mean for cell in cells if math.isfinite(cell.recovery.rp.mean)]
    # Symmetric around 1, where nothing is lost; a single wild ratio must not make all others look
    # alike.
    reach = float(np.clip(np.quantile(np.abs(np.array(ratios or [1.0]) - 1.0), 0.8), 0.05, 0.5))
    scale = Normalize(1.0 - reach, 1.0 + reach)
    columns = min(3, math.ceil(math.sqrt(len(tasks))))
    figure, panels = new_figure(
        math.ceil(len(tasks) / columns), columns, 3.6 if columns > 1 else 4.8, 3.0
    )
    hollow = False
    for task, panel in zip(tasks, panels.flat, strict=False):
        for cell in (cell for cell in cells if cell.task == task):
            hollow |= _mark(panel, cell, looks[cell.label], scale)
        panel.set_title(title_of(task, 34))
        panel.set_xlim(-0.05, 1.05)
        panel.set_ylim(
            bottom=-0.05 * max(panel.dataLim.y1, 1.0), top=1.12 * max(panel.dataLim.y1, 1.0)
        )
    for place, panel in enumerate(panels.flat):
        panel.set_visible(place < len(tasks))
        if place + columns >= len(tasks):
            panel.set_xlabel("violation frequency (VF)")
        if place % columns == 0:
            panel.set_ylabel("time to safety (TTS), epochs")
    _colour_bar(figure, panels, scale)
    legend_of(figure, looks, limit=False, markers=True)
    if hollow:
        explained = (
            "Hollow at zero: no violation that ended; grey: reward preservation is undefined"
        )
        figure.suptitle(title_of(explained, int(12 * figure.get_figwidth())), fontsize=9)
    return figure


def _mark(panel: Any, cell: Cell, look: Look, scale: Any) -> bool:
    """Draw one cell; returns whether it is hollow because it has no time to safety."""
    vf, tts, rp = cell.recovery.vf.mean, cell.recovery.tts.mean, cell.recovery.rp.mean
    if not math.isfinite(vf):
        return False
    from matplotlib import colormaps

    ended = math.isfinite(tts)
    face = (
        "none" if not ended else (colormaps[RATIOS](scale(rp)) if math.isfinite(rp) else "#bbbbbb")
    )
    size = 210 if look.marker in "*." else 75
    panel.scatter(
        [vf], [tts if ended else 0.0], s=size, marker=look.marker, facecolor=face, clip_on=False,
        edgecolor=LIMIT, linewidth=1.1 if ended else 1.4, zorder=4 if look.stands_out else 3,
    )  # fmt: skip
    return not ended


def _colour_bar(figure: Any, panels: Any, scale: Any) -> None:
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(scale, RATIOS), ax=panels, shrink=0.8, aspect=25, pad=0.02, extend="both"
    )
    bar.set_label("reward preservation (RP)")
    bar.outline.set_visible(False)


def ablation(cells: Sequence[Cell], looks: dict[str, Look]) -> Any:
    """A column per task and algorithm: return and cost of every variant with their intervals."""
    if len({cell.variant for cell in cells}) < 2:
        return None
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.algo), []).append(cell)
    shown = {key: group for key, group in groups.items() if len(group) > 1}
    if not shown:
        return None
    most = max(map(len, shown.values()))
    figure, panels = new_figure(
        len(shown), 2, 3.9, 0.6 + 0.26 * most
    )  # names are read across: they stand at the side
    for ((task, algo), group), (returns, costs) in zip(shown.items(), panels, strict=True):
        returns.set_title(title_of(f"{_short(task)}, {display(algo)}: return", 46))
        costs.set_title("cost (dashed: limit)")
        for place, cell in enumerate(group):
            _interval(returns, place, cell.returns, looks[cell.label])
            _interval(costs, place, cell.cost, looks[cell.label])
            for limit in _limit_of(cell):
                costs.plot(
                    [limit, limit],
                    [place - 0.5, place + 0.5],
                    color=LIMIT,
                    linewidth=1.2,
                    linestyle="--",
                )
        for panel in (returns, costs):
            panel.set_ylim(len(group) - 0.4, -0.6)  # the first on top
            panel.set_yticks(
                range(len(group)), [escape(cell.variant or "default") for cell in group]
            )
        costs.tick_params(labelleft=False)
        if costs.dataLim.x0 >= 0:
            costs.set_xlim(left=0)
    return figure


def _limit_of(cell: Cell) -> set[float]:
    return {
        float(value)
        for run in cell.runs
        for value in run.series.limit[-1:].ravel()
        if np.isfinite(value)
    }


def _interval(panel: Any, place: float, estimate: Any, look: Look) -> None:
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        panel.plot(
            [estimate.low, estimate.high],
            [place, place],
            color=look.colour,
            linewidth=2.2,
            zorder=3,
        )
    if math.isfinite(estimate.value):
        panel.plot(
            [estimate.value],
            [place],
            marker=look.marker,
            markersize=6.5,
            color=look.colour,
            zorder=4,
        )
