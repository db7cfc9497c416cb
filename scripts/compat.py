"""Try the wheel on every Python that is here, with the newest and the oldest allowed dependencies.

make compat        # builds the wheel first

Each is a new virtual environment outside of the checkout, filled by uv: what is newest, and what
`--resolution lowest-direct` gives. There `cspo doctor` runs, a short training, and some of the
tests. The table in docs/support.md is replaced, between its marks. More interpreters can be named:
`.venv/bin/python scripts/compat.py --python /path/to/python3.14`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "support.md"
BLOCK = re.compile(r"(<!-- compat -->\n).*?(<!-- end -->)", re.DOTALL)
MINORS = range(10, 15)
SHOWN = ("numpy", "numba", "mujoco", "gymnasium", "scipy")
# Tests that need neither PyTorch nor the helpers of those that do.
TESTS = ("test_config", "test_plugins", "test_velocity")
TRAIN = "train SafetyPointGoal1-v0 --total-steps 8000 --steps-per-epoch 4000 --num-envs 4 --quiet"
TIMEOUT = 900.0  # seconds of any step


def main() -> None:
    """Try all and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="*", default=[], help="further interpreters")
    found = interpreters(parser.parse_args().python)
    (wheel,) = (ROOT / "dist").glob("cspo-*.whl")
    rows = []
    with tempfile.TemporaryDirectory(prefix="cspo-compat-") as place:
        uv = uv_in(Path(place))
        for minor in MINORS:
            for which in ("newest", "oldest"):
                python = found.get(minor)
                if python is None:
                    rows.append(f"| 3.{minor} | {which} | not run: there is none here | | |")
                else:
                    rows.append(tried(uv, python, wheel, which, Path(place)))
                print(rows[-1], flush=True)
    head = f"{platform.system()} {platform.machine()}, glibc {platform.libc_ver()[1]}"
    table = [
        head + ":",
        "",
        "| Python | Dependencies | Result | Seconds | Versions |",
        "|---|---|---|---|---|",
    ]
    text = BLOCK.sub(
        lambda block: block[1] + "\n" + "\n".join([*table, *rows]) + "\n\n" + block[2],
        PAGE.read_text(encoding="utf-8"),
    )
    PAGE.write_text(text, encoding="utf-8")


def interpreters(named: list[str]) -> dict[int, str]:
    """Return an interpreter of each version: those that were named, of pyenv, or on the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [
        *named,
        *(str(path) for path in sorted(pyenv.glob("3.*/bin/python"), reverse=True)),
        *(path for minor in MINORS if (path := shutil.which(f"python3.{minor}"))),
    ]
    found: dict[int, str] = {}
    for python in candidates:
        code = "import sys; print(*sys.version_info[:2])"
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.startswith("3 "):
            found.setdefault(int(asked.stdout.split()[1]), python)
    return found


def uv_in(place: Path) -> str:
    """Return uv, installed for this purpose."""
    subprocess.run([sys.executable, "-m", "venv", place / "uv"], check=True)
    subprocess.run([place / "uv" / "bin" / "pip", "install", "-q", "uv"], check=True)
    return str(place / "uv" / "bin" / "uv")


def tried(uv: str, python: str, wheel: Path, which: str, place: Path) -> str:
    """Return the row of the table for one interpreter and one choice of dependencies."""
    venv, began = place / "venv", time.perf_counter()
    own = {**os.environ, "VIRTUAL_ENV": str(venv), "XDG_CACHE_HOME": str(place / "cache")}
    own.pop("PYTHONPATH", None)
    install = [uv, "pip", "install", "--no-build"]
    # The dependencies are named by themselves: of a wheel they are not direct ones.
    lowest = ["--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml"]
    program, tests = venv / "bin" / "cspo", [ROOT / "tests" / f"{name}.py" for name in TESTS]
    steps = {
        **({"dependencies": [*install, *lowest]} if which == "oldest" else {}),
        "install": [*install, wheel],
        "tools of the tests": [*install, "pytest", "pytest-timeout", "hypothesis"],
        "doctor": [program, "doctor"],
        "training": [program, *TRAIN.split()],
        "tests": [venv / "bin" / "python", "-m", "pytest", "-q", "--noconftest", "-x", *tests],
    }
    subprocess.run([uv, "venv", "-q", "--clear", "--python", python, venv], check=True)
    result, versions = "works", ""
    for name, words in steps.items():
        done = subprocess.run(
            list(map(str, words)),
            cwd=place,
            env=own,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            result = f"**{name} fails**: {reason(done.stderr + done.stdout)}"
            break
    seconds = time.perf_counter() - began
    listed = subprocess.run([uv, "pip", "list", "--format", "json"], env=own, capture_output=True)
    if listed.returncode == 0:
        known = {one["name"]: one["version"] for one in json.loads(listed.stdout)}
        versions = ", ".join(f"{name} {known[name]}" for name in SHOWN if name in known)
    shutil.rmtree(venv)
    shutil.rmtree(place / "runs", ignore_errors=True)
    code = "import platform; print(platform.python_version())"
    full = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    return f"| {full} | {which} | {result} | {seconds:.0f} | {versions} |"


def reason(said: str) -> str:
    """Return the sentence that tells most, in one line."""
    text = re.sub(r"\s+", " ", re.sub(r"[│╭╰─▶×]", " ", said))
    sentence = re.search(r"(Because .*?\.)( |$)|(\w*Error: .{0,160})|(FAILED .{0,160})", text)
    return (sentence[0] if sentence else text[-160:]).strip().replace("|", "/")


if __name__ == "__main__":
    main()
