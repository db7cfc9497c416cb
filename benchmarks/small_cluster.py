"""A Ray cluster of processes on this machine, for the benchmarks that disturb studies."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from small_studies import BENCHMARKS, SOURCES, is_alive, kill

MEMORY = 80 * 2**20  # bytes of an object store
# Nodes that are silent count as lost after about 2 s rather than 15.
IMPATIENT = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


class SmallCluster:
    """A head without cores, and two nodes with one core each."""

    def __init__(self, folder: Path) -> None:
        """Start it; its processes write to a folder, also the runs that are in storage."""
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "_system_config": IMPATIENT, "include_dashboard": False}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={"object_store_memory": MEMORY, **head}
        )
        self.address: str = self._cluster.address
        self.folder = folder
        self._nodes: list[Any] = []
        self.fill()

    def fill(self) -> None:
        """Put a new node in the place of a lost one."""
        self._nodes = [node for node in self._nodes if is_alive(self._raylet(node))]
        while len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(num_cpus=1, object_store_memory=MEMORY))

    @staticmethod
    def _raylet(node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def kill_node_of(self, process: int) -> None:
        """Kill the node that a process belongs to, with everything on it."""
        for raylet in map(self._raylet, self._nodes):
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
                if process in map(int, children):
                    kill(raylet, *map(int, children))

    def shutdown(self) -> None:
        """End all its processes."""
        self._cluster.shutdown()


@contextlib.contextmanager
def small_cluster() -> Iterator[SmallCluster]:
    """A cluster for a while, with a folder of its own for everything of Ray."""
    temporary = tempfile.mkdtemp(prefix="r")  # short, since the names of sockets are
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": temporary, "TMPDIR": temporary}
    variables["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS), str(SOURCES)])
    before = dict(os.environ)
    os.environ.update(variables)
    cluster = SmallCluster(Path(temporary))
    try:
        yield cluster
    finally:
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(temporary, ignore_errors=True)
