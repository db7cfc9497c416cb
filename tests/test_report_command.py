"""`cspo report`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from report_helpers import GOAL, HOPPER, small_study, write_run
from run_helpers import start

import cspo.lab.report
from cspo.cli import main
from cspo.errors import CspoError


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_study(tmp_path_factory.mktemp("command") / "study", seeds=2, epochs=8)


def test_a_real_process_writes_everything_and_says_so(study: Path) -> None:
    process = start("report", study)
    output, errors = process.communicate(timeout=100)
    assert (process.returncode, errors) == (0, "")
    written = files_in(study / "report")
    of_tasks = [f"{what}-{task}" for what in ("curves", "traces") for task in (HOPPER, GOAL)]
    names = [*of_tasks, "oscillation", "recovery"]
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {name for name in written if name.startswith("figures/")} == figures
    for name in ("main", "recovery", "main-comparison"):
        assert {f"tables/{name}.csv", f"tables/{name}.md", f"tables/{name}.tex"} <= set(written)
    page = written["index.html"].decode()
    for name in figures | {name for name in written if name.startswith("tables/")}:
        assert f'"{name}"' in page, "the page links to every file"
    assert "| Hopper |" in output and f"page: {study / 'report' / 'index.html'}" in output
    assert "6 figures, 12 runs" in output


def test_a_second_report_is_the_same_byte_for_byte_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    for algo in ("cspo", "ppo-lag"):
        write_run(
            study, algo=algo, returns=[1, 2, 3], cost=[1, 30, 2], columns={"multiplier": [1, 2, 3]}
        )
    first = cspo.lab.report.write_report([study], tmp_path / "report")
    before = files_in(tmp_path / "report")
    assert {str(path.relative_to(tmp_path / "report")) for path in first} == set(before)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")  # whatever the clock says
    assert cspo.lab.report.write_report([study], tmp_path / "report") == first
    assert files_in(tmp_path / "report") == before


def test_several_folders_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "one", algo="cspo", returns=[2, 2], cost=[1, 2])
    write_run(tmp_path / "two", algo="cpo", returns=[4, 4], cost=[1, 2])
    assert (
        main(
            ["report", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(tmp_path / "out")]
        )
        == 0
    )
    with open(tmp_path / "out" / "tables" / "main.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["algorithm"], float(row["return"])) for row in rows] == [
        ("cspo", 2.0),
        ("cpo", 4.0),
    ]
    assert not (tmp_path / "one" / "report").exists()
    assert "one, two" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_an_unfinished_run_is_left_out_of_tables_and_listed_on_the_page(tmp_path: Path) -> None:
    for seed, epochs in enumerate((4, 4, 2)):
        write_run(tmp_path, seed=seed, returns=[10.0 * seed] * epochs, cost=[1] * epochs, planned=4)
    cspo.lab.report.write_report([tmp_path])
    with open(tmp_path / "report" / "tables" / "main.csv", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["seeds"], float(row["return"])) == ("2", 5.0)
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "1 of 3 runs are not finished and left out" in page
    # Finished meanwhile: the next report has it.
    text = (tmp_path / f"{HOPPER}-cspo-seed2" / "progress.csv").read_text(encoding="utf-8")
    more = "".join(f"{k},{1000 * (k + 1)},20.0,1.0,25.0\n" for k in (2, 3))
    (tmp_path / f"{HOPPER}-cspo-seed2" / "progress.csv").write_text(text + more, encoding="utf-8")
    cspo.lab.report.write_report([tmp_path])
    assert "not finished" not in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


def test_earlier_reports_are_not_taken_for_runs(tmp_path: Path) -> None:
    write_run(tmp_path, returns=[1, 2], cost=[1, 2])
    cspo.lab.report.write_report([tmp_path])
    assert len(cspo.lab.report.collect([tmp_path]).runs) == 1


def no_folder(root: Path) -> list[str]:
    return [str(root / "nowhere")]


def no_runs(root: Path) -> list[str]:
    (root / "empty").mkdir()
    return [str(root / "empty")]


def different_limits(root: Path) -> list[str]:
    write_run(root / "runs", seed=0, returns=[1], cost=[1], limit=(25.0,))
    write_run(root / "runs", seed=1, returns=[1], cost=[1], limit=(10.0,))
    return [str(root / "runs")]


def out_is_a_file(root: Path) -> list[str]:
    write_run(root / "runs", returns=[1], cost=[1])
    (root / "taken").write_text("mine", encoding="utf-8")
    return [str(root / "runs"), "--out", str(root / "taken")]


def nothing_named(root: Path) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (no_folder, "no folder"),
        (no_runs, "holds neither"),
        (different_limits, "different cost limits (10 and 25)"),
        (out_is_a_file, "Cannot write the report"),
        (nothing_named, "Name a folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: object, said: str
) -> None:
    assert main(["report", *arguments(tmp_path)]) == 2  # type: ignore[operator]
    errors = capsys.readouterr().err
    assert said in errors and errors.count("\n") == 1


def test_a_full_disk_keeps_the_page_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, returns=[1, 2], cost=[1, 2])
    page = tmp_path / "report" / "index.html"
    cspo.lab.report.write_report([tmp_path])
    before = page.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CspoError, match="No space left on device"):
        cspo.lab.report.write_report([tmp_path])
    assert page.read_bytes() == before


def test_a_damaged_summary_does_not_stop_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path, returns=[1, 2], cost=[1, 2])
    (folder / "summary.json").write_text('{"versions": [', encoding="utf-8")
    cspo.lab.report.write_report([tmp_path])
    folder = write_run(tmp_path, seed=1, returns=[1, 2], cost=[1, 2])
    (folder / "summary.json").write_text(json.dumps({"versions": "?"}), encoding="utf-8")
    cspo.lab.report.write_report([tmp_path])
