"""A small copy of a study for keeping or publishing: its results, and what made them."""

from __future__ import annotations

import gzip
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cspo.errors import CspoError
from cspo.lab.study.grid import Study
from cspo.lab.study.plugin_path import differ_in_folder, without_folder
from cspo.lab.study.repair import difference, is_finished
from cspo.lab.study.state import StudyFolder
from cspo.runs.files import own_folder, read_bytes, refuse_link, write_bytes, write_text, writes_to

COPIED = ("config.toml", "summary.json")  # settings; results, versions, commit, hashes
EPOCHS = "progress.csv.gz"


@dataclass
class Archived:
    """The runs that an archive came to hold, and those left out."""

    kept: list[str]
    unfinished: list[str]


def archive(study: Path | str, out: Path | str) -> Archived:
    """Copy the finished runs of a study: epochs (compressed), settings, summaries, no checkpoints.

    Errors of runs that failed are copied too. Archiving again adds what has been finished since;
    equal runs give equal bytes. Of a plugin's path the file's name is kept, since the folder means
    nothing elsewhere; a study.toml that lies there and names its plugin from there stays.
    `cspo report`, `metrics` and `study status` read an archive like the study itself; `take_over`
    puts it back.
    """
    source, target = StudyFolder(study), Path(out)
    read = source.read()
    if target.resolve() == source.path.resolve():
        raise CspoError(f"{target} is the study itself: archive it somewhere else.")
    kept = [spec.id for spec in read.runs if is_finished(spec.epochs, source.run(spec))]
    if not kept:
        none = f"No run of the study in {source.path} is finished yet"
        raise CspoError(f"{none}: there is nothing to archive.")
    with writes_to(str(target)):
        for name in kept:
            run = source.path / "runs" / name
            # Without the time: equal runs give equal bytes.
            epochs = gzip.compress(read_bytes(run / "progress.csv"), mtime=0)
            _copy(run, target / "runs" / name, EPOCHS, epochs)
        _copy_study(read.text, target / "study.toml")
        _copy_failures(source.path / "failures", target / "failures")
    return Archived(kept, [spec.id for spec in read.runs if spec.id not in kept])


def _copy_study(text: str, target: Path) -> None:
    """Write the study's text, unless it is there and finds its plugin from there."""
    with suppress(OSError, ValueError):  # what lies there is no text of a study: it is replaced
        if differ_in_folder(read_bytes(target).decode("utf-8"), text):
            return
    write_text(target, without_folder(text))


def _copy_failures(source: Path, target: Path) -> None:
    """Replace the records of failures in an archive by the study's; what is no file is left out."""
    found = sorted(source.glob("*.json"))
    records = [file for file in found if file.is_file() and not file.is_symlink()]
    if target.is_dir() or records:
        for old in own_folder(target).glob("*.json"):
            old.unlink()
    for file in records:
        write_bytes(target / file.name, read_bytes(file))
    if not records and target.is_dir() and not any(target.iterdir()):
        target.rmdir()


def take_over(study: Study, archive: Path | str, out: StudyFolder) -> list[str]:
    """Put finished runs of an archive into a study's folder, if not there yet; return their ids.

    A run without checkpoints counts as finished if its results are complete, so nothing of it is
    trained again.

    Raises:
        CspoError: If there is no archive, or a run of it has other settings than the study's.
    """
    source = Path(archive) / "runs"
    if not source.is_dir():
        what = "is no archive of a study: it has no folder runs (`cspo study archive` makes one)."
        raise CspoError(f"{archive} {what}")
    taken: list[str] = []
    for spec in study.runs:
        run, target = source / spec.id, out.run(spec)
        if target.exists() or not (run / EPOCHS).is_file():
            continue
        if (other := difference(spec.config, run)) is not None:
            raise CspoError(f"The archived run {spec.id} is another one: {other}.")
        try:
            _copy(run, target, "progress.csv", read_bytes(run / EPOCHS))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CspoError(f"The archived run {run} cannot be read: {reason}.") from error
        taken.append(spec.id)
    return taken


def _copy(run: Path, target: Path, name: str, epochs: bytes) -> None:
    """Copy a run: its epochs under a name, then the texts; summary.json, the last, finishes it."""
    for file in (*COPIED, EPOCHS, "progress.csv"):
        refuse_link(run / file)  # a copy would hold what it leads to
    texts = {text: read_bytes(run / text).decode("utf-8") for text in COPIED}
    texts["config.toml"] = without_folder(texts["config.toml"])
    target.parent.parent.mkdir(parents=True, exist_ok=True)
    for folder in (target.parent, target):
        own_folder(folder)
    write_bytes(target / name, epochs)
    for text, content in texts.items():
        write_text(target / text, content)
