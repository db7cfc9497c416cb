"""A small copy of a study for keeping or publishing: what its results are, and what they were made with."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from cspo.checkpoint import write_atomically, write_text
from cspo.errors import CspoError
from cspo.study.repair import is_finished
from cspo.study.state import StudyFolder

COPIED = ("config.toml", "summary.json")  # settings; results, versions, commit, hashes


@dataclass
class Archived:
    """What an archive came to hold."""

    kept: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # left out


def archive(study: Path | str, out: Path | str) -> Archived:
    """Copy the finished runs of a study: their epochs, compressed, their settings and summaries, no checkpoints.

    Errors of runs that failed are copied too. Archiving again adds what has been finished since; equal runs give equal
    bytes. `cspo report` and `cspo metrics` read an archive like the study itself; it cannot be continued.
    """
    source, target = StudyFolder(study), Path(out)
    found, result = source.read(), Archived()
    if target.resolve() == source.path.resolve():
        raise CspoError(f"{target} is the study itself: archive it somewhere else.")
    try:
        for spec in found.runs:
            if is_finished(spec.config, source.run(spec)):
                _keep(source.run(spec), target / "runs" / spec.id)
                result.kept.append(spec.id)
            else:
                result.unfinished.append(spec.id)
        if not result.kept:
            raise CspoError(f"No run of the study in {source.path} is finished yet: there is nothing to archive.")
        write_text(target / "study.toml", found.text)
        _replace_failures(source.path / "failures", target / "failures")
    except OSError as error:
        raise CspoError(f"Cannot write to {target}: {error.strerror or error}.") from error
    return result


def _keep(run: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    epochs = gzip.compress((run / "progress.csv").read_bytes(), mtime=0)  # without the time, equal runs are equal bytes
    write_atomically(target / "progress.csv.gz", lambda file: file.write_bytes(epochs))
    for name in COPIED:
        write_text(target / name, (run / name).read_text(encoding="utf-8"))


def _replace_failures(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    if source.is_dir() and any(source.iterdir()):
        shutil.copytree(source, target)
