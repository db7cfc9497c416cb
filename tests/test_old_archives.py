"""Archives outlive settings: what only reads runs takes them as data, what trains refuses them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from report_helpers import HOPPER, write_run

import cspo
from cspo.cli import main
from cspo.errors import CspoError
from cspo.lab.report import collect, write_report
from cspo.lab.study import StudyProblems, read_study
from cspo.lab.study.archive import archive
from cspo.lab.study.state import StudyFolder

COMMIT = "85c82df75677fa4696a78f2202bb64d363f0a0d7"
NAMES = ("low", "high")
SEEDS = 3


def write_archive(
    folder: Path, of_study: dict[str, Any], of_variant: dict[str, Any], of_run: dict[str, Any]
) -> Path:
    """Five runs of six; their algorithm has these settings, by the study and by the run's file."""
    study = {
        "name": "kept",
        "tasks": [HOPPER],
        "algorithms": ["cspo"],
        "seeds": SEEDS,
        "total_steps": 20_000,
        "algorithm": {"cspo": of_study},
        "variants": [{"name": name, "settings": of_variant} for name in NAMES],
    }
    folder.mkdir()
    (folder / "study.toml").write_text(tomli_w.dumps(study))
    for variant in NAMES:
        for seed in range(SEEDS - (variant == "high")):
            base = 100.0 if variant == "low" else 50.0
            run = write_run(
                folder / "runs",
                seed=seed,
                variant=variant,
                returns=[base + 3 * seed + k for k in range(20)],
                cost=[20.0 + 7 * ((k + seed) % 2) for k in range(20)],
            )
            with open(run / "config.toml", "a") as file:
                file.write(tomli_w.dumps({"algorithm": of_run}))
            _finish(run)
    return folder


def _finish(run: Path) -> None:
    """Make it what `cspo study archive` leaves of a run."""
    epochs = run / "progress.csv"
    (run / "progress.csv.gz").write_bytes(gzip.compress(epochs.read_bytes(), mtime=0))
    epochs.unlink()
    summary = json.loads((run / "summary.json").read_text()) | {"commit": COMMIT}
    (run / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """The archive with settings that exist."""
    return write_archive(tmp_path / "today", {"clip": 0.2}, {"alpha": [0.5]}, {"clip": 0.2})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The same numbers, but every place for an algorithm's setting names one that is gone.

    `form` still exists, its value does not.
    """
    gone: dict[str, Any] = {"no_longer": True, "form": "gone"}
    return write_archive(tmp_path / "old", gone, {"no_longer": False}, gone)


def files_of(report: Path) -> dict[str, bytes]:
    found = (path for path in report.rglob("*") if path.is_file())
    return {str(path.relative_to(report)): path.read_bytes() for path in found}


def test_the_report_is_byte_for_byte_that_of_settings_that_exist(
    today: Path, old: Path, tmp_path: Path
) -> None:
    with pytest.raises(StudyProblems):
        read_study(old / "study.toml")  # or this would prove nothing
    write_report([today], tmp_path / "a")
    write_report([old], tmp_path / "b")
    ours, theirs = files_of(tmp_path / "a"), files_of(tmp_path / "b")
    assert "tables/variants.md" in ours and "index.html" in ours
    assert ours == theirs
    notes = collect([old]).notes
    assert notes == [f"kept: 1 of 6 runs have not started: {HOPPER}-cspo-high-seed2."]


def test_settings_that_are_gone_still_tell_runs_apart(old: Path) -> None:
    file = old / "runs" / f"{HOPPER}-cspo-low-seed1" / "config.toml"
    file.write_text(file.read_text().replace("no_longer = true", "no_longer = false"))
    said = f"The runs of cspo low on {HOPPER} differ in more than their seed."
    assert said in collect([old]).notes
    assert not [note for note in collect([old]).notes if "cspo high" in note]


def test_status_and_metrics_are_those_of_settings_that_exist(
    today: Path, old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(folder: Path, *command: str) -> Any:
        monkeypatch.chdir(folder)
        assert main([*command, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    status = said(old, "study", "status", ".")
    assert status == said(today, "study", "status", ".")
    states = {run["id"]: (run["state"], run["epochs"]) for run in status["runs"]}
    assert len(states) == 6
    # The run that has not started would have the epochs of today's default, 20,000 steps long.
    assert states.pop(f"{HOPPER}-cspo-high-seed2") == ("waiting", 1)
    assert set(states.values()) == {("finished", 20)}
    runs = [f"runs/{HOPPER}-cspo-{name}-seed{seed}" for name in NAMES for seed in (0, 1)]
    metrics = said(old, "metrics", *runs)
    assert metrics == said(today, "metrics", *runs)
    assert [row["variant"] for row in metrics["runs"]] == ["low", "low", "high", "high"]


def test_a_run_of_an_archive_is_drawn(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = old / "runs" / f"{HOPPER}-cspo-low-seed0"
    assert main(["plot", str(run)]) == 0
    assert capsys.readouterr().out.strip() == str(run / "curve.png")
    assert (run / "curve.png").stat().st_size > 10_000


def test_what_needs_the_algorithm_refuses_in_one_line_that_names_the_commit(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(old / "runs" / f"{HOPPER}-cspo-low-seed0")
    for command in (["train", "--resume", run], ["eval", run]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"made by another version (cspo 0.1.0, commit {COMMIT})" in said
        assert "algorithm.no_longer" in said and "did you mean" not in said
    (Path(run) / "summary.json").unlink()
    config = Path(run) / "config.toml"
    config.write_text(config.read_text().replace("no_longer = true\n", ""))
    with pytest.raises(CspoError, match=r"\(cspo 0\.1\.0\), with .*: algorithm\.form = 'gone'\."):
        cspo.load(run)


def test_a_study_whose_algorithm_task_and_plugin_are_gone_is_read(old: Path) -> None:
    file = old / "study.toml"
    text = file.read_text().replace("cspo", "gone").replace(HOPPER, "Gone-v0")
    file.write_text('plugin = "gone.py"\n' + text)
    plan = StudyFolder(old).read()
    assert [(run.task, run.algo, run.variant, run.seed) for run in plan.runs[:3]] == [
        ("Gone-v0", "gone", "low", 0),
        ("Gone-v0", "gone", "high", 0),
        ("Gone-v0", "gone", "low", 1),
    ]
    assert plan.text == file.read_text()


def test_a_plan_is_the_grid_of_a_study_that_can_be_trained(tmp_path: Path) -> None:
    """With every layer of a file, for runs that have not started."""
    (tmp_path / "study.toml").write_text(f"""
        name = "layers"
        tasks = ["{HOPPER}", "SafetyPointGoal1-v0"]
        algorithms = ["cspo", "ppo-lag"]
        seeds = [4, 2]
        total_steps = 1e5
        [settings]
        steps_per_epoch = 4000
        [algorithm.ppo-lag]
        steps_per_epoch = 5000
        [task."SafetyPointGoal1-v0"]
        cost_limit = 10
        [[variants]]
        name = "wide"
        algorithms = ["cspo"]
        settings = {{ alpha = [0.1], steps_per_epoch = 2000, algorithm = {{ clip = 0.3 }} }}
    """)
    names = ("id", "task", "algo", "variant", "seed", "epochs", "steps", "cost_limit")
    grid, plan = read_study(tmp_path / "study.toml"), StudyFolder(tmp_path).read()
    rows = [tuple(getattr(run, name) for name in names) for run in plan.runs]
    assert rows == [tuple(getattr(run, name) for name in names) for run in grid.runs]
    assert len(rows) == 8 and rows[0][3:] == ("wide", 4, 50, 100_000, (25.0,))
    assert rows[3] == ("SafetyPointGoal1-v0-ppo-lag-seed4", "SafetyPointGoal1-v0", "ppo-lag", "",
                       4, 20, 100_000, (10.0,))  # fmt: skip


def test_a_study_file_that_cannot_be_read_is_named_in_the_report(today: Path) -> None:
    file = today / "study.toml"
    file.write_text(file.read_text().replace("seeds = 3", "seeds = 0"))
    (note,) = collect([today]).notes
    said = "kept: it is not known which runs have not started. "
    assert note == f"{said}{file}: seeds = 0: a count of seeds is at least 1"


def test_an_old_study_is_archived_and_not_overwritten_by_another(old: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    for run in (old / "runs").iterdir():
        target = study / "runs" / run.name
        target.mkdir(parents=True)
        epochs = gzip.decompress((run / "progress.csv.gz").read_bytes())
        (target / "progress.csv").write_bytes(epochs)
        (target / "config.toml").write_text((run / "config.toml").read_text())
        (target / "summary.json").write_text('{"finished": true, "epochs": 20}')
    text = (old / "study.toml").read_text()
    (study / "study.toml").write_text(text)
    assert len(archive(study, tmp_path / "again").kept) == 5
    other = tmp_path / "other.toml"
    other.write_text(
        f'name = "other"\ntasks = ["{HOPPER}"]\nalgorithms = ["ppo"]\nseeds = 1\n'
        "total_steps = 20_000\n"
    )
    with pytest.raises(CspoError, match="holds the study 'kept', not 'other'"):
        StudyFolder(study).check(read_study(other))
