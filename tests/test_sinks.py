"""What `--log` names: epochs arrive whole and once, also in runs that were killed and resumed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from run_helpers import SMALL, TASK, TinyEnv, assert_same_run

import cspo
from cspo.errors import CspoError
from cspo.runs.logs import check_logs
from cspo.runs.progress import read_progress

EXAMPLES = Path(__file__).parents[1] / "examples"
EPOCHS = 6
SETTINGS = {name: value for name, value in SMALL.items() if name != "tensorboard"}
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="needs cspo[wandb]")
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs cspo[mlflow]")


@pytest.fixture(autouse=True)
def _no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")


def interrupted(folder: Path, **settings: Any) -> None:
    """Train a run in two parts; the second does epochs again that the first has logged."""
    every = {"checkpoint_every": 3}
    config = cspo.make_config(TASK, **{**SETTINGS, **settings, **every})
    with cspo.Trainer(config, run_dir=folder) as trainer:
        for report in trainer:
            if report.epoch == 4:
                break  # epochs 3 and 4 are logged, but not in a checkpoint
    with cspo.Trainer.resume(folder) as trainer:
        assert trainer.epoch == 3
        assert len(list(trainer)) == EPOCHS - 3


def as_csv(folder: Path) -> dict[str, list[float]]:
    columns = read_progress(folder / "progress.csv")
    columns.pop("steps_per_second")
    return columns


def test_json_lines_are_the_rows_of_the_csv_after_an_interruption(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", log="jsonl")
    text = (tmp_path / "run" / "progress.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert not (tmp_path / "run" / "tensorboard").exists()  # csv is written unnamed, this is not
    for name, column in as_csv(tmp_path / "run").items():
        assert [row[name] for row in rows] == column


def test_torn_lines_and_those_before_it_was_asked_for_are_made_from_the_csv(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cspo.train(TASK, run_dir=run, quiet=True, log=("jsonl",), **{**SETTINGS, "total_steps": 1200})
    file = run / "progress.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    cspo.resume(run, quiet=True, total_steps=1600)
    assert file.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:2]))
    epochs = [json.loads(line)["epoch"] for line in file.read_text().splitlines()]
    assert epochs == [0, 1, 2, 3]


def test_what_is_logged_changes_no_bit_of_a_run(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    cspo.train(TASK, run_dir=one, quiet=True, log="csv", **SETTINGS)
    cspo.train(TASK, run_dir=other, quiet=True, log=("csv", "tensorboard", "jsonl"), **SETTINGS)
    assert_same_run(one, other)


@needs_wandb
def test_wandb_gets_every_epoch_once_in_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    interrupted(run, log=("csv", "wandb"))
    rows, ids = [], set()
    for file in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        ids.add(file.stem.removeprefix("run-"))
        rows += wandb_history(file)
    assert ids == {json.loads((run / "wandb.json").read_text())["id"]}
    columns = as_csv(run)
    assert [row["_step"] for row in rows] == columns["steps"]
    assert [row["cost_limit"] for row in rows] == columns["cost_limit"]
    assert [row["return"] for row in rows] == columns["return"]


def wandb_history(file: Path) -> list[dict[str, Any]]:
    """Return the epochs in the file of an offline run."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for data in wandb_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items}
            rows.append(row | {"_step": record.history.step.num})
    return rows


def wandb_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of LevelDB's log format: blocks, in them pieces with a head of 7 bytes."""
    place, block, record = 7, 32768, b""  # the file begins with a head of its own
    while place + 7 <= len(data):
        if block - place % block < 7:
            place += block - place % block
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


@needs_mlflow
def test_mlflow_gets_every_epoch_once_in_one_run(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    run = tmp_path / "run"
    interrupted(run, log=("csv", "mlflow"))
    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    (experiment,) = (one for one in client.search_experiments() if one.name == "cspo")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == json.loads((run / "mlflow.json").read_text())["run"]
    assert found.info.status == "FINISHED" and found.data.params["algo"] == "cspo"
    columns = as_csv(run)
    for name in ("return", "cost", "cost_limit", "kl"):
        history = client.get_metric_history(found.info.run_id, name)
        assert [metric.step for metric in history] == columns["steps"]
        assert [metric.value for metric in history] == columns[name]


@needs_mlflow
def test_an_epoch_that_was_half_in_the_store_is_completed(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    run, client = tmp_path / "run", None
    config = cspo.make_config(TASK, log=("mlflow",), checkpoint_every=3, **SETTINGS)
    with cspo.Trainer(config, run_dir=run) as trainer:
        next(iter(trainer))
        client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
        key = json.loads((run / "mlflow.json").read_text())["run"]
        client.log_metric(key, "return", 123.0, step=800)  # a kill in the middle of epoch 1
    with cspo.Trainer.resume(run) as trainer:
        list(trainer)
    for name in ("return", "kl"):
        steps = [metric.step for metric in client.get_metric_history(key, name)]
        assert steps == as_csv(run)["steps"]


def test_a_log_without_its_package_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cspo.runs.logs.find_spec", lambda name: None)
    with pytest.raises(CspoError, match=r"pip install 'cspo\[wandb\]'"):
        cspo.train(TASK, run_dir=tmp_path / "run", quiet=True, log="wandb", **SETTINGS)
    assert not (tmp_path / "run").exists()
    check_logs(cspo.make_config(TASK, log="csv"))
    with pytest.raises(CspoError, match="did you mean 'wandb'"):
        cspo.make_config(TASK, log="wandbb")


def test_the_example_of_a_sink_runs(tmp_path: Path) -> None:
    words = ["--steps", "20000", "--database", "epochs.db", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "my_sink.py"), *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "1 epoch(s) are in epochs.db" in done.stdout
    table = sqlite3.connect(tmp_path / "epochs.db").execute("SELECT epoch, steps, cost FROM epochs")
    columns = read_progress(tmp_path / "run" / "progress.csv")
    assert table.fetchall() == [
        (int(e), int(s), c)
        for e, s, c in zip(columns["epoch"], columns["steps"], columns["cost"], strict=True)
    ]


def test_callbacks_come_before_the_checkpoint_of_their_epoch(tmp_path: Path) -> None:
    """A limit that a callback sets is resumed, though the run ends right after it."""
    seen: list[int] = []
    config = cspo.make_config("tiny", num_envs=2, steps_per_epoch=80, total_steps=400)
    with cspo.Trainer(config, env=TinyEnv, run_dir=tmp_path / "run") as trainer:

        @trainer.on_epoch
        def tighten(report: cspo.EpochReport) -> None:
            seen.append(report.epoch)
            if report.epoch == 1:
                trainer.set_cost_limit(7.0)

        for report in trainer:
            if report.epoch == 1:
                break
    assert seen == [0, 1] and report.cost_limit == (25.0,)
    with cspo.Trainer.resume(tmp_path / "run", env=TinyEnv) as trainer:
        assert {report.cost_limit for report in trainer} == {(7.0,)}
