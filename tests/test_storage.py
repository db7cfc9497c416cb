"""Runs in storage: whatever is interrupted or damaged, the newest intact copy is found.

Two writers do not mix.
"""

from __future__ import annotations

import json
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from run_helpers import SMALL, TASK, assert_same_run

from cspo.cli import main
from cspo.config import make_config, to_dict
from cspo.errors import CspoError
from cspo.lab.study.engine import is_address
from cspo.lab.study.mirror import Mirror
from cspo.lab.study.storage import Storage, StoredRun, Superseded, pack, unpack
from cspo.lab.study.worker import work
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.session import resume
from cspo.runs.trainer import Trainer

RUN = "Hopper-cspo-seed3"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("trained") / RUN
    work(to_dict(make_config(TASK, "cspo", **SMALL)), str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def run(root: Path) -> StoredRun:
    stored = StoredRun(Storage(f"file://{root}"), RUN)
    stored.claim("ours")
    return stored


def partly_trained(folder: Path, epochs: int) -> Trainer:
    trainer = Trainer(make_config(TASK, "cspo", **SMALL), run_dir=folder)
    for _, _ in zip(range(epochs), trainer, strict=False):
        pass
    return trainer


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_addresses() -> None:
    assert is_address("s3://bucket/study") and is_address("file:///a")
    assert not is_address("studies/main")


def test_up_and_down(run: StoredRun, trained: Path, tmp_path: Path) -> None:
    assert run.pull(tmp_path / "nothing") == "" and not (tmp_path / "nothing").exists()
    run.push(trained, "ours")
    copy = tmp_path / "copy" / RUN
    copy.mkdir(parents=True)
    (copy / "stale").write_text("not of the run")
    assert run.pull(copy) == run.version()
    there = files_of(trained)
    del there[".lock"]
    assert files_of(copy) == there
    assert_same_run(copy, trained)


def test_a_run_goes_on_from_storage_as_if_nothing_had_happened(
    run: StoredRun, trained: Path, tmp_path: Path
) -> None:
    trainer = partly_trained(tmp_path / "first" / RUN, 3)
    run.push(tmp_path / "first" / RUN, "ours")
    # An epoch that is never copied: its node is lost.
    for _ in zip(range(1), trainer, strict=False):
        pass
    elsewhere = tmp_path / "second" / RUN
    run.pull(elsewhere)
    resume(elsewhere, quiet=True)
    assert_same_run(elsewhere, trained)


def test_packing_while_the_run_goes_on(trained: Path, tmp_path: Path) -> None:
    """Copies are taken at any moment; each of them can be resumed."""
    folder, packed = tmp_path / RUN, []
    done = threading.Event()

    def copy() -> None:
        while not done.is_set():
            try:
                packed.append(pack(folder))
            except FileNotFoundError:
                continue  # a checkpoint was replaced meanwhile; the next look finds the new one

    thread = threading.Thread(target=copy)
    folder.mkdir()
    thread.start()
    partly_trained(folder, 6)
    done.set()
    thread.join()
    seen = {epochs: content for epochs, content in packed if epochs}
    assert len(seen) >= 3
    for epochs, content in seen.items():
        copy_of = tmp_path / f"copy-{epochs}" / RUN
        unpack(content, copy_of)
        assert Trainer.resume(copy_of).epoch == epochs
        resume(copy_of, quiet=True)
        assert_same_run(copy_of, trained)


@pytest.mark.parametrize("stage", ["archive", "current.json"])
def test_a_copy_interrupted_half_way_changes_nothing(
    run: StoredRun, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = partly_trained(tmp_path / "a" / RUN, 2)
    before = run.push(tmp_path / "a" / RUN, "ours")
    for _ in zip(range(2), trainer, strict=False):
        pass
    real = run.storage._files.pipe_file

    def cut(path: str, content: bytes, **keywords: Any) -> None:
        if (".zip" in path) if stage == "archive" else ("current.json" in path):
            real(path, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        real(path, content, **keywords)

    monkeypatch.setattr(run.storage._files, "pipe_file", cut)
    with pytest.raises(CspoError, match="No space left on device"):
        run.push(tmp_path / "a" / RUN, "ours")
    monkeypatch.undo()
    assert run.version() == before
    assert run.pull(tmp_path / "b" / RUN) == before
    assert Trainer.resume(tmp_path / "b" / RUN).epoch == 2


@pytest.mark.parametrize("damage", ["cut", "altered", "missing", "pointer cut", "pointer missing"])
def test_damaged_storage_falls_back(
    run: StoredRun, root: Path, damage: str, tmp_path: Path
) -> None:
    trainer = partly_trained(tmp_path / "a" / RUN, 2)
    older = run.push(tmp_path / "a" / RUN, "ours")
    for _ in zip(range(2), trainer, strict=False):
        pass
    newer = run.push(tmp_path / "a" / RUN, "ours")
    archive, pointer = root / "runs" / RUN / newer, root / "runs" / RUN / "current.json"
    content = archive.read_bytes()
    if damage == "cut":
        archive.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        middle = len(content) // 2
        altered = bytes([content[middle] ^ 255])
        archive.write_bytes(content[:middle] + altered + content[middle + 1 :])
    elif damage == "missing":
        archive.unlink()
    elif damage == "pointer cut":
        pointer.write_bytes(pointer.read_bytes()[:10])
    else:
        pointer.unlink()
    expected = newer if damage.startswith("pointer") else older
    assert run.pull(tmp_path / "b" / RUN) == expected
    assert Trainer.resume(tmp_path / "b" / RUN).epoch == (4 if expected == newer else 2)


def test_who_lost_the_run_cannot_write(
    run: StoredRun, root: Path, trained: Path, tmp_path: Path
) -> None:
    partly_trained(tmp_path / "a" / RUN, 2)
    run.push(trained, "ours")
    before = files_of(root)
    run.claim("theirs")
    with pytest.raises(Superseded):
        run.push(tmp_path / "a" / RUN, "ours")
    after = files_of(root)
    name = f"runs/{RUN}/owner.json"
    assert before.keys() == after.keys()
    assert {key for key in after if before[key] != after[key]} == {name}


def test_checking_leaves_nothing_behind(root: Path) -> None:
    Storage(f"file://{root}").check()
    assert files_of(root) == {}


def test_old_archives_are_removed(run: StoredRun, root: Path, trained: Path) -> None:
    names = [run.push(trained, "ours") for _ in range(4)]
    assert {path.name for path in (root / "runs" / RUN).glob("*.zip")} == set(names[-2:])


def test_an_archive_cannot_leave_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "evil.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../outside", "x")
        archive.writestr("/absolute-outside", "x")
    unpack(file.read_bytes(), tmp_path / "deep" / "run")
    assert {path.name for path in (tmp_path / "deep" / "run").rglob("*")} == {
        "outside",
        "absolute-outside",
    }
    assert not (tmp_path / "outside").exists() and not Path("/absolute-outside").exists()


def test_the_mirror(
    run: StoredRun, root: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = f"file://{root}"
    run.push(trained, "ours")
    first = Mirror(address)
    folder = first.fetch()
    assert_same_run(folder / "runs" / RUN, trained)
    (folder / "study.toml").write_text("name = 'x'")
    (folder / "failures").mkdir()
    record = json.dumps({"attempts": 3, "error": "it broke"})
    (folder / "failures" / "other.json").write_text(record)
    first.send()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    second = Mirror(address)
    assert files_of(second.fetch() / "failures") == files_of(folder / "failures")
    (folder / "failures" / "other.json").unlink()
    first.send()
    assert not files_of(second.fetch() / "failures")
    assert (second.path / "study.toml").read_text() == "name = 'x'"
    # Looking at the progress of a run never leaves a mixture behind.
    progress = second.path / "runs" / RUN / "progress.csv"
    progress.unlink()
    second.refresh(RUN)
    assert progress.read_bytes() == (trained / "progress.csv").read_bytes()
    for path in list_checkpoints(second.path / "runs" / RUN / "checkpoints"):
        path.unlink()
    second.fetch()
    assert_same_run(second.path / "runs" / RUN, trained)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "study status nosuch://bucket/study",
            "Cannot use nosuch://bucket/study: Protocol not known: nosuch",
        ),
        ("study run cspo-nothing --out file:///tmp/x", "cspo-nothing"),
        ("study run alpha-small --out file:///nowhere/x", "that is for --engine ray"),
        ("study run alpha-small --out file:///proc/x --engine ray", "Cannot use file:///proc/x: "),
        ("study run alpha-small --out x --address auto", "--address is for --engine ray."),
        ("study run alpha-small --out x --cpus 2", "--cpus is for --engine ray."),
        ("study run alpha-small --out x --engine ray --cpus 0", "--cpus must be positive, not 0."),
    ],
)
def test_wrong_input(
    words: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if words.endswith("ray"):
        pytest.importorskip("ray", reason="Ray is not installed: pip install 'cspo[ray]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(words.split()) == 2
    output, errors = capsys.readouterr()
    assert errors.startswith("cspo: error: ") and said in errors and output == ""
    assert len(errors.splitlines()) <= 2


def test_a_missing_package_for_storage(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec")
    try:
        import s3fs  # noqa: F401
    except ImportError:
        assert main(["study", "status", "s3://bucket/study"]) == 2
        assert "s3fs" in capsys.readouterr().err
    else:
        pytest.skip("s3fs is installed")
