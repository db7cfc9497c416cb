"""The wheel and the source distribution: alike each time, complete, and usable by themselves."""

from __future__ import annotations

import email
import importlib.util
import json
import os
import site
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import cspo

ROOT = Path(__file__).parents[1]
SHORT = "--total-steps 800 --steps-per-epoch 400 --num-envs 4 --quiet --no-tensorboard"
pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="packages are built from a checkout of git"
)


def build(out: Path, umask: int) -> list[Path]:
    """Call the script of `make wheel` as a person with this umask would."""
    words = [sys.executable, str(ROOT / "scripts" / "make_packages.py"), "--out", str(out)]
    subprocess.run(words, check=True, umask=umask, capture_output=True)
    return sorted(out.iterdir())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source distribution, in this order."""
    return build(tmp_path_factory.mktemp("dist"), 0o022)


def test_the_same_commit_gives_the_same_bytes(packages: list[Path], tmp_path: Path) -> None:
    stray = ROOT / "src/cspo/envs/navigation/robots/stray.txt"  # which git does not know
    stray.touch()
    try:
        again = build(tmp_path, 0o077)
    finally:
        stray.unlink()
    assert [path.name for path in again] == [path.name for path in packages]
    for one, other in zip(again, packages, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_they_contain_what_they_need_and_nothing_else(packages: list[Path]) -> None:
    wheel, sdist = packages
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "src"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    needed = {name.removeprefix("src/") for name in tracked if (ROOT / name).is_file()}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert archive.namelist() == list(dict.fromkeys(archive.namelist()))
    assert inside == needed and wheel.stat().st_size <= 3_000_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert len({member.mtime for member in archive}) == 1
        assert {(member.uid, member.uname) for member in archive} == {(0, "")}
    top = {name.split("/")[0] for name in names} - {""}
    documents = {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"}
    of_the_build = {"MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg", "src"}
    assert top == documents | of_the_build
    assert {f"src/{name}" for name in needed} <= names
    assert sdist.stat().st_size <= 3_000_000


def test_the_metadata_is_complete(packages: list[Path]) -> None:
    with zipfile.ZipFile(packages[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        data = email.message_from_bytes(archive.read(name))
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    assert data["Name"] == "cspo" and data["Version"] == cspo.__version__
    assert data["License-Expression"] == "MIT" and data["Author"] == "The cspo developers"
    assert data["Keywords"] and data["Summary"] and str(data.get_payload()).startswith("# ")
    assert "Programming Language :: Python :: 3.10" in data.get_all("Classifier", [])
    required = [line for line in data.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in required if line.startswith("torch")]


@pytest.mark.skipif(importlib.util.find_spec("twine") is None, reason="twine is not installed")
def test_twine_accepts_them(packages: list[Path]) -> None:
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, packages)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_citation_names_this_version_and_the_paper() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    data = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert data["version"] == cspo.__version__ and data["license"] == "MIT"
    paper = data["preferred-citation"]
    assert paper["title"].startswith("CSPO:") and len(paper["authors"]) == 3


def test_an_installed_wheel_works_outside_of_the_checkout(
    packages: list[Path], tmp_path: Path
) -> None:
    """In an environment of its own, which borrows the dependencies of this one."""
    import venv

    place = tmp_path / "venv"
    venv.create(place, symlinks=os.name != "nt")
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(packages[0])], check=True, capture_output=True)
    asked = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    own = Path(subprocess.check_output([python, "-c", asked], text=True).strip())
    (own / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    (tmp_path / "empty").mkdir()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        settings: Any = {"cwd": tmp_path / "empty", "env": variables, "text": True}
        done = subprocess.run([*words], capture_output=True, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert Path(run(python, "-c", "import cspo; print(cspo.__file__)").strip()).is_relative_to(own)
    program = str(scripts / "cspo")
    assert run(program, "--version").startswith(f"cspo {cspo.__version__}\n")  # and no commit
    assert json.loads(run(program, "doctor", "--json"))["healthy"]
    assert len(json.loads(run(program, "tasks", "--json"))) == 77
    run(program, "train", "SafetyHopperVelocity-v1", *SHORT.split())
    (summary,) = (tmp_path / "empty" / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["finished"]
