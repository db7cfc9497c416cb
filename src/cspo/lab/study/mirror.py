"""A local copy of a study in storage: what the scheduler, the table and the report look at."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path

from cspo.lab.study.storage import Storage, StoredRun
from cspo.runs.files import user_cache, write_bytes, write_text, writes_to

REFRESH = 5.0  # seconds between two looks at the progress of a run
PAUSE = 0.1  # seconds between two looks at all: the scheduler waits for each of them
VERSION = ".archive"  # file of a mirrored run: the name of the archive it came from


class Mirror:
    """The local copy of the study at an address."""

    def __init__(self, address: str) -> None:
        """The copy is kept in the user's cache: what was fetched once is not fetched again."""
        self.storage = Storage(address)
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.storage.address.rpartition("/")[2]) or "study"
        digest = hashlib.sha256(self.storage.address.encode()).hexdigest()[:12]
        self.path = user_cache() / "studies" / f"{name}-{digest}"
        self._looked: dict[str, float] = {}
        self._last = -PAUSE

    def fetch(self) -> Path:
        """Bring the copy up to date and return its folder."""
        with writes_to(str(self.path)):
            self.path.mkdir(parents=True, exist_ok=True)
            failures = [f"failures/{name}" for name in self.storage.names("failures")]
            for name in {*self._files(), *failures}:
                if not self._fetch_file(name):
                    (self.path / name).unlink(missing_ok=True)
            for name in self.storage.names("runs"):
                self.fetch_run(name)
        return self.path

    def _fetch_file(self, name: str) -> bool:
        """Fetch a file and return whether there is one."""
        target, content = self.path / name, self.storage.read(name)
        if content is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(target, content)
        return content is not None

    def _files(self) -> list[str]:
        """Return the names of the files beside the runs that the copy has or may have."""
        failures = (self.path / "failures").glob("*.json")
        return ["study.toml", "running.json", *(f"failures/{path.name}" for path in failures)]

    def fetch_run(self, name: str) -> None:
        """Bring the copy of one run up to date."""
        folder, run = self.path / "runs" / name, StoredRun(self.storage, name)
        known, version = folder / VERSION, run.version()
        if not version or (known.exists() and known.read_text() == version):
            return
        if fetched := run.pull(folder):
            write_text(known, fetched)

    def refresh(self, name: str) -> None:
        """Fetch the progress of a run that is going on, every few seconds."""
        now = time.monotonic()
        if now - self._looked.get(name, -REFRESH) < REFRESH or now - self._last < PAUSE:
            return
        self._looked[name] = now
        try:
            # From here on progress.csv may be newer than the rest.
            (self.path / "runs" / name / VERSION).unlink(missing_ok=True)
            self._fetch_file(f"runs/{name}/progress.csv")
        finally:
            self._last = time.monotonic()

    def send(self) -> None:
        """Copy up what the scheduler has written beside the runs."""
        here = self._files()
        for name in self.storage.names("failures"):
            if f"failures/{name}" not in here:
                self.storage.remove(f"failures/{name}")
        for name in here:
            if (path := self.path / name).exists():
                self.storage.write(name, path.read_bytes())
