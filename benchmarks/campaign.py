"""Hostile and malformed inputs against every command: what fails in its own words, hangs, or lies.

    python benchmarks/campaign.py                       # 600 cases of all kinds, a table
    python benchmarks/campaign.py --all                 # every case there is, about 1700
    python benchmarks/campaign.py --kinds runs trust --verbose
    python benchmarks/campaign.py --limit 40 --seed 7   # a sample, kinds in turn
    python benchmarks/campaign.py --list

A case is a command on an input that was made to be wrong: options, settings files, study files, run
folders, checkpoints, folders of strangers, archives, environments, disks. It is right if it ends in
time with the exit code that is expected (0, or 2 with a message), without a Python traceback, if a
command that only reads changes no file, if no file outside of the run changes, and if nothing that
a folder names is executed. The same seed gives the same cases. The exit code is 1 if some case is
wrong. Linux only: every case is a process of its own, forked.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from hostile import (
    checkpoints,
    disks,
    environments,
    options,
    run_folders,
    settings_files,
    studies,
    trust,
)
from hostile.bases import make_bases
from hostile.case import FAULTS, Case, Maker, Outcome
from hostile.runner import TIMEOUT, run

KINDS: dict[str, Maker] = {
    options.KIND: options.cases,
    settings_files.KIND: settings_files.cases,
    studies.STUDIES: studies.study_cases,
    run_folders.KIND: run_folders.cases,
    checkpoints.KIND: checkpoints.cases,
    trust.KIND: trust.cases,
    studies.ARCHIVES: studies.archive_cases,
    environments.KIND: environments.cases,
    disks.KIND: disks.cases,
}

LIMIT = 600  # what a core does in ten minutes


def all_cases(seed: int, kinds: Iterable[str] = KINDS) -> list[Case]:
    """Return the cases of some kinds; each kind has a generator of its own."""
    found = [case for kind in kinds for case in KINDS[kind](Random(f"{seed} {kind}"))]
    names = [(case.kind, case.name) for case in found]
    assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
    return found


def sample(cases: Sequence[Case], limit: int, seed: int) -> list[Case]:
    """Return some of the cases, the kinds in turn, in the order of the whole."""
    by_kind: dict[str, list[Case]] = {}
    for case in cases:
        by_kind.setdefault(case.kind, []).append(case)
    for kind, members in by_kind.items():
        Random(f"{seed} sample {kind}").shuffle(members)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_kind.values()))
    chosen = set(map(id, itertools.islice(filter(None, turns), limit)))
    return [case for case in cases if id(case) in chosen]


@contextlib.contextmanager
def prepared(cases: Iterable[Case]) -> Iterator[Path]:
    """Train what the cases damage, into a folder that ends with the campaign."""
    # No `TemporaryDirectory`: the process of a case would remove it at its own end.
    folder = Path(tempfile.mkdtemp(prefix="cspo-campaign-")).resolve()
    try:
        make_bases(folder / "bases", {base for case in cases for base in case.bases.values()})
        yield folder / "bases"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_cases(cases: Iterable[Case], bases: Path, timeout: float = TIMEOUT) -> Iterator[Outcome]:
    """Run cases one after another, each in a new folder."""
    for number, case in enumerate(cases):
        space = bases.parent / f"case-{number}"
        try:
            yield run(case, bases, space, timeout)
        finally:
            shutil.rmtree(space, ignore_errors=True)


def table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a row per kind, and one of all."""
    kinds = list(dict.fromkeys(outcome.case.kind for outcome in outcomes))
    groups = {kind: [one for one in outcomes if one.case.kind == kind] for kind in kinds}
    return [_row(kind, members) for kind, members in {**groups, "all": list(outcomes)}.items()]


def _row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = {title: sum(key in one.faults for one in outcomes) for key, title in FAULTS.items()}
    tried = [one for one in outcomes if not one.skipped]
    return {
        "kind": kind,
        "cases": len(tried),
        "right": sum(not one.faults for one in tried),
        **counts,
        "skipped": len(outcomes) - len(tried),
        "seconds": round(sum(one.seconds for one in outcomes), 1),
    }


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|---" * len(rows[0]) + "|"]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "\n".join(lines)


def describe(outcome: Outcome) -> str:
    """Return a case that went wrong: what was typed, what was seen, the last line printed."""
    case = outcome.case
    typed = "a call" if case.call is not None else "cspo " + " ".join(map(_short, case.words))
    seen = "; ".join(f"{FAULTS[key]}: {what}" for key, what in outcome.faults.items())
    text = f"{case.kind}: {case.name}\n    {typed}\n    {seen}\n    last line: {outcome.last_line}"
    return text.encode("utf-8", errors="backslashreplace").decode()


def _short(word: str) -> str:
    """Return a word as one would type it, without the middle of a long one."""
    cut = word if len(word) <= 60 else f"{word[:50]}... ({len(word)} characters)"
    return cut if re.fullmatch(r"[\w./:=,-]+", cut, re.ASCII) else repr(cut)


def as_data(outcome: Outcome) -> dict[str, Any]:
    """Return a case and what it did as JSON-compatible data."""
    case = outcome.case
    return {
        "kind": case.kind,
        "name": case.name,
        "words": [_short(word) for word in case.words],
        "faults": outcome.faults,
        "last_line": outcome.last_line,
        "seconds": round(outcome.seconds, 2),
        "skipped": outcome.skipped,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the cases that are drawn")
    parser.add_argument(
        "--limit", type=int, default=LIMIT, help=f"cases to try, kinds in turn; {LIMIT} by default"
    )
    parser.add_argument("--all", action="store_true", help="try every case there is")
    parser.add_argument("--only", help="try the cases whose names contain this")
    parser.add_argument("--list", action="store_true", help="print the cases, try none")
    parser.add_argument("--verbose", action="store_true", help="show every case that is wrong")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds that a case has")
    asked = parser.parse_args(arguments)
    cases = all_cases(asked.seed, asked.kinds)
    cases = [case for case in cases if (asked.only or "") in case.name]
    if not asked.all:
        cases = sample(cases, asked.limit, asked.seed)
    if asked.list:
        print("\n".join(f"{case.kind}: {case.name}" for case in cases))
        return 0
    started, outcomes = time.monotonic(), []
    with prepared(cases) as bases:
        for outcome in run_cases(cases, bases, asked.timeout):
            outcomes.append(outcome)
            if asked.verbose and outcome.faults:
                print(describe(outcome), file=sys.stderr, flush=True)
    rows, seconds = table(outcomes), round(time.monotonic() - started, 1)
    if asked.json:
        every = [as_data(outcome) for outcome in outcomes]
        print(json.dumps({"seed": asked.seed, "seconds": seconds, "rows": rows, "cases": every}))
    else:
        print(f"{as_markdown(rows)}\n\n{len(outcomes)} cases, seed {asked.seed}, {seconds} s")
    return int(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
