"""Studies whose storage, clock or archives fail them, and what very many runs cost."""

from __future__ import annotations

import hashlib
import io
import json
import random
import stat
import sys
import time
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_helpers import SMALL, assert_same_run

from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.study import read_study
from cspo.lab.study.mirror import Mirror
from cspo.lab.study.schedule import Result, run_study
from cspo.lab.study.state import RunStatus, StudyFolder
from cspo.lab.study.storage import Storage, StoredRun, pack
from cspo.lab.study.view import PlainView, Statuses
from cspo.lab.study.worker import work

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'cspo[ray]'")
STUDY: dict[str, Any] = {
    "name": "small",
    "tasks": ["run_helpers:make_tiny"],
    "algorithms": ["cspo", "ppo-lag"],
    "seeds": 1,
    "total_steps": 400 * 3,
    "settings": {
        **{key: value for key, value in SMALL.items() if key not in ("seed", "total_steps")},
        "cost_limit": 0.5,
    },
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Copies of studies go to a cache of the test's own, and no picture is drawn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("cspo.lab.study.schedule.REST", 0.0)
    __import__("cspo.runs.curves")
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("study") / "study.toml"
    file.write_text(tomli_w.dumps(STUDY))
    return file


@pytest.fixture(scope="module")
def undisturbed(study_file: Path) -> Iterator[Path]:
    """The runs of the study, trained one by one."""
    with pytest.MonkeyPatch.context() as patch:
        __import__("cspo.runs.curves")
        patch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)
        for spec in read_study(study_file).runs:
            work(to_dict(spec.config), str(study_file.parent / "runs" / spec.id))
    yield study_file.parent / "runs"


class Faults:
    """What happens to the calls of storage: counted, delayed, failing by their numbers."""

    def __init__(self, files: Any) -> None:
        self.calls, self.delay = 0, 0.0
        self.failing: range = range(0)
        self.outage = 0.0  # seconds from the first call that fails on in which all do
        self._back = 0.0
        for name in ("cat_file", "pipe_file", "ls", "mv", "rm_file"):
            setattr(files, name, self._disturbed(getattr(files, name)))

    def _disturbed(self, call: Any) -> Any:
        def disturbed(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            time.sleep(self.delay)
            if self.calls in self.failing:
                self._back = time.monotonic() + self.outage
            if self.calls in self.failing or time.monotonic() < self._back:
                raise OSError(5, "the store is out of order")
            return call(*arguments, **keywords)

        return disturbed


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Disturb what every `Storage` of this test reaches."""
    from fsspec.implementations.local import LocalFileSystem

    files = LocalFileSystem(skip_instance_cache=True)
    made = Faults(files)
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: (files, url.removeprefix("file://")))
    return made


class Actor:
    """An actor that does at once what it is asked, in this process."""

    def __init__(self, kind: Any) -> None:
        self._real = kind()

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=getattr(self._real, name))


class LocalRay:
    """What the engine needs of Ray: one core, answers at once."""

    exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def remote(self, **_: Any) -> Any:
        return lambda kind: types.SimpleNamespace(remote=lambda: Actor(kind))

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def wait(self, answers: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return answers, []

    def get(self, answer: Any) -> Any:
        return answer

    def kill(self, actor: Any) -> None: ...

    def shutdown(self) -> None: ...


class Lines(PlainView):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines += text.splitlines()


def run_in_storage(file: Path, store: Path) -> tuple[Result, list[str], Path]:
    """Run a study whose files are at an address, by the engine for clusters, in this process."""
    from cspo.lab.study import ray_engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_engine, "_load_ray", LocalRay)
        patch.setattr(ray_engine, "_connect", lambda ray, address: None)
        mirror, view = Mirror(f"file://{store}"), Lines()
        engine = ray_engine.RayEngine(mirror=mirror)
        folder = mirror.fetch()
        result = run_study(read_study(file), StudyFolder(folder), engine, view)
    return result, view.lines, folder


def assert_same(folder: Path, undisturbed: Path) -> None:
    for run in undisturbed.iterdir():
        assert_same_run(folder / "runs" / run.name, run)


def test_slow_storage_changes_nothing(
    study_file: Path, undisturbed: Path, faults: Faults, tmp_path: Path
) -> None:
    faults.delay = 0.01
    result, _, folder = run_in_storage(study_file, tmp_path / "store")
    assert len(result.finished) == 2 and faults.calls > 30
    assert_same(folder, undisturbed)


def test_storage_that_fails_once_costs_an_attempt_at_most(
    study_file: Path, undisturbed: Path, faults: Faults, tmp_path: Path
) -> None:
    """Whichever call it is that fails, after those with which the command begins."""
    calls = random.SystemRandom().sample(range(8, 45), 3)
    for call in calls:
        faults.calls, faults.failing = 0, range(call, call + 1)
        result, lines, folder = run_in_storage(study_file, tmp_path / f"store-{call}")
        assert faults.calls > call, "it has failed"
        assert len(result.finished) == 2 and not result.failed, (call, lines)
        assert_same(folder, undisturbed)
        told = [line for line in lines if line.startswith("failed")]
        assert len(told) <= 1 and all("the store is out of order" in line for line in told)


def test_storage_that_fails_for_good_is_said_and_the_next_start_continues(
    study_file: Path, undisturbed: Path, faults: Faults, tmp_path: Path
) -> None:
    faults.failing = range(25, 10**9)
    store = tmp_path / "store"
    result, lines, _ = run_in_storage(study_file, store)
    assert result.failed and all("out of order" in error for error in result.failed.values())
    assert len([line for line in lines if line.startswith("failed after 3 attempts")]) >= 1
    assert lines[-1].startswith("The same command tries the failed ones again")
    faults.failing = range(0)
    result, _, folder = run_in_storage(study_file, store)
    assert len(result.finished) == 2
    assert_same(folder, undisturbed)


def test_an_outage_uses_up_no_more_than_an_attempt(
    study_file: Path,
    undisturbed: Path,
    faults: Faults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that cannot be started is tried again after a while, not three times at once."""
    monkeypatch.setattr("cspo.lab.study.schedule.REST", 1.5)
    faults.failing, faults.outage = range(20, 21), 1.0
    result, lines, folder = run_in_storage(study_file, tmp_path / "store")
    assert len(result.finished) == 2 and not result.failed, lines
    assert any("out of order" in line for line in lines)
    assert_same(folder, undisturbed)


def test_a_clock_that_jumps_changes_nothing(
    study_file: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jumps = time.time, iter(range(10**9))

    def jumping() -> float:
        return real() + 86_400.0 * (-1) ** next(jumps)

    monkeypatch.setattr(time, "time", jumping)
    _, lines, folder = run_in_storage(study_file, tmp_path / "store")
    assert_same(folder, undisturbed)
    assert "2 of 2 runs are finished" in lines[-2]


def zip_of(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return content.getvalue()


def zip_with(
    name: str, data: bytes = b"x", *, kind: int = 0, packing: int = 0, locked: bool = False
) -> bytes:
    """An archive that begins like a run's, with one more member."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo("config.toml"), "seed = 1")
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (kind | 0o644) << 16
        archive.writestr(entry, data, compress_type=packing)
    raw = content.getvalue()
    if locked:  # the first bit of its flags, in its own header and in the directory
        at, listed = raw.rindex(b"PK\3\4") + 6, raw.rindex(b"PK\1\2") + 8
        raw = raw[:at] + b"\1" + raw[at + 1 : listed] + b"\1" + raw[listed + 1 :]
    return raw


HOSTILE = {
    "path traversal": lambda: zip_with("../../outside"),
    "hidden path traversal": lambda: zip_with("a/../../../outside"),
    "absolute name": lambda: zip_with("/tmp/outside"),
    "backslashes": lambda: zip_with("..\\..\\outside"),
    "symbolic link": lambda: zip_with("progress.csv", b"/etc/passwd", kind=stat.S_IFLNK),
    "pipe": lambda: zip_with("progress.csv", kind=stat.S_IFIFO),
    "device": lambda: zip_with("progress.csv", kind=stat.S_IFCHR),
    "bomb": lambda: zip_with("progress.csv", b"\0" * 2**26, packing=zipfile.ZIP_DEFLATED),
    "bomb of another packing": lambda: zip_with("x", b"\0" * 2**22, packing=zipfile.ZIP_LZMA),
    "very many members": lambda: zip_of(**{f"file-{i}": b"" for i in range(20_000)}),
    "a name too long": lambda: zip_with("n" * 300),
    "a file that is a folder too": lambda: zip_with("config.toml/x"),
    "encrypted": lambda: zip_with("progress.csv", locked=True),
    "not an archive": lambda: b"PK\5\6" + b"\0" * 17,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_in_storage_is_passed_over(
    name: str, undisturbed: Path, tmp_path: Path
) -> None:
    """It counts as damaged, digest and all; the copy before it is taken."""
    run = StoredRun(Storage(f"file://{tmp_path / 'store'}"), "run")
    run.claim("ours")
    source = next(undisturbed.iterdir())
    good = run.push(source, "ours")
    content, place = HOSTILE[name](), tmp_path / "store" / "runs" / "run"
    (place / "epoch-999999-evil.zip").write_bytes(content)
    pointer = {"archive": "epoch-999999-evil.zip", "sha256": hashlib.sha256(content).hexdigest()}
    (place / "current.json").write_text(json.dumps(pointer))
    before = {path for path in tmp_path.rglob("*") if "copy" not in path.parts}
    assert run.pull(tmp_path / "copy" / "run") == good
    assert_same_run(tmp_path / "copy" / "run", source)
    assert {path for path in tmp_path.rglob("*") if "copy" not in path.parts} == before
    assert not list((tmp_path / "copy").rglob("*.partial"))
    (place / good).unlink()
    assert run.pull(tmp_path / "empty" / "run") == "" and not (tmp_path / "empty").exists()


def test_names_in_storage_lead_nowhere_else(undisturbed: Path, tmp_path: Path) -> None:
    """In a store of keys a folder may be called `..`, and a pointer may say anything."""
    import fsspec

    _, content = pack(next(undisturbed.iterdir()))
    address = f"memory://{tmp_path.name}-hostile"
    files, root = fsspec.core.url_to_fs(address)
    for key in ("runs/../epoch-000001-x.zip", "runs/good/epoch-000001-x.zip"):
        files.store[f"{root}/{key}"] = fsspec.implementations.memory.MemoryFile(
            files, f"{root}/{key}", content
        )
    outside = json.dumps({"archive": "../../elsewhere.zip"}).encode()
    files.pipe_file(f"{root}/runs/good/current.json", outside)
    files.pipe_file(f"{root}/elsewhere.zip", zip_of(evil=b"x"))
    run = StoredRun(Storage(address), "good")
    assert ".." not in Storage(address).names("runs")
    assert run.pull(tmp_path / "copy" / "good") == "epoch-000001-x.zip"
    assert not (tmp_path / "copy" / "good" / "evil").exists()


def a_status(name: int, state: Any, speed: float, task: str, done: int) -> RunStatus:
    return RunStatus(f"{name}", task, state, done, 10, 1000, 0.0, (1.0,), (2.0,), speed)


def test_counts_kept_up_to_date_are_those_of_counting_anew() -> None:
    chance, kept = random.Random(5), Statuses()
    for _ in range(500):
        state = chance.choice(["waiting", "running", "stopped", "finished", "failed"])
        speed = chance.choice([float("nan"), chance.uniform(10.0, 1000.0)])
        status = a_status(
            chance.randrange(20), state, speed, chance.choice("ab"), chance.randrange(11)
        )
        kept[status.id] = status
        anew = Statuses(kept.values())
        assert +kept.states == +anew.states and sum(kept.states.values()) == len(kept)
        assert kept.seconds_left(2) == pytest.approx(anew.seconds_left(2), nan_ok=True)


def test_the_end_of_a_run_costs_the_same_among_thousands() -> None:
    """Counts over all runs are kept up to date, not counted anew at every end."""
    view, runs = Lines(), 3000
    view.slots = 2
    view.statuses = Statuses(a_status(i, "waiting", float("nan"), "a", 0) for i in range(runs))
    started = time.process_time()
    for i in range(runs):
        view.statuses[f"{i}"] = status = a_status(i, "finished", 100.0 + i, "a", 10)
        view.ended(status)
    assert time.process_time() - started < 2.0
    assert "(3000 of 3000 finished, 0:00 left)" in view.lines[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_few_open_files_are_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resource

    from cspo.lab.study.engine import LocalEngine

    monkeypatch.setattr(resource, "getrlimit", lambda _: (12, 4096))
    with pytest.raises(CspoError, match=r"may open 12 files, and the study needs 40: .*ulimit"):
        LocalEngine(2)
