"""The paper's settings per algorithm and task family, as TOML files."""

from __future__ import annotations

import re
import sys
from importlib import resources
from typing import Any

from cspo.envs.tasks import native_name, native_tasks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def preset(algo: str, task: str, form: Any = None) -> dict[str, Any]:
    """Return the shipped settings of an algorithm for the family of a task, or nothing.

    A form of the algorithm may have a table of its own.
    """
    if re.fullmatch(r"[\w-]+", algo) is None:  # names no file here, and must not name one elsewhere
        return {}
    file = resources.files(__name__) / f"{algo.replace('-', '_')}.toml"
    if not file.is_file():
        return {}
    families = tomllib.loads(file.read_text(encoding="utf-8"))
    return dict(families.get(str(form), families).get(task_family(task), {}))


def task_family(task: str) -> str:
    """Return "velocity", "navigation" or "other"."""
    name = native_name(task)
    return next((row.family for row in native_tasks() if row.name == name), "other")
