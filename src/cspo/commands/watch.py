"""`cspo watch`: a local page that follows a training or a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cspo.commands.options import parse
from cspo.settings import setting


def _port(value: int | None) -> str | None:
    return None if value is None or 0 <= value < 2**16 else "must be from 0 to 65535"


@dataclass(frozen=True)
class WatchOptions:
    """Follow a training or a study on a page in the browser, also one of another process.

    The page is for this machine alone, and only reads files. Ctrl-C ends it; training goes on.

    Examples:
        cspo watch runs/first
        cspo watch studies/small --port 9000 --open
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|STUDY")]
    """Folder of a run or of a study, or one with runs in it."""
    port: int | None = setting(None, _port)
    """Port of the page; 0 for any that is free, by default 8420 or another if that is taken."""
    open: bool = False
    """Open the page in the browser."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo watch`."""
    options = parse(WatchOptions, "watch", arguments)
    from cspo.lab.watch.app import App
    from cspo.lab.watch.server import Server

    with Server(App(Path(options.folder)), options.port) as server:
        print(f"watching {options.folder}: {server.url} (Ctrl-C ends it)", flush=True)
        if options.open:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
