"""The page of `cspo watch` in a real browser: it changes while a training goes on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Browser, Page, find_chromium, open_browser
from report_helpers import small_study, write_run
from run_helpers import SMALL, TASK, as_flags, start, wait_for_epochs
from watch_helpers import HOSTILE, Site, _at_once, add_rows, served

__all__ = ["_at_once"]  # a fixture
pytestmark = [
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
    pytest.mark.usefixtures("_at_once"),
]
DESKTOP, PHONE = 1280, 390
TILES = (
    "Object.fromEntries(Array.from(document.querySelectorAll('#tiles > div'),"
    " tile => [tile.children[0].textContent, tile.children[1].textContent]))"
)
DRAWN = "document.querySelectorAll('#large .plot:not([hidden]) path.line').length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


def text(page: Page, name: str) -> str:
    return str(page.run(f"document.getElementById({json.dumps(name)}).textContent"))


def open_page(browser: Browser, site: Site, path: str = "/", **options: Any) -> Page:
    page = Page(browser, site.server.url + path[1:], **({"width": DESKTOP} | options))
    page.until("document.getElementById('state').dataset.state !== ''")
    return page


def assert_in_order(page: Page, site: Site, width: int) -> None:
    """No error, no request to anything but the server, nothing wider than the screen."""
    assert page.problems() == []
    assert all(request.startswith(site.server.url) for request in page.requests())
    assert page.run("document.documentElement.scrollWidth") <= width
    parts = "Array.from(document.querySelectorAll('section, header, figure'), e => e.scrollWidth)"
    assert page.run(f"Math.max(...{parts})") <= width


@pytest.fixture
def training(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A training in another process, long enough to be looked at."""
    run = tmp_path / "run"
    words = as_flags({**SMALL, "total_steps": 400 * 500, "cost_limit": "2@0, 1@2000"})
    process = start("train", TASK, "--run-dir", run, "--quiet", *words)
    wait_for_epochs(run, 1, process)
    yield run, process
    process.kill()
    process.wait()


def test_numbers_and_curves_change_while_a_training_goes_on(
    browser: Browser, training: tuple[Path, subprocess.Popen[str]]
) -> None:
    run, process = training
    with served(run) as site:
        page = open_page(browser, site)
        page.until(f"document.querySelectorAll('#tiles > div').length > 4 && {DRAWN} > 3")
        first, where, shape = page.run(TILES), text(page, "where"), page.run(SHAPE)
        assert first["Return"] != "–" and "of " in first["Cost"] and "steps/s" in first["Speed"]
        assert {"Price", "Time left", "Above a limit", "Last epoch"} <= set(first)
        assert text(page, "state") == "training" and "left" in text(page, "progress-text")
        page.until(f"document.getElementById('where').textContent !== {json.dumps(where)}")
        page.until(f"JSON.stringify({TILES}) !== {json.dumps(compact(first))}")
        assert page.run(SHAPE) != shape  # the curve is drawn anew
        titles = page.run("Array.from(document.querySelectorAll('.plot strong'), e => e.innerText)")
        assert {"Return", "Cost", "Price and its parts", "Steps per second"} <= set(titles)
        page.until("document.querySelectorAll('#latest tr').length > 20")
        process.kill()  # as a crash of the machine would
        page.until("document.getElementById('state').textContent === 'stopped'")
        assert "Time left" not in page.run(TILES)
        assert_in_order(page, site, DESKTOP)
        page.close()


SHAPE = "document.querySelector('path.line.return').getAttribute('d')"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_pages_fit_a_desktop_and_a_phone_in_light_and_dark(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    numbers = np.linspace(0.0, 1.0, 30)
    columns = {f"{name}_{k}": numbers for name in ("multiplier", "price_rho") for k in (0, 1)}
    costs = np.stack([60 * numbers, 4 - numbers], axis=1)
    several = write_run(
        tmp_path / "a", returns=1e4 * numbers, cost=costs, limit=(25.0, 5.0), columns=columns
    )
    for folder in (several, small_study(tmp_path / "study", seeds=1)):
        with served(folder) as site:
            page = open_page(browser, site, width=width, dark=dark)
            page.until("document.querySelectorAll('#tiles > div').length > 1")
            assert_in_order(page, site, width)
            ground = page.run("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
            page.close()


def test_a_curve_is_read_with_keys_and_with_the_mouse(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path, returns=np.arange(20.0), cost=np.full(20, 3.0))
    with served(run) as site:
        page = open_page(browser, site)
        page.until(f"{DRAWN} > 2")
        assert text(page, "where") == "Epoch 20 · 20,000 steps · newest"
        page.run("document.getElementById('charts').focus()")
        for key, epoch in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
            page.press(key)
            assert text(page, "where").startswith(f"Epoch {epoch} ")
        value = "document.querySelector('.plot .legend b').textContent"
        assert page.run(value) == "1"
        add_rows(run, [dict(zip(("e", "s", "r", "c", "l"), (20, 21000, 9, 3, 25), strict=True))])
        page.until("document.getElementById('charts').getAttribute('aria-valuemax') === '21'")
        assert text(page, "where").startswith("Epoch 2 ")  # what is read stays
        page.press("End")
        assert text(page, "where").startswith("Epoch 21 ") and page.run(value) == "9"
        page.click("[data-span='50']")
        x, y = page.centre("#large .canvas svg")
        page.mouse("mouseMoved", x, y)
        page.until("!document.getElementById('where').textContent.includes('newest')")
        assert_in_order(page, site, DESKTOP)
        page.close()


def test_the_table_of_a_study_is_found_sorted_and_leads_to_its_runs(
    browser: Browser, tmp_path: Path
) -> None:
    study = small_study(tmp_path / "study", seeds=2)
    with served(study) as site:
        page = open_page(browser, site)
        rows = "Array.from(document.querySelectorAll('#runs tbody tr'))"
        page.until(f"{rows}.length === 12")
        page.click("#runs th:nth-child(4) button")
        shown = f"{rows}.map(row => Number(row.cells[3].textContent))"
        found = page.run(shown)
        assert found == sorted(found, reverse=True)
        typed = "const box = document.getElementById('filter'); box.value = 'hopper cpo seed1';"
        page.run(f"{{ {typed} box.dispatchEvent(new Event('input')); }}")
        assert page.run(f"{rows}.filter(row => !row.hidden).length") == 1
        page.click("#runs tbody tr:not([hidden]) a")
        page.until("location.pathname !== '/' && document.readyState === 'complete'")
        page.until(f"{DRAWN} > 2")
        assert text(page, "state") == "stopped" and "seed 1" in page.run("document.body.innerText")
        assert_in_order(page, site, DESKTOP)
        page.close()


def test_hostile_text_does_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "-")
    columns = {HOSTILE.replace(",", "").replace('"', "'"): [1.0]}
    run = write_run(
        tmp_path, task=HOSTILE, algo=HOSTILE, name=name, returns=[1.0], cost=[2.0], columns=columns
    )
    for folder in (run, tmp_path):
        with served(folder) as site:
            page = open_page(browser, site)
            page.until("document.title.includes('%')")
            assert page.run("document.images.length") == 0
            assert page.run("document.querySelector('h1').textContent") == folder.name
            assert_in_order(page, site, DESKTOP)
            page.close()


def test_the_page_waits_for_a_server_that_ended_and_shows_what_comes_back(
    browser: Browser, tmp_path: Path
) -> None:
    first = write_run(tmp_path, seed=1, returns=[1.0, 2.0], cost=[1.0, 2.0], name="first")
    other = write_run(tmp_path, seed=2, returns=[5.0, 6.0], cost=[1.0, 2.0], name="other")
    watching = start("watch", first, "--port", "0")
    try:
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", watching.stdout.readline())
        page = Page(browser, address[0], DESKTOP)
        page.until(f"{DRAWN} > 2")
        watching.kill()
        watching.wait()
        page.until("!document.getElementById('banner').hidden")
        assert "No answer" in text(page, "banner")
        watching = start("watch", other, "--port", address[1])
        page.until("document.querySelector('h1')?.textContent === 'other'")
        page.until(f"{DRAWN} > 2")
        assert page.run(TILES)["Return"] == "6" and "seed 2" in page.run("document.body.innerText")
        page.close()
    finally:
        watching.kill()
