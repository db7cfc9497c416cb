"""Full disks, disks that cannot be written, outputs that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from hostile.bases import EPOCHS, SHORT, STUDY, TASK
from hostile.case import EITHER, FINE, REFUSED, Case
from hostile.limits import (
    few_files,
    output_closed,
    output_to,
    read_only,
    small_disk,
    small_files,
    without_override,
)

KIND = "disks"
LONGER = ("--total-steps", str(200 * (EPOCHS + 1)))
WRITING: dict[str, tuple[str, ...]] = {
    "train": ("train", TASK, *SHORT, "--run-dir", "disk/new"),
    "train with events": (
        *("train", TASK, *(word for word in SHORT if word != "--no-tensorboard")),
        *("--run-dir", "disk/new"),
    ),
    "resume": ("train", "--resume", "disk/run", *LONGER, "--quiet"),
    "resume with events": ("train", "--resume", "disk/events", *LONGER, "--quiet"),
    "resume done": ("train", "--resume", "disk/run", "--quiet"),
    "plot": ("plot", "disk/run"),
    "report": ("report", "disk/run"),
    "archive": ("study", "archive", "disk/study", "--out", "disk/out"),
    "toy": ("toy", "--out", "disk/toy", "--no-gif"),
    "study run": ("study", "run", "study.toml", "--out", "disk/new", "--jobs", "1"),
}
READING: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "disk/run", "--episodes", "1"),
    "metrics": ("metrics", "disk/run"),
    "status": ("study", "status", "disk/study"),
    "report elsewhere": ("report", "disk/run", "--out", "out"),
}
PRINTING: dict[str, tuple[str, ...]] = {
    "tasks": ("tasks",),
    "tasks --json": ("tasks", "--json"),
    "algos": ("algos",),
    "help": ("--help",),
    "help of train": ("train", "--help"),
    "version": ("--version",),
    "metrics": ("metrics", "disk/run"),
    "eval": ("eval", "disk/run", "--episodes", "1"),
    "eval --json": ("eval", "disk/run", "--episodes", "1", "--json"),
    "status": ("study", "status", "disk/study"),
    "study list": ("study", "list"),
    "plot": ("plot", "disk/run"),
    "train": ("train", TASK, *SHORT[:-1], "--run-dir", "new"),
    "doctor --help": ("doctor", "--help"),
}
FOLDERS = {"disk/run": "run", "disk/study": "study", "disk/events": "events"}


def cases(random: Random) -> Iterator[Case]:
    """Yield commands on disks of every kind."""
    for size in (0, 100, 3000, random.randrange(4000, 14_000)):
        for command, words in WRITING.items():
            if command == "study run" and size != 3000:
                continue
            done = command == "resume done" and size  # it may have nothing left to write
            small = command == "archive" and size >= 3000  # as may be all that it writes
            fine = done or small or command in ("study run", "plot", "toy")
            expected = EITHER if fine else REFUSED
            expected = (0, 1, 2) if command == "study run" else expected
            yield Case(
                KIND,
                f"files of at most {size} bytes, {command}",
                words,
                FOLDERS,
                _study,
                expected if size < 4000 else EITHER,
                confine=small_files(size),
                verify=_rows if "resume" in command else None,
            )
    for command, words in WRITING.items():
        yield Case(
            KIND,
            f"read-only disk, {command}",
            words,
            FOLDERS,
            _study,
            EITHER if command == "resume done" else REFUSED,
            confine=read_only("disk"),
        )
        yield Case(
            KIND,
            f"folder without permission, {command}",
            words,
            FOLDERS,
            _locked,
            EITHER if command in ("resume done", "plot") else REFUSED,
            confine=without_override,
        )
        spare = 40 if command == "study run" else random.choice([4, 12, 24])
        yield Case(
            KIND,
            f"disk with {spare} kB left, {command}",
            words,
            FOLDERS,
            _study,
            (0, 1, 2),
            confine=small_disk("disk", spare),
        )
    for command, words in READING.items():
        yield Case(
            KIND,
            f"read-only disk, {command}",
            words,
            FOLDERS,
            None,
            FINE,
            reads=True,
            writes=("out",),
            confine=read_only("disk"),
        )
        yield Case(
            KIND,
            f"folder without permission, {command}",
            words,
            FOLDERS,
            _locked,
            FINE,
            reads=True,
            writes=("out",),
            confine=without_override,
        )
    for command, words in PRINTING.items():
        for name, confine in {
            "output to a full disk": output_to("/dev/full"),
            "output that nobody reads": output_closed,
        }.items():
            yield Case(
                KIND,
                f"{name}, {command}",
                words,
                FOLDERS,
                expected=FINE if "nobody" in name else EITHER,
                confine=confine,
                process=command in ("tasks", "help", "eval"),
            )
    for command in ("train with events", "resume", "report", "study run"):
        yield Case(
            KIND,
            f"twelve open files, {command}",
            WRITING[command],
            FOLDERS,
            _study,
            (0, 1, 2),
            confine=few_files(12),
        )


def _study(space: Path) -> None:
    (space / "study.toml").write_text(STUDY, encoding="utf-8")


def _locked(space: Path) -> None:
    """Let nothing be created or renamed in the folders."""
    _study(space)
    folders = [path for path in (space / "disk").rglob("*") if path.is_dir()]
    for folder in (*folders, space / "disk"):
        folder.chmod(0o555)


def _rows(space: Path, output: str) -> str | None:
    """Every epoch that was done is still in progress.csv, or in a file beside it."""
    for name in ("run", "events"):
        files = (space / "disk" / name).glob("*progress*")
        text = b"\n".join(path.read_bytes() for path in files)
        begun = {line.split(b",")[0] for line in text.splitlines()}
        if lost := [epoch for epoch in range(EPOCHS) if str(epoch).encode() not in begun]:
            return f"rows of epochs {lost} of {name} are in no file"
    return None
