"""Studies end whatever happens: killed processes, damaged files, failing runs, a full disk."""

from __future__ import annotations

import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_helpers import PYTHONPATH, SMALL, TASK, assert_same_run, start

from cspo.algorithms import registry
from cspo.cli import main
from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.study import RunSpec, read_study
from cspo.lab.study.engine import Outcome, in_one_line
from cspo.lab.study.schedule import Result, run_study
from cspo.lab.study.state import StudyFolder
from cspo.lab.study.view import PlainView, Statuses, make_view
from cspo.lab.study.worker import work
from cspo.runs.checkpoint import list_checkpoints

EPOCHS = 4
TINY = "run_helpers:make_tiny"
STUDY: dict[str, Any] = {
    "name": "small",
    "tasks": [TINY],
    "algorithms": ["cspo"],
    "seeds": 2,
    "total_steps": 400 * EPOCHS,
    "settings": {
        **{key: value for key, value in SMALL.items() if key not in ("seed", "total_steps")},
        "cost_limit": 0.5,  # low enough to be violated, so that every part of an algorithm acts
    },
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "study.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(tomli_w.dumps(STUDY | changes))
    return file


class Here:
    """An engine without processes: a run is trained while it is started."""

    slots = 1

    def start(self, spec: RunSpec, folder: Path) -> Here:
        try:
            work(to_dict(spec.config), str(folder))
            self.outcome = Outcome(None)
        except Exception as error:
            self.outcome = Outcome(in_one_line(error))
        return self

    def poll(self) -> Outcome:
        return self.outcome

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Events(PlainView):
    """Keeps what would be printed."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines += text.splitlines()

    def about(self, kind: str) -> list[str]:
        return [line.removeprefix(kind).strip() for line in self.lines if line.startswith(kind)]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    __import__("cspo.runs.curves")
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


def run_here(file: Path, out: Path) -> tuple[Result, Events]:
    events = Events()
    return run_study(read_study(file), StudyFolder(out), Here(), events), events


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)
    return value


def rows_in(out: Path) -> int:
    """Return the epochs done in all runs together."""
    return sum(
        max(0, file.read_bytes().count(b"\n") - 1) for file in out.glob("runs/*/progress.csv")
    )


def processes_of(session: int) -> dict[int, int]:
    """Return the living processes of a session, with their process groups."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            state, _, group, sid = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(sid) == session and state != "Z":
            found[int(entry.name)] = int(group)
    return found


def workers_of(session: int) -> list[int]:
    return [pid for pid, group in processes_of(session).items() if group == pid and pid != session]


@linux
@pytest.mark.timeout(300)  # three starts and 18 runs: over a minute on a busy machine
def test_killed_twice_it_ends_as_the_undisturbed_study_does(
    tmp_path: Path, no_pictures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, tasks=[TASK, TINY], algorithms=["cspo", "ppo-lag", "cpo"], seeds=3)
    study = read_study(file)
    assert len(study.runs) == 18
    reference = tmp_path / "reference"
    assert not run_here(file, reference)[0].failed
    out, moments = (
        tmp_path / "out",
        [random.SystemRandom().randrange(2, 16), random.SystemRandom().randrange(24, 48)],
    )

    def begin() -> subprocess.Popen[str]:
        return start("study", "run", file, "--out", out, start_new_session=True)

    process = begin()
    wait_until(
        lambda: rows_in(out) >= moments[0] or process.poll() is not None,
        f"{moments[0]} epochs are done",
    )
    assert main(["study", "status", str(out), "--json"]) == 0, "while it runs"
    seen = json.loads(capsys.readouterr().out)
    assert (
        seen["is_running"]
        and "running" in [run["state"] for run in seen["runs"]]
        and len(seen["runs"]) == 18
    )
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was still running"
    wait_until(lambda: not processes_of(process.pid), "all processes of the study are gone")

    process = begin()
    wait_until(
        lambda: rows_in(out) >= moments[1] or process.poll() is not None,
        f"{moments[1]} epochs are done",
    )
    victim = wait_until(lambda: workers_of(process.pid), "a run is going on")[0]
    os.kill(victim, signal.SIGKILL)  # a run alone
    wait_until(lambda: victim not in processes_of(process.pid), "it is gone")
    wait_until(lambda: workers_of(process.pid), "another run is going on")
    process.kill()  # the parent alone: its runs end by themselves
    assert process.wait() == -signal.SIGKILL, "it was still running"
    wait_until(lambda: not processes_of(process.pid), "the runs have ended by themselves")

    process = begin()
    printed, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert "18 of 18 runs are finished" in printed and "finished already" in printed
    for spec in study.runs:
        assert_same_run(out / "runs" / spec.id, reference / "runs" / spec.id)
    assert main(["study", "run", str(file), "--out", str(out)]) == 0, "and nothing is left to do"


@linux
def test_ctrl_c_stops_after_the_epoch_and_a_second_one_at_once(tmp_path: Path) -> None:
    file, out = write(tmp_path, tasks=[TASK], total_steps=400 * 1000, seeds=3), tmp_path / "out"
    for second in (False, True):
        before = rows_in(out) if out.exists() else 0
        process = start("study", "run", file, "--out", out, "--jobs", 2, start_new_session=True)
        wait_until(
            lambda b=before, p=process: rows_in(out) > b + 2 or p.poll() is not None,
            "two epochs are done",
        )
        process.send_signal(signal.SIGINT)
        if second:
            process.send_signal(signal.SIGTERM)  # two at once of the same kind may arrive as one
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        wait_until(lambda p=process: not processes_of(p.pid), "all processes are gone")
        assert "finishing the epoch under way" in errors
        if not second:
            assert printed.count("stopped   ") == 2 and "the same command continues" in printed
            for run in out.glob("runs/*"):
                assert (
                    list_checkpoints(run / "checkpoints")[-1].stem
                    == f"epoch-{rows_in_run(run):06d}"
                )
    assert json.loads((out / "running.json").read_text()) == []


def rows_in_run(run: Path) -> int:
    return (run / "progress.csv").read_bytes().count(b"\n") - 1


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.algorithm_names()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.mark.usefixtures("own_registry")
def test_a_failing_algorithm_is_tried_again_and_reported_and_the_others_finish(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = [
        "import os",
        "import cspo",
        "from cspo.algorithms.ppo import PPO",
        '@cspo.register("failing")',
        "class Failing(PPO):",
        "    def update(self, batch, J_c, d):",
        "        if not os.path.exists(os.path.join(os.path.dirname(__file__), 'mended')):",
        "            raise ValueError('no luck')",
        "        return super().update(batch, J_c, d)",
    ]
    (tmp_path / "failing.py").write_text("\n".join(plugin) + "\n")
    file, out = (
        write(tmp_path, algorithms=["failing", "ppo"], seeds=1, plugin="failing.py", retries=1),
        tmp_path / "o",
    )
    assert main(["study", "run", str(file), "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    name, error = "run_helpers-make_tiny-failing-seed0", "ValueError: no luck (failing.py, line 8)"
    assert [f"failed    {name} (attempt {i} of 2): {error}" in printed for i in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert (
        "1 of 2 runs are finished" in printed
        and f"failed after 2 attempts: {name}: {error}" in printed
    )
    assert json.loads((out / "failures" / f"{name}.json").read_text()) == {
        "attempts": 2,
        "error": error,
    }
    assert "Traceback" in (out / "logs" / f"{name}.log").read_text()
    assert main(["study", "status", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"failed  {name}: {error}" in printed and "1 finished, 1 failed" in printed
    (tmp_path / "mended").touch()
    assert main(["study", "run", str(file), "--out", str(out)]) == 0, (
        "the next start tries it again"
    )
    assert not list((out / "failures").iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with study.toml and the finished study in `out`."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        __import__("cspo.runs.curves")
        patch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)
        assert not run_here(write(folder), folder / "out")[0].failed
    yield folder


def cut(path: Path, keep: float = 0.5) -> None:
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])


def cut_lines(path: Path, keep: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))


def checkpoints(run: Path) -> list[Path]:
    return list_checkpoints(run / "checkpoints")


def unfinish(run: Path) -> None:
    (run / "summary.json").unlink()


DAMAGE: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "last row cut": (
        lambda run: cut(run / "progress.csv", 0.98),
        ["progress.csv ended in the middle of a row", "progress.csv holds 3 of the 4 epochs done"],
    ),
    "last row gone": (
        lambda run: cut_lines(run / "progress.csv", EPOCHS),
        ["progress.csv holds 3 of the 4 epochs done"],
    ),
    "most rows gone": (
        lambda run: cut_lines(run / "progress.csv", 2),
        [
            "progress.csv holds 1 of the 4 epochs done: the others are built again from the "
            "checkpoint."
        ],
    ),
    "progress gone": (
        lambda run: (run / "progress.csv").unlink(),
        ["progress.csv holds 0 of the 4 epochs done"],
    ),
    "last checkpoint cut": (
        lambda run: cut(checkpoints(run)[-1]),
        ["Checkpoint epoch-000004.safetensors is damaged: it cannot be"],
    ),
    "last checkpoint gone": (
        lambda run: (unfinish(run), checkpoints(run)[-1].unlink()),
        [],
    ),
    "no checkpoint readable": (
        lambda run: (unfinish(run), [cut(path) for path in checkpoints(run)]),
        ["no checkpoint can be read: the run starts anew."],
    ),
    "no checkpoint": (
        lambda run: (unfinish(run), shutil.rmtree(run / "checkpoints")),
        ["there is no checkpoint of the 4 epochs done: the run starts anew."],
    ),
    "config cut": (
        lambda run: (unfinish(run), cut(run / "config.toml", 0.3)),
        ["config.toml was cut short: it is written again from the study."],
    ),
    "config cut between two lines": (
        lambda run: (
            unfinish(run),
            cut_lines(run / "config.toml", 12),
            checkpoints(run)[-1].unlink(),
        ),
        ["config.toml was cut short: it is written again from the study."],
    ),
    "config cut within its last number": (
        lambda run: (unfinish(run), cut(run / "config.toml", 0.999)),
        ["config.toml was cut short: it is written again from the study."],
    ),
    "config gone": (
        lambda run: (unfinish(run), (run / "config.toml").unlink()),
        ["config.toml was missing: it is written again from the study."],
    ),
    "summary cut": (
        lambda run: cut(run / "summary.json"),
        ["summary.json could not be read: it is written again."],
    ),
    "killed before it was complete": (
        lambda run: (
            shutil.rmtree(run),
            run.mkdir(),
            (run / ".config.toml.partial").write_text('task = "Sa'),
        ),
        [],
    ),
    "killed before its first epoch": (
        lambda run: (
            unfinish(run),
            shutil.rmtree(run / "checkpoints"),
            (run / "progress.csv").unlink(),
        ),
        [],
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_repaired_and_becomes_what_it_was(
    tmp_path: Path, finished: Path, no_pictures: None, name: str
) -> None:
    damage, expected = DAMAGE[name]
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    hurt, other = sorted((out / "runs").iterdir())
    untouched = {path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()}
    damage(hurt)
    result, events = run_here(finished / "study.toml", out)
    assert len(result.finished) == 2 and not result.failed
    told = events.about("repaired")
    assert len(told) == len(expected)
    assert all(
        line.startswith(f"{hurt.name}: {text}") for line, text in zip(told, expected, strict=True)
    )
    assert events.about("started")[0].startswith(hurt.name) and len(events.about("started")) == 1
    assert_same_run(hurt, finished / "out" / "runs" / hurt.name)
    assert {
        path: path.stat().st_mtime_ns for path in other.rglob("*") if path.is_file()
    } == untouched
    assert (out / "damaged").exists() == any("starts anew" in line for line in told)


def test_a_finished_run_without_its_checkpoints_stays_finished(
    tmp_path: Path, finished: Path
) -> None:
    """Its results are complete, and removing checkpoints is how a full study is made small."""
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    first, second = sorted((out / "runs").iterdir())
    shutil.rmtree(first / "checkpoints")
    for path in checkpoints(second):
        cut(path)
    result, events = run_here(finished / "study.toml", out)
    assert len(result.finished) == 2 and not events.about("started")


def test_a_study_file_that_was_cut_is_written_again(tmp_path: Path, finished: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    cut(out / "study.toml")
    result, events = run_here(finished / "study.toml", out)
    assert len(result.finished) == 2 and not events.about("started")
    assert events.about("repaired") == [
        f"{out / 'study.toml'} could not be read: it is written again."
    ]
    assert (out / "study.toml").read_bytes() == (finished / "study.toml").read_bytes()


def test_a_study_may_grow_but_not_change(tmp_path: Path, finished: Path, no_pictures: None) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    result, events = run_here(write(tmp_path, seeds=3), out)
    assert len(result.finished) == 3 and events.about("started") == [
        "run_helpers-make_tiny-cspo-seed2"
    ]
    settings = STUDY["settings"] | {"threads": 2}
    assert len(run_here(write(tmp_path, seeds=3, settings=settings), out)[0].finished) == 3, (
        "threads change nothing"
    )
    refused = {
        "holds the study 'small', not 'other'": {"name": "other"},
        "has the run run_helpers-make_tiny-cspo-seed2, which this study has not": {"seeds": 2},
        "total_steps is 2400 in the study, and was 1600 in": {"seeds": 3, "total_steps": 2400},
        r"algorithm.alpha is \[0.5\] in the study, and was \[1.0\]": {
            "seeds": 3, "algorithm": {"cspo": {"alpha": 0.5}}
        },
        "algorithm.weight_max is 20.0 in the study, and was 1.0 in": {
            "seeds": 3, "algorithm": {"cspo": {"weight_max": 20.0}}
        },
    }  # fmt: skip
    before = (out / "study.toml").read_bytes()
    for message, changes in refused.items():
        with pytest.raises(CspoError, match=message):
            run_here(write(tmp_path, **changes), out)
    assert (out / "study.toml").read_bytes() == before


def test_a_second_process_is_refused_and_sees_the_first(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    folder = StudyFolder(out)
    names = sorted(path.name for path in (out / "runs").iterdir())
    unfinish(out / "runs" / names[0])
    unfinish(out / "runs" / names[1])
    with folder.held():
        folder.set_running(names[:1])
        assert main(["study", "run", str(finished / "study.toml"), "--out", str(out)]) == 2
        assert "Another process is running the study" in capsys.readouterr().err
        assert main(["study", "status", str(out), "--json"]) == 0
        seen = json.loads(capsys.readouterr().out)
        assert seen["is_running"] and [run["state"] for run in seen["runs"]] == [
            "running",
            "stopped",
        ]
        assert seen["runs"][0]["epochs_done"] == EPOCHS and seen["runs"][0]["cost"][0] > 0
    assert main(["study", "status", str(out), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert not seen["is_running"] and {run["state"] for run in seen["runs"]} == {"stopped"}
    assert main(["study", "status", str(tmp_path)]) == 2
    assert "holds no study" in capsys.readouterr().err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_fails_a_run_in_words_and_harms_no_other(
    tmp_path: Path, finished: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = small_disk / "out"
    shutil.copytree(finished / "out", out)
    before = {path: path.read_bytes() for path in (out / "runs").rglob("*") if path.is_file()}
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), open(filler, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    os.truncate(filler, filler.stat().st_size - 40_960)  # enough to begin
    file = write(tmp_path, seeds=3)
    assert main(["study", "run", str(file), "--out", str(out), "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert (
        "failed after 3 attempts: run_helpers-make_tiny-cspo-seed2: " in printed
        and "No space left" in printed
    )
    assert {path: path.read_bytes() for path in before} == before
    filler.unlink()
    assert main(["study", "run", str(file), "--out", str(out)]) == 0
    assert "3 of 3 runs are finished" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("width", "name"),
    [(120, "run_helpers-make_tiny-cspo-seed1"), (80, "run_helpe…ke_tiny-cspo-seed1")],
)
def test_the_live_table_shows_every_run(
    finished: Path, monkeypatch: pytest.MonkeyPatch, width: int, name: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    study, folder, screen = (
        read_study(finished / "study.toml"),
        StudyFolder(finished / "out"),
        Terminal(),
    )
    statuses = Statuses(folder.status(study))
    view = make_view(screen)
    view.start(study, Path("out"), 2, statuses)
    view.event("failed", "x (attempt 1 of 3): no luck")
    view.stop()
    shown = re.sub(
        r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()
    )  # without colours and cursor movements
    assert name in shown and "100 %" in shown and "no luck" in shown
    assert "2 runs: 2 finished" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_the_time_left_is_the_steps_left_at_the_speed_of_the_task() -> None:
    from cspo.lab.study.state import RunStatus

    def status(task: str, state: Any, done: int, speed: float) -> RunStatus:
        return RunStatus(f"{task}-{state}", task, state, done, 10, 1000, 0.0, (), (), speed)

    statuses = [
        status("fast", "finished", 10, 100.0),
        status("fast", "waiting", 0, float("nan")),  # 1000 / 100 = 10 s
        status("slow", "running", 5, 10.0),  # 500 / 10 = 50 s
        status("slow", "failed", 5, float("nan")),
        status("new", "waiting", 0, float("nan")),  # 1000 / 55 = 18.2 s
    ]
    assert Statuses(statuses).seconds_left(1) == pytest.approx(10 + 50 + 1000 / 55)
    assert Statuses(statuses).seconds_left(2) == pytest.approx(50), (
        "not before the longest run is done"
    )
    assert statuses[2].seconds_left == pytest.approx(50)
    assert math.isnan(Statuses([statuses[1]]).seconds_left(1)), "nothing is known yet"


def test_slots_are_processes_of_their_own(tmp_path: Path) -> None:
    """A program that starts a study needs no `if __name__ == "__main__"`."""
    file = write(tmp_path, seeds=1, total_steps=400)
    program = tmp_path / "program.py"
    lines = [
        "from cspo.lab.study import read_study",
        "from cspo.lab.study.engine import LocalEngine",
        "from cspo.lab.study.schedule import run_study",
        "from cspo.lab.study.state import StudyFolder",
        "from cspo.lab.study.view import make_view",
        f"run_study(read_study({str(file)!r}), StudyFolder('out'), LocalEngine(1), make_view())",
    ]
    program.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1 of 1 runs are finished") == 1
