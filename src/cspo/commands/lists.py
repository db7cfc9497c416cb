"""`cspo tasks` and `cspo algos`."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Annotated

import tyro

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import FileOption, parse, show
from cspo.config import use_plugin
from cspo.envs.facts import TaskRow
from cspo.envs.tasks import native_tasks
from cspo.errors import CspoError

NameParts = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME [NAME ...]]")
]
NEAREST = 3  # names that a message proposes
AIRY = 3  # rows per group from which on there is a line between groups


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks this package simulates itself; any Gymnasium id can be trained on as well."""

    parts: NameParts = ()
    """Only those with all of this in their name, such as `Racecar` or `push 2`."""
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
    rows = _rows_named(options.parts)
    show(options.json, [row._asdict() for row in rows], lambda: _task_table(rows))
    return 0


def _rows_named(parts: Sequence[str]) -> list[TaskRow]:
    """Return the tasks that have all of some parts in their name, in capitals or not."""
    known, wanted = native_tasks(), [part.lower() for part in parts]
    rows = [row for row in known if all(part in row.name.lower() for part in wanted)]
    if not rows:
        near = sorted(known, key=lambda row: -_likeness(row.name, wanted))[:NEAREST]
        asked = " and ".join(map(repr, parts))
        names = ", ".join(row.name for row in near)
        raise CspoError(f"no task has {asked} in its name; the nearest are {names}.")
    return rows


def _likeness(name: str, parts: Sequence[str]) -> float:
    """Return how much of `parts` is almost in a name, whose own parts begin with capitals."""
    own = [word.lower() for word in re.findall("[A-Z][a-z0-9]*", name)]
    return sum(max(SequenceMatcher(None, part, word).ratio() for word in own) for part in parts)


def _task_table(rows: Sequence[TaskRow]) -> str:
    width = max(len(row.name) for row in rows)
    terms = max(len("cost of"), *(len(", ".join(row.cost_terms)) for row in rows))
    head = f"{'task':<{width}}  {'obs':>4} {'act':>4} {'steps':>5} {'limit':>5}"
    lines = [f"{head}  {'cost of':<{terms}}  description"]
    groups = [list(group) for _, group in groupby(rows, _group_of)]
    for number, group in enumerate(groups):
        if number and len(rows) >= AIRY * len(groups):
            lines.append("")
        for row in group:
            sizes = f"{row.observation_size:>4} {row.action_size:>4}"
            limits = f"{row.time_limit:>5} {row.cost_limit:>5g}"
            what = f"{', '.join(row.cost_terms) or '-':<{terms}}  {row.description}"
            lines.append(f"{row.name:<{width}}  {sizes} {limits}  {what}")
    return "\n".join(_fitting(line) for line in lines)


def _group_of(row: TaskRow) -> tuple[str, ...]:
    """Return which tasks a task stands with: those of its robot, or of its version."""
    words = re.findall("[A-Z][a-z]*", row.name)
    return (row.family, words[1]) if row.family == "navigation" else (row.family, row.name[-2:])


def _fitting(line: str) -> str:
    """Return as much of a line as a terminal shows in one; where there is none, all of it."""
    if not sys.stdout.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def algos(arguments: Sequence[str]) -> int:
    """Run `cspo algos`."""
    options = parse(AlgosOptions, "algos", arguments)
    use_plugin({"plugin": options.plugin})
    rows = [(name, getattr(get_algorithm(name), "summary", "")) for name in algorithm_names()]
    width = max(len(name) for name, _ in rows)
    data = [{"name": name, "summary": summary} for name, summary in rows]
    show(options.json, data, lambda: "\n".join(f"{name:<{width}}  {text}" for name, text in rows))
    return 0
