"""What a crash can leave in the folder of a run, and what is done about it before the run goes on.

Runs are exact: started again with the same settings and the same seed, a run becomes what it was.
So whatever cannot be repaired is put aside and trained again, and nothing is ever patched up
approximately.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cspo.config import FREE, TrainConfig, general_fields, read_settings, to_dict
from cspo.errors import CspoError
from cspo.runs.checkpoint import (
    DamagedCheckpoint,
    list_checkpoints,
    load,
    load_newest,
)
from cspo.runs.files import remove_partial_files
from cspo.runs.folder import RunInUse, hold, write_config
from cspo.runs.progress import ProgressFile

PATIENCE = 20.0  # seconds to wait for a process of a study that was killed to be gone as well


def is_finished(config: TrainConfig, folder: Path) -> bool:
    """Whether everything of a run is there: its summary, every row of progress.csv, and its last checkpoint.

    A run whose checkpoints were all removed, or can none of them be read, still counts: its results
    are complete.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        finished = bool(summary["finished"]) and summary["epochs"] == config.epochs
    except (OSError, ValueError, TypeError, KeyError):
        return False
    if not finished or ProgressFile(folder / "progress.csv").complete_rows() != config.epochs:
        return False
    checkpoints = list_checkpoints(folder / "checkpoints")
    return (
        not checkpoints or _is_readable(checkpoints[-1]) or not any(map(_is_readable, checkpoints))
    )


def _is_readable(path: Path) -> bool:
    try:
        load(path)
    except DamagedCheckpoint:
        return False
    return True


def difference(config: TrainConfig, folder: Path) -> str | None:
    """Return the first setting in which the run in a folder is not the one it should be, in words."""
    try:
        there = read_settings(folder / "config.toml")
    except CspoError:
        return None  # not there, or cut short: `prepare` writes it again
    here = to_dict(config)
    cut = _is_cut(config, folder, there)
    last = list(_flat(there))[
        -1:
    ]  # of a file that was cut short, the last value may be a part of itself
    ours, theirs = _flat(here), _flat(there)
    for name in [*theirs, *(name for name in ours if name not in theirs)]:
        if name.split(".")[0] in FREE or (cut and (name not in theirs or name in last)):
            continue
        if ours.get(name) != theirs.get(name):
            return f"{name} is {_said(ours.get(name))} in the study, and was {_said(theirs.get(name))} in {folder}"
    return None


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    own = _own(settings)
    general = {key: value for key, value in settings.items() if key != "algorithm"}
    return general | {f"algorithm.{key}": value for key, value in own.items()}


def _own(settings: dict[str, Any]) -> dict[str, Any]:
    own = settings.get("algorithm")
    return own if isinstance(own, dict) else {}


def _said(value: Any) -> str:
    return "not set" if value is None else repr(value)


def _is_cut(config: TrainConfig, folder: Path, there: dict[str, Any]) -> bool:
    """Whether a config.toml that can be read lacks its end: a run's settings are written in full, but for None."""
    if not (folder / "config.toml").read_text(encoding="utf-8").endswith("\n"):
        return True
    own = _own(there)
    fields = [(item, there) for _, item in general_fields()]
    fields += [(item, own) for item in dataclasses.fields(config.algorithm)]
    return any(item.name not in table and item.default is not None for item, table in fields)


def prepare(config: TrainConfig, folder: Path) -> list[str]:
    """Make the run in a folder fit to be continued, and return a sentence for everything that was wrong with it."""
    if not folder.is_dir():
        return []
    with _held(folder):
        remove_partial_files(folder)
        checkpoints, progress = folder / "checkpoints", ProgressFile(folder / "progress.csv")
        if not progress.path.exists() and not list_checkpoints(checkpoints):
            return _without_past(folder)
        notes = _mend_config(config, folder)
        rows = progress.complete_rows()
        if progress.path.exists() and not progress.path.read_bytes().endswith(b"\n"):
            notes.append("progress.csv ended in the middle of a row: that row is written again.")
        notes += _unreadable_summary(folder)
        reason = _beyond_repair(config, checkpoints, rows, notes)
        if reason is not None:
            aside = _put_aside(folder)
            notes.append(f"{reason}: the run starts anew. What was there is in {aside}.")
    return notes


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a run; one that the process of a killed study still holds is free in a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            lock = hold(folder)
            break
        except RunInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.close()


def _without_past(folder: Path) -> list[str]:
    """Forget the settings of a run that has done nothing yet: they are written again when it starts."""
    (folder / "config.toml").unlink(missing_ok=True)
    return []


def _mend_config(config: TrainConfig, folder: Path) -> list[str]:
    file = folder / "config.toml"
    try:
        if file.exists() and not _is_cut(config, folder, read_settings(file)):
            return []
    except CspoError:
        pass
    what = "was cut short" if file.exists() else "was missing"
    write_config(folder, config)
    return [f"config.toml {what}: it is written again from the study."]


def _unreadable_summary(folder: Path) -> list[str]:
    file = folder / "summary.json"
    try:
        if file.exists():
            json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        file.unlink()
        return ["summary.json could not be read: it is written again."]
    return []


def _beyond_repair(
    config: TrainConfig, checkpoints: Path, rows: int, notes: list[str]
) -> str | None:
    """Return why a run cannot be continued, or None; checkpoints that are passed over are added to the notes."""
    try:
        state, damaged = load_newest(checkpoints, rows)
    except CspoError:
        return "no checkpoint can be read"
    notes += damaged
    if state is None:
        return (
            f"there is no checkpoint of the {rows} epochs done"
            if rows > config.checkpoint_every
            else None
        )
    if int(state["epoch"]) > rows:
        return f"progress.csv holds {rows} of the {int(state['epoch'])} epochs done, and no checkpoint is as old"
    return None


def _put_aside(folder: Path) -> Path:
    root = folder.parent.with_name("damaged")
    root.mkdir(exist_ok=True)
    target, number = root / folder.name, 2
    while target.exists():
        target, number = root / f"{folder.name}-{number}", number + 1
    folder.rename(target)
    return target
