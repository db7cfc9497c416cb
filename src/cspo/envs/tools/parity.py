"""Replays recorded Safety-Gymnasium transitions on the native tasks and reports the error.

A recording is a `.npz` file named after its task. Transitions hold one `step` per row: the
simulator state before it, the action, and everything the step gave. Resets hold what
`reset(seed=s)` gave for some seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from cspo.envs.navigation.replay import NavigationReplay
from cspo.envs.replay import Field, Recording, Replay, Shapes
from cspo.envs.tasks import FACTS, NAMESPACE
from cspo.envs.velocity.replay import VelocityReplay
from cspo.errors import CspoError, nearest

# No single row may be off by more than this many tolerances, unless its field says otherwise.
OUTLIER = 10.0
# What a robot's own, wider tolerances must not hide: whether 99 % of the rows are within this.
STRICT = {"steps": 1e-5, "resets": 1e-9}
NAMED_ROWS = 20  # rows out of tolerance that a report names


REPLAYS = {"velocity": VelocityReplay, "navigation": NavigationReplay}


@dataclass(frozen=True)
class FieldReport:
    """How far one quantity is off: quantiles of a row's largest error, and how many rows differ."""

    name: str
    rows: int
    p50: float | None  # None where not a number
    p95: float | None
    p99: float | None
    max: float | None
    mismatches: int  # rows beyond the tolerance, or not equal where there is none
    tolerance: float | None  # None: rows must be equal
    ok: bool
    strict: bool  # 99 % of the rows within `STRICT`, or all equal: whatever the tolerance
    p95_limit: float | None = None  # what is asked of the quantiles beside the tolerance;
    max_limit: float | None = None  # None: nothing
    off: tuple[int, ...] = ()  # the first of those rows


@dataclass(frozen=True)
class ParityReport:
    """The comparison of one file."""

    file: str
    task: str
    kind: str  # "steps" or "resets"
    rows: int
    mujoco: str  # version
    fields: tuple[FieldReport, ...]

    @property
    def ok(self) -> bool:
        """Whether every field is within its tolerance."""
        return all(field.ok for field in self.fields)

    @property
    def strict(self) -> bool:
        """Whether every field is equal, or within `STRICT` in 99 % of the rows."""
        return all(field.strict for field in self.fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        fields = [asdict(field) for field in self.fields]
        verdicts = {"ok": self.ok, "strict": self.strict, "strict_bound": STRICT[self.kind]}
        return {**asdict(self), "fields": fields, **verdicts}


def replay(path: str | Path, task: str | None = None) -> ParityReport:
    """Replay every transition of a file, each from its recorded state, and compare what comes out.

    Args:
        path: A `.npz` file of transitions; a file of resets is passed on to `replay_resets`.
        task: The task, if the file is not named after it.

    Raises:
        CspoError: The file cannot be read, or is not a recording of a task that can be replayed.
    """
    arrays = _load(path)
    if "action" not in arrays and "seed" in arrays:
        return replay_resets(path, task)
    name, player = _player(path, task)
    fields = _present(player.step_fields(), arrays)
    shapes = player.shapes()
    before = {key for key in shapes if key.endswith("_before")}
    required = {"action", *(before - player.optional())}
    rows = _check_shapes(path, arrays, shapes, required | {field.key for field in fields})
    outcomes = (player.step(arrays, row) for row in range(rows))
    reports = _compare(fields, outcomes, arrays, STRICT["steps"])
    return ParityReport(str(path), name, "steps", rows, mujoco.__version__, tuple(reports))


def replay_resets(path: str | Path, task: str | None = None) -> ParityReport:
    """Reset with every seed of a file, and once without one, and compare observations and states.

    Args:
        path: A `.npz` file of resets.
        task: The task, if the file is not named after it.

    Raises:
        CspoError: The file cannot be read, or is not a recording of a task that can be replayed.
    """
    arrays = _load(path)
    name, player = _player(path, task)
    fields = _present(player.reset_fields(), arrays)
    shapes = {"seed": (), **player.shapes()}
    rows = _check_shapes(path, arrays, shapes, {"seed", *(field.key for field in fields)})
    if not (arrays["seed"] >= 0).all():
        raise CspoError(f"{path}: seeds must be whole numbers from 0 on.")
    outcomes = (player.reset(int(seed)) for seed in arrays["seed"])
    reports = _compare(fields, outcomes, arrays, STRICT["resets"])
    after = "obs_next_unseeded_reset"
    if after in arrays:
        _check_shapes(path, {after: arrays[after]}, {after: shapes["obs"]}, {after})
        field = Field(after, after, tolerance=fields[0].tolerance)
        again = [{after: player.reset(None)["obs"]}]
        reports += _compare([field], again, arrays, STRICT["resets"])
    return ParityReport(str(path), name, "resets", rows, mujoco.__version__, tuple(reports))


def _present(fields: Sequence[Field], arrays: Recording) -> list[Field]:
    """Leave out optional fields that a file does not have."""
    return [field for field in fields if field.key in arrays or not field.optional]


def _compare(
    fields: Sequence[Field],
    outcomes: Iterable[Mapping[str, Any]],
    arrays: Recording,
    strict: float,
) -> list[FieldReport]:
    """Compare our values with the recorded ones, row by row."""
    errors: list[list[float]] = [[] for _ in fields]
    for row, ours in enumerate(outcomes):
        for field, kept in zip(fields, errors, strict=True):
            kept.append(_row_error(ours[field.key], arrays[field.key][row], field.columns))
    return [_field_report(field, kept, strict) for field, kept in zip(fields, errors, strict=True)]


def format_report(report: ParityReport) -> str:
    """Return a report as a plain table."""
    head = f"{report.task}: {report.rows} {report.kind} replayed with mujoco {report.mujoco}"
    bound = f"{STRICT[report.kind]:.0e}"
    columns = f"{'tolerance of p95, p99, max':<28}{bound:<7}"
    lines = [head, f"  {'field':<24}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}  {columns}"]
    for field in report.fields:
        quantiles = "".join(_cell(value) for value in (field.p50, field.p95, field.p99, field.max))
        strict = "yes" if field.strict else "NO"
        verdict = "ok" if field.ok else f"FAILED ({field.mismatches} of {field.rows} rows differ)"
        if field.off:
            more = ["..."] if field.mismatches > len(field.off) else []
            verdict += f", off: {', '.join([*map(str, field.off), *more])}"
        lines.append(f"  {field.name:<24}{quantiles}  {_limits(field):<28}{strict:<7}{verdict}")
    beyond = ", ".join(field.name for field in report.fields if not field.strict)
    narrow = f"beyond {bound} in more than 1 %: {beyond}" if beyond else f"99 % within {bound}"
    verdict = "equal within the tolerances" if report.ok else "NOT equal"
    return "\n".join([*lines, f"  {verdict}; {narrow}"])


def _limits(field: FieldReport) -> str:
    """Return what is asked of a field, for the 95 % and 99 % quantiles and the maximum."""
    if field.tolerance is None:
        return "equal"
    limits = field.p95_limit, field.tolerance, field.max_limit
    return ", ".join("-" if limit is None else f"{limit:.0e}" for limit in limits)


def _cell(value: float | None) -> str:
    return f"{'nan' if value is None else format(value, '.1e') if value else '0':>9}"


def _load(path: str | Path) -> Recording:
    """Read the numeric arrays of a file; text arrays (names) are left out."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("not an npz file")
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError as fault:
        raise CspoError(f"there is no file {path}.") from fault
    except Exception as fault:  # zipfile, zlib, NumPy and the operating system each raise their own
        raise CspoError(f"{path} is not a .npz file of plain arrays.") from fault
    numeric = {key: array for key, array in arrays.items() if array.dtype.kind in "biuf"}
    return {key: array.astype(np.float64) for key, array in numeric.items()}


def _player(path: str | Path, task: str | None) -> tuple[str, Replay]:
    """Return the task a file is about and what replays it."""
    if task is None:
        stem = Path(path).stem
        name = next((one for one in FACTS if stem.startswith(one)), stem)
    else:
        name = task.removeprefix(NAMESPACE)
    if name in FACTS:
        return name, REPLAYS[FACTS[name].row.family](name)
    hint = nearest(name, FACTS)
    if task is None:
        rename = "rename it to TASK.npz or pass task=..."
        raise CspoError(f"{path} is not named after a task; {rename}: {hint}")
    raise CspoError(f"there is no task {name!r}: {hint}")


def _check_shapes(path: str | Path, arrays: Recording, shapes: Shapes, required: set[str]) -> int:
    """Return the number of rows, if every array that will be used has the right shape."""
    missing = sorted(required - arrays.keys())
    if missing:
        raise CspoError(f"{path} lacks the arrays {', '.join(missing)}.")
    rows = int(np.atleast_1d(arrays[min(required)]).shape[0])
    if rows == 0:
        raise CspoError(f"{path} has no rows.")
    for key, shape in shapes.items():
        if key in arrays and arrays[key].shape != (rows, *shape):
            found, needed = arrays[key].shape, (rows, *shape)
            raise CspoError(f"{path}: {key} has shape {found}, and {needed} is needed.")
    return rows


def _row_error(ours: Any, theirs: Any, columns: slice) -> float:
    ours, theirs = np.atleast_1d(np.asarray(ours, np.float64)), np.atleast_1d(theirs)
    return float(np.max(np.abs(ours[columns] - theirs[columns])))


def _field_report(field: Field, errors: Sequence[float], strict: float) -> FieldReport:
    values = np.asarray(errors)
    quantiles = [float(value) for value in np.quantile(values, (0.5, 0.95, 0.99, 1.0))]
    off = np.flatnonzero(~(values <= (field.tolerance or 0.0)))
    limits = (0.0, 0.0, 0.0)
    if field.tolerance is None:
        within = len(off) == 0
        ok = len(off) <= field.unequal_share * len(values)
    else:
        largest = OUTLIER * field.tolerance if field.largest is None else field.largest
        limits = field.typical, field.tolerance, largest
        within = quantiles[2] <= strict
        ok = all(value <= limit for value, limit in zip(quantiles[1:], limits, strict=True))
    p50, p95, p99, most = (value if math.isfinite(value) else None for value in quantiles)
    asked = [limit if math.isfinite(limit) else None for limit in limits]
    return FieldReport(
        field.name,
        rows=len(values),
        p50=p50,
        p95=p95,
        p99=p99,
        max=most,
        mismatches=len(off),
        tolerance=field.tolerance,
        ok=bool(ok),
        strict=bool(within),
        p95_limit=asked[0],
        max_limit=asked[2],
        off=tuple(off[:NAMED_ROWS].tolist()),
    )
