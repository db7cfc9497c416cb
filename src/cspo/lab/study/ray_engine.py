"""The engine for clusters: every run is an actor of Ray with a core of its own.

Actors rather than tasks, because Ray tells the driver that an actor died as soon as it takes its
node for dead; of a task it waits for the connection to break, which a machine without power never
does.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cspo import __version__
from cspo.config import to_dict
from cspo.envs.modules import INSTALLED_ONLY
from cspo.errors import CspoError
from cspo.lab.study.engine import Outcome
from cspo.lab.study.grid import RunSpec
from cspo.lab.study.mirror import Mirror
from cspo.lab.study.ray_worker import RunActor, SharedRun, run_at
from cspo.lab.study.storage import StoredRun

REACHABLE = 3.0  # seconds to wait for the port of a cluster
ANSWERS = 20.0  # seconds to wait for an answer of a cluster
COUNT = 5.0  # seconds between two counts of the cluster's cores
IDLE = 5.0  # seconds to keep a process that has no run
RELEASE = 120.0  # seconds to wait for a process on a node that was lost to let its run go
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
DIED = ("ActorDiedError", "ActorUnavailableError", "NodeDiedError", "WorkerCrashedError")
PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False); ray.shutdown()"


class RayEngine:
    """Runs on the nodes of a Ray cluster; none of them outlives the program that started it."""

    def __init__(
        self,
        address: str | None = None,
        *,
        jobs: int | None = None,
        cpus: float = 1.0,
        mirror: Mirror | None = None,
    ) -> None:
        """Connect to a cluster.

        Args:
            address: `host:port` of its head, `ray://host:port`, or "auto" for the one this machine
                is part of.
            jobs: Runs at a time; by default as many as the cluster has cores for.
            cpus: Cores that a run reserves.
            mirror: The local copy of the study, if it is in storage; without one all nodes share
                its folder.
        """
        self.ray = _load_ray()
        if mirror is not None:
            mirror.storage.check()
        self.mirror = mirror
        self._jobs, self._cpus = jobs, cpus
        _connect(self.ray, address or "auto")
        self._actor = self.ray.remote(num_cpus=cpus, max_restarts=0)(RunActor)
        self._handles: list[RayHandle] = []
        self.idle: list[WorkerProcess] = []
        self.slots, self._counted = 1, 0.0
        self.tidy()

    def tidy(self) -> None:
        """Follow the size of the cluster; give back cores for which there was no next run."""
        now = time.monotonic()
        if now - self._counted > COUNT:
            self._counted = now
            places = int(self.ray.cluster_resources().get("CPU", 0.0) // self._cpus)
            self.slots = max(1, places if self._jobs is None else min(places, self._jobs))
        for process in [one for one in self.idle if now - one.idle_since > IDLE]:
            self.idle.remove(process)
            self.kill(process)

    def start(self, spec: RunSpec, folder: Path) -> RayHandle:
        """Train the run on some node, in a process that is idle or in a new one."""
        if self.mirror is not None and not self._handles:
            self.mirror.send()
        self._handles = [one for one in self._handles if not one.ended]
        place = str(folder.absolute()) if self.mirror is None else self.mirror.storage.address
        run, token = run_at(place, spec.id), uuid.uuid4().hex
        run.claim(token)
        process = self.idle.pop() if self.idle else WorkerProcess(self._actor.remote())
        done = process.actor.train.remote(to_dict(spec.config), place, spec.id, token)
        handle = RayHandle(self, process, done, run, token)
        self._handles.append(handle)
        return handle

    def kill(self, process: WorkerProcess) -> None:
        """End a process of the cluster."""
        with contextlib.suppress(Exception):
            self.ray.kill(process.actor)

    def close(self) -> None:
        """End all processes, and bring the copy of a study in storage up to date."""
        for process in [*self.idle, *(handle.process for handle in self._handles)]:
            self.kill(process)
        if self.mirror is not None:
            with contextlib.suppress(CspoError, OSError):
                for handle in self._handles:
                    self.mirror.fetch_run(handle.run.name)
                self.mirror.send()
        self.ray.shutdown()


class WorkerProcess:
    """A process of the cluster that trains one run after the other."""

    def __init__(self, actor: Any) -> None:
        self.actor, self.where = actor, actor.where.remote()  # asked where it is
        self.node = ""  # the answer, as soon as it is known
        self.idle_since = 0.0


@dataclass
class RayHandle:
    """A run on a node of the cluster."""

    engine: RayEngine
    process: WorkerProcess
    done: Any  # what the process answers when the run has ended
    run: SharedRun | StoredRun
    token: str
    ended: bool = False
    lost: str = ""  # how its process was lost
    lost_at: float = 0.0

    def poll(self) -> Outcome | None:
        """Ask Ray for the answer.

        A run whose process is lost ends when no process holds it, or when that takes too long.
        """
        self.engine.tidy()
        if not self.lost:
            try:
                return self._answered()
            except self.engine.ray.exceptions.RayError as error:
                self.lost_at, self.lost = time.monotonic(), _explained(error, self.process.node)
                # Whoever still trains it, on a node that is only cut off, ends now.
                with contextlib.suppress(CspoError):
                    self.run.claim("")
        if self.run.is_free() or time.monotonic() - self.lost_at > RELEASE:
            return self._outcome(self.lost)
        return None

    def _answered(self) -> Outcome | None:
        process, ray, mirror = self.process, self.engine.ray, self.engine.mirror
        if mirror is not None:
            with contextlib.suppress(CspoError, OSError):
                mirror.refresh(self.run.name)
        if not process.node and self._is_ready(process.where):
            process.node, version = ray.get(process.where)
            if version != __version__:
                both = f"version {version} of cspo, and this machine {__version__}"
                return self._outcome(f"{process.node} has {both}: install the same on all.")
        return self._outcome(ray.get(self.done)) if self._is_ready(self.done) else None

    def _is_ready(self, answer: Any) -> bool:
        return bool(self.engine.ray.wait([answer], timeout=0)[0])

    def _outcome(self, error: str | None) -> Outcome:
        if error is None and not self.ended:
            # Kept for the next run: it has everything imported.
            self.ended, self.process.idle_since = True, time.monotonic()
            self.engine.idle.append(self.process)
        self.stop()
        if self.engine.mirror is not None:
            try:
                self.engine.mirror.fetch_run(self.run.name)
            except (CspoError, OSError) as fault:
                error = error or str(fault)
        return Outcome(error)

    def interrupt(self) -> None:
        """Ask its process to finish the epoch under way, if it has one."""
        if not self._is_ready(self.process.where):
            self.stop()  # it waits for a core: there is no epoch under way
            return
        with contextlib.suppress(CspoError):
            self.run.claim(self.token, stop=True)

    def stop(self) -> None:
        """End its process."""
        if not self.ended:
            self.ended = True
            self.engine.kill(self.process)


def _load_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning about GPUs
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise CspoError("--engine ray needs Ray: pip install 'cspo[ray]'") from None
    with contextlib.suppress(Exception):
        # What the cluster says about its nodes would be printed into the table, whatever is asked
        # of `ray.init`; what matters of it is said by the outcomes of runs.
        worker: Any = importlib.import_module("ray._private.worker")
        worker.print_to_stdstream = lambda *_, **__: None
    return ray


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster, or say in one line why not; Ray itself would try for over a minute."""
    started = "Start one with `ray start --head`, see docs/clusters.md."
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not (host and port.isdigit()):
            raise CspoError(f"--address {address}: give host:port, ray://host:port, or auto.")
        try:
            socket.create_connection((host, int(port)), REACHABLE).close()
        except (OSError, OverflowError):
            raise CspoError(f"There is no Ray cluster at {address}. {started}") from None
    # In another process first: where nothing answers, the library ends the process that asked.
    command = [sys.executable, "-c", INSTALLED_ONLY + PROBE, address]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS)
    except subprocess.TimeoutExpired:
        raise CspoError(f"Nothing that is a Ray cluster answers at {address}. {started}") from None
    if asked.returncode != 0:
        if "Could not find any running Ray instance" in asked.stderr:
            raise CspoError(f"There is no Ray cluster on this machine. {started}")
        reason = (asked.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise CspoError(f"Cannot connect to the Ray cluster at {address}: {reason}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=address, **QUIET)


def _explained(error: Exception, node: str) -> str:
    """Return in one line how a run was lost."""
    where = f" on {node}" if node else ""
    if type(error).__name__ in DIED:
        return f"its process{where} died, or its node was lost"
    return f"Ray{where}: " + " ".join(str(error).split())[:300]
