"""What the tests of `cspo watch` share: its server in this process, and runs that grow."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cspo.lab.watch import app
from cspo.lab.watch.app import App
from cspo.lab.watch.server import Server

TINY = "run_helpers:make_tiny"
HOSTILE = '"><img src=x onerror="document.title=1"><script>document.title=2</script>{{ 7 * 7 }}&lt;'


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Site:
    """A server of `cspo watch`, asked without a browser."""

    def __init__(self, server: Server) -> None:
        self.server, self.port = server, server.server_address[1]

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def data(self, path: str = "/data", **query: Any) -> dict[str, Any]:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        reply = self.ask(f"{path}?{asked}")
        assert reply.status == 200, reply
        answer: dict[str, Any] = json.loads(reply.body)
        return answer


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[Site]:
    """Serve a folder from a thread."""
    with Server(App(folder), port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Site(server)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the files for every question: what a test has just written is told."""
    monkeypatch.setattr(app, "SHORTEST", 0.0)
    monkeypatch.setattr(app, "PAUSE", 0.0)


def add_rows(run: Path, rows: Sequence[dict[str, float]]) -> None:
    """Append rows to a progress.csv, as a training does."""
    with (run / "progress.csv").open("a", encoding="utf-8") as file:
        file.writelines(",".join(map(str, row.values())) + "\n" for row in rows)


def all_rows(site: Site, path: str = "/data") -> dict[str, list[Any]]:
    """Return the columns that a page would have drawn after it asked until there was no more."""
    told = site.data(path)
    names, rows = told["columns"], list(told["rows"])
    while told["more"]:
        told = site.data(path, version=told["version"], since=len(rows))
        rows = rows[: told["since"]] + told["rows"]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
