"""One run as arrays: return, cost and limit per epoch, from a run folder or from any CSV file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cspo.config import read_settings
from cspo.errors import CspoError, nearest
from cspo.runs.plain import read_json_table
from cspo.runs.progress import constraint_columns, progress_file, read_columns
from cspo.types import FloatArray

RULE = "stop_when"  # what ended a run before its last epoch, in summary.json
ROLES = ("return", "cost", "limit", "steps")
# Column names by role: ours first, then what other libraries write.
KNOWN = {
    "return": ("return", "Metrics/EpRet"),
    "cost": ("cost", "Metrics/EpCost"),
    "limit": ("cost_limit", "limit"),
    "steps": ("steps", "TotalEnvSteps"),
}


@dataclass(frozen=True)
class Series:
    """One run, epoch by epoch; n epochs, K constraints."""

    name: str  # what it is called in tables
    steps: FloatArray  # (n,) environment steps so far; nan where the file does not say
    returns: FloatArray  # (n,)
    cost: FloatArray  # (n, K)
    limit: FloatArray  # (n, K)
    columns: dict[str, FloatArray]  # every column of the file that holds numbers, (n,)
    planned_epochs: int  # length of the whole run where known (config.toml), else n

    def __len__(self) -> int:
        """Return the number of epochs."""
        return len(self.returns)

    def limit_moves(self, constraint: int | None = None) -> bool:
        """Whether a limit, that of `constraint` or any, differs from epoch to epoch."""
        limits = self.limit if constraint is None else self.limit[:, constraint]
        return bool((limits != limits[0]).any()) and not bool(np.isnan(limits).any())

    @property
    def violation(self) -> FloatArray:
        """g_k (n,): the greatest cost minus limit over constraints; nan where a cost is unknown."""
        return np.asarray(np.max(self.cost - self.limit, axis=1), dtype=np.float64)


def read_series(
    path: Path | str, *, limit: float | None = None, names: Mapping[str, str] | None = None
) -> Series:
    """Read a run folder, or a CSV file with one row per epoch.

    Args:
        path: A run folder, or a CSV file, also compressed (.gz). The columns of `cspo` and of
            OmniSafe are recognised.
        limit: The cost limit of every constraint, for a file that has no such column, or to ask
            about another one.
        names: Column names for "return", "cost", "limit" or "steps", where they are others.
    """
    path = Path(path)
    file = progress_file(path) if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        hint = f" Name the runs in it: {path / 'runs'}/*" if (path / "runs").is_dir() else ""
        raise CspoError(f"{path} holds no run: there is no {file}.{hint}")
    names = dict(names or {})
    if unknown := set(names) - set(ROLES):
        name = min(unknown)
        raise CspoError(f"There is no role {name!r} for a column: {nearest(name, ROLES)}")
    needed = {*names.values(), *(name for known in KNOWN.values() for name in known)}
    columns = read_columns(file, needed, foreign=not _is_ours(file))
    rows = len(next(iter(columns.values())))
    returns = _find(columns, "return", names, file)
    cost = _find(columns, "cost", names, file)
    steps = _find(columns, "steps", names, file) or [np.full(rows, math.nan)]
    return Series(
        name=path.name if path.is_dir() else path.name.removesuffix(".gz").removesuffix(".csv"),
        steps=steps[0],
        returns=returns[0],
        cost=np.stack(cost, axis=1),
        limit=np.stack(_limits(columns, len(cost), rows, limit, names, file), axis=1),
        columns=columns,
        planned_epochs=max(_planned_epochs(file), rows),
    )


def _planned_epochs(file: Path) -> int:
    """Return how many epochs the run of a progress.csv should have, or 0 if nothing says so.

    A run that a rule has ended should have those that it has.
    """
    if _is_ours(file) and read_json_table(file.with_name("summary.json")).get("ended_by") == RULE:
        return 0
    settings = read_settings(file.with_name("config.toml")) if _is_ours(file) else {}
    steps, per_epoch = settings.get("total_steps"), settings.get("steps_per_epoch")
    if not isinstance(steps, int) or not isinstance(per_epoch, int) or per_epoch < 1:
        return 0
    return steps // per_epoch


def _is_ours(file: Path) -> bool:
    """Whether a file is the progress.csv of a run folder."""
    return (
        file.name in ("progress.csv", "progress.csv.gz") and file.with_name("config.toml").is_file()
    )


def _find(
    columns: dict[str, FloatArray], role: str, names: Mapping[str, str], file: Path
) -> list[FloatArray]:
    """Return the columns of a role: one, or one per constraint; steps and limit may be absent."""
    for name in (names[role],) if role in names else KNOWN[role]:
        if found := constraint_columns(columns, name):
            return found
    option = f"--{role}-column"
    if role in names:
        raise CspoError(f"{file} has no column {names[role]!r}: {nearest(names[role], columns)}")
    if role in ("steps", "limit"):
        return []
    raise CspoError(
        f"{file} has no column {' or '.join(map(repr, KNOWN[role]))}. Name it with {option}."
    )


def _limits(
    columns: dict[str, FloatArray],
    count: int,
    rows: int,
    limit: float | None,
    names: Mapping[str, str],
    file: Path,
) -> list[FloatArray]:
    """Return the limit of each constraint, (n,) each."""
    if limit is not None:
        if not math.isfinite(limit):
            raise CspoError(f"--limit must be a finite number, not {limit}.")
        return [np.full(rows, float(limit))] * count
    found = _find(columns, "limit", names, file)
    if not found:
        hint = "Give the limit with --limit, such as --limit 25."
        raise CspoError(f"{file} has no column for the cost limit. {hint}")
    if len(found) == 1:
        return found * count  # one limit for all
    if len(found) != count:
        raise CspoError(f"{file} has {count} cost columns, but {len(found)} limits.")
    return found
