"""The table of requests tells the truth about what it names: tests, commands and options exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from cspo.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "requests.md").read_text("utf-8"), re.M)


def names_of_tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_are_25_rows_and_each_names_a_test() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 26))
    for number, row in ROWS:
        cells = row.split("|")
        assert len(cells) == 4 and re.fullmatch(r" \d+, \d+ ", cells[1]), number
        asked, ours = map(int, cells[1].split(","))
        assert 0 < asked >= ours
        named = re.findall(r"`(tests/test_\w+\.py)::(test_\w+)`", cells[3])
        assert named, f"row {number} names no test"
        for file, name in named:
            assert name in names_of_tests(file), f"row {number}: {file} has no {name}"


COMMANDS_SHOWN = sorted({shown for _, row in ROWS for shown in re.findall(r"`(cspo [^`]+)`", row)})


@pytest.mark.parametrize("shown", COMMANDS_SHOWN)
def test_every_command_has_its_options(
    shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, name, *words = shlex.split(shown)
    assert name in COMMANDS
    before = [word for word in words[:1] if name in ("study", "bench")]  # study run, bench train
    try:
        main([name, *before, "--help"])
    except SystemExit as leaving:
        assert not leaving.code
    explained = capsys.readouterr().out
    for word in words:
        if word.startswith("--"):
            assert re.search(rf"(?<![\w-]){word}(?![\w-])", explained), f"{shown}: no {word}"
