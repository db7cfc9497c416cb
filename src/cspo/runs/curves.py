"""The learning-curve picture of a run: return, cost against its limit, multiplier."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from cspo.errors import CspoError
from cspo.runs.files import write_bytes, writes_to
from cspo.runs.folder import load_settings
from cspo.runs.plain import read_json_table
from cspo.runs.progress import constraint_columns, progress_file, read_columns, read_progress
from cspo.types import EpochReport, FloatArray, cost_labels

RETURN_COLOUR, LIMIT_COLOUR = "#1f5fa8", "#444444"
COST_COLOURS = ("#c2571a", "#7b4fa3", "#2a8a6b", "#a83256", "#6b6b1f")
MULTIPLIER_COLOUR = "#2a7a5e"
LARGEST = 1e30  # of what is drawn: Matplotlib multiplies, and squares
Columns = dict[str, FloatArray]


def draw_curve(run_dir: Path | str) -> Path:
    """Draw curve.png of a run folder from its progress.csv, and return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    run_dir = Path(run_dir)
    settings = load_settings(run_dir)
    columns = _columns_of(progress_file(run_dir))
    # Figure rather than pyplot: no global state, no display, safe inside a user's own program.
    figure = Figure(figsize=(7.5, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))
    steps = np.array(columns["steps"])
    panels[0].plot(steps, columns["return"], color=RETURN_COLOUR, **_line(steps))
    panels[0].set_ylabel("return")
    names = _names_of(run_dir, columns)
    _draw_costs(panels[1], steps, columns, names)
    _draw_multipliers(panels[2], steps, columns, names)
    for panel in panels:
        _tidy(panel)
    _label_steps(panels[-1], steps)
    title = f"{settings['task']:.60}   {settings['algo']:.60}   seed {settings.get('seed')}"
    figure.suptitle(title, fontsize=12, parse_math=False)
    figure.align_ylabels(panels)
    path, content = run_dir / "curve.png", io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    with writes_to(str(path)):
        write_bytes(path, content.getvalue())
    return path


def _columns_of(file: Path) -> Columns:
    """Return what is drawn, without numbers that no axis can show."""
    if not any(read_progress(file).values()):
        raise CspoError(f"{file} holds no finished epoch: there is nothing to draw yet.")
    columns = read_columns(file, ("steps", "return"), foreign=False)
    costs, limits = (len(constraint_columns(columns, name)) for name in ("cost", "cost_limit"))
    for name in ("steps", "return", "cost", "cost_limit"):
        if not constraint_columns(columns, name):
            raise CspoError(f"{file} has no column {name!r}: it is not one of a run.")
    if costs != limits:
        raise CspoError(f"{file} has {costs} costs, but {limits} limits.")
    return {
        name: np.where(np.abs(values) < LARGEST, values, np.nan) for name, values in columns.items()
    }


class CurvePicture:
    """The sink that leaves curve.png behind when the run ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Draw into the folder of a run."""
        self._folder = folder
        self._is_due = (folder / "progress.csv").exists()

    def write(self, report: EpochReport) -> None:
        """Take note that there is something to draw."""
        self._is_due = True

    def close(self) -> None:
        """Draw; on a full disk there is no picture, and `cspo plot` draws it later."""
        if self._is_due:
            self._is_due = False
            with contextlib.suppress(OSError, CspoError):
                draw_curve(self._folder)


def _names_of(run_dir: Path, columns: Columns) -> list[str]:
    """Return " NAME", or " NUMBER" before there is a summary, for each of several constraints."""
    numbers = [str(k) for k in range(len(constraint_columns(columns, "cost")))]
    names = read_json_table(run_dir / "summary.json").get("cost_names")
    if not isinstance(names, list) or len(names) != len(numbers):
        names = numbers
    texts = [f"{name!s:.40}".replace("$", r"\$") for name in names]  # no formulas
    return [label.removeprefix("cost") for label in cost_labels(texts)]


def _draw_costs(panel: Any, steps: Any, columns: Columns, names: list[str]) -> None:
    costs, limits = constraint_columns(columns, "cost"), constraint_columns(columns, "cost_limit")
    for k, (cost, limit) in enumerate(zip(np.array(costs), np.array(limits), strict=True)):
        colour, name = COST_COLOURS[k % len(COST_COLOURS)], names[k]
        panel.plot(steps, cost, color=colour, label=f"cost{name}", **_line(steps))
        dashed = {"linewidth": 1.2, "color": LIMIT_COLOUR if len(costs) == 1 else colour}
        if (limit == limit[0]).all():
            panel.plot(steps, limit, "--", label=f"limit{name}: {limit[-1]:g}", **dashed)
        else:  # that of an epoch holds since the one before
            said = f"limit{name}: {limit[0]:g} to {limit[-1]:g}"
            since_zero = np.append(0.0, steps), np.append(limit[0], limit)
            panel.plot(*since_zero, "--", drawstyle="steps-pre", label=said, **dashed)
        tint = {"color": colour, "alpha": 0.18, "linewidth": 0}
        panel.fill_between(steps, limit, cost, where=cost > limit, interpolate=True, **tint)
    panel.set_ylabel("cost per episode")
    panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]) if (np.array(costs) < 0).any() else 0.0)
    _legend(panel, len(costs))


def _draw_multipliers(panel: Any, steps: Any, columns: Columns, names: list[str]) -> None:
    multipliers = constraint_columns(columns, "multiplier")
    effective = constraint_columns(columns, "effective_multiplier")
    for k, values in enumerate(multipliers[: len(names)]):
        colour = MULTIPLIER_COLOUR if len(multipliers) == 1 else COST_COLOURS[k % len(COST_COLOURS)]
        panel.plot(steps, values, color=colour, label=f"multiplier{names[k]}", **_line(steps))
        if k < len(effective):
            dotted = {"linewidth": 1.4, "color": colour}
            panel.plot(steps, effective[k], ":", label=f"effective{names[k]}", **dotted)
    panel.set_ylabel("multiplier")
    panel.set_ylim(bottom=0.0)
    if effective or len(multipliers) > 1:
        _legend(panel, len(multipliers))


def _line(steps: Any) -> dict[str, Any]:
    """Return the line style; few points get markers, so that a single epoch is visible."""
    return {"linewidth": 1.6, "marker": "o" if len(steps) < 12 else None, "markersize": 3.5}


def _legend(panel: Any, columns: int) -> None:
    panel.legend(ncols=columns, fontsize=9, framealpha=0.85, edgecolor="none")


def _tidy(panel: Any) -> None:
    panel.grid(True, color="#dddddd", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.01)


def _label_steps(panel: Any, steps: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    unit, name = next(((u, n) for u, n in ((1e6, "M"), (1e3, "k")) if steps[-1] >= u), (1.0, ""))
    label = FuncFormatter(lambda value, _: f"{value / unit:g}{name if value else ''}")
    panel.xaxis.set_major_formatter(label)
    panel.set_xlabel("environment steps")
