"""A run that was stopped, killed or damaged ends exactly where an undisturbed one does."""

from __future__ import annotations

import gzip
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_helpers import (
    EPOCHS,
    SMALL,
    TASK,
    TinyEnv,
    as_flags,
    assert_same_run,
    make_tiny,
    start,
    wait_for_epochs,
)

import cspo
import cspo.runs.curves
from cspo.cli import main
from cspo.errors import CspoError
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.progress import read_progress
from cspo.runs.session import Interrupted

TINY = "run_helpers:make_tiny"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("reference") / "run"
    cspo.train(TASK, run_dir=run, quiet=True, **SMALL)
    return run


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs; the real processes below draw all the same."""
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


def stop_after(run: Path, epochs: int, **settings: Any) -> None:
    """Train for some epochs and stop as if the process had ended there."""
    trainer = cspo.Trainer(cspo.make_config(TASK, **{**SMALL, **settings}), run_dir=run)
    for report in trainer:
        if report.epoch + 1 == epochs:
            break
    trainer.run.close()
    trainer.env.close()


def test_n_epochs_and_n_more_are_2n_epochs(tmp_path: Path, reference: Path) -> None:
    stop_after(tmp_path / "run", EPOCHS // 2)
    summary = cspo.resume(tmp_path / "run", quiet=True)
    assert summary.finished and summary.epochs == EPOCHS
    assert_same_run(tmp_path / "run", reference)


def test_same_seed_same_run_whatever_the_threads_and_another_seed_another(
    tmp_path: Path, reference: Path
) -> None:
    hashes = {}
    for name, changes in {
        "one": {"threads": 1},
        "two": {"threads": 2},
        "other": {"seed": 4},
    }.items():
        hashes[name] = cspo.train(
            TASK, run_dir=tmp_path / name, quiet=True, **{**SMALL, **changes}
        ).parameter_hash
    assert_same_run(tmp_path / "one", reference)
    assert_same_run(tmp_path / "two", reference)
    assert hashes["one"] == hashes["two"] != hashes["other"]


def test_killed_at_random_moments(tmp_path: Path, reference: Path) -> None:
    run, moments = tmp_path / "run", random.Random(20)
    words = ["train", TASK, "--run-dir", run, "--quiet", *as_flags(SMALL)]
    kills = 0
    for done in (0, 2, 4):
        process = start(*words)
        wait_for_epochs(run, done, process)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
        process.communicate()
        if (run / "config.toml").exists():
            words = ["train", "--resume", run, "--quiet"]
    assert kills >= 2
    process = start(*words)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert_same_run(run, reference)


def test_killed_before_the_first_checkpoint_starts_anew(tmp_path: Path, reference: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 1)
    shutil.rmtree(run / "checkpoints")
    cspo.resume(run, quiet=True)
    assert_same_run(run, reference)


def test_killed_while_writing(tmp_path: Path, reference: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 3)
    newest = list_checkpoints(run / "checkpoints")[-1]
    partial = newest.with_name(".epoch-000004.safetensors.partial")
    partial.write_bytes(newest.read_bytes()[:1000])
    with open(run / "progress.csv", "a") as file:
        file.write("3,1600,17.25,0.3")  # a row cut off in the middle
    cspo.resume(run, quiet=True)
    assert not partial.exists()
    assert_same_run(run, reference)


def test_truncated_last_row_is_written_again(tmp_path: Path, reference: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 3)
    progress = run / "progress.csv"
    progress.write_bytes(progress.read_bytes()[:-10])  # the row of an epoch that has a checkpoint
    cspo.resume(run, quiet=True)
    assert_same_run(run, reference)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-200] ^= 1  # in the tensor data, which fills the end of the file
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, empty, Path.unlink])
def test_damaged_newest_checkpoint(
    tmp_path: Path, reference: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    stop_after(run, 4)
    newest = list_checkpoints(run / "checkpoints")[-1]
    damage(newest)
    cspo.resume(run, quiet=True)
    said = capsys.readouterr().err
    if damage is not Path.unlink:
        assert newest.name in said and "using the one before it" in said
    assert_same_run(run, reference)


def test_all_checkpoints_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    stop_after(run, 3)
    for path in list_checkpoints(run / "checkpoints"):
        truncate(path)
    assert main(["train", "--resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "No checkpoint" in said and len(said.splitlines()) <= 2
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CspoError, match="holds no checkpoint, though 3 epochs were done"):
        cspo.resume(run)


def test_an_archived_run_is_not_trained_anew_in_its_archive(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 3)
    shutil.rmtree(run / "checkpoints")
    (run / "progress.csv.gz").write_bytes(gzip.compress((run / "progress.csv").read_bytes()))
    (run / "progress.csv").unlink()
    before = sorted(path.name for path in run.iterdir())
    with pytest.raises(CspoError, match="holds no checkpoint, as archives do not: start the run"):
        cspo.resume(run)
    assert sorted(path.name for path in run.iterdir()) == before


def test_ctrl_c_finishes_the_epoch_and_writes_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cspo.train(TINY, run_dir=tmp_path / "reference", quiet=True, **SMALL)
    process = start(
        "train", TINY, "--run-dir", run, "--quiet", *as_flags({**SMALL, "checkpoint_every": 100})
    )
    wait_for_epochs(run, 1, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors and len(errors.splitlines()) == 2
    assert f"cspo train --resume {run}" in errors
    assert (run / "curve.png").exists() and (run / "summary.json").exists()
    rows = len(read_progress(run / "progress.csv")["epoch"])
    assert [int(path.stem[-6:]) for path in list_checkpoints(run / "checkpoints")] == [rows]
    assert rows < EPOCHS, "the signal came too late to prove anything"
    cspo.resume(run, quiet=True)
    assert_same_run(run, tmp_path / "reference")


def test_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    slow = {**SMALL, "steps_per_epoch": 40_000, "total_steps": 400_000, "passes": 40}
    process = start("train", TINY, "--run-dir", run, "--quiet", *as_flags(slow))
    wait_for_epochs(run, 0, process)
    time.sleep(0.3)  # well inside the first epoch
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - started < 5
    assert "Traceback" not in errors and f"--resume {run}" in errors


def test_interrupted_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    env = TinyEnv()

    def interrupting_step(action: Any) -> Any:
        if env.steps == 150:
            signal.raise_signal(signal.SIGINT)
        return TinyEnv.step(env, action)

    env.step = interrupting_step  # type: ignore[method-assign]
    settings = {**SMALL, "steps_per_epoch": 100, "total_steps": 600, "num_envs": 1}
    with pytest.raises(Interrupted):
        cspo.train(env, run_dir=tmp_path / "run", quiet=True, **settings)
    assert signal.getsignal(signal.SIGINT) is before
    assert [path.stem for path in list_checkpoints(tmp_path / "run" / "checkpoints")][
        -1
    ] == "epoch-000002"
    assert not env.closed
    with pytest.raises(CspoError, match="pass it again as env="):
        cspo.resume(tmp_path / "run")
    assert cspo.resume(tmp_path / "run", env=TinyEnv(), quiet=True).epochs == 6


def test_complete_run_says_so(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    assert main(["train", "--resume", str(run)]) == 0
    assert "is complete" in capsys.readouterr().err
    assert_same_run(run, reference)
    assert main(["train", "--resume", str(run), "--total-steps", "3200", "--quiet"]) == 0
    assert len(read_progress(run / "progress.csv")["epoch"]) == EPOCHS + 2
    assert main(["train", "--resume", str(run), "--total-steps", "800"]) == 2
    assert "has done 3200 steps already" in capsys.readouterr().err


def test_one_process_per_run_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 1)
    file = str(run / ".lock")
    holder = f"import fcntl, time; f = open({file!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    process = subprocess.Popen(
        [sys.executable, "-c", holder + "; print('held', flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(CspoError, match="Another process is training"):
            cspo.resume(run)
    finally:
        process.kill()
        process.wait()
    assert cspo.resume(run, quiet=True).finished, (
        "a killed process must not leave the folder locked"
    )


def test_run_folder_that_holds_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    stop_after(run, 1)
    before = (run / "config.toml").read_bytes()
    assert main(["train", TASK, "--run-dir", str(run), "--seed", "9"]) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert (run / "config.toml").read_bytes() == before
    assert main(["train", TASK, "--run-dir", "/proc/none/run"]) == 2
    assert "Cannot write to run folder" in capsys.readouterr().err


def test_resume_keeps_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    stop_after(run, 1)
    assert main(["train", "--resume", str(run), "--seed", "5"]) == 2
    assert "leave out --seed" in capsys.readouterr().err
    with pytest.raises(CspoError, match=r"threads, total_steps, .*workers can change, not gamma"):
        cspo.resume(run, gamma=0.5)
    assert main(["train", "--resume", str(tmp_path / "nothing")]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_non_finite_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "num_envs": 4, "steps_per_epoch": 400}
    words = ["run_helpers:make_faulty", *as_flags(settings), "--quiet"]
    run = tmp_path / "run"
    assert main(["train", *words, "--run-dir", str(run)]) == 2
    said = capsys.readouterr().err
    assert (
        "non-finite reward" in said
        and "in epoch 3 of 6" in said
        and f"cspo train --resume {run}" in said
    )
    assert len(said.splitlines()) <= 2
    assert list_checkpoints(run / "checkpoints")[-1].stem == "epoch-000002"

    monkeypatch.setenv("CSPO_TEST_MENDED", "1")
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    assert main(["train", *words, "--run-dir", str(tmp_path / "whole")]) == 0
    assert_same_run(run, tmp_path / "whole")


def test_changed_environment_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = {**SMALL, "total_steps": 400}
    cspo.train(make_tiny, run_dir=run, quiet=True, **settings)
    with pytest.raises(CspoError, match="used no cost_fn"):
        cspo.resume(run, env=make_tiny, cost_fn=lambda *_: 0.0, total_steps=800)

    def wider() -> TinyEnv:
        env = TinyEnv()
        env.action_space = type(env.action_space)(-5.0, 5.0, (1,))
        return env

    with pytest.raises(
        CspoError, match="environment has changed since the run started: action low"
    ):
        cspo.resume(run, env=wider, total_steps=800)


def test_what_changes_no_result_may_change_on_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 2, tensorboard=True)
    events = sorted((run / "tensorboard").iterdir())
    summary = cspo.resume(run, quiet=True, tensorboard=False, keep_checkpoints=1, threads=2)
    assert sorted((run / "tensorboard").iterdir()) == events
    assert len(list_checkpoints(run / "checkpoints")) == 1
    again = cspo.train(TASK, run_dir=tmp_path / "again", quiet=True, **SMALL)
    assert summary.parameter_hash == again.parameter_hash
