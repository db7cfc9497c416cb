"""Build the wheel and the source distribution, byte for byte alike wherever the same commit is.

make wheel

Only files that git knows go in, with one owner, one mode and the time of the commit, in the order
of their names. The wheel is built from the source distribution, which therefore has all it needs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKED = ["pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"]
LARGEST_WHEEL = 3_000_000  # bytes


def main() -> None:
    """Build into a folder and print what was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out: Path = parser.parse_args().out.absolute()
    for wheel in build(out):
        content = wheel.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        print(f"{wheel.name}  {len(content):,} bytes  sha256 {digest}")
        if wheel.suffix == ".whl" and len(content) > LARGEST_WHEEL:
            sys.exit(f"{wheel.name} is larger than {LARGEST_WHEEL:,} bytes: what is in it?")


def build(out: Path) -> list[Path]:
    """Return the source distribution and the wheel, in place of older ones in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("cspo-*.whl"), *out.glob("cspo-*.tar.gz")):
        old.unlink()
    epoch = commit_time()
    with tempfile.TemporaryDirectory(prefix="cspo-build-") as place:
        staged, made, unpacked = (Path(place, name) for name in ("staged", "made", "unpacked"))
        stage(staged)
        sdist = out / run_hook("build_sdist", staged, made, epoch)
        repack(made / sdist.name, sdist, epoch)
        with tarfile.open(sdist) as archive:
            archive.extractall(unpacked)
        (source,) = unpacked.iterdir()
        wheel = out / run_hook("build_wheel", source, made, epoch)
        shutil.move(made / wheel.name, wheel)
    return [sdist, wheel]


def commit_time() -> int:
    """Return SOURCE_DATE_EPOCH, or else the time of the commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    return int(git("log", "-1", "--format=%ct"))


def git(*words: str) -> str:
    """Return what git says of this checkout."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True
    ).stdout


def stage(folder: Path) -> None:
    """Copy the files that belong into the packages, as they are now."""
    for name in git("ls-files", "-z", "--", *PACKED, "src").rstrip("\0").split("\0"):
        if (ROOT / name).is_file():  # or deleted, and not committed
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            target.chmod(0o644)


def run_hook(hook: str, source: Path, out: Path, epoch: int) -> str:
    """Call a function of the build backend in `source`, and return the name of what it made."""
    out.mkdir(exist_ok=True)
    code = f"import setuptools.build_meta as b; print(b.{hook}({str(out)!r}))"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env=environment,
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{hook} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def repack(source: Path, target: Path, epoch: int) -> None:
    """Write an archive again without what differs between two machines."""
    with (
        tarfile.open(source) as old,
        open(target, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.mode = epoch, 0o755 if member.isdir() else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    main()
