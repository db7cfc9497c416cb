"""The rooms of the house: who may import whom, that there is no cycle, and how long things are."""

from __future__ import annotations

import ast
import io
import tokenize
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cspo
from cspo.algorithms.registry import BUILT_IN

PACKAGE = Path(cspo.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
# In the order of the data: a room imports the rooms before it, and the door.
ROOMS = ("envs", "policy", "experience", "algorithms", "optim", "runs", "use", "lab", "commands")
LOOP_ROOMS = ROOMS[: ROOMS.index("optim") + 1]  # what the loop is made of
TOP = 13  # modules beside the rooms
LOOP_LINES = 80


def room_of(module: str) -> str | None:
    """Return the room a module is in; None for the door."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def imports(path: Path) -> set[str]:
    """Return the modules of this package that a module imports, wherever the statement stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if known(name) else str(node.module) for name in inner}
    return {known(name) for name in found if known(name)} - {""}


def known(name: str) -> str:
    """Return the module that a dotted name means, or nothing if it is none of ours."""
    return next((one for one in (name, f"{name}.__init__") if one in MODULES), "")


def lines_of_code(path: Path) -> int:
    """Count the lines that are neither blank nor comment nor docstring."""
    text = path.read_text(encoding="utf-8")
    counted: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*skipped, tokenize.ENDMARKER):
            counted |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            counted -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(counted)


def test_the_reader_of_imports_reads(tmp_path: Path) -> None:
    """It sees every form of an import, so that the tests below can fail."""
    file = tmp_path / "module.py"
    file.write_text(
        "import numpy\nimport cspo.config\nfrom cspo.optim import adam\n"
        "def f():\n    from cspo.envs.make import make_batch\n"
        "if TYPE_CHECKING:\n    from cspo.runs import folder\n"
    )
    assert imports(file) == {
        "cspo.config",
        "cspo.optim.adam",
        "cspo.envs.make",
        "cspo.runs.folder",
    }


def test_the_folders_are_the_rooms() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == {*ROOMS}
    top = [path.name for path in PACKAGE.glob("*.py")]
    assert len(top) <= TOP, top


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name)])
def test_a_room_imports_only_rooms_before_it_and_the_door(module: str) -> None:
    place = ROOMS.index(str(room_of(module)))
    for name in imports(MODULES[module]):
        room = room_of(name)
        assert room is None or ROOMS.index(room) <= place, f"{module} imports {name}"
        if name in ("cspo.train", "cspo.setup"):
            assert room_of(module) not in LOOP_ROOMS, f"{module} imports what is made of it"
        assert name != "cspo.cli", f"{module} imports the command line"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {name: imports(path) for name, path in MODULES.items()}
    # The package's own file hands out public names on first use, by their text.
    graph["cspo.__init__"] = set()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail(" -> ".join(reversed(cycle.args[1])))


def test_the_loop_is_short_and_knows_neither_files_nor_people() -> None:
    path = PACKAGE / "train.py"
    assert lines_of_code(path) <= LOOP_LINES
    for name in imports(path):
        assert room_of(name) in (None, *LOOP_ROOMS), f"the loop imports {name}"
    text = path.read_text(encoding="utf-8")
    assert not any(word in text for word in ("print(", "open(", "pathlib", "run_dir"))


def test_no_algorithm_imports_another() -> None:
    algorithms = {f"cspo.algorithms.{name}" for name in BUILT_IN}
    for name in algorithms:
        assert not imports(MODULES[name]) & (algorithms - {name})
