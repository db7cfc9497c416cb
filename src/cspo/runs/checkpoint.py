"""Everything a run needs to go on, in one file, written atomically, readable without pickle.

A checkpoint is a safetensors file: arrays as tensors, everything else as JSON in the header, and a
digest of both. A file that was cut short or altered is recognised, and the one before it is used
instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from cspo.errors import CspoError
from cspo.runs.files import write_bytes
from cspo.state import digest, join, split

FORMAT = "cspo-checkpoint-1"
SUFFIX = ".safetensors"


class DamagedCheckpoint(CspoError):
    """A checkpoint that cannot be trusted."""


def save(folder: Path, epoch: int, state: dict[str, Any], keep: int = 2) -> Path:
    """Write the state after `epoch` and remove all but the newest `keep` checkpoints."""
    plain, arrays = split(state)
    text = json.dumps(plain)
    metadata = {"format": FORMAT, "state": text, "digest": digest(arrays, text)}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"epoch-{epoch:06d}{SUFFIX}"
    write_bytes(path, safetensors.numpy.save(arrays, metadata))
    for old in list_checkpoints(folder)[:-keep]:
        old.unlink()
    return path


def load(path: Path) -> dict[str, Any]:
    """Return the state in a checkpoint file, or raise `DamagedCheckpoint`."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError) as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error})") from error
    text = metadata.get("state", "")
    if metadata.get("format") != FORMAT:
        raise DamagedCheckpoint(f"{path.name} is not a checkpoint of this format ({FORMAT})")
    if metadata.get("digest") != digest(arrays, text):
        raise DamagedCheckpoint(f"{path.name} was altered: its digest does not match")
    state: dict[str, Any] = join(json.loads(text), arrays)
    return state


def load_newest(folder: Path, rows: int | None = None) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the newest readable state, and a sentence for every checkpoint passed over.

    Args:
        folder: Where the checkpoints are.
        rows: Epochs that progress.csv still describes; a checkpoint of a later epoch is used only
            if there is no other, so that the rows in between are written again.

    Returns:
        The state, or None if there is no checkpoint at all.
    """
    notes, later = [], None
    for path in reversed(list_checkpoints(folder)):
        try:
            state = load(path)
        except DamagedCheckpoint as error:
            notes.append(f"Checkpoint {error}; using the one before it.")
            continue
        if rows is None or int(state["epoch"]) <= rows:
            return state, notes
        later = later or state
    if later is None and notes:
        fault = f"No checkpoint in {folder} can be read"
        raise CspoError(f"{fault}: the run cannot continue, start it again.")
    return later, notes


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted(folder.glob(f"epoch-*{SUFFIX}"))
