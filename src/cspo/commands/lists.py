"""`cspo tasks` and `cspo algos`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import FileOption, parse, show
from cspo.config import use_plugin
from cspo.envs.tasks import native_tasks


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks this package simulates itself; any Gymnasium id can be trained on as well."""

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
    show(options.json, [row._asdict() for row in native_tasks()], _task_table)
    return 0


def _task_table() -> str:
    rows = native_tasks()
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
