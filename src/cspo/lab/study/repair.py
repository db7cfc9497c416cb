"""What a crash can leave in the folder of a run, and what is done about it before the run goes on.

Runs are exact: started again with the same settings and the same seed, a run becomes what it was.
So whatever cannot be repaired is put aside and trained again, and nothing is ever patched up
approximately.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import IO, Any

from cspo.config import FREE, TrainConfig, general_fields, read_settings, to_dict
from cspo.errors import CspoError
from cspo.runs.checkpoint import (
    DamagedCheckpoint,
    has_all_rows,
    list_checkpoints,
    load,
    load_newest,
)
from cspo.runs.claim import RunInUse, free_folder, hold
from cspo.runs.files import own_folder, read_bytes, refuse_link, remove_partial_files, writes_to
from cspo.runs.folder import write_config
from cspo.runs.plain import read_json_table
from cspo.runs.progress import ProgressFile
from cspo.runs.schema import check_state

PATIENCE = 20.0  # seconds to wait for a process of a study that was killed to be gone as well


def is_finished(epochs: int, folder: Path) -> bool:
    """Whether a run of so many epochs is complete: summary, rows of progress.csv, last checkpoint.

    One whose checkpoints were all removed, or can none of them be read, still counts: its results
    are complete.
    """
    summary = read_json_table(folder / "summary.json")
    if not summary.get("finished"):
        return False
    try:
        rows = ProgressFile(folder / "progress.csv").complete_rows()
    except CspoError:  # a folder in its place, say
        return False
    wanted = rows if ended_early(folder) else epochs
    if not summary.get("epochs") == rows == wanted:
        return False
    checkpoints = list_checkpoints(folder / "checkpoints")
    return all(map(_is_readable, checkpoints[-1:])) or not any(map(_is_readable, checkpoints))


def ended_early(folder: Path) -> bool:
    """Whether a rule, `stop_when`, has ended a run before its last epoch."""
    return read_json_table(folder / "summary.json").get("ended_by") == "stop_when"


def _is_readable(path: Path) -> bool:
    try:
        load(path)
    except DamagedCheckpoint:
        return False
    return True


def difference(config: TrainConfig, folder: Path) -> str | None:
    """Return in words the first setting that differs between a run and the one in a folder."""
    there, whole = _settings_in(folder, config)
    here = _flat(to_dict(config))
    # Of a file that was cut short the end is lost, and its last value may be a part of itself.
    for name in [*there, *here] if whole else list(there)[:-1]:
        ours, theirs = here.get(name), there.get(name)
        if ours != theirs and name not in FREE:
            was, is_now = ("not set" if x is None else repr(x) for x in (theirs, ours))
            return f"{name} is {is_now} in the study, and was {was} in {folder}"
    return None


def _settings_in(folder: Path, config: TrainConfig) -> tuple[dict[str, Any], bool]:
    """Return what config.toml of a run says, and whether it says everything."""
    try:
        there = _flat(read_settings(folder / "config.toml"))
        ends = read_bytes(folder / "config.toml").endswith(b"\n")
    except (CspoError, OSError):
        return {}, False  # not there, or cut short
    # A run's settings are written in full, but for those that are None.
    names = [item.name for _, item in general_fields() if item.default is not None]
    own = dataclasses.fields(config.algorithm)
    names += [f"algorithm.{item.name}" for item in own if item.default is not None]
    return there, ends and all(name in there for name in names)


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the algorithm's own settings beside the general ones, as `algorithm.name`."""
    own = settings.pop("algorithm", None)
    table = own if isinstance(own, dict) else {}
    return settings | {f"algorithm.{key}": value for key, value in table.items()}


def prepare(config: TrainConfig, folder: Path) -> list[str]:
    """Make a run fit to be continued; return a sentence for everything that was wrong with it."""
    with writes_to(f"run folder {folder}"):
        refuse_link(folder)
    if not folder.is_dir():
        return []
    with _held(folder):
        remove_partial_files(folder)
        checkpoints, progress = folder / "checkpoints", ProgressFile(folder / "progress.csv")
        if not progress.path.exists() and not list_checkpoints(checkpoints):
            # It has done nothing yet: its settings are written again when it starts.
            (folder / "config.toml").unlink(missing_ok=True)
            return []
        notes = []
        if not _settings_in(folder, config)[1]:
            what = "was cut short" if (folder / "config.toml").exists() else "was missing"
            notes.append(f"config.toml {what}: it is written again from the study.")
            write_config(folder, config)
        rows = progress.complete_rows()
        if progress.path.exists() and not read_bytes(progress.path).endswith(b"\n"):
            notes.append("progress.csv ended in the middle of a row: that row is written again.")
        summary = folder / "summary.json"
        if summary.exists() and not read_json_table(summary):
            summary.unlink()
            notes.append("summary.json could not be read: it is written again.")
        if reason := _beyond_repair(config, checkpoints, rows, notes):
            with writes_to(f"study folder {folder.parent.parent}"):
                damaged = own_folder(folder.parent.with_name("damaged"))
            aside = free_folder(damaged, folder.name)
            aside.rmdir()  # only the name was wanted
            folder.rename(aside)
            notes.append(f"{reason}: the run starts anew. What was there is in {aside}.")
    return notes


def _held(folder: Path) -> IO[str]:
    """Hold a run; one that the process of a killed study still holds is free in a moment."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return hold(folder)
        except RunInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _beyond_repair(config: TrainConfig, folder: Path, rows: int, notes: list[str]) -> str | None:
    """Return why a run cannot be continued, or None; damaged checkpoints are added to the notes."""
    try:
        state, damaged = load_newest(folder, rows, lambda found: check_state(found, config))
    except CspoError:
        return "no checkpoint can be read"
    notes += damaged
    done = 0 if state is None else int(state["epoch"])
    if state is None and rows > config.checkpoint_every:
        return f"there is no checkpoint of the {rows} epochs done"
    if state is not None and done > rows:
        held = f"progress.csv holds {rows} of the {done} epochs done"
        if not has_all_rows(state):
            return f"{held}, and no checkpoint is as old"
        notes.append(f"{held}: the others are built again from the checkpoint.")
    return None
