"""How long an installation takes, and how large it is, beside other libraries.

python benchmarks/install.py [--only NAME ...]      # after `make wheel`

Every row is a new virtual environment of the same Python; nothing is taken from a cache of pip or
uv. The size is that of the files in the environment beyond an empty one. Replaces the table in
docs/install.md, between its marks, unless only some rows were measured.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
BLOCK = re.compile(r"(<!-- installed -->\n).*?(<!-- end -->)", re.DOTALL)
TIMEOUT = 600.0  # seconds
WHEEL = "dist/cspo-*.whl"
# name: (what is installed, a statement that shows that it works)
ROWS = {
    "cspo": (f"pip install {WHEEL}", "import cspo.use.load"),
    "cspo, pinned": (f"pip install -c constraints.txt {WHEEL}", "import cspo.use.load"),
    "cspo, by uv": (f"uv pip install {WHEEL}", "import cspo.use.load"),
    "cspo with PyTorch for the CPU": (
        f"pip install 'torch==2.13.0' {WHEEL}",
        "import cspo.use.load, torch",
    ),
    "Stable-Baselines3 with PyTorch for the CPU": (
        "pip install 'torch==2.13.0' stable-baselines3",
        "import stable_baselines3",
    ),
    "OmniSafe": ("pip install omnisafe", "import omnisafe"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=ROWS, help="some of the rows")
    parser.add_argument("--python", default=sys.executable, help="the interpreter")
    given = parser.parse_args()
    lines = [
        f"| What | Command | Time | Size, Python {python_version(given.python)} |",
        "|---|---|---|---|",
    ]
    for name in given.only or ROWS:
        command, use = ROWS[name]
        found = " | ".join(measure(given.python, command, use))
        lines.append(f"| {name} | `{command}` | {found} |")
        print(lines[-1], flush=True)
    if not given.only:
        table = "\n".join(lines)
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(BLOCK.sub(rf"\g<1>\n{table}\n\n\g<2>", text), encoding="utf-8")


def python_version(python: str) -> str:
    code = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def measure(python: str, command: str, use: str) -> tuple[str, str]:
    """Return time and size of an installation in words, or how it failed."""
    with tempfile.TemporaryDirectory(prefix="install-") as place:
        venv = Path(place, "venv")
        subprocess.run([python, "-m", "venv", venv], check=True)
        if command.startswith("uv "):
            subprocess.run([venv / "bin" / "pip", "install", "-q", "uv"], check=True)
        before, began = folder_size(venv), time.perf_counter()
        try:
            done = install(venv, command)
        except subprocess.TimeoutExpired:
            return f"stopped after {TIMEOUT:.0f} s", "-"
        seconds = time.perf_counter() - began
        if done.returncode:
            return f"fails after {seconds:.0f} s", reason(done.stderr)
        size = folder_size(venv) - before
        used = subprocess.run([venv / "bin" / "python", "-c", use], capture_output=True, text=True)
        works = "" if used.returncode == 0 else f", `{use}` fails: {reason(used.stderr)}"
        return f"{seconds:.0f} s", f"{size / 1e9:.2f} GB{works}"


def install(venv: Path, command: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}"}
    for tool in ("PIP", "UV"):
        variables[f"{tool}_NO_CACHE{'_DIR' if tool == 'PIP' else ''}"] = "1"
    settings: Any = {"cwd": ROOT, "env": variables, "timeout": TIMEOUT, "shell": True}
    return subprocess.run(command, capture_output=True, text=True, **settings)


def reason(errors: str) -> str:
    """Return the last line of what was said that tells something."""
    said = [line.strip() for line in errors.splitlines() if re.match(r"\s*\w*error", line, re.I)]
    return re.sub(r"\s+", " ", (said or errors.strip().splitlines() or ["-"])[-1])[:200]


def folder_size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    if not list(ROOT.glob(WHEEL)):
        sys.exit("Build the wheel first: make wheel")
    main()
