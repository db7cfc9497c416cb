"""docs/ten-minutes.md: its commands run in an empty folder, in their order, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "ten-minutes.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALL = ("python -m venv", "pip install")  # the package is installed here already
# A training of a minute is made one of two epochs, and a probe one of a second.
SHORTER = {"cspo train": "--total-steps 16000", "cspo probe": "--total-steps 8000"}


def run(command: str, folder: Path) -> str:
    """Run a command of the page, short, with the commands of this Python first on the path."""
    for beginning, words in SHORTER.items():
        command += f" {words}" if command.startswith(beginning) else ""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
        timeout=60,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def edit(file: Path, change: str) -> None:
    """Put the added lines of a change below the line that it shows before them."""
    kept = "".join(line[1:] for line in change.splitlines(True) if line[0] == " ")
    new = "".join(line[1:] for line in change.splitlines(True) if line[0] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(kept) == 1 and new != kept
    file.write_text(text.replace(kept, new), encoding="utf-8")


def test_from_an_empty_folder_to_a_policy_that_needs_nothing_of_this_package(
    tmp_path: Path,
) -> None:
    pytest.importorskip("onnxruntime", reason="pip install 'cspo[export]' brings onnxruntime")
    page, folder, printed = PAGE.read_text(encoding="utf-8"), tmp_path, {}
    for kind, block in BLOCK.findall(page):
        if kind == "diff":
            edit(folder / "my_env.py", block)
        elif kind == "python":
            name = block.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(block, encoding="utf-8")
        else:
            for command in block.splitlines():
                if command.startswith("cd "):
                    folder /= command.removeprefix("cd ")
                elif not command.startswith(INSTALL):
                    printed[command] = run(command, folder)
    done = [command.removeprefix("cspo ").split()[0] for command in printed]
    assert done == ["init", "check-env", "probe", "train", "eval", "export", "python"]
    by_name = dict(zip(done, printed.values(), strict=True))
    assert "one of 5 choices" in by_name["check-env"]
    assert "It can be trained on." in by_name["check-env"]
    assert "finished" in by_name["train"] and "stochastic, 20 episodes" in by_name["eval"]
    assert "Largest difference" in by_name["export"]
    assert re.fullmatch(r"mean cost of 20 episodes: \d+\.\d\n", by_name["python"])
    assert "cspo" not in (folder / "sail.py").read_text(encoding="utf-8")


def test_the_rocks_of_the_page_cost(tmp_path: Path) -> None:
    """The change is one to the cost, and what `cspo init` tests of it still holds."""
    run("cspo init . --discrete", tmp_path)
    (change,) = [block for kind, block in BLOCK.findall(PAGE.read_text()) if kind == "diff"]
    edit(tmp_path / "my_env.py", change)
    look = (
        "from my_env import Ferry\n"
        "ferry = Ferry(); ferry.reset(seed=0); ferry.place = (0.0, 0.4)\n"
        "print(ferry.step(0)[4]['cost'])"
    )
    assert run(f'python -c "{look}"', tmp_path) == "5.0\n"
    assert "1 passed" in run("python -m pytest -p no:cacheprovider -k shallows", tmp_path)
