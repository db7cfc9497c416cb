"""What is written into a folder stays in it: links are not followed, nor is a changed directory."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_helpers import SMALL, TASK, TinyEnv, assert_same_run

import cspo
from cspo.cli import main
from cspo.config import read_settings
from cspo.errors import CspoError
from cspo.lab.study.archive import archive
from cspo.lab.study.grid import read_study
from cspo.lab.study.plan import read_plan
from cspo.lab.study.ray_worker import SharedRun
from cspo.lab.study.schedule import run_study
from cspo.lab.study.state import StudyFolder
from cspo.lab.study.view import PlainView
from cspo.lab.study.worker import work
from cspo.runs.files import APPEND, open_lock, open_plain, read_plain, write_text

FAST: dict[str, Any] = {**SMALL, "total_steps": 800, "cost_limit": (3.0,)}
FILES = (".lock", "curve.png", "progress.csv", "config.toml", "summary.json", ".origin")
PARTIAL = tuple(f".{name}.partial" for name in FILES[1:5])
FOLDERS = ("checkpoints", "tensorboard")
STUDY = """
name = "s"
tasks = ["SafetyHopperVelocity-v1"]
algorithms = ["ppo"]
seeds = 1
total_steps = 400
[settings]
steps_per_epoch = 400
num_envs = 4
"""
RUN_ID = "SafetyHopperVelocity-v1-ppo-seed0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    cspo.train(TASK, "ppo", run_dir=run, quiet=True, **{**FAST, "tensorboard": True})
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder outside, with files that look like those of a run."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("file", ".epoch-000001.safetensors.partial", f"{RUN_ID}.json", f"{RUN_ID}.log"):
        (folder / name).write_text("{}\n")
    return folder


@pytest.mark.parametrize("name", [*FILES, *PARTIAL, *FOLDERS])
def test_a_link_in_a_run_is_not_followed(
    name: str,
    finished: Path,
    victim: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    place = run / name
    if place.is_dir():
        shutil.rmtree(victim)
        place.rename(victim)  # real checkpoints and events, elsewhere
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(victim if name in FOLDERS else victim / "file")
    before = contents(victim)
    resume = ["train", "--resume", run, "--quiet", "--total-steps", "1200"]
    for words in ([["plot", run]] if "curve" in name else []) + [resume]:
        code, error = main([str(word) for word in words]), capsys.readouterr().err
        assert code == 0 or (code == 2 and error.startswith("cspo: error: ")), error
        assert "Traceback" not in error
        if name in (".lock", *FOLDERS) and words[0] == "train":
            assert code == 2 and f"{name} is a link, and links in it are not followed" in error
    assert contents(victim) == before


def test_the_folder_that_a_user_names_may_be_a_link(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    words = ["train", "--resume", str(tmp_path / "latest"), "--quiet", "--total-steps", "1200"]
    assert main(words) == 0


class NoEngine:
    """Trains nothing."""

    slots = 1

    def start(self, spec: Any, folder: Path) -> Any:
        raise CspoError("nothing is trained here")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "name", [".lock", "runs", f"runs/{RUN_ID}", "logs", "failures", "damaged", "running.json"]
)
def test_a_link_in_a_study_is_not_followed(
    name: str, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cspo.lab.study.schedule.REST", 0.0)
    (tmp_path / "s.toml").write_text(STUDY)
    study, out = read_study(tmp_path / "s.toml"), tmp_path / "out"
    place = out / name
    place.parent.mkdir(parents=True)
    place.symlink_to(victim if "." not in name else victim / "file")
    before = contents(victim)
    try:
        result = run_study(study, StudyFolder(out), NoEngine(), PlainView(io.StringIO()))
        assert list(result.failed) == [RUN_ID]
    except CspoError as fault:
        assert f"{place.name} is a link" in str(fault)
    assert contents(victim) == before


def test_a_link_in_an_archive_or_a_report_is_not_followed(
    finished: Path, victim: Path, tmp_path: Path
) -> None:
    study, target = tmp_path / "study", tmp_path / "target"
    shutil.copytree(finished, study / "runs" / RUN_ID)
    (study / "study.toml").write_text(STUDY.replace("= 400", "= 800", 1))
    (study / "failures").mkdir()
    (study / "failures" / "secret.json").symlink_to(victim / "file")
    before = contents(victim)
    for name in ("runs", "failures"):
        target.mkdir(exist_ok=True)
        (target / name).symlink_to(victim)
        with pytest.raises(CspoError, match=f"{name} is a link"):
            archive(study, target)
        assert contents(victim) == before
        (target / name).unlink()
    archive(study, target)
    assert not (target / "failures").exists()  # what a link in the study leads to is not copied
    (study / "report").symlink_to(victim)
    assert main(["report", str(study)]) == 2
    with pytest.raises(OSError, match="is a link"):
        SharedRun(_with_link(tmp_path / "shared", victim), RUN_ID).keep_log("text")
    assert contents(victim) == before


def _with_link(study: Path, victim: Path) -> Path:
    (study / "runs" / RUN_ID).mkdir(parents=True)
    (study / "logs").mkdir()
    (study / "logs" / f"{RUN_ID}.log").symlink_to(victim / "file")
    return study / "runs" / RUN_ID


def test_no_name_of_a_study_leads_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace('"ppo"', '"x/../../../../etc"'))
    assert [run.id for run in read_plan(tmp_path).runs] == [
        "SafetyHopperVelocity-v1-x-..-..-..-..-etc-seed0"
    ]


def test_pipes_and_devices_are_no_files(tmp_path: Path) -> None:
    """Opening one would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for flags in (os.O_RDONLY, os.O_RDWR, APPEND):
        with pytest.raises(OSError):
            open_plain(pipe, flags)
    assert read_plain(pipe, 10) is None
    with pytest.raises(OSError, match="is not a plain file"):
        open_lock(pipe)
    write_text(pipe, "replaced")
    assert pipe.read_text() == "replaced"


class Wandering(TinyEnv):
    """Goes to another directory whenever it is asked for anything."""

    def __init__(self) -> None:
        super().__init__()
        self._wander()

    def _wander(self) -> None:
        os.chdir(os.environ["CSPO_TEST_ELSEWHERE"])

    def reset(self, **options: Any) -> Any:
        self._wander()
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        self._wander()
        return super().step(action)

    def close(self) -> None:
        self._wander()


def make_wandering() -> Wandering:
    return Wandering()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("CSPO_TEST_ELSEWHERE", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "elsewhere"


@pytest.mark.parametrize("run_dir", ["run", None])
def test_an_environment_that_changes_the_directory_moves_no_file(
    run_dir: str | None, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, settings = elsewhere.with_name("home"), {**FAST, "tensorboard": True, "quiet": True}
    task = "test_inside:make_wandering"
    summary = cspo.train(task, "ppo", run_dir=run_dir, **settings)
    assert summary.run_dir.is_absolute() and summary.run_dir.is_relative_to(home)
    monkeypatch.chdir(home)
    run = summary.run_dir
    if run_dir is None:
        assert run == home / "runs" / "test_inside-make_wandering-ppo-seed3"
        assert not any(elsewhere.iterdir())
        return
    files = {path.name for path in run.iterdir()}
    assert {"config.toml", "progress.csv", "summary.json", "curve.png", "tensorboard"} <= files
    assert len(list((run / "checkpoints").iterdir())) == 2
    relative = os.path.relpath(run, home)
    assert main(["train", "--resume", relative, "--total-steps", "1200", "--quiet"]) == 0
    monkeypatch.chdir(home)
    work(read_settings(run / "config.toml"), relative)
    monkeypatch.chdir(home)
    assert main(["eval", relative, "--episodes", "1"]) == 0
    assert not any(elsewhere.iterdir())
    assert len(list(home.iterdir())) == 1
    still = cspo.train("run_helpers:make_tiny", "ppo", run_dir=home / "still", **settings)
    cspo.resume(still.run_dir, total_steps=1200, quiet=True)
    assert_same_run(run, still.run_dir)


def test_a_directory_that_is_gone_stops_nothing(elsewhere: Path) -> None:
    """Some environments work in a folder that they remove."""

    class Vanishing(Wandering):
        def close(self) -> None:
            super().close()
            elsewhere.rmdir()

    env = Vanishing()
    trainer = cspo.Trainer(
        cspo.make_config("<Vanishing>", "ppo", **{**FAST, "num_envs": 1}),
        env=env,
        run_dir=elsewhere.with_name("run"),
    )
    epochs = iter(trainer)
    next(epochs)
    env.close()
    env._wander = lambda: None  # type: ignore[method-assign]
    assert next(epochs).epoch == 1
    with pytest.raises(CspoError, match="there is no module"):
        cspo.make_batch("no_such_module:make", 1)


def test_a_path_is_shown_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    summary = cspo.train(TinyEnv(), "ppo", run_dir="short", **{**FAST, "num_envs": 1})
    assert summary.run_dir == Path("short")
    assert "run folder  short\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["train", TASK, "--algo", ""],
        ["train", TASK, "--algo="],
        ["train", TASK, "--run-dir", ""],
        ["train", TASK, "--plugin="],
        ["train", TASK, "--config", " "],
        ["train", ""],
        ["train", "--resume", ""],
        ["eval", ""],
        ["eval", "run", "--plugin", ""],
        ["algos", "--plugin", ""],
        ["study", "run", "paper-main", "--out", ""],
        ["report", "runs", "--out="],
    ],
)
def test_an_empty_value_is_an_error(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "is empty: give it a value, or leave it out." in error and error.count("\n") == 1
    named = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert all(name in error for name in named)


@pytest.mark.parametrize(
    "text", ["a=1} #", "a=1}\nb={c=2", "a=1}, {b=2", "a=1} b=2", "a=1} # rest", "a=1\nb=2", "a=1,"]
)
def test_no_tail_of_the_options_is_ignored(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["train", "run_helpers:make_tiny", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--env-options", text]) == 2
    assert "write key=value,key=value with text in quotes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
