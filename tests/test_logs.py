"""What a run leaves behind, and what a person sees of it."""

from __future__ import annotations

import gzip
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import SMALL, TASK, TinyEnv, TwoCosts

import cspo
from cspo.algorithms import algorithm_names, get_algorithm
from cspo.config import make_config
from cspo.errors import CspoError
from cspo.runs.console import LiveConsole, PlainConsole, make_console
from cspo.runs.curves import draw_curve
from cspo.runs.progress import ProgressFile, as_row, constraint_columns, read_progress
from cspo.runs.session import episode_warning
from cspo.runs.summary import config_digest, format_summary, short_number
from cspo.runs.tensorboard import TensorBoard
from cspo.train import Trainer as Loop
from cspo.types import EpochReport, cost_labels


def report(epoch: int = 0, **changes: Any) -> EpochReport:
    values: dict[str, Any] = {
        "epoch": epoch,
        "steps": (epoch + 1) * 400,
        "episode_return": 12.5,
        "cost": (30.0,),
        "cost_limit": (25.0,),
        "episode_length": 20.0,
        "multiplier": (0.25,),
        "kl": 0.0123,
        "steps_per_second": 1234.5,
        "seconds_rollout": 0.2,
        "seconds_update": 0.1,
        "metrics": {"cost_estimated": 0},
    }
    return EpochReport(**(values | changes))


def config_of(epochs: int) -> cspo.TrainConfig:
    return make_config(TASK, **{**SMALL, "total_steps": 400 * epochs})


@pytest.mark.parametrize("epochs", [1, 6, 61, 500, 10_000])
def test_output_to_a_file_is_plain_and_short(epochs: int) -> None:
    stream = io.StringIO()
    console = make_console(config_of(epochs), ("cost",), 0, stream=stream)
    assert isinstance(console, PlainConsole)
    console.start("title")
    for epoch in range(epochs):
        console.write(report(epoch))
    console.close()
    text = stream.getvalue()
    lines = text.splitlines()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert min(epochs, 50) <= len(lines) - 2 <= 62
    assert f"{epochs}/{epochs}" in lines[-1] and "30.00/25!" in lines[-1]
    assert all(len(line) <= 100 for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_shows_progress_in_place(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    console = make_console(config_of(6), ("cost",), 0, stream=stream)
    assert isinstance(console, LiveConsole)
    console.start("title")
    console.write(report())
    console.write(
        report(1, cost=(20.0,), episode_return=float("nan"), metrics={"cost_estimated": 1})
    )
    console.note("a note")
    console.close()
    text = stream.getvalue()
    for shown in (
        "epoch 1/6",
        "30.00/25",
        "~20.00/25",
        "return -",
        "1,234 steps/s",
        "multiplier 0.250",
        "left",
    ):
        assert shown in text, shown
    assert capsys.readouterr().err == "cspo: a note\n"


def test_several_constraints_are_shown_by_name() -> None:
    both = report(cost=(30.0, 2.0), cost_limit=(25.0, 5.0), multiplier=(0.1, 0.2))
    for stream in (io.StringIO(), Terminal()):
        console = make_console(config_of(6), ("hazards", "gremlins"), 0, stream=stream)
        console.start("title")
        console.write(both)
        console.close()
        for shown in ("cost hazards", "cost gremlins", "30.00/25", "2.00/5", "0.200"):
            assert shown in stream.getvalue(), shown
    plain = make_console(config_of(6), ("hazards", "gremlins"), 0, stream=(stream := io.StringIO()))
    plain.start("title")
    plain.write(both)
    _, header, row = stream.getvalue().splitlines()
    assert header.index("cost gremlins") + len("cost gremlins") == row.index("2.00/5") + len(
        "2.00/5"
    )  # one column
    assert cost_labels(("cost_0", "cost_1")) == ["cost 0", "cost 1"] and cost_labels(
        ("velocity",)
    ) == ["cost"]


def test_quiet_prints_notes_only(capsys: pytest.CaptureFixture[str]) -> None:
    console = make_console(config_of(2), ("cost",), 0, quiet=True)
    console.start("title")
    console.write(report())
    console.note("careful")
    console.close()
    assert capsys.readouterr() == ("", "cspo: careful\n")


def test_two_constraints_have_numbered_columns(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path / "progress.csv")
    file.write(report(cost=(1.0, 2.0), cost_limit=(5.0, 6.0), multiplier=(0.1, 0.2)))
    file.close()
    columns = read_progress(tmp_path / "progress.csv")
    assert columns["cost_0"] == [1.0] and columns["cost_1"] == [2.0] and "cost" not in columns
    assert constraint_columns(columns, "cost") == [[1.0], [2.0]]
    assert constraint_columns(columns, "cost_limit") == [[5.0], [6.0]]


def test_progress_keeps_every_digit_and_survives_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    file = ProgressFile(path)
    values = [0.1 + 0.2, 1e-300, 12345678.123456789, float("nan")]
    for epoch, value in enumerate(values):
        file.write(report(epoch, episode_return=value))
    file.close()
    np.testing.assert_array_equal(read_progress(path)["return"], values)
    whole = path.read_text()
    path.write_text(whole[:-5])
    assert ProgressFile(path).complete_rows() == 3 and len(read_progress(path)["return"]) == 3
    path.write_text(whole)
    assert ProgressFile(path).rewind(2) == []
    assert path.read_text() == "".join(whole.splitlines(keepends=True)[:3])
    assert "holds 2 of the 4 epochs" in ProgressFile(path).rewind(4)[0]
    assert (
        read_progress(tmp_path / "none.csv") == {}
        and ProgressFile(tmp_path / "none.csv").complete_rows() == 0
    )


def test_a_run_leaves_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    settings = {
        **SMALL,
        "tensorboard": True,
        "total_steps": 1200,
        "num_envs": 1,
        "cost_limit": (3.0, 9.0),
    }
    summary = cspo.train(TwoCosts(), run_dir=run, **settings)
    output = capsys.readouterr().out
    assert format_summary(summary) in output and "3/3" in output
    names = {path.name for path in run.iterdir()}
    assert names == {
        ".lock",
        "config.toml",
        "progress.csv",
        "summary.json",
        "curve.png",
        "checkpoints",
        "tensorboard",
    }
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")

    data = json.loads((run / "summary.json").read_text())
    columns = read_progress(run / "progress.csv")
    assert data["parameter_hash"] == summary.parameter_hash and data["finished"] is True
    assert data["cost"] == [columns["cost_0"][-1], columns["cost_1"][-1]] == list(summary.cost)
    assert data["cost_names"] == ["cost_0", "cost_1"] and "  cost 1 " in format_summary(summary)
    assert data["episode_return"] == columns["return"][-1] == summary.episode_return
    violated = [
        c > 3.0 or d > 9.0 for c, d in zip(columns["cost_0"], columns["cost_1"], strict=True)
    ]
    assert data["violation_share"] == np.mean(violated)
    assert set(data["versions"]) == {
        "python",
        "cspo",
        "scipy",
        "mujoco",
        "gymnasium",
        "numpy",
        "numba",
    }
    assert data["config_digest"] == config_digest(cspo.make_config(**_settings_of(run)))

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    scalars = events.Scalars("return")
    assert [event.step for event in scalars] == [400, 800, 1200]
    np.testing.assert_allclose([event.value for event in scalars], columns["return"], rtol=1e-6)


def _settings_of(run: Path) -> dict[str, Any]:
    return {"file": run / "config.toml"}


def test_the_loop_alone_writes_and_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config(TASK, **{**SMALL, "tensorboard": True, "total_steps": 800})
    loop, kept = Loop(config), cspo.Trainer(config)
    assert [report.epoch for report in loop] == [report.epoch for report in kept] == [0, 1]
    assert loop.parameter_hash() == kept.parameter_hash()
    with pytest.raises(CspoError, match="no run folder: pass run_dir="):
        kept.save()
    assert list(tmp_path.iterdir()) == [] and capfd.readouterr() == ("", "")


class Collecting:
    """A user's sink."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.reports: list[EpochReport] = []
        self.fails_at, self.closed = fails_at, 0

    def write(self, report: EpochReport) -> None:
        if report.epoch == self.fails_at:
            raise ConnectionError("no route to the dashboard")
        self.reports.append(report)

    def close(self) -> None:
        self.closed += 1


def test_a_sink_of_the_user_gets_every_epoch_and_is_closed(tmp_path: Path) -> None:
    first, second = Collecting(), Collecting()
    settings = {**SMALL, "total_steps": 1200, "num_envs": 1, "quiet": True}
    cspo.train(TinyEnv(), "ppo", run_dir=tmp_path / "run", sinks=[first], **settings)
    assert [report.epoch for report in first.reports] == [0, 1, 2] and first.closed == 1
    returns = [report.episode_return for report in first.reports]
    np.testing.assert_array_equal(returns, read_progress(tmp_path / "run/progress.csv")["return"])
    options = {"env": TinyEnv(), "quiet": True, "total_steps": 1600}
    cspo.resume(tmp_path / "run", sinks=[second], **options)
    assert [report.epoch for report in second.reports] == [3] and second.closed == 1


def test_a_sink_that_fails_loses_no_epoch(tmp_path: Path) -> None:
    sink, settings = Collecting(fails_at=1), {**SMALL, "num_envs": 1, "quiet": True}
    with pytest.raises(ConnectionError, match="no route"):
        cspo.train(TinyEnv(), "ppo", run_dir=tmp_path / "run", sinks=[sink], **settings)
    assert sink.closed == 1
    assert read_progress(tmp_path / "run/progress.csv")["epoch"] == [0, 1]
    trainer = cspo.Trainer.resume(tmp_path / "run", env=TinyEnv())
    assert trainer.epoch == 2
    trainer.run.close()


def test_events_that_a_resumed_run_supersedes_are_hidden(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def process(epochs: range, value: float) -> None:
        sink = TensorBoard(tmp_path)
        for epoch in epochs:
            sink.write(report(epoch, episode_return=value, metrics={"passes": np.int64(7)}))
        sink.close()
        sink.close()

    process(range(3), 1.0)
    time.sleep(1.1)  # files are read in the order of the seconds they are named after
    process(range(1, 4), 2.0)  # goes on from the checkpoint after the first epoch
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("return")]
    assert found == [(400, 1.0), (800, 2.0), (1200, 2.0), (1600, 2.0)]
    names = {*as_row(report()), "passes", "seconds_rollout", "seconds_update"}
    assert set(events.Tags()["scalars"]) == names - {"epoch", "steps", "cost_estimated"}


def test_the_newest_rows_are_read_without_the_others(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    file = ProgressFile(path)
    for epoch in range(1000):
        file.write(report(epoch))
    file.close()
    whole = read_progress(path)
    packed = tmp_path / "progress.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for size in range(1, 400):
        tail = read_progress(path, tail=size)
        rows = len(tail["epoch"])
        assert rows <= size / 50 and tail["epoch"] == whole["epoch"][1000 - rows :]
        assert tail["steps_per_second"] == whole["steps_per_second"][1000 - rows :]
        assert tail == read_progress(packed, tail=size)
    assert rows >= 3 and read_progress(path, tail=10**9) == whole == read_progress(packed)
    (tmp_path / "empty.csv").touch()
    assert read_progress(tmp_path / "empty.csv", tail=100) == {}


def test_every_column_is_documented(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
    for algo in algorithm_names():
        several = get_algorithm(algo).traits.several_limits
        env, limits = (
            ("run_helpers:TwoCosts", (3.0, 9.0)) if several else ("run_helpers:TinyEnv", (3.0,))
        )
        trainer = cspo.Trainer(
            make_config(env, algo, **{**SMALL, "total_steps": 400, "cost_limit": limits})
        )
        for column in as_row(next(iter(trainer))):
            assert f"| `{re.sub('_[01]$', '', column)}` |" in text, column


def test_digest_depends_on_what_changes_results() -> None:
    base = make_config(TASK)
    assert config_digest(base) == config_digest(make_config(TASK, threads=2, tensorboard=False))
    assert config_digest(base) != config_digest(make_config(TASK, seed=1))
    assert config_digest(base) != config_digest(make_config(TASK, alpha=0.1))


def test_default_run_folder_is_free_and_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {**SMALL, "total_steps": 400, "num_envs": 1, "quiet": True}
    for expected in ("TinyEnv-ppo-seed3", "TinyEnv-ppo-seed3-2"):
        assert cspo.train(TinyEnv(), "ppo", **settings).run_dir == Path("runs") / expected
    with pytest.raises(CspoError, match="cannot be stepped as 2 copies"):
        cspo.train(TinyEnv(), "ppo", **{**settings, "num_envs": 2})
    assert len(list((tmp_path / "runs").iterdir())) == 2, (
        "a run that did not start must leave no folder"
    )


def test_drawing_needs_an_epoch(tmp_path: Path) -> None:
    trainer = cspo.Trainer(make_config(TASK, **SMALL), run_dir=tmp_path / "run")
    trainer.run.close()
    trainer.env.close()
    with pytest.raises(CspoError, match="nothing to draw yet"):
        draw_curve(tmp_path / "run")


def test_warning_when_episodes_do_not_fit_into_an_epoch() -> None:
    from types import SimpleNamespace

    config = make_config(TASK, steps_per_epoch=2000, num_envs=4, total_steps=2000)
    warning = episode_warning(config, SimpleNamespace(num_envs=4, time_limit=1000))
    assert (
        warning is not None and "--steps-per-epoch 4000" in warning and "cost_estimated" in warning
    )
    assert len(warning.splitlines()) == 1
    assert episode_warning(config, SimpleNamespace(num_envs=4, time_limit=500)) is None
    assert episode_warning(config, SimpleNamespace(num_envs=4, time_limit=None)) is None


def test_numbers_for_people() -> None:
    assert [short_number(x) for x in (float("nan"), 0.0, 0.01234, 3.14159, 12345.6)] == [
        "-",
        "0.00",
        "0.0123",
        "3.14",
        "12,346",
    ]


def test_the_picture_is_drawn_once_at_the_end_and_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Path] = []

    def draw(folder: Path) -> None:
        drawn.append(folder)
        raise OSError("No space left on device")

    monkeypatch.setattr(cspo.runs.curves, "draw_curve", draw)
    assert cspo.train(TASK, run_dir=tmp_path / "run", quiet=True, **SMALL).finished
    assert drawn == [tmp_path / "run"]
    picture = cspo.runs.curves.CurvePicture(tmp_path)  # a folder without an epoch
    picture.close()
    assert len(drawn) == 1
