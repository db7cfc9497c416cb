"""What the figures share: their style, axes in steps, bands over seeds, limits, legends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from cspo.algorithms.registry import Look
from cspo.lab.report.curves import Band, Quantity, band, limits, moving_limits
from cspo.lab.report.formats import span
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import Cell

# Fixed, so that equal data give equal files: SVG ids come from a random salt otherwise.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "cspo",
    "svg.fonttype": "path",  # looks the same wherever it is opened
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 9,
}
LIMIT = "#333333"
LIMIT_LINE: dict[str, Any] = {"color": LIMIT, "linewidth": 1.1, "linestyle": (0, (6, 3))}
FEW = 12  # epochs; so few get marks, so that a single one is seen


def new_figure(
    rows: int, columns: int, width: float, height: float, **keywords: Any
) -> tuple[Any, Any]:
    """Return a figure and its panels (rows, columns); sizes are inches of one panel."""
    from matplotlib.figure import Figure

    # Figure rather than pyplot: no global state, no display, safe inside a user's own program.
    figure: Any = Figure(figsize=(width * columns, height * rows + 0.7), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    return figure, figure.subplots(rows, columns, squeeze=False, **keywords)


def line_style(look: Look, points: int, thin: bool = False) -> dict[str, Any]:
    """Return how the line of a look is drawn."""
    width = 0.9 if thin else (2.3 if look.stands_out else 1.5)
    dash = (0, tuple(length * 1.5 / width for length in look.dash)) if look.dash else "-"
    return {
        "color": look.colour,
        "linewidth": width,
        "linestyle": dash,
        "marker": look.marker if points < FEW else None,
        "markersize": (7 if look.marker == "*" else 4.5) - thin,
        "zorder": 4 if look.stands_out else 3,
    }


def draw_seeds(panel: Any, values: Band, look: Look) -> None:
    """Draw every seed as a thin line."""
    style = line_style(look._replace(dash=()), len(values.steps), thin=True)
    for seed in values.seeds:
        panel.plot(values.steps, seed, **style)


def draw_bands(
    panel: Any, cells: Sequence[Cell], quantity: Quantity, looks: dict[str, Look]
) -> None:
    """Draw one quantity of several cells, with the limits it is held against.

    The line is the mean over seeds, shaded from the smallest to the largest.
    """
    for cell in cells:
        if (values := band(cell, quantity)) is not None:
            look = looks[cell.label]
            panel.plot(values.steps, values.mean, **line_style(look, len(values.steps)))
            if len(values.seeds) > 1:
                shade = {"color": look.colour, "alpha": 0.15, "linewidth": 0, "zorder": 2}
                panel.fill_between(values.steps, values.low, values.high, **shade)
    draw_limits(panel, cells, quantity)
    if quantity.constraint is not None:
        begin_at_zero(panel)
    panel.set_ylabel(wrapped(quantity.title, 20))


def draw_limits(panel: Any, cells: Sequence[Cell], quantity: Quantity) -> None:
    """Draw the limits of a cost."""
    if quantity.constraint is not None:
        for value in limits(cells, quantity.constraint):
            panel.axhline(value, **LIMIT_LINE, zorder=5)
        for steps, values in moving_limits(cells, quantity.constraint):
            panel.plot(steps, values, drawstyle="steps-pre", **LIMIT_LINE, zorder=5)


def begin_at_zero(panel: Any) -> None:
    """Begin the axis of what is never negative at zero.

    Only once everything is drawn, for it fixes the other end.
    """
    if panel.dataLim.y0 >= 0:
        panel.set_ylim(bottom=0, top=1.05 * max(panel.dataLim.y1, 1e-9))


def label_steps(panel: Any, cells: Sequence[Cell]) -> None:
    """Write the axis in thousands or millions of steps, up to the end of the longest run."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ends = (run.series.steps[-1] for cell in cells for run in cell.runs)
    longest = float(max(ends, default=0.0))
    unit, name = next(((u, n) for u, n in ((1e6, "M"), (1e3, "k")) if longest >= u), (1.0, ""))
    written = FuncFormatter(lambda value, _: f"{value / unit:g}{name if value else ''}")
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.xaxis.set_major_formatter(written)
    panel.set_xlabel("environment steps")
    panel.set_xlim(0, 1.02 * max(longest, 1.0))


def legend_of(
    figure: Any, looks: dict[str, Look], limit: bool = False, markers: bool = False
) -> None:
    """Put one legend under the whole figure."""
    from matplotlib.lines import Line2D

    handles = []
    for label, look in looks.items():
        style = line_style(look, 0 if markers else FEW)
        if markers:
            size = 9 if look.marker in "*." else 6
            style |= {"linestyle": "", "color": "#555555", "markersize": size}
        handles.append(Line2D([], [], label=escape(name_of(label)), **style))
    if limit:
        handles.append(Line2D([], [], **LIMIT_LINE, label="limit"))
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    inches = 0.62 + 0.082 * longest  # of a line and of its name
    columns = min(max(1, int(figure.get_figwidth() / inches)), len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.4)


def escape(text: str) -> str:
    """Return text that matplotlib shows as it is: a dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """Return a title on as many lines as it needs."""
    return escape("\n".join(textwrap.wrap(text, width)) or text)


def head(figure: Any, cells: Sequence[Cell]) -> None:
    """Write the task of the cells above a figure, and what a band is."""
    seeds = span(cell.seeds for cell in cells)
    said = f"mean of {seeds} seeds, shaded from the smallest to the largest"
    text = wrapped(cells[0].task, 80)
    figure.suptitle(f"{text}\n{'one seed' if seeds == '1' else said}", fontsize=10)
