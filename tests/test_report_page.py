"""The page of a report: it says what the data say, no text breaks it, and browsers run it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Browser, Page, find_chromium, open_browser
from report_helpers import GOAL, HOPPER, STEPS, small_study, write_run

from cspo.lab.report import curves
from cspo.lab.report.page import make_page
from cspo.lab.report.results import Results, collect
from cspo.lab.report.write import all_tables

HOSTILE = (
    '</script><script>document.title="broken"</script><img src=x onerror="document.title=1">&lt;'
)
HOSTILE_ALGORITHM = '"><svg onload="document.title=2">{{css}}\u2028\'--><!--'
WIDTHS = (390, 1280)


class Elements(HTMLParser):
    """Collects elements, their attributes, and the text of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts[-1] += data


def page_of(folder: Path, figures: Sequence[tuple[str, str]] = ()) -> tuple[Results, str]:
    results = collect([folder])
    return results, make_page(results, all_tables(results), figures)


def embedded(html: str) -> Any:
    return json.loads(Elements(html).scripts[0])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_study(tmp_path_factory.mktemp("report") / "study")
    # Never above the limit: its TTS and RP are undefined.
    write_run(folder, HOPPER, "focops", returns=[50.0] * 20, cost=[1.0] * 20)
    (folder / "index.html").write_text(page_of(folder)[1], encoding="utf-8")
    return folder


def test_html_stands_in_templates_only() -> None:
    modules = sorted(Path(curves.__file__).parent.glob("*.py"))
    assert [path.name for path in modules if "</" in path.read_text(encoding="utf-8")] == []
    assert "|safe" not in "".join(
        path.read_text("utf-8") for path in modules[0].parent.glob("page/*")
    )


def test_nothing_is_loaded_from_elsewhere(study: Path) -> None:
    html = (study / "index.html").read_text(encoding="utf-8")
    for tag, attributes in Elements(html).found:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href"):
            assert not re.match(r"\w+:|//", attributes.get(name) or ""), attributes
    assert "url(" not in html and "@import" not in html
    assert "default-src 'none'" in html


def test_the_curves_in_the_page_are_those_of_the_runs(study: Path) -> None:
    results, html = page_of(study)
    data = embedded(html)
    task = next(item for item in data["tasks"] if item["name"] == HOPPER)
    cell = next(item for item in task["cells"] if item["label"] == "ppo-lag")
    runs = [run.series for run in results.runs if (run.task, run.algo) == (HOPPER, "ppo-lag")]
    costs = np.array([series.cost[:, 0] for series in runs])
    np.testing.assert_allclose(cell["curves"]["cost"]["mean"], costs.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(cell["curves"]["cost"]["low"], costs.min(axis=0), rtol=1e-4)
    np.testing.assert_allclose(cell["curves"]["cost"]["seeds"], costs, rtol=1e-4)
    assert cell["curves"]["cost"]["limit"] == 25.0
    assert task["grids"][cell["grid"]]["steps"] == list(range(STEPS, 21 * STEPS, STEPS))


def test_unknown_values_are_null_and_never_nan(tmp_path: Path) -> None:
    write_run(tmp_path, returns=[1.0, math.nan, 3.0], cost=[math.nan] * 3)
    (cell,) = embedded(page_of(tmp_path)[1])["tasks"][0]["cells"]
    assert cell["curves"] == {"return": {"mean": [1.0, None, 3.0]}}


def test_many_curves_are_thinned_to_the_budget_and_keep_exact_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_study(tmp_path, seeds=3, epochs=100)
    monkeypatch.setattr(curves, "NUMBERS", 1000)
    monkeypatch.setattr(curves, "FEWEST", 5)
    results = collect([tmp_path])
    data = curves.curve_data(results)
    cells = [cell for task in data["tasks"] for cell in task["cells"]]
    drawn = [curve for cell in cells for curve in cell["curves"].values()]
    numbers = sum(len(curve[name]) for curve in drawn for name in ("mean", "low", "high"))
    assert 500 < numbers <= 1000
    assert 400 < sum(len(seed) for curve in drawn for seed in curve["seeds"]) <= 1000
    cell = data["tasks"][0]["cells"][0]
    epochs = data["tasks"][0]["grids"][cell["grid"]]["epochs"]
    assert epochs[-1] == 99  # the last one is always there
    expected = np.mean([run.series.returns for run in results.cells[0].runs], axis=0)[epochs]
    np.testing.assert_allclose(cell["curves"]["return"]["mean"], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("epochs", "points"), [(1, 40), (39, 40), (40, 40), (41, 40), (500, 130), (7, 1)]
)
def test_thinning_keeps_the_last_epoch_and_even_gaps(epochs: int, points: int) -> None:
    kept = curves.stride(epochs, points)
    assert len(kept) <= points and kept[-1] == epochs - 1
    assert len(set(np.diff(kept))) <= 1
    assert len(kept) == epochs if epochs <= points else len(kept) >= points / 2


def hostile_study(folder: Path) -> Path:
    for seed in (0, 1):
        for algo in ("cspo", HOSTILE_ALGORITHM):
            # A file system allows such names, but for the slash; the folder's name is shown as
            # well.
            name = f"{seed}{algo}".replace("/", "-")
            versions = {"<b>x</b>": HOSTILE}
            write_run(
                folder,
                HOSTILE,
                algo,
                seed,
                returns=[1, 2 + seed],
                cost=[30, 20],
                name=name,
                versions=versions,
            )
    return folder


def test_no_name_can_leave_its_place(tmp_path: Path) -> None:
    html = page_of(hostile_study(tmp_path / HOSTILE.replace("/", "-")), [("curves-x", HOSTILE)])[1]
    page = Elements(html)
    assert len(page.scripts) == 2
    assert not [
        tag for tag, attributes in page.found if any(name.startswith("on") for name in attributes)
    ]
    assert {attributes["src"] for tag, attributes in page.found if tag == "img"} == {
        "figures/curves-x.svg"
    }
    assert not [tag for tag, _ in page.found if tag in ("svg", "b")]
    data = json.loads(page.scripts[0])
    assert data["tasks"][0]["name"] == HOSTILE
    assert data["tasks"][0]["cells"][1]["label"] == HOSTILE_ALGORITHM
    assert html.count("--ground: #ffffff") == 1  # {{css}} in a name stays what it is


def test_provenance_lists_runs_versions_and_what_is_left_out(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(
            tmp_path,
            seed=seed,
            returns=[1, 2],
            cost=[1, 2],
            versions={"torch": "2.9.0", "numpy": f"2.{seed}"},
        )
    write_run(tmp_path, seed=2, returns=[1], cost=[1], planned=2)
    results, html = page_of(tmp_path)
    assert results.cells[0].seeds == 2
    text = re.sub(r"<[^>]+>", " ", html[html.index('<section id="provenance">') :])
    text = " ".join(text.split())
    assert "SafetyHopperVelocity-v1, CSPO 2 runs, seeds 0, 1, 2,000 steps" in text
    for fact in (f"{HOPPER}-cspo-seed0", f"{HOPPER}-cspo-seed1", "numpy", "2.0", "2.1"):
        assert fact in text
    assert "1 of 3 runs are not finished and left out" in text and "1 of 2" in text
    assert "<dd>2 of 3</dd>" in html  # runs finished, at the top


def test_a_mean_of_seeds_outside_the_interval_stands_below_the_results(tmp_path: Path) -> None:
    stray = [*[10.0] * 19, 50.0]  # one of the four epochs that count: pooled 10, mean 20
    for seed in (0, 1):
        write_run(tmp_path / "apart", seed=seed, returns=stray, cost=[5.0] * 20)
        write_run(tmp_path / "alike", seed=seed, returns=[10.0] * 20, cost=[5.0] * 20)
    note = "Hopper, CSPO: mean of seeds return 20.00, outside the interval of the pooled 10.00."
    for name, count in (("apart", 1), ("alike", 0)):
        _, html = page_of(tmp_path / name)
        assert html[html.index('id="results"') : html.index('id="curves"')].count(note) == count


def test_a_row_without_any_finished_run_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, HOPPER, returns=[1], cost=[1], planned=2)
    write_run(tmp_path, GOAL, returns=[1, 1], cost=[1, 1])
    html = page_of(tmp_path)[1]
    rows = re.findall(r"<tr data-task.*?</tr>", html, re.DOTALL)
    assert [(HOPPER in row, "not finished" in row) for row in rows] == [
        (True, True),
        (False, False),
    ]


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip("Chromium is not installed (sh scripts/system-packages.sh)")
    with open_browser() as process:
        yield process


def open_page(browser: Browser, file: Path, width: int = 1280, **options: Any) -> Page:
    page = Page(browser, file, width, **options)
    page.until("document.querySelectorAll('#plots svg').length > 0")
    return page


def column(page: Page, place: int) -> list[str]:
    cells = (
        f"Array.from(document.querySelectorAll('#main-table tbody tr'), row => row.cells[{place}])"
    )
    found: list[str] = page.run(f"{cells}.map(cell => cell.firstChild.textContent)")
    return found


def choose(page: Page, select: str, value: str) -> None:
    """Choose an entry of a list, as a person does with the mouse."""
    found = f"document.getElementById({select!r})"
    page.run(f"{found}.value = {value!r}; {found}.dispatchEvent(new Event('change'))")


def values(page: Page, label: str, place: int) -> str:
    """What the table beside the curves says about an algorithm: the number, without its range."""
    row = f"""document.querySelector('#values tr[data-label="{label}"]')"""
    return (
        str(page.run(f"{row}.cells[{place}].firstChild.textContent"))
        .replace("−", "-")
        .replace(",", "")
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_loads_nothing_and_reports_no_error(
    browser: Browser, study: Path, width: int, dark: bool
) -> None:
    page = open_page(browser, study / "index.html", width, dark=dark)
    assert page.run("document.documentElement.scrollWidth") <= width
    widths = "Array.from(document.querySelectorAll('section, header'), e => e.scrollWidth)"
    assert page.run(f"Math.max(...{widths})") <= width
    assert page.problems() == []
    assert {request.split(":")[0] for request in page.requests()} == {"file"}
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == dark
    page.close()


def test_a_header_sorts_by_click_and_by_key(browser: Browser, study: Path) -> None:
    page = open_page(browser, study / "index.html")
    page.click("#main-table thead th:nth-child(3) button")
    shown = [float(text) for text in column(page, 2)]
    assert shown == sorted(shown, reverse=True) and len(shown) == 7
    state = "document.querySelectorAll('#main-table th')[{}].getAttribute('aria-sort')"
    assert page.run(state.format(2)) == "descending"
    page.run("document.querySelector('#main-table thead th:nth-child(3) button').focus()")
    page.press("Enter")
    assert [float(text) for text in column(page, 2)] == sorted(shown)
    assert page.run(state.format(2)) == "ascending"
    page.click("#main-table thead th:nth-child(8) button")  # TTS, which one algorithm does not have
    for _ in range(2):
        assert column(page, 7)[-1] == "–"
        page.click("#main-table thead th:nth-child(8) button")
    assert page.run(state.format(2)) is None
    assert page.problems() == []
    page.close()


def test_the_task_of_the_table_can_be_chosen_and_a_row_leads_to_its_runs(
    browser: Browser, study: Path
) -> None:
    page = open_page(browser, study / "index.html")
    choose(page, "main-task", GOAL)
    rows = "Array.from(document.querySelectorAll('#main-table tbody tr'))"
    assert page.run(f"{rows}.filter(row => !row.hidden).length") == 3
    page.click("#main-table tbody tr:not([hidden]) a")
    page.until("document.querySelectorAll('details[open]').length === 1")
    assert f"{GOAL}-cspo-seed2" in page.run("document.querySelector('details[open]').textContent")
    page.close()


def test_an_algorithm_can_be_turned_off_and_seeds_shown(browser: Browser, study: Path) -> None:
    page = open_page(browser, study / "index.html")
    lines = """document.querySelectorAll('#plots path[data-label="{}"]').length"""
    assert page.run(lines.format("cspo")) == 2  # return and cost
    page.click('#values tr[data-label="cspo"] label')
    assert page.run(lines.format("cspo")) == 0 and page.run(lines.format("ppo-lag")) == 2
    page.run("""document.querySelector('#values tr[data-label="cspo"] input').focus()""")
    page.press(" ")
    assert page.run(lines.format("cspo")) == 2
    page.click("#single-seeds")
    assert page.run(lines.format("cspo")) == 6  # three seeds each
    page.click("#all-off")
    assert page.run("document.querySelectorAll('#plots path').length") == 0
    page.click("#all-on")
    assert page.run(lines.format("cpo")) == 6
    assert page.problems() == []
    page.close()


def test_pointing_at_a_curve_shows_the_values_of_that_epoch(browser: Browser, study: Path) -> None:
    page = open_page(browser, study / "index.html")
    results = collect([study])
    runs = [run.series for run in results.runs if (run.task, run.algo) == (HOPPER, "cspo")]
    returns, costs = (
        np.mean([s.returns for s in runs], axis=0),
        np.mean([s.cost[:, 0] for s in runs], axis=0),
    )
    assert page.run("document.getElementById('where').textContent") == "Epoch 20 · 20,000 steps"
    page.centre("#plots svg")
    for epoch in (3, 11):
        x, y = page.run(
            "(() => { const svg = document.querySelector('#plots svg');"
            " const box = svg.getBoundingClientRect();"
            f" return [box.left + svg.place.x({STEPS * (epoch + 1)}), box.top + box.height / 2];"
            " })()"
        )
        page.mouse("mouseMoved", x + 2, y)
        said = f"Epoch {epoch + 1} · {epoch + 1},000 steps"
        page.until(f"document.getElementById('where').textContent === {said!r}")
        assert float(values(page, "cspo", 1)) == pytest.approx(returns[epoch], abs=0.06)
        assert float(values(page, "cspo", 2)) == pytest.approx(costs[epoch], abs=0.006)
        cost = """document.querySelector('#values tr[data-label="cspo"]').cells[2]"""
        assert page.run(f"{cost}.classList.contains('above')") == (costs[epoch] > 25)
    assert (
        page.run("document.querySelectorAll('#plots .guide circle').length") == 8
    )  # four algorithms, two plots
    page.close()


def test_the_curves_can_be_read_with_keys_and_other_quantities_chosen(
    browser: Browser, study: Path
) -> None:
    page = open_page(browser, study / "index.html")
    page.run("document.getElementById('plots').focus()")
    where = "document.getElementById('plots').getAttribute('aria-valuenow')"
    for key, epoch in (
        ("Home", "1"),
        ("ArrowRight", "2"),
        ("ArrowRight", "3"),
        ("ArrowLeft", "2"),
        ("End", "20"),
    ):
        page.press(key)
        assert page.run(where) == epoch
    choose(page, "upper", "weight")
    assert float(values(page, "cspo", 1)) == pytest.approx(np.exp(-1.9), abs=6e-4)
    assert values(page, "ppo-lag", 1) == "–"  # it has none
    choose(page, "task", GOAL)
    assert (
        page.run("document.getElementById('upper').value") == "weight"
    )  # what was chosen stays chosen
    assert page.run("document.querySelectorAll('#values tbody tr').length") == 3
    assert page.problems() == []
    page.close()


def test_a_finger_reads_the_curves(browser: Browser, study: Path) -> None:
    page = open_page(browser, study / "index.html", 390)
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    x, y = page.centre("#plots svg")
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.until("document.getElementById('plots').getAttribute('aria-valuenow') < 20")
    assert page.problems() == []
    page.close()


def test_hostile_names_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    folder = hostile_study(tmp_path / HOSTILE.replace("/", "-"))
    (tmp_path / "page.html").write_text(page_of(folder)[1], encoding="utf-8")
    for width in WIDTHS:
        page = open_page(browser, tmp_path / "page.html", width)
        assert page.run("document.title") == folder.name
        assert (
            page.run("document.querySelector('#values tbody tr:nth-child(2)').dataset.label")
            == HOSTILE_ALGORITHM
        )
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.problems() == []
        page.close()


def test_one_epoch_several_constraints_and_unknown_values_are_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", returns=[3.0], cost=[30.0])
    write_run(
        tmp_path / "b", returns=[1.0, 2.0], cost=[[1.0, 2.0], [3.0, math.nan]], limit=(25.0, 5.0)
    )
    write_run(tmp_path / "c", returns=[math.nan] * 2, cost=[math.nan] * 2)
    for name in "abc":
        file = tmp_path / f"{name}.html"
        file.write_text(page_of(tmp_path / name)[1], encoding="utf-8")
        page = Page(browser, file, 1280)
        assert page.problems() == []
        if name == "a":
            assert page.run("document.querySelectorAll('#plots path[data-label=cspo]').length") == 2
        if name == "b":
            titles = page.run(
                "Array.from(document.getElementById('lower').options, option => option.text)"
            )
            assert titles == ["nothing", "return", "cost 0", "cost 1"]
        if name == "c":
            assert page.run("document.getElementById('curves')") is None  # there is nothing to draw
        page.close()
