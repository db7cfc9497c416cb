"""`cspo eval` and `cspo plot`: commands on a run folder."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cspo.commands.options import parse, typed

if TYPE_CHECKING:
    from cspo.evaluation import EvaluationRow, Interval

RunFolderArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


@dataclass(frozen=True)
class EvalOptions:
    """Measure the policy of a run on complete episodes, acting stochastically and deterministically."""

    run: RunFolderArgument
    """The run's folder."""
    episodes: typed(int, "episodes") = 20  # type: ignore[valid-type]
    """Episodes of each kind."""
    seed: typed(int | None, "seed") = None  # type: ignore[valid-type]
    """Seed of the episodes; by default the run's, in a stream that training did not use."""
    json: bool = False
    """Print a JSON list of rows."""


@dataclass(frozen=True)
class PlotOptions:
    """Draw the learning curve of a run again, from its progress.csv."""

    run: RunFolderArgument
    """The run's folder."""


def evaluate(arguments: Sequence[str]) -> int:
    """Run `cspo eval`."""
    options = parse(EvalOptions, "eval", arguments)
    from cspo.evaluation import evaluate as measure

    rows = measure(options.run, options.episodes, seed=options.seed)
    print(json.dumps([_plain(row) for row in rows]) if options.json else format_rows(rows))
    return 0


def _plain(row: EvaluationRow) -> Any:
    return _without_nan(dataclasses.asdict(row))


def _without_nan(value: Any) -> Any:
    """Return nested data with null in place of NaN, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def format_rows(rows: Sequence[EvaluationRow]) -> str:
    """Return the rows of an evaluation as a table."""
    lines = []
    for row in rows:
        lines.append(f"{row.mode}, {row.episodes} episodes, mean length {row.episode_length:.1f}")
        lines.append(f"  return      {_with_interval(row.episode_return)}")
        for k, (cost, limit) in enumerate(zip(row.cost, row.cost_limit, strict=True)):
            name = "cost" if len(row.cost) == 1 else f"cost {k}"
            lines.append(f"  {name:<10}  {_with_interval(cost)}  limit {limit:g}")
        share = row.violation_rate
        lines.append(
            f"  violated    {100 * share.mean:.0f} % of episodes  [{100 * share.low:.0f}, {100 * share.high:.0f}]"
        )
    return "\n".join([*lines, "Brackets are 95 % confidence intervals."])


def _with_interval(value: Interval) -> str:
    if math.isnan(value.low):
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f}  [{value.low:.2f}, {value.high:.2f}]"


def plot(arguments: Sequence[str]) -> int:
    """Run `cspo plot`."""
    options = parse(PlotOptions, "plot", arguments)
    from cspo.log.curves import draw_curve

    print(draw_curve(options.run))
    return 0
