"""What the server is asked for, and what it answers: pages, data and films of what is watched."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cspo import __version__
from cspo.errors import CspoError
from cspo.lab.report.looks import name_of
from cspo.lab.watch.run import RunWatch
from cspo.lab.watch.shelf import Shelf, StudyShelf
from cspo.lab.watch.video import Video
from cspo.runs.folder import holds_run

PAGE = Path(__file__).parent / "page"
STYLES = Path(__file__).parents[1] / "report" / "page" / "page.css"  # the report's own look
SCRIPTS = ("plot.js", "run.js", "shelf.js", "words.js")
OPEN_RUNS = 8  # runs of a study that are followed at once, those asked for last
SHORTEST = 0.5  # seconds between two looks at the files, however many pages are open
# A look that took so long is followed by a pause so many times longer: the server stays far below
# a hundredth of a core, however large the study is.
PAUSE = 150.0


@dataclass(frozen=True)
class Answer:
    """What is sent: text of a kind, or a film."""

    kind: str
    body: bytes = b""
    film: Video | None = None


class Paced:
    """Something whose files are looked at no more often than they may be."""

    def __init__(self, what: RunWatch | Shelf) -> None:
        """Take what was looked at just now."""
        self.what, self._next = what, time.monotonic() + SHORTEST

    def look(self) -> None:
        """Read what is new, if it is time for it."""
        if (begun := time.monotonic()) < self._next:
            return
        spent = time.process_time()
        behind = self.what.update()
        pause = 0.0 if behind else max(SHORTEST, PAUSE * (time.process_time() - spent))
        self._next = begun + pause


class App:
    """Answers for one run, one study, or one folder of runs; safe to ask from many threads."""

    def __init__(self, path: Path) -> None:
        """Look at what is there.

        Raises:
            CspoError: If it is neither a run nor a study nor a folder of runs.
        """
        self.path = path
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Paced] = OrderedDict()
        if holds_run(path):
            self.what = "run"
            self._first = Paced(RunWatch(path, path.absolute().name))
        elif (path / "study.toml").is_file():
            self.what = "study"
            self._first = Paced(StudyShelf(path))
        else:
            self.what = "folder"
            self._first = Paced(_folder_of_runs(path))

    def get(self, parts: list[str], query: Mapping[str, str]) -> Answer | None:
        """Return the answer to a path, in its parts, or None if there is no such thing.

        Only what is named here is ever served: no part of a path becomes the name of a file.
        """
        if len(parts) == 1 and (text := _fixed().get(parts[0])) is not None:
            return text
        with self._lock:
            found: Paced | None = self._first
            name = ""
            if len(parts) >= 2 and parts[0] == "run":
                name, parts = parts[1], parts[2:] or [""]
                found = self._run(name)
            if found is None or len(parts) != 1:
                return None
            return self._of(found, name, parts[0], query)

    def _run(self, name: str) -> Paced | None:
        """Return a run of the study, followed from now on."""
        shelf = self._first.what
        if not isinstance(shelf, Shelf) or (folder := shelf.folder_of(name)) is None:
            return None
        if name not in self._open:
            try:
                self._open[name] = Paced(RunWatch(folder, name))
            except CspoError:  # it has not started, or is gone
                return None
        self._open.move_to_end(name)
        while len(self._open) > OPEN_RUNS:
            self._open.popitem(last=False)
        return self._open[name]

    def _of(self, found: Paced, name: str, part: str, query: Mapping[str, str]) -> Answer | None:
        what = found.what
        if part == "":
            return self._page(what, name)
        if part == "data":
            self._first.look()
            found.look()
            if isinstance(what, Shelf):
                return _json(what.answer(_whole(query.get("version"), -1)))
            shelf = self._first.what
            status = shelf.status_of(name) if isinstance(shelf, Shelf) else None
            since = _whole(query.get("since"), 0)
            return _json(what.answer(query.get("version", ""), since, status))
        if part == "video" and isinstance(what, RunWatch) and what.video is not None:
            return Answer(what.video.kind, film=what.video)
        return None

    def _page(self, what: RunWatch | Shelf, name: str) -> Answer:
        values: dict[str, Any] = {"version": __version__, "name": what.name, "key": what.key}
        if isinstance(what, Shelf):
            values |= {"description": what.description, "folder": str(self.path), "what": self.what}
            return _html("shelf.html", base="/", **values)
        shelf = self._first.what
        values |= {
            "base": f"/run/{quote(name, safe='')}/" if name else "/",
            "above": shelf.name if isinstance(shelf, Shelf) else "",
            "facts": what.facts,
            "algorithm": name_of(what.facts.algo),
            "folder": str(what.folder),
        }
        return _html("run.html", **values)


def _folder_of_runs(path: Path) -> Shelf:
    if not path.is_dir():
        raise CspoError(f"There is no folder {path}: `cspo watch` follows a run or a study.")
    shelf = Shelf(path)
    if not shelf.answer()["runs"]:
        files = "config.toml of a run or study.toml of a study"
        raise CspoError(f"{path} holds neither a run nor a study (there is no {files}).")
    return shelf


def _whole(text: str | None, otherwise: int) -> int:
    fine = text is not None and text.isascii() and text.isdigit() and len(text) < 16
    return int(text) if text is not None and fine else otherwise


def _json(data: Any) -> Answer:
    body = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Answer("application/json", body.encode())


def _html(template: str, **values: Any) -> Answer:
    page = _templates().get_template(template).render(values)
    # The name of a folder need not be text.
    return Answer("text/html; charset=utf-8", page.encode(errors="backslashreplace"))


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=FileSystemLoader(PAGE), autoescape=True, **options)


@cache
def _fixed() -> dict[str, Answer]:
    """Return what is the same for every page: its looks and its scripts."""
    styles = STYLES.read_bytes() + (PAGE / "watch.css").read_bytes()
    script = "text/javascript; charset=utf-8"
    found = {name: Answer(script, (PAGE / name).read_bytes()) for name in SCRIPTS}
    icon = Answer("image/svg+xml", (PAGE / "icon.svg").read_bytes())
    return found | {"watch.css": Answer("text/css; charset=utf-8", styles), "icon.svg": icon}
