"""A checkpoint gives back exactly what was saved, holds no pickle, and recognises damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from run_helpers import SMALL, TASK

import cspo
from cspo.errors import CspoError
from cspo.runs import checkpoint, files
from cspo.runs.checkpoint import DamagedCheckpoint
from cspo.state import digest

STATE = {
    "epoch": 3,
    "big": 2**100,
    "nothing": None,
    "nan": float("nan"),
    "list": [1, {"a": 2.5}],
    "nested": {
        "array": np.arange(6.0).reshape(2, 3),
        "tensor": np.array([1.5, -0.0], np.float32),
        "empty": np.zeros((0, 2)),
    },
    "strided": np.arange(12.0).reshape(3, 4).T,
}


def test_round_trip_keeps_values_types_and_bits(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 3, STATE)
    state = checkpoint.load(path)
    assert (state["epoch"], state["big"], state["nothing"], state["list"]) == (
        3,
        2**100,
        None,
        [1, {"a": 2.5}],
    )
    assert np.isnan(state["nan"])
    assert all(isinstance(array, np.ndarray) for array in state["nested"].values())
    assert state["nested"]["tensor"].tobytes() == STATE["nested"]["tensor"].tobytes()
    assert state["nested"]["empty"].shape == (0, 2)
    np.testing.assert_array_equal(state["strided"], STATE["strided"])


def test_a_checkpoint_of_version_0_1_is_read_as_arrays(tmp_path: Path) -> None:
    """There, what was a tensor is called one."""
    weights = np.array([1.5, -0.0], np.float32)
    text = json.dumps({"epoch": 3, "actor": {"tensor": "/actor"}})
    metadata = {"format": checkpoint.FORMAT, "state": text}
    metadata["digest"] = digest({"/actor": weights}, text)
    path = tmp_path / "epoch-000003.safetensors"
    safetensors.numpy.save_file({"/actor": weights}, path, metadata)
    state = checkpoint.load(path)
    assert state["epoch"] == 3 and state["actor"].tobytes() == weights.tobytes()


def test_a_runs_checkpoint_is_json_and_numbers(tmp_path: Path) -> None:
    trainer = cspo.Trainer(cspo.make_config(TASK, **SMALL), run_dir=tmp_path / "run")
    next(iter(trainer))
    (path,) = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])  # safetensors: a JSON header, then raw numbers
    json.loads(header.pop("__metadata__")["state"])
    assert {entry["dtype"] for entry in header.values()} <= {"F32", "F64", "I64", "BOOL"}
    assert 8 + size + max(entry["data_offsets"][1] for entry in header.values()) == len(content)
    trainer.run.close()
    trainer.env.close()


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        checkpoint.save(tmp_path, epoch, {**STATE, "epoch": epoch}, keep=2)
    assert [path.stem for path in checkpoint.list_checkpoints(tmp_path)] == [
        "epoch-000003",
        "epoch-000004",
    ]
    state, notes = checkpoint.load_newest(tmp_path)
    assert state is not None and state["epoch"] == 4 and notes == []
    state, _ = checkpoint.load_newest(tmp_path, rows=3)
    assert state is not None and state["epoch"] == 3


def test_every_single_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"epoch": 1, "x": np.arange(3.0)})
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            state = checkpoint.load(path)
        except DamagedCheckpoint:
            continue
        # A changed name of the array, or a byte of padding, leaves nothing else to be noticed.
        assert state["epoch"] == 1 and np.array_equal(state["x"], np.arange(3.0)), position


def test_foreign_and_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "epoch-000001.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)
    with pytest.raises(DamagedCheckpoint, match="not a checkpoint of this format"):
        checkpoint.load(path)
    with pytest.raises(CspoError, match=r"No checkpoint in .* can be read"):
        checkpoint.load_newest(tmp_path)
    assert checkpoint.load_newest(tmp_path / "nowhere") == (None, [])


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"
    files.write_text(path, "old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    files.remove_partial_files(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]
