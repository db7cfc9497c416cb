"""Photograph the page of a study's report in Chromium: docs/pictures/report-*.png.

python docs/make_report_pictures.py STUDY
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from cspo.lab.report import write_report
from cspo.runs.files import write_bytes

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))
from chromium import Browser, Page, open_browser  # noqa: E402 (the browser of the tests)

LARGEST = 250_000  # bytes of a picture
DESKTOP, PHONE = 1280, 390  # pixels


def main(study: Path) -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        page = write_report([study], folder)[0]
        photograph(browser, page, "report-desktop", DESKTOP)
        photograph(browser, page, "report-dark", DESKTOP, dark=True, only="curves")
        photograph(browser, page, "report-phone", PHONE)


def photograph(
    browser: Browser, file: Path, name: str, width: int, dark: bool = False, only: str = ""
) -> None:
    """Write a picture of the page from its top to the end of the curves, or of one section."""
    page = Page(browser, file, width, dark=dark)
    page.until("document.querySelectorAll('#plots svg').length > 0")
    # The middle of training says more than its end, and shows what pointing at a curve does.
    page.run("document.getElementById('plots').focus({preventScroll: true})")
    for key in (
        "Home",
        *["ArrowRight"] * (int(page.run("document.getElementById('plots').ariaValueMax")) // 2),
    ):
        page.press(key)
    page.run("document.activeElement.blur()")
    top, end = (
        page.run(f"document.getElementById('{part}').offsetTop")
        for part in (only or "results", "tables")
    )
    top = top if only else 0
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        page.screenshot(picture, top=top, height=end - top)
        save(Image.open(picture).convert("RGB"), DOCS / "pictures" / f"{name}.png")
    page.close()


def save(picture: Image.Image, path: Path) -> None:
    """Write a PNG with few colours, which is all a page needs."""
    content = io.BytesIO()
    picture.quantize(128, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    size = len(content.getvalue())
    assert size < LARGEST, f"{path.name} has {size} bytes"
    write_bytes(path, content.getvalue())
    print(f"{path.relative_to(DOCS.parent)}  {size // 1000} kB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/make_report_pictures.py STUDY")
    main(Path(sys.argv[1]))
