"""The site: it builds strictly without a network, and every link in it leads somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import chromium
import pytest

import cspo
from cspo.algorithms import registry

ROOT = Path(__file__).parents[1]
SECTIONS = ["Start", "Learn", "Tasks", "How-to", "Reference"]
SECTIONS += ["Evidence", "Architecture", "Changelog"]
PACKAGES = ("mkdocs", "material", "mkdocstrings", "nbclient", "nbformat", "ipykernel")
# The two notebooks are run as part of the build, where they or the package have changed.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in PACKAGES),
        reason="what the site is built with is not installed: make site",
    ),
]


@dataclass
class Html(HTMLParser):
    """What a page of the site refers to, and what can be referred to in it."""

    anchors: set[str] = field(default_factory=set)
    links: list[tuple[str, str]] = field(default_factory=list)  # element, address
    headings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.links += [(tag, given[name]) for name in ("href", "src") if name in given]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(given.get("id", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site; the system may take away the network while it is built."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    alone = ["unshare", "--map-root-user", "--net"]
    allowed = shutil.which("unshare") and not subprocess.run([*alone, "true"]).returncode
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
    done = subprocess.run(
        [*(alone if allowed else []), *words],
        cwd=ROOT,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "warning" not in said.lower(), said
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    found = {}
    for file in sorted(site.rglob("*.html")):
        found[file] = Html()
        found[file].feed(file.read_text(encoding="utf-8"))
    return found


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Html]) -> None:
    checked, wrong = 0, []
    for page, html in pages.items():
        for tag, address in html.links:
            parts = urlsplit(address)
            if parts.scheme in ("https", "http", "mailto", "data"):
                assert parts.scheme == "data" or tag == "a", f"{page} loads {address}"
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if page.name == "404.html":  # its links begin with /: it is shown in any folder
                target = site / unquote(parts.path).lstrip("/")
            target = target / "index.html" if target.is_dir() else target
            checked += 1
            anchor = unquote(parts.fragment)
            if not target.is_file():
                wrong.append(f"{page.relative_to(site)}: {address}")
            elif anchor and target.suffix == ".html" and anchor not in pages[target].anchors:
                wrong.append(f"{page.relative_to(site)}: {address}, which has no such anchor")
    assert not wrong, "\n".join(wrong[:20])
    assert len(pages) > 100 and checked > 10_000
    print(f"{checked} links of {len(pages)} pages")


def test_the_sections_are_in_their_order(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    (tabs,) = re.findall(r'<ul class="md-tabs__list">(.*?)</ul>', start, re.DOTALL)
    names = re.sub(r"<[^>]*>", " ", tabs).split()
    assert names == SECTIONS


def test_every_public_name_and_setting_is_in_the_reference(pages: dict[Path, Html]) -> None:
    by_name = {file.relative_to(file.parents[1]).as_posix(): html for file, html in pages.items()}
    python = by_name["reference/python.html"]
    missing = [
        name
        for name in cspo._PUBLIC
        if not any(anchor.endswith(f".{name}") for anchor in python.headings)
    ]
    assert not missing
    settings = by_name["reference/settings.html"].anchors
    own = [name for name in registry.algorithm_names() if _is_built_in(name)]
    assert len(own) == 14 and set(own) <= settings


def _is_built_in(name: str) -> bool:
    return registry.is_built_in(registry.get_algorithm(name))


@pytest.mark.parametrize("name", ["keep-a-limit", "compare-three"])
def test_notebooks_are_pages_with_what_they_print_and_draw(site: Path, name: str) -> None:
    text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") >= 1 and "Traceback" not in text
    printed = re.findall(r'<span class="filename">Output</span>.*?<code>(.*?)</code>', text, re.S)
    numbers = re.findall(r"cost +(-?\d+\.\d)", re.sub(r"<[^>]*>", "", "\n".join(printed)))
    assert len(printed) >= 3 and len(numbers) >= 3


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    if chromium.find_chromium() is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with chromium.open_browser() as opened:
        yield opened


PLACES = ("index.html", "algorithms/cpo.html", "tasks.html", "reference/python.html")


@pytest.mark.parametrize("place", [*PLACES, "reference/settings.html", "evidence/index.html"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_a_phone_and_load_nothing_from_elsewhere(
    site: Path, browser: chromium.Browser, place: str, dark: bool
) -> None:
    page = chromium.Page(browser, site / place, width=390, dark=dark)
    try:
        assert page.run("document.documentElement.scrollWidth") <= 390
        scheme = page.run("document.body.getAttribute('data-md-color-scheme')")
        assert scheme == ("slate" if dark else "default")
        assert page.run("document.querySelectorAll('h1').length") == 1
        broken = "[...document.images].filter(one => one.complete && !one.naturalWidth).length"
        assert page.run(broken) == 0
        outside = [one for one in page.requests() if not one.startswith(("file:", "data:"))]
        assert not outside and not page.problems()
    finally:
        page.close()


def test_search_finds_pages_that_were_opened_from_the_disk(
    site: Path, browser: chromium.Browser
) -> None:
    page = chromium.Page(browser, site / "index.html", width=1200)
    try:
        page.click("[data-md-component=search-query]")
        page.call("Input.insertText", text="violation rate")
        page.until("document.querySelectorAll('.md-search-result__item').length > 3")
        found = page.run(
            "[...document.querySelectorAll('.md-search-result__link')].map(one => one.href)"
        )
        assert any("/cspo.html" in address for address in found)
        assert all(address.startswith("file:") for address in found)
    finally:
        page.close()
