"""Everything a run needs to go on, in one file, written atomically, readable without pickle.

A checkpoint is a safetensors file: arrays as tensors, everything else as JSON in the header, and a
digest of both. A file that was cut short or altered is recognised, and the one before it is used
instead. A digest can be computed anew, so that whoever uses a state says what it must be like:
`schema` does, for the state of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from cspo.errors import CspoError
from cspo.runs.files import name_aside, open_file, own_folder, write_bytes
from cspo.runs.plain import parse_json
from cspo.state import Arrays, digest, join, split

FORMAT = "cspo-checkpoint-1"
SUFFIX = ".safetensors"
NAME = re.compile(rf"epoch-(\d+){re.escape(SUFFIX)}", re.ASCII)
State = dict[str, Any]


class DamagedCheckpoint(CspoError):
    """A checkpoint that cannot be trusted."""

    told = "is damaged"


class AnotherVersion(DamagedCheckpoint):
    """A checkpoint that is whole, and whose algorithm remembered other things than it does now."""

    told = "was written by another version of the algorithm"


def save(folder: Path, epoch: int, state: State, keep: int = 2) -> Path:
    """Write the state after `epoch` and remove all but the newest `keep` checkpoints up to it.

    Later ones, which a run that continues from an earlier one may have, are written again in time.
    """
    plain, arrays = split(state)
    text = json.dumps(plain)
    metadata = {"format": FORMAT, "state": text, "digest": digest(arrays, text)}
    own_folder(folder)
    path = path_of(folder, epoch)
    if path.is_dir() and not path.is_symlink():  # which a file cannot replace
        path.rename(name_aside(path))
    write_bytes(path, _in_order(safetensors.numpy.save(arrays, metadata)))
    written = [old for old in list_checkpoints(folder) if epoch_of(old) <= epoch and old.is_file()]
    for old in written[:-keep]:
        old.unlink()
    return path


def _in_order(content: bytes) -> bytes:
    """Return a safetensors file with its header sorted, so that equal states are equal files."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of eight bytes
    return b"".join([len(text).to_bytes(8, "little"), text, content[8 + size :]])


def load(path: Path, accept: Callable[[State], None] | None = None) -> State:
    """Return the state in a checkpoint file, or raise `DamagedCheckpoint`.

    Args:
        path: The file.
        accept: Called with the state; raises `DamagedCheckpoint` if it is not what it should be.
    """
    try:
        state = _read(path)
        if accept is not None:
            accept(state)
    except DamagedCheckpoint as fault:
        raise DamagedCheckpoint(f"{path.name} {fault.told}: {fault}") from fault
    return state


def _read(path: Path) -> State:
    metadata, arrays = _read_file(path)
    text = metadata.get("state", "")
    if metadata.get("format") != FORMAT:
        raise DamagedCheckpoint(f"it is not a checkpoint of this format ({FORMAT})")
    if metadata.get("digest") != digest(arrays, text):
        raise DamagedCheckpoint("it was altered, its digest does not match")
    try:
        state = join(parse_json(text), arrays)
    except ValueError as error:
        raise DamagedCheckpoint(str(error)) from error
    epoch = state.get("epoch") if isinstance(state, dict) else None
    if type(epoch) is not int or epoch < 0:
        raise DamagedCheckpoint("it does not say of which epoch it is")
    if NAME.fullmatch(path.name) and epoch != epoch_of(path):
        raise DamagedCheckpoint(f"it is of epoch {epoch}")
    return dict(state)


def _read_file(path: Path) -> tuple[dict[str, str], Arrays]:
    try:
        open_file(path).close()  # refuses what is not a file, and what may not be read
        with safetensors.safe_open(path, framework="numpy") as file:
            names = file.keys()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise DamagedCheckpoint(f"it cannot be read ({error.strerror or error})") from error
    except Exception as error:  # of many kinds, where a header says what NumPy does not know
        raise DamagedCheckpoint(f"it cannot be read ({error})") from error


def load_newest(
    folder: Path, rows: int | None = None, accept: Callable[[State], None] | None = None
) -> tuple[State | None, list[str]]:
    """Return the newest readable state, and a sentence for every checkpoint passed over.

    Args:
        folder: Where the checkpoints are.
        rows: Epochs that progress.csv still describes; a checkpoint of a later epoch that does not
            have the rows itself is used only if there is no other, so that the rows in between are
            written again.
        accept: As of `load`; called for the state that is returned, and for none after it.

    Returns:
        The state, or None if there is no checkpoint at all.
    """
    damaged: dict[Path, str] = {}
    paths = list_checkpoints(folder)[::-1]

    def accept_rows(state: State) -> None:
        if rows is not None and state["epoch"] > rows and not has_all_rows(state):
            raise _TooNew
        if accept is not None:
            accept(state)

    for wanted in (accept_rows, accept):
        for path in paths:
            if path not in damaged:
                try:
                    return load(path, wanted), _notes(damaged)
                except DamagedCheckpoint as fault:
                    damaged[path] = str(fault)
                except _TooNew:
                    continue
    if damaged:
        newest = f"No checkpoint in {folder} can be read: {next(iter(damaged.values()))}."
        raise CspoError(f"{newest}\nThe run cannot continue; start it again in another folder.")
    return None, []


class _TooNew(Exception):
    """A checkpoint of an epoch whose row is not in progress.csv."""


def _notes(damaged: dict[Path, str]) -> list[str]:
    return [f"Checkpoint {fault}; using the one before it." for fault in damaged.values()]


def has_all_rows(state: State) -> bool:
    """Whether a checkpoint has the row of every epoch in it."""
    progress = state.get("progress")
    rows = progress.get("rows") if isinstance(progress, dict) else None
    return isinstance(rows, np.ndarray) and rows.ndim == 2 and len(rows) == state["epoch"]


def path_of(folder: Path, epoch: int) -> Path:
    """Return the checkpoint that is written after so many epochs."""
    return folder / f"epoch-{epoch:06d}{SUFFIX}"


def epoch_of(path: Path) -> int:
    """Return the epochs after which a checkpoint was written, by its name."""
    return int(path.name.removeprefix("epoch-").removesuffix(SUFFIX))


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    found = [path for path in folder.glob(f"epoch-*{SUFFIX}") if NAME.fullmatch(path.name)]
    return sorted(found, key=epoch_of)
