"""The evidence is computed from results/, and what is committed is what `make evidence` makes."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from cspo.algorithms import registry
from cspo.errors import CspoError

ROOT = Path(__file__).parents[1]
PAGE = "# Sample\n\n<!-- table choose-cspo/variants -->\nSTALE\n<!-- end -->\n\nWords stay.\n"


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_evidence", ROOT / "docs" / "make_evidence.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Two archived runs, and a page that asks for their table."""
    kept, copy = ROOT / "results" / "choose-cspo", tmp_path / "results" / "choose-cspo"
    copy.mkdir(parents=True)
    shutil.copy(kept / "study.toml", copy)
    for run in sorted((kept / "runs").glob("*-seed0"))[:2]:
        shutil.copytree(run, copy / "runs" / run.name)
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    (tmp_path / "docs" / "evidence" / "page.md").write_text(PAGE)
    return tmp_path


@pytest.fixture(autouse=True)
def _built_in_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests register algorithms of plugins, whose titles a reader of results has not."""
    known = {name: registry.get_algorithm(name) for name in registry.algorithm_names()}
    own = {name: cls for name, cls in known.items() if registry.is_built_in(cls)}
    monkeypatch.setattr(registry, "_registry", own)


def test_reports_and_tables_are_made_without_training_and_alike_each_time(
    evidence: ModuleType, sample: Path
) -> None:
    evidence.main(sample)
    page = sample / "docs" / "evidence" / "page.md"
    text = page.read_text()
    assert "STALE" not in text and text.endswith("Words stay.\n") and text.count("| CSPO |") == 2
    report = sample / "results" / "choose-cspo" / "report"
    assert (report / "index.html").is_file() and (report / "tables" / "variants.csv").is_file()
    assert list(report.glob("figures/*.svg"))
    first = {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()}
    evidence.main(sample)
    assert {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()} == first


def test_a_table_that_is_not_there_is_named(evidence: ModuleType, sample: Path) -> None:
    (sample / "docs" / "evidence" / "page.md").write_text(PAGE.replace("variants", "variant"))
    with pytest.raises(CspoError, match="'variant' of choose-cspo, which has: main"):
        evidence.main(sample)


def test_the_committed_pages_are_what_the_results_give(evidence: ModuleType) -> None:
    tables = evidence.Tables(ROOT)
    pages = evidence.pages(ROOT)
    assert pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert evidence.filled(text, tables) == text, f"{page.name} is out of date: make evidence"


def _pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_of_reports_only_tables_and_the_figures_that_pages_show_are_committed() -> None:
    """The rest is written by `make evidence`; committed, it was most of the repository."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "results"], capture_output=True, text=True
    )
    if listed.returncode or not listed.stdout:
        pytest.skip("this is no checkout of git")
    pages = "".join(page.read_text(encoding="utf-8") for page in _pages())
    superfluous = [
        name
        for name in listed.stdout.splitlines()
        if "/report/" in name and "/report/tables/" not in name and name not in pages
    ]
    assert not superfluous, f"git rm --cached these, and see CONTRIBUTING.md: {superfluous[:5]}"
