"""Measure every native task beside bare physics, and write the table into benchmarks/README.md.

    python benchmarks/env_speeds.py                # what is not measured yet, task after task
    python benchmarks/env_speeds.py Racecar Goal   # tasks with these parts in their name, again
    python benchmarks/env_speeds.py --table        # measure nothing, write the table again

Each task is measured in a process of its own by `cspo bench env`, and its numbers are kept in
benchmarks/env_speeds.jsonl at once: a measurement that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from cspo.envs import native_tasks
from cspo.runs.files import write_text

HERE = Path(__file__).parent
NUMBERS = HERE / "env_speeds.jsonl"
PAGE = HERE / "README.md"
START, END = "<!-- speeds of all tasks -->\n", "<!-- end -->\n"  # what the table stands between
# Steps per second of Safety-Gymnasium 1.0.0 by task, one environment, where that was measured.
ORIGINAL = HERE / "env_speeds_original.json"
WANTED = 0.85  # of bare physics
# Ends by saying how much memory the process had at most, in kilobytes: its own mark, because Linux
# counts what the process that started it had into `ru_maxrss`.
MEASURE = """import sys
from pathlib import Path
from cspo.cli import main
code = main(sys.argv[1:])
marks = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(marks["VmHWM"].split()[0], file=sys.stderr)
sys.exit(code)"""
COLUMNS = "task | steps/s | bare loop | share | one reset | memory | Safety-Gymnasium, steps/s"


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description="speeds of the native tasks")
    parser.add_argument("parts", nargs="*", help="only tasks with all of these in their name")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--seconds", type=float, default=5.0, help="per task")
    parser.add_argument("--num-envs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    known = read_numbers(NUMBERS)
    for name in [] if arguments.table else chosen(arguments.parts, set(known)):
        size = ["--num-envs", str(arguments.num_envs), "--threads", str(arguments.threads)]
        known[name] = measured(name, [*size, "--seconds", str(arguments.seconds)])
        write_text(NUMBERS, "".join(json.dumps(row) + "\n" for row in known.values()))
        print(f"{name:<30} {known[name]['steps_per_s']:>10,.0f} {known[name]['ratio']:>6.2f}")
    if known:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        write_text(PAGE, "".join([before, START, table(known), END, after]))
        print(f"{len(known)} of {len(native_tasks())} tasks are in the table of {PAGE.name}")


def chosen(parts: list[str], done: set[str]) -> list[str]:
    """Return the tasks with some parts in their name, or without any those not measured yet."""
    names = [row.name for row in native_tasks()]
    if not parts:
        return [name for name in names if name not in done]
    return [name for name in names if all(part.lower() in name.lower() for part in parts)]


def measured(name: str, size: list[str]) -> dict[str, Any]:
    """Return what `cspo bench env` says of a task, in a process of its own, and its memory."""
    words = [sys.executable, "-c", MEASURE, "bench", "env", name, *size, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr.strip()}")
    row: dict[str, Any] = json.loads(done.stdout)
    return row | {"peak_mb": int(done.stderr.split()[-1]) / 1000}


def read_numbers(path: Path) -> dict[str, dict[str, Any]]:
    """Return the measurements so far, by task."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["task"]: row for row in rows}


def table(known: dict[str, dict[str, Any]]) -> str:
    """Return the table of what was measured, and which tasks fall short."""
    original = json.loads(ORIGINAL.read_text(encoding="utf-8")) if ORIGINAL.exists() else {}
    rows = [known[row.name] for row in native_tasks() if row.name in known]
    sizes = sorted({f"{row['num_envs']} environments, {row['threads']} threads" for row in rows})
    lines = ["", f"| {COLUMNS} |", "|---" + 6 * "|---:" + "|"]
    for row in rows:
        theirs = original.get(row["task"])
        cells = [row["task"], _round(row["steps_per_s"]), _round(row["raw_steps_per_s"])]
        cells += [f"{row['ratio']:.2f}", f"{row['reset_ms']:.2f} ms", f"{row['peak_mb']:.0f} MB"]
        lines.append(f"| {' | '.join([*cells, '' if theirs is None else _round(theirs)])} |")
    slow = ", ".join(row["task"] for row in rows if row["ratio"] < WANTED) or "none"
    measured_now = f"{len(rows)} of {len(native_tasks())} tasks, {'; '.join(sizes)}"
    return "\n".join([*lines, "", f"{measured_now}. Share below {WANTED}: {slow}.", ""])


def _round(speed: float) -> str:
    """Return a speed to three digits, in groups of three."""
    text = f"{float(f'{speed:.3g}'):,.0f}"
    return re.sub(",", " ", text)


if __name__ == "__main__":
    main()
