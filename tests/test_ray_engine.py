"""Studies on a real Ray cluster: a head and two nodes here, killed, cut off and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_helpers import SMALL, TASK, TESTS, TinyEnv, assert_same_run, start

from cspo.cli import main
from cspo.config import to_dict
from cspo.errors import CspoError
from cspo.lab.study import RunSpec, read_study
from cspo.lab.study.engine import Outcome
from cspo.lab.study.mirror import Mirror
from cspo.lab.study.ray_engine import RayEngine, RayHandle
from cspo.lab.study.speed import STEPS_PER_SECOND
from cspo.lab.study.worker import work

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
    pytest.mark.timeout(180),
]
EPOCHS = 4
STUDY: dict[str, Any] = {
    "name": "small",
    "tasks": [TASK, "test_ray_engine:GatedEnv"],
    "algorithms": ["cspo", "ppo-lag", "p3o"],
    "seeds": 3,
    "total_steps": 400 * EPOCHS,
    "settings": {
        **{key: value for key, value in SMALL.items() if key not in ("seed", "total_steps")},
        "cost_limit": 0.5,
        "threads": 1,
    },
}
MEMORY = 80 * 2**20  # bytes of an object store
# Nodes that are silent count as lost after about 2 s rather than 15.
IMPATIENT = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


class GatedEnv(TinyEnv):
    """Takes its time while a file exists: 0.8 s or more per epoch, enough to be disturbed."""

    def __init__(self, gate: str = "") -> None:
        super().__init__()
        self.gate = gate

    def step(self, action: Any) -> Any:
        if os.path.exists(self.gate):
            time.sleep(0.002)
        return super().step(action)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)
    return value


def study_file(folder: Path, **changes: Any) -> Path:
    """Write a study whose second task is slow as long as there is a file `gate`, as now."""
    gate, file = folder / "gate", folder / "study-file.toml"
    gate.touch()
    table = {"test_ray_engine:GatedEnv": {"env_options": {"gate": str(gate)}}}
    file.write_text(tomli_w.dumps(STUDY | {"task": table} | changes))
    return file


def one_run(folder: Path, epochs: int) -> RunSpec:
    """A run on the slow task."""
    changes = {"tasks": ["test_ray_engine:GatedEnv"], "algorithms": ["cspo"], "seeds": [1]}
    return read_study(study_file(folder, **changes, total_steps=400 * epochs)).runs[0]


def reference(specs: Any, folder: Path) -> Path:
    """Train the runs here, one after the other, without disturbance."""
    for spec in specs:
        work(to_dict(spec.config), str(folder / "runs" / spec.id))
    return folder


def rows(folder: Path) -> int:
    """Return the epochs that progress.csv of a run has."""
    with contextlib.suppress(FileNotFoundError):
        return max(0, (folder / "progress.csv").read_bytes().count(b"\n") - 1)
    return 0


def owner_of(folder: Path) -> str:
    return str(json.loads((folder / ".owner").read_text())["token"])


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Nodes:
    """A cluster of processes on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "_system_config": IMPATIENT, "include_dashboard": False}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"object_store_memory": MEMORY, **head}
        )
        self.address = self.cluster.address
        self.workers: list[Any] = []
        self.fill()

    def fill(self) -> None:
        """Have two worker nodes, with one core each."""
        self.workers = [node for node in self.workers if is_alive(self.raylet(node))]
        while len(self.workers) < 2:
            self.workers.append(self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY))

    @staticmethod
    def raylet(node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def processes(self, node: Any) -> list[int]:
        """The raylet of a node and everything it has started."""
        raylet = self.raylet(node)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text()
            return [raylet, *map(int, children.split())]
        return []

    def node_of(self, folder: Path) -> tuple[Any, int]:
        """The node and the process that train the run in a folder: it has the lock open."""
        for node in self.workers:
            for process in self.processes(node):
                for file in Path(f"/proc/{process}/fd").glob("*"):
                    with contextlib.suppress(OSError):
                        if os.readlink(file) == str(folder / ".lock"):
                            return node, process
        return None, 0


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the runs that are trained here for comparison."""
    __import__("cspo.runs.curves")
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cspo[ray]'")
    # A folder of its own for everything of Ray, the file with the cluster's address included:
    # without it Ray writes that file where only an earlier run may have made a folder. Short, since
    # the names of sockets are.
    temporary = tempfile.mkdtemp(prefix="r")
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(TESTS), "RAY_TMPDIR": temporary}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    cluster = Nodes()
    try:
        yield cluster
    finally:
        cluster.cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        wait_until(lambda: not processes_with(temporary), "all processes of Ray are gone", 20.0)
        shutil.rmtree(temporary, ignore_errors=True)


def processes_with(word: str) -> list[str]:
    """Return the command lines that mention a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line:
                found.append(line)
    return found


def end_of(handle: RayHandle) -> Outcome:
    outcome: Outcome = wait_until(handle.poll, "the run has ended")
    return outcome


def test_a_study_survives_the_loss_of_a_node(nodes: Nodes, tmp_path: Path) -> None:
    """2 tasks x 3 algorithms x 3 seeds, a node killed with all on it: bit for bit as locally."""
    file, out = study_file(tmp_path), tmp_path / "out"
    study = read_study(file)
    assert len(study.runs) == 18
    on_cluster = ("--engine", "ray", "--address", nodes.address)
    process = start("study", "run", file, "--out", out, *on_cluster, cwd=tmp_path)

    def under_way() -> Any:
        assert process.poll() is None, process.stderr and process.stderr.read()
        for folder in out.glob("runs/*GatedEnv*"):
            if 0 < rows(folder) < EPOCHS - 1:
                node, worker = nodes.node_of(folder)
                if node is not None:
                    return node, worker, folder
        return None

    node, worker, folder = wait_until(under_way, "a run is in the middle")
    for one in nodes.processes(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    (tmp_path / "gate").unlink()
    expected = reference(study.runs, tmp_path / "here")  # trained while the cluster goes on
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert errors == "" and "18 of 18 runs are finished" in output, output
    assert f"{folder.name} (attempt 1 of 3): its process on" in output and not is_alive(worker)
    for spec in study.runs:
        assert_same_run(out / "runs" / spec.id, expected / "runs" / spec.id)


def test_a_node_that_was_only_cut_off_does_not_write_any_more(nodes: Nodes, tmp_path: Path) -> None:
    """Frozen processes are what a lost network looks like: silent, alive, holding the lock."""
    nodes.fill()
    spec, folder = one_run(tmp_path, 12), tmp_path / "run"
    engine = RayEngine(nodes.address)
    assert engine.slots == 2
    frozen: list[int] = []
    try:
        handle = engine.start(spec, folder)
        wait_until(lambda: rows(folder) >= 2, "the run is under way")
        node, worker = nodes.node_of(folder)
        frozen = nodes.processes(node)
        token = owner_of(folder)
        for one in reversed(frozen):
            os.kill(one, signal.SIGSTOP)
        # The driver takes the run away from it, and waits: the lock is still held.
        wait_until(lambda: handle.poll() or owner_of(folder) != token, "the node counts as lost")
        assert handle.poll() is None and is_alive(worker)
        done = rows(folder)
        for one in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)
        outcome = end_of(handle)
        assert outcome.error is not None and "its process on" in outcome.error
        wait_until(lambda: not is_alive(worker), "the process is gone that had let the lock go")
        assert done <= rows(folder) < 12
        (tmp_path / "gate").unlink()
        second = engine.start(spec, folder)
        assert end_of(second) == Outcome(None)
    finally:
        for one in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)
        engine.close()
    assert_same_run(folder, reference([spec], tmp_path / "here") / "runs" / spec.id)


def test_runs_in_storage(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed, interrupted, continued elsewhere: without a folder that the nodes share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nodes.fill()
    spec = one_run(tmp_path, 30)
    mirror = Mirror(f"file://{tmp_path / 'store'}")
    folder = mirror.fetch() / "runs" / spec.id
    stored = tmp_path / "store" / "runs" / spec.id
    scratch = Path(tempfile.gettempdir()) / f"cspo-scratch-{os.getuid()}"

    def copied() -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(json.loads((stored / "current.json").read_text())["epochs"])
        return 0

    engine = RayEngine(nodes.address, mirror=mirror)
    try:
        handle = engine.start(spec, folder)
        wait_until(lambda: handle.poll() or copied() >= 2, "the run was copied")
        (here,) = scratch.glob(f"{spec.id}.*")
        _, worker = nodes.node_of(here / spec.id)
        os.kill(worker, signal.SIGKILL)
        outcome = end_of(handle)
        assert outcome.error is not None and "its process on" in outcome.error

        before = copied()
        handle = engine.start(spec, folder)
        wait_until(lambda: handle.poll() or copied() > before, "it went on from there")
        handle.interrupt()
        assert end_of(handle) == Outcome("stopped")
        # The epoch under way was finished, kept and copied.
        assert before < copied() == rows(folder) < 30

        (tmp_path / "gate").unlink()
        assert end_of(engine.start(spec, folder)) == Outcome(None)
    finally:
        engine.close()
    assert not list(scratch.glob(f"{spec.id}.*"))
    assert_same_run(folder, reference([spec], tmp_path / "here") / "runs" / spec.id)


def test_without_ray(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    file, out = str(study_file(tmp_path)), str(tmp_path / "out")
    assert main(["study", "run", file, "--out", out, "--engine", "ray"]) == 2
    needs = "cspo: error: --engine ray needs Ray: pip install 'cspo[ray]'\n"
    assert capsys.readouterr().err == needs
    assert not (tmp_path / "out").exists()


def test_without_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cspo[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{taken.getsockname()[1]}"  # nobody listens
        for address in (closed, f"ray://{closed}"):
            with pytest.raises(
                CspoError, match=f"There is no Ray cluster at {address}. Start one with"
            ):
                RayEngine(address)
    for address in ("nothing", "host:", ":6379", "ray://x"):
        with pytest.raises(CspoError, match="give host:port, ray://host:port, or auto"):
            RayEngine(address)


def test_something_else_than_ray_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cspo[ray]'")
    monkeypatch.setattr("cspo.lab.study.ray_engine.ANSWERS", 3.0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        started = time.monotonic()
        with pytest.raises(CspoError, match="Nothing that is a Ray cluster answers at") as fault:
            RayEngine(f"127.0.0.1:{other.getsockname()[1]}")
        assert time.monotonic() - started < 10.0 and len(str(fault.value).splitlines()) == 1


def test_importing_the_engine_needs_no_ray() -> None:
    loaded = "print('ray' in sys.modules, 'fsspec' in sys.modules)"
    code = f"import sys; import cspo.lab.study.ray_engine; {loaded}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False")


def test_the_costs_in_the_documentation() -> None:
    """docs/clusters.md says what the measured speeds come to."""
    study = read_study("paper-main")
    page = (TESTS.parent / "docs" / "clusters.md").read_text()
    table = {
        cells[0]: cells[1:]
        for line in page.splitlines()
        if len(cells := re.split(r" *\| *", line.strip("| "))) > 3
    }
    hours = [spec.config.total_steps / STEPS_PER_SECOND[spec.task] / 3600 for spec in study.runs]
    for task, speed in STEPS_PER_SECOND.items():
        runs = [time for time, spec in zip(hours, study.runs, strict=True) if spec.task == task]
        assert table[task] == [f"{speed:,}".replace(",", " "), f"{runs[0]:.2f}", f"{sum(runs):.1f}"]
    assert f"| {sum(hours):.1f} |" in page
    longest = max(hours)
    for cores, least, most in zip(
        table["cores"], table["hours, at best"], table["hours, at most"], strict=True
    ):
        bound = max(sum(hours) / int(cores), longest)
        assert least == f"{bound:.1f}", cores
        assert most == f"{bound + longest if int(cores) < len(hours) else bound:.1f}", cores
