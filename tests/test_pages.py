"""What the pages say to type runs, their links lead somewhere, and algorithms have one order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from page_code import BLOCK, ROOT, pages

from cspo.algorithms import registry

HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]*)\)")
ORDER = ["Idea", "Equation", "Settings", "Differences", "Curve"]
# What is run of a page, with the number of commands and of blocks of Python.
RUN = {
    "README.md": ("commands", 3, 0),  # its Python: tests/test_docs.py
    "docs/README.md": ("both", 1, 0),
    "docs/commands.md": ("python", 0, 2),  # its commands stand on the other pages too
    "docs/export.md": ("both", 1, 0),
    "docs/first-run.md": ("both", 10, 1),
    "docs/install.md": ("both", 4, 0),
    "docs/limits.md": ("both", 3, 1),
    "docs/logging.md": ("both", 1, 1),
    "docs/own-algorithm.md": ("commands", 3, 0),  # its Python: tests/test_docs.py
    "docs/own-environment.md": ("both", 6, 4),
    "docs/own-network.md": ("both", 0, 1),
    "docs/own-task.md": ("both", 2, 1),
    "docs/warm-start.md": ("both", 1, 0),
    "docs/workers.md": ("both", 1, 1),
}
# In processes of their own: what they register would meet what another page does.
ALONE = ("docs/own-algorithm.md", "docs/own-task.md")


def code_of_pages(folder: Path, *words: str) -> list[str]:
    """Return the lines that page_code.py prints, run in an empty folder."""
    script = Path(__file__).with_name("page_code.py")
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_every_command_on_the_pages_is_one_that_the_program_takes(tmp_path: Path) -> None:
    found = re.fullmatch(r"(\d+) commands", code_of_pages(tmp_path, "parse")[-1])
    assert found and int(found[1]) >= 120


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "chosen", [[one for one in RUN if one not in ALONE], *([one] for one in ALONE)]
)
def test_commands_and_python_of_pages_run(chosen: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'cspo[torch]'")
    pytest.importorskip("av", reason="PyAV is not installed: pip install 'cspo[video]'")
    printed = code_of_pages(tmp_path, *(word for page in chosen for word in (page, RUN[page][0])))
    for page in chosen:
        _, commands, python = RUN[page]
        assert f"{page}: {commands} commands, {python} blocks of Python" in printed


def test_links_and_anchors_of_the_pages_lead_somewhere() -> None:
    checked, wrong = 0, []
    for page in pages():
        for target in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = unquote(target).partition("#")
            found = (page.parent / path).resolve() if path else page
            checked += 1
            if not found.exists():
                wrong.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and found.suffix == ".md" and anchor not in anchors(found):
                wrong.append(f"{page.relative_to(ROOT)}: {target}, which has no such heading")
    assert not wrong, "\n".join(wrong)
    assert checked > 400
    print(f"{checked} links")


def anchors(page: Path) -> set[str]:
    """Return the anchors that headings have where Markdown is shown."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in plain}


@pytest.mark.parametrize(
    "name", [one for one in registry.algorithm_names() if one not in ("cspo", "step-price")]
)
def test_pages_of_algorithms_have_one_order_and_a_curve(name: str) -> None:
    if not registry.is_built_in(registry.get_algorithm(name)):
        pytest.skip("it is no algorithm of this package")
    _one_order(ROOT / "docs" / "algorithms" / f"{name}.md", ORDER, f"curves/{name}.svg")


def test_the_page_of_cspo_has_the_same_order_with_two_sections_more() -> None:
    more = ["Idea", "Equation", "The margin", "Settings", "What to watch", "Differences", "Curve"]
    _one_order(ROOT / "docs" / "cspo.md", more, "algorithms/curves/cspo.svg")


def _one_order(page: Path, order: list[str], curve: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == order
    last = text.rpartition("## Curve")[2]
    assert f"]({curve})" in last and (page.parent / curve).is_file()


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 130
