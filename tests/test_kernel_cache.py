"""Compiled kernels are kept where they belong, and neither places nor processes can spoil them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_helpers import PYTHONPATH, SMALL, TASK

import cspo
from cspo.runs import kernel_cache

PACKAGE = Path(cspo.__file__).parent
KERNEL = """
from cspo.arithmetic import exact_kernel

@exact_kernel
def twice(x):
    return x + x
"""
# Prints the results, then how many signatures came from disk.
CALL = """
import sys
import own_kernel
from cspo.runs.kernel_cache import announcement, place
VALUES = {"int": 3, "float": 1.5, "complex": 2j, "bool": True}
print([own_kernel.twice(VALUES[name]) for name in sys.argv[1:]])
print(sum(own_kernel.twice.stats.cache_hits.values()))
print(place().folder)
print(announcement())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_kernel.py").write_text(KERNEL)
    return tmp_path


def process(folder: Path, *names: str, before: str = "", **variables: str) -> Any:
    own = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    own |= {"PYTHONPATH": f"{folder}{os.pathsep}{PYTHONPATH}", "XDG_CACHE_HOME": f"{folder}/cache"}
    return subprocess.Popen(
        [sys.executable, "-c", before + CALL, *names],
        env=own | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call(folder: Path, *names: str, **keywords: Any) -> list[str]:
    """Call the kernel with values of some types; return the lines printed."""
    done = process(folder, *names, **keywords)
    output, errors = done.communicate(timeout=60)
    assert done.returncode == 0 and errors == "", errors
    return list(output.splitlines())


def test_kernels_are_kept_in_the_users_cache_and_not_beside_the_sources(folder: Path) -> None:
    results, hits, place, _ = call(folder, "int", "float")
    assert (results, hits) == ("[6, 3.0]", "0")
    assert Path(place).parent == folder / "cache" / "cspo" / "numba"
    assert Path(place).parent.stat().st_mode & 0o077 == 0
    assert call(folder, "float", "int")[:2] == ["[3.0, 6]", "2"]
    assert not list(folder.glob("__pycache__/*.nb?")) and not list(PACKAGE.rglob("*.nbi"))
    # A folder that the user names is used, and nothing else.
    shutil.rmtree(folder / "cache")
    assert call(folder, "int", NUMBA_CACHE_DIR=f"{folder}/mine")[2].startswith(f"{folder}/mine/")
    assert not (folder / "cache").exists()


def test_a_place_that_cannot_be_used_is_no_obstacle(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    elsewhere = {"XDG_CACHE_HOME": f"{folder}/file", "TMPDIR": str(folder)}
    results, _, place, said = call(folder, "int", **elsewhere)
    assert results == "[6]" and place.startswith(f"{folder}/cspo-") and said == "None"
    assert call(folder, "int", **elsewhere)[1] == "1"  # kept there
    nowhere = f"import tempfile; tempfile.tempdir = {str(folder / 'file')!r}\n"
    results, hits, place, said = call(folder, "int", before=nowhere, **elsewhere)
    assert (results, hits, place) == ("[6]", "0", "None")
    assert "each time" in said and "Not a directory" in said and "NUMBA_CACHE_DIR" in said


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_the_folder_of_another_user_is_not_trusted(folder: Path) -> None:
    theirs = folder / "cache" / "cspo" / "numba"
    theirs.mkdir(parents=True)
    os.chown(theirs, 65534, 65534)
    assert call(folder, "int", TMPDIR=str(folder))[2].startswith(f"{folder}/cspo-0/")
    assert not list(theirs.rglob("*.nb?"))


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_file_is_compiled_again_and_replaced(folder: Path, kind: str) -> None:
    place = Path(call(folder, "int")[2])
    (file,) = (path for path in place.rglob(f"*.{kind}") if "twice" in path.name)
    file.write_bytes(file.read_bytes()[:20])
    assert call(folder, "int")[:2] == ["[6]", "0"]
    assert call(folder, "int")[:2] == ["[6]", "1"]


def test_processes_that_save_at_once_do_not_mix_up_their_signatures(folder: Path) -> None:
    # Between reading the index and writing the code every process is slow: without a lock they
    # all choose the same file for what they compiled.
    slow = (
        "import time; from numba.core.caching import IndexDataCacheFile as File\n"
        "save = File._save_index\n"
        "File._save_index = lambda self, names: (time.sleep(0.3), save(self, names))\n"
    )
    names = {"int": "6", "float": "3.0", "complex": "4j", "bool": "2"}
    together = [process(folder, name, before=slow) for name in names]
    for one in together:
        assert one.wait(timeout=60) == 0
        one.communicate()
    results, hits, *_ = call(folder, *names)
    assert results == f"[{', '.join(names.values())}]" and hits == "4"


def test_kernels_of_other_sources_are_kept_apart(tmp_path: Path) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "cspo")
    first = kernel_cache.sources_digest(copy)
    assert first == kernel_cache.sources_digest()

    def changed(name: str) -> bool:
        file = copy / name
        text = file.read_text(encoding="utf-8")
        file.write_text(f"{text}# changed\n", encoding="utf-8")
        kernel_cache.sources_digest.cache_clear()
        after = kernel_cache.sources_digest(copy)
        file.write_text(text, encoding="utf-8")
        return after != first

    assert changed("optim/kernels.py") and changed("envs/physics/calls.py")
    assert changed("envs/physics/rk4.py")  # holds numbers that are compiled in
    assert not changed("cli.py")


def test_environments_with_the_same_package_share_kernels(folder: Path) -> None:
    """As two installations have it: the same sources in another place."""
    copy = shutil.copytree(PACKAGE, folder / "elsewhere" / "cspo")
    for root, hits in ((PACKAGE.parent, 0), (copy.parent, 1)):
        code = (
            "import cspo\n"
            "from cspo.arithmetic import _exchange_control as kernel\n"
            "kernel(0, 0)\nprint(cspo.__file__)\nprint(sum(kernel.stats.cache_hits.values()))"
        )
        own = {"PYTHONPATH": str(root), "XDG_CACHE_HOME": str(folder / "shared")}
        environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | own
        said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert said.splitlines() == [str(root / "cspo" / "__init__.py"), str(hits)]


def test_kernels_that_nobody_used_for_long_are_removed(folder: Path) -> None:
    current = Path(call(folder, "int")[2])
    old, recent = current.with_name("0.0.1-old"), current.with_name("0.0.2-recent")
    for other, days in ((old, 61), (recent, 59)):
        other.mkdir()
        then = time.time() - days * 24 * 3600
        os.utime(other, (then, then))
    call(folder, "int")
    assert current.exists() and recent.exists() and not old.exists()


def test_compiling_is_announced_once_and_not_by_quiet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "numba"
    (kept / "optim").mkdir(parents=True)
    monkeypatch.setattr(kernel_cache, "place", lambda: kernel_cache.Place(kept))
    monkeypatch.chdir(tmp_path)

    def said(**settings: Any) -> str:
        cspo.train(TASK, **{**SMALL, "total_steps": 400, **settings})
        return capsys.readouterr().err

    line = "cspo: compiling the inner loops, once: about 20 s.\n"
    assert line in said() and line not in said(quiet=True)
    (kept / "optim" / "kernels.nbi").touch()
    assert "compiling" not in said()
