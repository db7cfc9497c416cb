"""`cspo eval` and `cspo plot`: commands on a run folder."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cspo.commands.options import (
    FileOption,
    NetworkOption,
    RunArgument,
    TaskOption,
    parse,
    same_task,
    show,
)
from cspo.errors import CspoError
from cspo.runs.plain import without_nan
from cspo.types import cost_labels

if TYPE_CHECKING:
    from cspo.use.acting import Acting
    from cspo.use.evaluate import EvaluationRow
    from cspo.use.intervals import Interval


@dataclass(frozen=True)
class EvalOptions:
    """Measure a policy on complete episodes, acting stochastically and deterministically."""

    run: RunArgument
    """The run's folder, or a file that `cspo export` wrote."""
    episodes: int = 20
    """Episodes of each kind."""
    seed: int | None = None
    """Seed of the episodes; by default the run's, in a stream that training did not use."""
    task: TaskOption = None
    """The run's task, typed again: says that its code may be imported (see SECURITY.md)."""
    network: NetworkOption = None
    """The run's network, typed again: says that its code may be imported."""
    trust: bool = False
    """Import the code that the run names, also if you did not train it here."""
    plugin: FileOption = None
    """Python file, or module, with the run's algorithm; measuring does not need it."""
    workers: int | None = None
    """Processes over which the copies of a slow environment are spread; by default as training."""
    json: bool = False
    """Print a JSON list of rows."""
    video: str | None = None
    """Also film the policy, acting deterministically, into this .mp4 or .gif file."""
    video_episodes: int = 1
    """Episodes in the video."""
    camera: Literal["follow", "top", "track", "fixednear", "fixedfar", "vision"] = "follow"
    """Follow the robot, look down on it, or a viewpoint of Safety-Gymnasium."""
    width: int = 640
    """Of the video, in pixels."""
    height: int = 480
    """Of the video, in pixels."""


@dataclass(frozen=True)
class PlotOptions:
    """Draw the learning curve of a run again, from its progress.csv."""

    run: RunArgument
    """The run's folder."""


def evaluate(arguments: Sequence[str]) -> int:
    """Run `cspo eval`."""
    options = parse(EvalOptions, "eval", arguments)
    from cspo.use.evaluate import evaluate as measure
    from cspo.use.export.exported import is_exported, load_exported
    from cspo.use.load import load

    if options.video is not None:
        from cspo.use.record import check_video

        check_video(options.video, options.video_episodes, options.width, options.height)
    own: Any = {"policy": options.network, "trust": options.trust}
    policy: Acting
    if is_exported(options.run):
        policy = load_exported(options.run, trust=options.trust)
    else:
        policy = load(options.run, plugin=options.plugin, **own)
    same_task(options.run, policy.config, options.task)
    agreed: Any = {"env": options.task, "trust": options.trust}
    rows = measure(policy, options.episodes, seed=options.seed, workers=options.workers, **agreed)
    plain = [without_nan(dataclasses.asdict(row)) for row in rows]
    # Out of the door before anything is drawn: a graphics driver may take the process with it.
    show(options.json, plain, lambda: format_rows(rows))
    if options.video is not None:
        _film(options, policy, agreed)
    return 0


def _film(options: EvalOptions, policy: Acting, agreed: dict[str, Any]) -> None:
    """Write the video of `cspo eval`, and say so on standard error: --json stays JSON."""
    from cspo.use.record import record

    assert options.video is not None
    print(f"filming to {options.video} ...", file=sys.stderr)
    try:
        size: Any = {"width": options.width, "height": options.height, **agreed}
        camera, seed, episodes = options.camera, options.seed, options.video_episodes
        size["deterministic"] = policy.modes[-1]  # an exported file may act in one way alone
        film = record(policy, options.video, episodes, camera=camera, seed=seed, **size)
    except CspoError as fault:
        raise CspoError(f"There is no video, but the numbers are complete. {fault}") from fault
    returns, costs = np.mean(film.returns), np.mean(np.sum(film.costs, axis=1))
    length = f"{film.frames} pictures, {film.frames / film.fps:.0f} s"
    content = f"{length}, return {returns:.1f}, cost {costs:.1f}"
    print(f"video: {film.path} ({content})", file=sys.stderr)


def format_rows(rows: Sequence[EvaluationRow]) -> str:
    """Return the rows of an evaluation as a table."""
    lines = []
    for row in rows:
        lines.append(f"{row.mode}, {row.episodes} episodes, mean length {row.episode_length:.1f}")
        labels = cost_labels(row.cost_names)
        width = max(10, *map(len, labels))
        lines.append(f"  {'return':<{width}}  {_with_interval(row.episode_return)}")
        for name, cost, limit in zip(labels, row.cost, row.cost_limit, strict=True):
            lines.append(f"  {name:<{width}}  {_with_interval(cost)}  limit {limit:g}")
        mean, low, high = (100 * share for share in dataclasses.astuple(row.violation_rate))
        violated = f"{mean:.0f} % of episodes  [{low:.0f}, {high:.0f}]"
        lines.append(f"  {'violated':<{width}}  {violated}")
    return "\n".join([*lines, "Brackets are 95 % confidence intervals."])


def _with_interval(value: Interval) -> str:
    if math.isnan(value.low):
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f}  [{value.low:.2f}, {value.high:.2f}]"


def plot(arguments: Sequence[str]) -> int:
    """Run `cspo plot`."""
    options = parse(PlotOptions, "plot", arguments)
    from cspo.runs.curves import draw_curve

    print(draw_curve(options.run))
    return 0
