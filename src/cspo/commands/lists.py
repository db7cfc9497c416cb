"""`cspo tasks` and `cspo algos`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import FileOption, parse, show
from cspo.config import use_plugin
from cspo.envs.facts import TaskRow
from cspo.envs.tasks import native_tasks
from cspo.errors import CspoError

NamePart = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks this package simulates itself; any Gymnasium id can be trained on as well."""

    part: NamePart = ""
    """Only those with this in their name, such as Racecar, Goal or Car.*2."""
    plugin: FileOption = None
    """Python file, or module, that registers more."""
    json: bool = False
    """Print a JSON list."""


@dataclass(frozen=True)
class AlgosOptions:
    """List the algorithms; `cspo train --algo NAME --help` shows the settings of one."""

    plugin: FileOption = None
    """Python file, or module, that registers more."""
    json: bool = False
    """Print a JSON list."""


def tasks(arguments: Sequence[str]) -> int:
    """Run `cspo tasks`."""
    options = parse(TasksOptions, "tasks", arguments)
    use_plugin({"plugin": options.plugin})
    rows = _rows_named(options.part)
    show(options.json, [row._asdict() for row in rows], lambda: _task_table(rows))
    return 0


def _rows_named(part: str) -> list[TaskRow]:
    """Return the tasks that have a part, or a pattern of it, in their name."""
    try:
        rows = [row for row in native_tasks() if re.search(part, row.name, re.IGNORECASE)]
    except re.error as fault:
        raise CspoError(f"{part!r} is not a part of a name: {fault}.") from None
    if not rows:
        raise CspoError(f"no task has {part!r} in its name: `cspo tasks` lists all.")
    return rows


def _task_table(rows: Sequence[TaskRow]) -> str:
    width = max(len(row.name) for row in rows)
    terms = max(len(",".join(row.cost_terms)) for row in rows)
    head = f"{'task':<{width}}  {'family':<10}  {'obs':>4} {'act':>4}  {'limit':>5}"
    lines = [f"{head}  {'cost terms':<{terms}}  description"]
    for row in rows:
        sizes = f"{row.observation_size:>4} {row.action_size:>4}  {row.cost_limit:>5g}"
        what = f"{','.join(row.cost_terms):<{terms}}  {row.description}"
        lines.append(f"{row.name:<{width}}  {row.family:<10}  {sizes}  {what}")
    return "\n".join(lines)


def algos(arguments: Sequence[str]) -> int:
    """Run `cspo algos`."""
    options = parse(AlgosOptions, "algos", arguments)
    use_plugin({"plugin": options.plugin})
    rows = [(name, getattr(get_algorithm(name), "summary", "")) for name in algorithm_names()]
    width = max(len(name) for name, _ in rows)
    data = [{"name": name, "summary": summary} for name, summary in rows]
    show(options.json, data, lambda: "\n".join(f"{name:<{width}}  {text}" for name, text in rows))
    return 0
