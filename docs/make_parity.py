"""Writes the table of the whole suite in docs/parity.md, from recordings of it.

python docs/make_parity.py ../shared/reference/traces/suite
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cspo.envs.tasks import FACTS
from cspo.envs.tools.parity import FieldReport, ParityReport, replay
from cspo.runs.files import write_text

PAGE = Path(__file__).parent / "parity.md"
BEGIN, END = "<!-- suite: written by make_parity.py -->", "<!-- end of suite -->"
HEAD = (
    "| task | unequal flags | reward p99 / max | observation p95 / p99 / max | position p99 / max "
    "| resets max | tolerance of the observation, p95 / p99 | 1e-5 |",
    "|---|---|---|---|---|---|---|---|",
)


def main(folder: Path) -> None:
    """Replay every recording of a folder and write the table."""
    lines = [line(name, folder) for name in FACTS if (folder / f"{name}.npz").exists()]
    table = "\n".join([BEGIN, "", *HEAD, *lines, "", END])
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    write_text(PAGE, pattern.sub(lambda _: table, page))


def line(name: str, folder: Path) -> str:
    """Return the row of one task."""
    steps, resets = replay(folder / f"{name}.npz"), replay(folder / "resets" / f"{name}.npz")
    fields = {field.name: field for field in steps.fields}
    reward, seen, position = (fields[key] for key in ("reward", "obs", "qpos_after"))
    cells = [
        name,
        str(unequal(steps) + unequal(resets)),
        errors(reward, "p99", "max"),
        errors(seen, "p95", "p99", "max"),
        errors(position, "p99", "max"),
        short(max(field.max or 0.0 for field in resets.fields)),
        errors(seen, "p95_limit", "tolerance"),
        beyond(steps),
    ]
    print(" | ".join(cells), flush=True)
    return f"| {' | '.join(cells)} |"


def beyond(report: ParityReport) -> str:
    """Return "yes", or which of the quantities are beyond 1e-5 in more than 1 % of the rows."""
    words = {"obs": "observation", "qpos_after": "position"}
    names = [field.name for field in report.fields if not field.strict]
    return "no: " + ", ".join(words.get(name, f"`{name}`") for name in names) if names else "yes"


def unequal(report: ParityReport) -> int:
    """Return how many rows differ in what must be equal: flags, costs, goals, random numbers."""
    return sum(field.mismatches for field in report.fields if field.tolerance is None)


def errors(field: FieldReport, *quantiles: str) -> str:
    """Return some quantiles of an error."""
    return " / ".join(short(getattr(field, quantile)) for quantile in quantiles)


def short(value: float | None) -> str:
    """Return a number in as few characters as possible."""
    if value is None:
        return "-"
    return "0" if not value else re.sub("e([-+])0", r"e\1", f"{value:.0e}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
