"""Photograph the page of `cspo watch` in Chromium: docs/pictures/watch-*.png.

python docs/make_watch_pictures.py

What is shown are archived runs of results/regulator-confirm as they stood after three fifths of
their epochs: copies with the later rows cut off, whose locks are held as a training holds them.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from make_report_pictures import DESKTOP, PHONE, save
from PIL import Image

from cspo.lab.watch.app import App
from cspo.lab.watch.server import Server
from cspo.runs.files import open_lock, try_lock

DOCS = Path(__file__).parent
from chromium import Browser, Page, open_browser  # noqa: E402 (make_report_pictures says where)

RUNS = DOCS.parent / "results" / "regulator-confirm" / "runs"
RUN = "SafetyPointGoal1-v0-cspo-seed40"
SHARE = 0.6  # of the epochs


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held, open_browser() as browser:
        place = Path(folder) / "runs"
        for i, run in enumerate(sorted(RUNS.glob("*Goal1*"))):
            ended = run.name.endswith("seed50")  # the others go on
            copied(run, place / run.name, 1.0 if ended else SHARE - 0.1 * (i % 3 != 0))
            if not ended:
                assert try_lock(held.enter_context(open_lock(place / run.name / ".lock")))
        shutil.copy(DOCS / "agent.gif", place / RUN / "policy.gif")
        with served(place / RUN) as address:
            photograph(browser, address, "watch-desktop", DESKTOP)
            photograph(browser, address, "watch-dark", DESKTOP, dark=True, end="#small")
            photograph(browser, address, "watch-phone", PHONE, end="#small")
        with served(place) as address:
            photograph(browser, address, "watch-study", DESKTOP, end="footer")


def copied(run: Path, place: Path, share: float) -> None:
    """Copy an archived run as it was after a share of its epochs."""
    place.mkdir(parents=True)
    shutil.copy(run / "config.toml", place)
    lines = gzip.decompress((run / "progress.csv.gz").read_bytes()).decode().splitlines(True)
    kept = lines[: 1 + round(share * (len(lines) - 1))]
    (place / "progress.csv").write_text("".join(kept), encoding="utf-8")
    if share == 1.0:
        shutil.copy(run / "summary.json", place)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder, and tell the address."""
    with Server(App(folder), 0) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield server.url
        finally:
            server.shutdown()


def photograph(
    browser: Browser,
    address: str,
    name: str,
    width: int,
    dark: bool = False,
    end: str = "#video-text",
) -> None:
    """Write a picture of the page from its top to the end of one element."""
    page = Page(browser, address, width, dark=dark)
    page.until("document.querySelectorAll('#tiles > div').length > 3")
    page.until("document.images.length === 0 || document.images[0].complete")
    page.until("document.querySelector('#bar span').getAnimations().length === 0")
    bottom = page.run(f"document.querySelector('{end}').getBoundingClientRect().bottom")
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        page.screenshot(picture, height=bottom + 12)
        save(Image.open(picture).convert("RGB"), DOCS / "pictures" / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
