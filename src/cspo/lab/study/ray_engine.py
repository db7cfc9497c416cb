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
from typing import TYPE_CHECKING, Any

from cspo import __version__
from cspo.errors import CspoError
from cspo.lab.study.engine import Outcome
from cspo.lab.study.ray_worker import Place, RunActor

if TYPE_CHECKING:
    from cspo.lab.study.grid import RunSpec
    from cspo.lab.study.mirror import Mirror

REACHABLE = 3.0  # seconds to wait for the port of a cluster
ANSWERS = 20.0  # seconds to wait for an answer of a cluster
COUNT = 5.0  # seconds between two counts of the cluster's cores
IDLE = 5.0  # seconds to keep a process that has no run
RELEASE = 120.0  # seconds to wait for a process on a node that was lost to let its run go
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
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
        self._idle: list[_Seat] = []
        self._counted = 0.0
        self.slots = 1
        self._count()

    def _count(self) -> None:
        """Count the runs for which the cluster has cores: it may grow and shrink."""
        if time.monotonic() - self._counted > COUNT:
            self._counted = time.monotonic()
            places = int(self.ray.cluster_resources().get("CPU", 0.0) // self._cpus)
            self.slots = max(1, places if self._jobs is None else min(places, self._jobs))

    def start(self, spec: RunSpec, folder: Path) -> RayHandle:
        """See `Engine`."""
        from cspo.config import to_dict

        if self.mirror is not None and not self._handles:
            self.mirror.send()
        self._handles = [one for one in self._handles if not one.ended]
        place = Place(
            str(folder.absolute()), None if self.mirror is None else self.mirror.storage.address
        )
        token = uuid.uuid4().hex
        place.claim(token)
        if self._idle:
            seat = self._idle.pop()
        else:
            actor = self._actor.remote()
            seat = _Seat(actor, actor.where.remote())
        done = seat.actor.train.remote(to_dict(spec.config), place.folder, place.address, token)
        handle = RayHandle(self, seat, done, place, token)
        self._handles.append(handle)
        return handle

    def keep(self, seat: _Seat) -> None:
        """Keep the process of a finished run for the next one: it has everything imported."""
        seat.idle_since = time.monotonic()
        self._idle.append(seat)

    def tidy(self) -> None:
        """Follow the size of the cluster, and give back the cores for which there was no next run."""
        self._count()
        now = time.monotonic()
        for seat in [one for one in self._idle if now - one.idle_since > IDLE]:
            self._idle.remove(seat)
            self.kill(seat)

    def kill(self, seat: _Seat) -> None:
        """End a process of the cluster."""
        with contextlib.suppress(Exception):
            self.ray.kill(seat.actor)

    def close(self) -> None:
        """See `Engine`."""
        for handle in self._handles:
            handle.stop()
        for seat in self._idle:
            self.kill(seat)
        if self.mirror is not None:
            with contextlib.suppress(CspoError, OSError):
                for handle in self._handles:
                    self.mirror.fetch_run(handle.name)
                self.mirror.send()
        self.ray.shutdown()


@dataclass
class _Seat:
    """A process of the cluster that trains one run after the other."""

    actor: Any
    where: Any  # what it answers to the question where it is
    node: str = ""  # the answer, as soon as it is known
    idle_since: float = 0.0


class RayHandle:
    """A run on a node of the cluster."""

    def __init__(self, engine: RayEngine, seat: _Seat, done: Any, place: Place, token: str) -> None:
        """`done` is what the process answers when the run has ended."""
        self.name = place.name
        self.ended = False
        self._engine, self._seat, self._done = engine, seat, done
        self._place, self._token = place, token
        self._lost: tuple[float, str] | None = (
            None  # when its process was lost, and what is said about it
        )

    def poll(self) -> Outcome | None:
        """See `Handle`."""
        seat, ray = self._seat, self._engine.ray
        self._engine.tidy()
        if self._lost is not None:
            return self._released()
        if self._engine.mirror is not None:
            with contextlib.suppress(CspoError, OSError):
                self._engine.mirror.refresh(self.name)
        try:
            if not seat.node and self._is_ready(seat.where):
                seat.node, version = ray.get(seat.where)
                if version != __version__:
                    what = (
                        f"{seat.node} has version {version} of cspo, and this machine {__version__}"
                    )
                    return self._outcome(f"{what}: install the same on all.")
            return self._outcome(ray.get(self._done)) if self._is_ready(self._done) else None
        except ray.exceptions.RayError as error:
            self._lost = (time.monotonic(), _explained(error, seat.node))
            with contextlib.suppress(CspoError):
                self._place.claim(
                    ""
                )  # whoever still trains it, on a node that is only cut off, ends now
            return self._released()

    def _is_ready(self, answer: Any) -> bool:
        ready, _ = self._engine.ray.wait([answer], timeout=0)
        return bool(ready)

    def _released(self) -> Outcome | None:
        """Report a lost run when no process holds it any more, or when that takes too long."""
        assert self._lost is not None
        since, error = self._lost
        if self._place.is_free() or time.monotonic() - since > RELEASE:
            return self._outcome(error)
        return None

    def _outcome(self, error: str | None) -> Outcome:
        if error is None and not self.ended:
            self.ended = True
            self._engine.keep(self._seat)
        self.stop()
        if self._engine.mirror is not None:
            try:
                self._engine.mirror.fetch_run(self.name)
            except (CspoError, OSError) as fault:
                error = error or str(fault)
        return Outcome(error)

    def interrupt(self) -> None:
        """See `Handle`."""
        if not self._seat.node and not self._is_ready(self._seat.where):
            self.stop()  # it waits for a core: there is no epoch under way
            return
        with contextlib.suppress(CspoError):
            self._place.claim(self._token, stop=True)

    def stop(self) -> None:
        """See `Handle`."""
        if not self.ended:
            self.ended = True
            self._engine.kill(self._seat)


def _load_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # keeps a warning about GPUs away
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
    """Connect to a cluster, or say in one line why not; Ray itself would try for more than a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto" and not (host and port.isdigit()):
        raise CspoError(f"--address {address}: give host:port, ray://host:port, or auto.")
    started = "Start one with `ray start --head`, see docs/clusters.md."
    if address != "auto":
        try:
            socket.create_connection((host, int(port)), REACHABLE).close()
        except (OSError, OverflowError):
            raise CspoError(f"There is no Ray cluster at {address}. {started}") from None
    # Asked in another process first: where nothing answers, the library ends the process that
    # asked.
    command = [sys.executable, "-c", PROBE, address]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS)
    except subprocess.TimeoutExpired:
        raise CspoError(f"Nothing that is a Ray cluster answers at {address}. {started}") from None
    if asked.returncode != 0:
        if "Could not find any running Ray instance" in asked.stderr:
            raise CspoError(f"There is no Ray cluster on this machine. {started}")
        said = (asked.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise CspoError(f"Cannot connect to the Ray cluster at {address}: {said}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=address, **QUIET)


def _explained(error: Exception, node: str) -> str:
    """Return in one line how a run was lost."""
    where = f" on {node}" if node else ""
    if type(error).__name__ in (
        "ActorDiedError",
        "ActorUnavailableError",
        "NodeDiedError",
        "WorkerCrashedError",
    ):
        return f"its process{where} died, or its node was lost"
    return f"Ray{where}: " + " ".join(str(error).split())[:300]
