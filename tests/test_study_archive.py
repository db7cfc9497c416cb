"""An archive of a study holds its results: its reports and metrics are those of the study."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from run_helpers import SMALL

from cspo.cli import main
from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.metrics import read_series
from cspo.lab.report import collect, write_report
from cspo.lab.study import read_study
from cspo.lab.study.worker import work

SETTINGS = {key: value for key, value in SMALL.items() if key not in ("seed", "total_steps")}
STUDY: dict[str, Any] = {
    "name": "kept",
    "tasks": ["SafetyHopperVelocity-v1"],
    "algorithms": ["cspo", "ppo-lag"],
    "seeds": 2,
    "total_steps": 1600,
    "settings": SETTINGS,
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of four, as if the study had been stopped."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(tomli_w.dumps(STUDY))
    for spec in read_study(folder / "study.toml").runs[:3]:
        work(to_dict(spec.config), str(folder / "runs" / spec.id))
    (folder / "failures").mkdir()
    (folder / "failures" / "x.json").write_text('{"attempts": 3, "error": "no space"}')
    return folder


def test_reports_and_metrics_of_an_archive_are_those_of_the_study(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kept"
    assert main(["study", "archive", str(study), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "3 finished runs" in said and "1 runs are not finished" in said
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    runs = sorted(path.name for path in (study / "runs").iterdir())
    each = ("config.toml", "summary.json", "progress.csv.gz")
    assert files == {
        "study.toml",
        "failures/x.json",
        *(f"runs/{run}/{name}" for run in runs for name in each),
    }

    for run in runs:
        kept, original = read_series(out / "runs" / run), read_series(study / "runs" / run)
        assert (kept.name, kept.planned_epochs) == (original.name, original.planned_epochs)
        assert kept.columns.keys() == original.columns.keys()
        for name, column in kept.columns.items():
            np.testing.assert_array_equal(column, original.columns[name])
    theirs, ours = tmp_path / "of-study", tmp_path / "of-archive"
    write_report([study], theirs)
    write_report([out], ours)
    tables = sorted(path.name for path in (theirs / "tables").iterdir())
    assert tables and tables == sorted(path.name for path in (ours / "tables").iterdir())
    for name in tables:
        assert (ours / "tables" / name).read_bytes() == (theirs / "tables" / name).read_bytes()
    facts = collect([out]).runs[0].facts
    assert facts["parameter_hash"] and facts["mujoco"]


def test_archiving_again_adds_what_is_new_and_changes_no_byte_of_the_rest(
    study: Path, tmp_path: Path
) -> None:
    from cspo.lab.study.archive import archive

    first = archive(study, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    removed = next(tmp_path.glob(f"runs/{first.kept[0]}/progress.csv.gz"))
    removed.unlink()
    again = archive(study, tmp_path)
    assert again.kept == first.kept
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_study_goes_on_from_an_archive(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"
    assert main(["study", "archive", str(study), "--out", str(kept)]) == 0
    run = ["study", "run", str(kept / "study.toml"), "--out", str(out), "--archive", str(kept)]
    run += ["--jobs", "1"]
    capsys.readouterr()
    assert main(run) == 0
    said = capsys.readouterr().out
    assert "3 finished runs are taken" in said and said.count("started") == 1
    assert "4 of 4 runs are finished" in said
    for original in (study / "runs").iterdir():
        again = out / "runs" / original.name
        for name in ("progress.csv", "config.toml", "summary.json"):
            assert (again / name).read_bytes() == (original / name).read_bytes()
    assert main(run) == 0
    assert "0 finished runs are taken" in capsys.readouterr().out


def test_an_archive_names_a_plugin_without_the_folders_of_this_machine(tmp_path: Path) -> None:
    """The study says where the plugin is from its own place; archived there it still does."""
    from cspo.lab.study.archive import archive

    plugin = tmp_path / "code" / "my_algorithm.py"
    plugin.parent.mkdir()
    shutil.copy(Path(__file__).parents[1] / "examples" / "my_algorithm.py", plugin)
    written = tmp_path / "results" / "kept" / "study.toml"
    written.parent.mkdir(parents=True)
    own = STUDY | {"algorithms": ["step-price"], "seeds": 1}
    text = 'plugin = "../../code/my_algorithm.py"  # of ours\n' + tomli_w.dumps(own)
    written.write_text(text)
    folder = tmp_path / "study"
    folder.mkdir()
    study = read_study(written)
    (folder / "study.toml").write_text(study.text)
    assert f'plugin = "{plugin}"' in study.text
    for spec in study.runs:
        work(to_dict(spec.config), str(folder / "runs" / spec.id))

    elsewhere = tmp_path / "elsewhere"
    for out in (elsewhere, written.parent):
        run = archive(folder, out).kept[0]
        kept = (out / "runs" / run / "config.toml").read_text()
        assert 'plugin = "my_algorithm.py"' in kept and str(tmp_path) not in kept
        assert collect([out]).runs[0].algo == "step-price"
    assert written.read_text() == text
    assert str(tmp_path) not in (elsewhere / "study.toml").read_text()
    assert read_study(written).runs[0].id == run
    for damage in (b"plugin = ", b"\xff"):
        written.write_bytes(damage)
        archive(folder, written.parent)
        assert 'plugin = "my_algorithm.py"' in written.read_text()
    written.write_text(text.replace("seeds = 1", "seeds = 2"))
    archive(folder, written.parent)
    assert "seeds = 1" in written.read_text(), "another study's text is replaced"


def test_an_archive_of_other_runs_or_a_damaged_one_is_not_taken_over(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    assert main(["study", "archive", str(study), "--out", str(kept)]) == 0
    other = tmp_path / "other.toml"
    other.write_text(tomli_w.dumps(STUDY | {"settings": SETTINGS | {"gamma": 0.5}}))

    def start(file: Path, archive: Path) -> str:
        run = ["study", "run", str(file), "--out", str(tmp_path / "out"), "--archive", str(archive)]
        assert main(run) == 2
        return capsys.readouterr().err

    assert "gamma is 0.5 in the study" in start(other, kept)
    assert "it has no folder runs" in start(kept / "study.toml", tmp_path / "nothing")
    file = next(kept.glob("runs/*/progress.csv.gz"))
    file.write_bytes(file.read_bytes()[:-20])
    assert file.parent.name in start(kept / "study.toml", kept)


def test_status_reads_an_archive_like_the_study(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    assert main(["study", "archive", str(study), "--out", str(kept)]) == 0

    def runs(folder: Path) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["study", "status", str(folder), "--json"]) == 0
        return list(json.loads(capsys.readouterr().out)["runs"])

    assert runs(kept) == runs(study), "states, epochs, returns and costs"
    damaged, missing, intact = sorted(kept.glob("runs/*"))
    file = damaged / "progress.csv.gz"
    file.write_bytes(file.read_bytes()[:-20])
    shutil.rmtree(missing)
    assert [one["id"] for one in runs(kept) if one["state"] == "finished"] == [intact.name]


def test_a_part_of_a_study_is_trained_in_the_order_given(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["study", "run", str(study / "study.toml"), "--out", str(tmp_path), "--jobs", "1"]
    run.append("--only")
    assert main([*run, "*-ppo-lag-seed1", "*-ppo-lag-*"]) == 0
    said = capsys.readouterr().out
    assert "2 of 4 runs, 1 at a time" in said and "2 of 2 runs are finished" in said
    assert said.index("ppo-lag-seed1") < said.index("ppo-lag-seed0")
    assert len(list((tmp_path / "runs").iterdir())) == 2
    assert main(["study", "status", str(tmp_path), "--json"]) == 0
    states = [one["state"] for one in json.loads(capsys.readouterr().out)["runs"]]
    assert states.count("waiting") == 2
    assert main([*run, "*-appo-*"]) == 2
    assert "is called '*-appo-*'" in capsys.readouterr().err


def test_what_cannot_be_archived_is_said_in_a_line(study: Path, tmp_path: Path) -> None:
    from cspo.lab.study.archive import archive

    with pytest.raises(CspoError, match="is the study itself"):
        archive(study, study)
    (tmp_path / "study.toml").write_text((study / "study.toml").read_text())
    with pytest.raises(CspoError, match="nothing to archive"):
        archive(tmp_path, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(CspoError, match="Cannot write"):
        archive(study, tmp_path / "file")


@pytest.mark.parametrize("damage", ["cut", "altered", "not gzip"])
def test_a_damaged_archive_is_refused_by_name(study: Path, tmp_path: Path, damage: str) -> None:
    run = next((study / "runs").iterdir())
    data = gzip.compress((run / "progress.csv").read_bytes(), mtime=0)
    broken = {
        "cut": data[:-20],
        "altered": data[:40] + b"\0\0\0" + data[43:],
        "not gzip": b"epoch,steps\n",
    }[damage]
    (tmp_path / "progress.csv.gz").write_bytes(broken)
    (tmp_path / "config.toml").write_text((run / "config.toml").read_text())
    with pytest.raises(CspoError, match=r"Cannot read .*progress\.csv\.gz"):
        read_series(tmp_path)


def test_the_commit_is_in_the_summary_of_a_checkout(study: Path) -> None:
    summary = json.loads(next(study.glob("runs/*/summary.json")).read_text())
    assert "commit" in summary
    if (Path(__file__).parents[1] / ".git").exists():
        assert summary["commit"] is None or len(summary["commit"].removesuffix("-dirty")) == 40
