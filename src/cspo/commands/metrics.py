"""`cspo metrics`: how runs recover from violations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cspo.commands.options import parse
from cspo.errors import CspoError
from cspo.runs.plain import without_nan

if TYPE_CHECKING:
    from cspo.lab.metrics import Recovery, RecoverySummary, SplitPart, Spread

NOTES = """\
VF    share of violating epochs after the first {skip:g} % of training; \
#V their number, of so many epochs
TTS   epochs until a violated limit is kept again, mean over violations
RP    return when it is kept again, over return when the violation began
worst greatest cost of those epochs minus the limit; below zero if the limit was never violated
open  violations left out of TTS and RP: under way when the window began + still open at the end
RP?   violations left out of RP: they began at a return of zero or less, or one that is not known"""


@dataclass(frozen=True)
class MetricsOptions:
    """Measure how runs recover from violations.

    Violation frequency (VF), time to safety (TTS), reward preservation (RP).
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Run folders, or CSV files with one row per epoch; those of OmniSafe are recognised."""
    limit: float | None = None
    """Cost limit, for files without a column for it; replaces it otherwise."""
    skip: float = 0.3
    """Share of training left out at the start."""
    return_column: str | None = None
    """Column with the return, if it has another name."""
    cost_column: str | None = None
    """Column with the cost; of several constraints the name without _0, _1, ..."""
    limit_column: str | None = None
    """Column with the cost limit."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class _Measured:
    """One run, and what its settings or its file's name say about it."""

    name: str
    task: str | None
    algo: str | None
    variant: str
    seed: int | None
    kind: str  # equal for runs that are summarised together, "" if nothing is known
    recovery: Recovery

    @property
    def identity(self) -> dict[str, str | None]:
        """What it shares with runs of other seeds."""
        return {"task": self.task, "algo": self.algo, "variant": self.variant}


Group = list[_Measured]


def metrics(arguments: Sequence[str]) -> int:
    """Run `cspo metrics`."""
    options = parse(MetricsOptions, "metrics", arguments)
    if not options.runs:
        raise CspoError("Name the runs to measure, as in `cspo metrics runs/RUN`.")
    measured = [_measure(path, options) for path in options.runs]
    groups = _groups(measured)
    if options.json:
        print(json.dumps(_as_json(measured, groups, options.skip), allow_nan=False))
    else:
        _print_table(measured, groups, options.skip)
    return 0


def _measure(path: Path, options: MetricsOptions) -> _Measured:
    from cspo.config import read_settings
    from cspo.lab.metrics import read_series, recovery
    from cspo.lab.report.runs import fingerprint, parts_of, variant_of

    roles = ("return", "cost", "limit")
    given = {role: getattr(options, f"{role}_column") for role in roles}
    names = {role: name for role, name in given.items() if name is not None}
    found = recovery(read_series(path, limit=options.limit, names=names), options.skip)
    folder = path if path.is_dir() else path.parent
    if (folder / "config.toml").is_file():
        settings = read_settings(folder / "config.toml")
        task, algo, seed = (settings.get(name) for name in ("task", "algo", "seed"))
        task, algo = (None if name is None else str(name) for name in (task, algo))
        number = seed if isinstance(seed, int) else None
        variant = "" if number is None else variant_of(folder, settings)
        return _Measured(str(path), task, algo, variant, number, fingerprint(settings), found)
    if (parts := parts_of(path.stem)) is not None:  # such as TASK-ALGO-seed0.csv
        return _Measured(str(path), *parts, kind=" ".join(parts[:3]), recovery=found)
    return _Measured(str(path), None, None, "", None, "", found)


def _groups(measured: Sequence[_Measured]) -> list[Group]:
    """Return the runs that differ in their seed only, as far as is known."""
    groups: dict[str, Group] = {}
    for run in measured:
        groups.setdefault(run.kind, []).append(run)
    return [runs for kind, runs in groups.items() if kind and len(runs) > 1]


def _as_json(measured: Sequence[_Measured], groups: Sequence[Group], skip: float) -> dict[str, Any]:
    rows, summaries = [], []
    for runs in groups:
        names, summary = [run.name for run in runs], dataclasses.asdict(_summary(runs))
        summaries.append({**runs[0].identity, "runs": names, **summary, **_split_as_json(runs)})
    for run in measured:
        plain = dataclasses.asdict(run.recovery)
        for item, violation in zip(plain["violations"], run.recovery.violations, strict=True):
            item |= {"tts": violation.tts, "rp": violation.rp}
        identity = {"run": run.name, **run.identity, "seed": run.seed}
        rows.append({**identity, **plain, **_split_as_json([run])})
    result: dict[str, Any] = without_nan({"skip": skip, "runs": rows, "summaries": summaries})
    return result


def _split_as_json(runs: Group) -> dict[str, Any]:
    parts = _split(runs)
    return {"sensitivity_split": {name: dataclasses.asdict(part) for name, part in parts.items()}}


def _summary(runs: Group) -> RecoverySummary:
    from cspo.lab.metrics import summarise

    return summarise([run.recovery for run in runs])


def _split(runs: Group) -> dict[str, SplitPart]:
    from cspo.lab.metrics import sensitivity_split

    return sensitivity_split([run.recovery for run in runs])


def _print_table(measured: Sequence[_Measured], groups: Sequence[Group], skip: float) -> None:
    from rich.table import Table

    from cspo.runs.terminal import Terminal

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold")
    for name in ("VF", "#V", "TTS", "RP", "worst", "violations", "open", "RP?"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in measured:
        table.add_row(run.name, *_cells([run]))
    if groups:
        table.add_row()
    for runs in groups:
        table.add_row(f"{_label(runs)}, {len(runs)} runs", *_cells(runs))
    console = Terminal(highlight=False, markup=False)
    if not console.is_terminal:  # a file or a pipe has no width: nothing is folded
        console = Terminal(highlight=False, markup=False, width=10_000)
    console.print(table)
    print("\n" + NOTES.format(skip=100 * skip))
    if groups:
        said = "mean ± standard deviation over them; (2/3) where two of three have a value"
        print(f"Under the runs: {said}.")
    _print_splits(
        [*([run] for run in measured if not any(run in runs for runs in groups)), *groups]
    )
    unknown = sum(run.recovery.unknown_epochs for run in measured)
    if unknown:
        print(f"{unknown} epochs have no known cost and are left out.")


def _label(runs: Group) -> str:
    first = runs[0]
    return first.name if len(runs) == 1 else " ".join(filter(None, first.identity.values()))


def _print_splits(groups: Sequence[Group]) -> None:
    """Print TTS and RP where the constraint is flat and steep, of runs that log its gradient."""
    lines = []
    for runs in groups:
        parts = _split(runs)
        if all(part.violations for part in parts.values()):
            shown = (
                f"{name} TTS {_fixed(part.tts, 2)}, RP {_fixed(part.rp, 3)} "
                f"({part.violations} violations)"
                for name, part in parts.items()
            )
            lines.append(f"  {_label(runs)}: {'; '.join(shown)}")
    if lines:
        groups_named = "with the lowest (flat) and the highest (steep) 30 %"
        print(f"\nViolations {groups_named} of the constraint's gradient norm:")
        print("\n".join(lines))


def _cells(runs: Group) -> list[str]:
    """Return the row of one run, or of several."""
    found = _summary(runs)
    first, stop = runs[0].recovery.window
    count = f"{runs[0].recovery.violating_epochs} of {stop - first}"
    return [
        _spread(found.vf, 3, found.seeds),
        count if len(runs) == 1 else _spread(found.violating_epochs, 1, found.seeds),
        _spread(found.tts, 2, found.seeds),
        _spread(found.rp, 3, found.seeds),
        _spread(found.worst, 1, found.seeds),
        str(found.violations),
        f"{found.open_at_start} + {found.open_at_end}",
        str(found.rp_undefined),
    ]


def _fixed(value: float, digits: int) -> str:
    from cspo.lab.report.formats import UNDEFINED, fixed

    return fixed(value, digits).replace(UNDEFINED, "-")


def _spread(value: Spread, digits: int, seeds: int) -> str:
    from cspo.lab.report.formats import UNDEFINED, with_std

    return with_std(value, digits, seeds).replace(UNDEFINED, "-")
