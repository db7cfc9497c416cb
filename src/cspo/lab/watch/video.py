"""The newest video in the folder of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, NamedTuple

from cspo.runs.files import open_plain

KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
PLACES = ("", "videos")  # where films are looked for in a run's folder
MOST_FILES = 1000  # that are looked at in one place


class Video(NamedTuple):
    """A film of a run."""

    path: Path
    changed: int  # nanoseconds since 1970
    size: int

    @property
    def kind(self) -> str:
        """Media type of the file."""
        return KINDS[self.path.suffix.lower()]

    def as_data(self) -> dict[str, Any]:
        """Return what the page shows of it."""
        name, changed = self.path.name, self.changed / 1e9
        key = f"{self.changed:x}-{self.size:x}"  # another film has another address
        return {"name": name, "kind": self.kind, "changed": changed, "key": key}

    def open(self) -> IO[bytes]:
        """Open the file; a link in its place is refused."""
        return os.fdopen(open_plain(self.path, os.O_RDONLY), "rb")


def newest_video(folder: Path) -> Video | None:
    """Return the newest complete film of a run, in its folder or in `videos` below; or None."""
    places = [folder / place for place in PLACES if not (place and (folder / place).is_symlink())]
    found = [film for place in places for film in _videos(place)]
    return max(found, key=lambda film: (film.changed, film.path), default=None)


def _videos(folder: Path) -> list[Video]:
    films: list[Video] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_FILES), entries, strict=False):
                path = Path(entry.path)
                hidden = entry.name.startswith(".")  # a film that is being written
                plain = path.suffix.lower() in KINDS and entry.is_file(follow_symlinks=False)
                if plain and not hidden:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_size:
                        films.append(Video(path, found.st_mtime_ns, found.st_size))
    except OSError:  # not there
        return []
    return films
