"""The figure and the animation: trajectories over level sets, g and lambda over iterations.

Nothing in the files depends on when or where they are written: the same settings give the same
bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cspo.lab.toy.methods import Trajectory
from cspo.lab.toy.problem import Problem
from cspo.runs.files import write_bytes, writes_to

LOOKS: dict[str, dict[str, Any]] = {
    "primal-dual": {"color": "#c2571a"},
    "CSPO (paper)": {"color": "#3fa7c4", "linestyle": (0, (4, 1.2))},
    "CSPO": {"color": "#1f5fa8"},
}
BOUNDARY, INFEASIBLE, LEVELS = "#7b3fa3", "#f3e3ea", "#8a8a8a"
MARGIN = 0.35  # of the view around everything in it
FRAMES, SECONDS = 60, 8.0  # of the animation
HOLD = 2.0  # seconds the last frame stays
Lines = tuple[Any, Any, Any, Any]  # of one path: in the plane, its end there, g and lambda


def draw_pictures(
    problem: Problem, paths: Sequence[Trajectory], out: Path, *, gif: bool = True
) -> list[Path]:
    """Write toy.png, toy.svg and toy.gif into `out` and return their paths."""
    import matplotlib

    # The salt makes the names inside an SVG the same every time.
    with matplotlib.rc_context({"svg.hashsalt": "cspo", "svg.fonttype": "path"}):
        figure, lines = _figure(problem, paths)
        png, svg = _rendered(figure, "png", dpi=130), _rendered(figure, "svg")
        contents = {"toy.png": png, "toy.svg": svg}
        if gif:
            contents["toy.gif"] = _animation(figure, lines, paths)
    with writes_to(str(out)):
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_bytes(out / name, content)
    return [out / name for name in contents]


def _figure(problem: Problem, paths: Sequence[Trajectory]) -> tuple[Any, list[Lines]]:
    """Return the figure and the lines of each path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(10.5, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1.0))
    plane = figure.add_subplot(grid[:, 0])
    above = figure.add_subplot(grid[0, 1])
    below = figure.add_subplot(grid[1, 1], sharex=above)
    _draw_problem(plane, problem, paths)
    above.axhline(0.0, color=BOUNDARY, linewidth=1.2)
    above.set_ylabel(r"$g(\theta_k)$")
    # The first violation is far larger than those after it: a root scale shows both, with the sign.
    above.set_yscale("function", functions=(_signed_root, _signed_square))
    best = {"color": "#444444", "linewidth": 1.0, "linestyle": ":", "label": r"$\lambda^\star$"}
    below.axhline(problem.optimum()[1], **best)
    below.set_ylabel(r"$\lambda_k$")
    below.set_xlabel("iteration k")
    lines = []
    for path in paths:
        style = {**LOOKS[path.name], "linewidth": 1.3}
        (track,) = plane.plot(*path.theta.T, marker=".", markersize=4, label=path.name, **style)
        (end,) = plane.plot(*path.theta[-1:].T, "o", color=style["color"], markersize=6)
        (violation,) = above.plot(path.g, **style)
        (multiplier,) = below.plot(path.lam, **style)
        lines.append((track, end, violation, multiplier))
    for panel in (above, below):
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    above.tick_params(labelbottom=False)
    below.legend(frameon=False)
    place = {"loc": "outside lower center", "ncols": 8, "frameon": False, "fontsize": 9}
    narrow = {"columnspacing": 1.3, "handlelength": 1.8, "handletextpad": 0.5}
    figure.legend(*plane.get_legend_handles_labels(), **place, **narrow)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # laid out once: frames of the animation must not move
    return figure, lines


def _draw_problem(plane: Any, problem: Problem, paths: Sequence[Trajectory]) -> None:
    """Level sets of f and g, the infeasible region, the start and the optimum."""
    best, _ = problem.optimum()
    everything = np.concatenate([*(path.theta for path in paths), [best]])
    low, high = everything.min(axis=0) - MARGIN, everything.max(axis=0) + MARGIN
    x, y = np.meshgrid(np.linspace(low[0], high[0], 300), np.linspace(low[1], high[1], 300))
    points = np.stack([x, y], axis=-1)
    f, g = problem.f(points), problem.g(points)
    plane.contourf(x, y, g, levels=[0.0, max(float(g.max()), 1.0)], colors=[INFEASIBLE])
    plane.contour(x, y, f, levels=12, colors=LEVELS, linewidths=0.8, linestyles="dashed")
    levels = [-0.9, -0.5, *(level for level in (1.0, 3.0, 7.0, 15.0) if level < g.max())]
    plane.contour(x, y, g, levels=levels, colors=BOUNDARY, linewidths=0.7, linestyles="dotted")
    plane.contour(x, y, g, levels=[0.0], colors=BOUNDARY, linewidths=2.0)
    plane.plot(*paths[0].theta[0], "s", color="black", markersize=6, label="start", zorder=5)
    star = {"color": "#e0a800", "markeredgecolor": "black", "markersize": 13, "zorder": 5}
    plane.plot(*best, "*", label="optimum", **star)
    plane.plot([], [], "--", color=LEVELS, label=r"level sets of $f$")
    plane.plot([], [], ":", color=BOUNDARY, label=r"level sets of $g$")
    plane.plot([], [], color=BOUNDARY, linewidth=2.0, label=r"$g(\theta) = 0$; shaded: infeasible")
    plane.set_aspect("equal")
    plane.set_xlabel(r"$\theta_1$")
    plane.set_ylabel(r"$\theta_2$")


def _signed_root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _signed_square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def _rendered(figure: Any, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    metadata = {"Date" if kind == "svg" else "Software": None}
    figure.savefig(content, format=kind, metadata=metadata, **options)
    return content.getvalue()


def _animation(figure: Any, lines: list[Lines], paths: Sequence[Trajectory]) -> bytes:
    """Return a GIF of the growing trajectories; early ones, where most happens, take longer."""
    from PIL import Image

    last = len(paths[0].g) - 1
    ends = np.unique(np.round(last * np.linspace(0.0, 1.0, FRAMES) ** 1.5).astype(int))
    figure.set_dpi(72)
    growing = [line for group in lines for line in group]
    for line in growing:
        line.set_visible(False)
    figure.canvas.draw()
    background = figure.canvas.copy_from_bbox(figure.bbox)  # all that stays the same, drawn once
    for line in growing:
        line.set_visible(True)
    pictures = []
    for end in ends:
        for (track, mark, violation, multiplier), path in zip(lines, paths, strict=True):
            done = np.arange(end + 1)
            track.set_data(*path.theta[: end + 1].T)
            mark.set_data(*path.theta[end : end + 1].T)
            violation.set_data(done, path.g[: end + 1])
            multiplier.set_data(done, path.lam[: end + 1])
        figure.canvas.restore_region(background)
        for line in growing:
            line.axes.draw_artist(line)
        pictures.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    # One palette for all frames, of the last, which shows every colour; coverage keeps small marks,
    # the means after it keep large areas at their colour.
    palette = pictures[-1].quantize(128, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [round(1000 * SECONDS / len(frames))] * (len(frames) - 1) + [round(1000 * HOLD)]
    content = io.BytesIO()
    timing = {"duration": durations, "loop": 0}
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], optimize=True, **timing)
    return content.getvalue()
