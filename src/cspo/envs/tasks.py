"""The table of native tasks, read from the facts of the families: no simulator is needed."""

from __future__ import annotations

from collections.abc import Mapping

from cspo.envs.facts import TaskRow
from cspo.envs.navigation.facts import TASKS as NAVIGATION
from cspo.envs.navigation.facts import NavigationTask
from cspo.envs.velocity.facts import TASKS as VELOCITY
from cspo.envs.velocity.facts import VelocityTask
from cspo.errors import CspoError, nearest

NAMESPACE = "cspo/"  # in front of a native task's name in Gymnasium's registry
# In the order of the benchmark.
FACTS: dict[str, VelocityTask | NavigationTask] = {**VELOCITY, **NAVIGATION}


def add_tasks(tasks: Mapping[str, NavigationTask]) -> None:
    """Add tasks of a user's own to the table."""
    NAVIGATION.update(tasks)
    FACTS.update(tasks)


def native_tasks() -> list[TaskRow]:
    """Return the tasks simulated by this package, in the order of the benchmark."""
    return [facts.row for facts in FACTS.values()]


def native_name(name: str) -> str | None:
    """Return the native task that `name` means, with or without "cspo/", or None."""
    short = name.removeprefix(NAMESPACE)
    return short if short in FACTS else None


def task_row(name: str) -> TaskRow:
    """Return what there is to know about a native task, or name the nearest."""
    short = native_name(name)
    if short is None:
        raise CspoError(f"there is no native task {name!r}: {nearest(name, FACTS)}")
    return FACTS[short].row


def is_unknown(name: str) -> bool:
    """Whether a name looks like that of a native task, and is none that is known."""
    foreign = ":" in name or "/" in name or not name.startswith("Safety")
    return native_name(name) is None and not foreign


def check_task_name(name: str) -> None:
    """Refuse a misspelt native task; other names are left to Gymnasium."""
    if is_unknown(name):
        raise CspoError(f"there is no task {name!r}: {nearest(name, FACTS)}")
