"""Check the types of the code that users read: examples/, and the Python of README and docs.

python scripts/check_users_code.py

The examples are checked as strictly as mypy can, the snippets of the pages without asking for
annotations. All of it is checked in a folder of its own, against cspo as it is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Beside that of `mypy` alone, which sees the package as files to check, not as installed.
CACHE = ROOT / ".mypy_cache" / "users"
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SETTINGS = """\
[mypy]
strict = True
warn_unused_ignores = False

# `my_env` is the file beside it that `cspo init` writes.
[mypy-wandb.*,mlflow.*,minigrid.*,gymnasium_robotics.*,onnxruntime.*,my_env.*]
ignore_missing_imports = True

[mypy-pages.*]
warn_return_any = False
disallow_untyped_defs = False
disallow_untyped_calls = False
disallow_untyped_decorators = False
disallow_incomplete_defs = False
disallow_any_generics = False
disallow_subclassing_any = False
"""


def pages() -> list[Path]:
    """Return the pages with code that users copy."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def write_snippets(folder: Path, found: Iterable[Path]) -> dict[str, str]:
    """Write each block of Python to a file, at the line it has on its page.

    Returns:
        The page of each file.
    """
    written = {}
    (folder / "pages").mkdir()
    (folder / "pages" / "__init__.py").touch()  # so that they are modules of one name
    for page in found:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            line, code = text.count("\n", 0, block.start(2)), textwrap.dedent(block[2])
            name = re.sub(r"\W", "_", page.relative_to(ROOT).with_suffix("").as_posix())
            file = f"pages/{name}_{line}.py"
            (folder / file).write_text("\n" * line + code, encoding="utf-8")
            written[file] = page.relative_to(ROOT).as_posix()
    return written


def run_mypy(folder: Path, *names: str) -> tuple[int, str]:
    """Check files of a folder as a user would there, strictly; returns exit code and errors."""
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    words = ["--no-error-summary", "--show-error-codes", "--cache-dir", str(CACHE), *names]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Check everything in one process: most of the time goes into reading what is imported."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write_snippets(folder, pages())
        for example in sorted((ROOT / "examples").glob("*.py")):
            shutil.copy(example, folder)
            written[example.name] = f"examples/{example.name}"
        code, errors = run_mypy(folder, *written)
    for file, page in written.items():
        errors = errors.replace(f"{file}:", f"{page}:")
    print(errors, end="")
    if code == 0:
        print(f"Types of users' code: no issues in {len(written)} examples and snippets")
    return code


if __name__ == "__main__":
    sys.exit(main())
