"""What studies make of faults: a table of fault by engine, what a user sees, what the end is.

    python benchmarks/study_faults.py [--engine local ray] [--only WORD ...] [--json]

Every fault happens to a real study of four small runs, `cspo study run`, once it is under way; on
Ray, a cluster of two nodes on this machine. Afterwards the study is continued, if it needs to be,
by the same command, and all its runs are compared with those of an undisturbed study, bit for bit.
Faults of storage are faults of the file system behind file://; `tests/test_study_faults.py` has
those that need every single call to be disturbed, slow storage and hostile zip archives among them.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kills import Place
from small_cluster import SmallCluster, small_cluster
from small_studies import (
    EPOCHS,
    SETTINGS,
    all_differences,
    kill,
    output_of,
    print_table,
    rows,
    start,
    wait_until,
    write_study,
)

BAD = ("KILLED", "Traceback")  # what no user may see
MIDDLE = 1.5 * EPOCHS  # epochs of all runs together after which a fault happens
# A module that Python imports first: a clock that is put forward and back by files beside it.
CLOCK = """
import os, time
_real, _here = time.time, os.path.dirname(__file__)
def _jumping():
    for name, jump in (("back", -86_400.0), ("forward", 86_400.0)):
        if os.path.exists(os.path.join(_here, name)):
            return _real() + jump
    return _real()
time.time = _jumping
"""


@dataclass
class Outcome:
    """What became of a study."""

    fault: str
    engine: str
    seen: str  # what the user saw
    exit_codes: list[int]
    identical: bool
    remark: str = ""


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code of a process, and what it said that is worth a look."""
    output, _ = process.communicate(timeout=600)
    kinds = ("failed", "repaired", "cspo: error", "Traceback")
    said = [line for line in output.splitlines() if line.startswith(kinds)]
    return process.returncode, " ".join((said or output.splitlines()[-2:-1] or [""])[0].split())


def under_way(place: Place) -> Any:
    """Start a study and return its process when it is in the middle."""
    process, out = place.start(), place.at / "out"
    wait_until(lambda: process.poll() is not None or rows(out) >= MIDDLE, "epochs are done")
    wait_until(lambda: process.poll() is not None or place.trainers(), "a run goes on")
    return process


def worker_killed(place: Place) -> list[tuple[int, str]]:
    process = under_way(place)
    kill(place.trainers()[0][0])
    return [ended(process)]


def parent_killed(place: Place) -> list[tuple[int, str]]:
    process = under_way(place)
    kill(process.pid)
    return [ended(process), ended(place.start())]


def node_lost(place: Place) -> list[tuple[int, str]]:
    process = under_way(place)
    assert place.cluster is not None
    place.cluster.kill_node_of(place.trainers()[0][0])
    outcome = ended(process)
    place.cluster.fill()
    return [outcome]


def storage_fails_once(place: Place) -> list[tuple[int, str]]:
    process = under_way(place)
    with _gone(place.at / "out"):
        time.sleep(3.0)
    outcome = ended(process)
    return [outcome] if outcome[0] == 0 else [outcome, ended(place.start())]


def storage_fails_for_good(place: Place) -> list[tuple[int, str]]:
    process = under_way(place)
    with _gone(place.at / "out"):
        outcome = ended(process)
    return [outcome, ended(place.start())]


@contextlib.contextmanager
def _gone(folder: Path) -> Any:
    """A place that nothing can be read from or written to: there is a file instead."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("")
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


def clock_jumps(place: Place) -> list[tuple[int, str]]:
    clock = place.at / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK)
    place.also = str(clock)
    process = under_way(place)
    (clock / "forward").touch()
    time.sleep(1.0)
    (clock / "back").touch()
    return [ended(process)]


def two_schedulers(place: Place) -> list[tuple[int, str]]:
    first = place.start()
    second = place.start()
    both = [ended(second), ended(first)]
    return sorted(both, reverse=True)


def archive_damaged(place: Place) -> list[tuple[int, str]]:
    def cut(archive: Path) -> None:
        file = next(archive.glob("runs/*/progress.csv.gz"))
        file.write_bytes(file.read_bytes()[:-20])

    return _from_archive(place, cut)


def archive_bomb(place: Place) -> list[tuple[int, str]]:
    def bomb(archive: Path) -> None:
        file = next(archive.glob("runs/*/progress.csv.gz"))
        with gzip.open(file, "wb", compresslevel=9) as packed:
            for _ in range(3 * 2**10):
                packed.write(b"0," * 2**19)

    return _from_archive(place, bomb)


def archive_pipe(place: Place) -> list[tuple[int, str]]:
    def pipe(archive: Path) -> None:
        file = next(archive.glob("runs/*/summary.json"))
        file.unlink()
        os.mkfifo(file)

    return _from_archive(place, pipe)


def archive_link(place: Place) -> list[tuple[int, str]]:
    def link(archive: Path) -> None:
        file = next(archive.glob("runs/*/summary.json"))
        file.unlink()
        file.symlink_to("/dev/zero")

    return _from_archive(place, link)


def _from_archive(place: Place, harm: Callable[[Path], None]) -> list[tuple[int, str]]:
    """Begin with an archive that is not right, then without it."""
    archive = place.at / "archive"
    output_of(start("study", "archive", place.at.parent / "reference", "--out", archive))
    harm(archive)
    limited = ["--archive", archive]
    process = place.start(*limited)
    try:
        outcome = ended_within(process, 60.0)
    finally:
        kill(process.pid)
    return [outcome, ended(place.start())]


def ended_within(process: subprocess.Popen[str], seconds: float) -> tuple[int, str]:
    """Return how a process ended that may hang, or take all memory."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            used = int(status.split("VmRSS:")[1].split()[0]) / 2**10
            if used > 1500 or time.monotonic() > deadline:
                kill(process.pid)
                process.communicate()
                return -9, f"KILLED: {'memory' if used > 1500 else 'hangs'}"
        time.sleep(0.01)
    return ended(process)


ANY = {
    "worker killed": worker_killed,
    "parent killed": parent_killed,
    "clock jumps a day forward, then two back": clock_jumps,
    "two schedulers on one folder": two_schedulers,
}
LOCAL = ANY | {
    "archive damaged": archive_damaged,
    "archive: 6 MB that unpack to 3 GB": archive_bomb,
    "archive: a pipe for a file": archive_pipe,
    "archive: a link to a device": archive_link,
}
RAY = ANY | {
    "node lost": node_lost,
    "storage fails for 3 s": storage_fails_once,
    "storage fails for good": storage_fails_for_good,
}
STORED = ("storage fails for 3 s", "storage fails for good")


def meet(
    fault: str, engine: str, cluster: SmallCluster | None, file: Path, folder: Path
) -> Outcome:
    """Let a study meet a fault."""
    kind = (LOCAL if cluster is None else RAY)[fault]
    place = Place(folder / f"{engine}-{fault.replace(' ', '-')}"[:60], file, cluster)
    place.stored = fault in STORED
    place.at.mkdir()
    seen: list[tuple[int, str]] = []
    try:
        seen = kind(place)
        different = all_differences(place.result(), folder / "reference")
        remark = "; ".join(different)[:200]
    except (RuntimeError, OSError, ValueError, AssertionError, subprocess.TimeoutExpired) as error:
        remark = " ".join(f"{type(error).__name__} {error}".split())[:300]
    said = next((text for _, text in seen if text), "").replace(str(place.at), "DIR")
    said = said.replace("|", "/")
    return Outcome(fault, engine, said, [code for code, _ in seen], not remark, remark)


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults that studies meet.")
    parser.add_argument("--engine", nargs="+", default=["local", "ray"], choices=["local", "ray"])
    parser.add_argument("--only", nargs="+", default=[""], help="faults with one of these words")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder, outcomes = Path(tempfile.mkdtemp(prefix="cspo-faults-")), list[Outcome]()
    file = write_study(folder / "study.toml", settings=SETTINGS | {"env_options": {"pause": 0.001}})
    output_of(start("study", "run", file, "--out", folder / "reference"))
    for engine in options.engine:
        with small_cluster() if engine == "ray" else contextlib.nullcontext() as cluster:
            for fault in LOCAL if cluster is None else RAY:
                if any(word in fault for word in options.only):
                    outcomes.append(meet(fault, engine, cluster, file, folder))
                    print(outcomes[-1], file=sys.stderr, flush=True)
    shutil.rmtree(folder)
    if options.json:
        print(json.dumps([asdict(one) for one in outcomes]))
    else:
        lines = [
            (o.fault, o.engine, o.seen, ", then ".join(map(str, o.exit_codes)), o.identical)
            for o in outcomes
        ]
        header = ["fault", "engine", "what the user sees", "exit codes", "bit-identical"]
        print_table(header, lines)
    bad = [one for one in outcomes if not one.identical or one.seen.startswith(BAD)]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
