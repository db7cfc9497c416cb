"""`cspo study run`, `cspo study status`, `cspo study archive` and `cspo study list`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cspo.commands.options import HELP, parse
from cspo.errors import CspoError, nearest
from cspo.lab.study.engine import Engine, LocalEngine, is_address
from cspo.lab.study.grid import Study, read_study, shipped_studies
from cspo.lab.study.plan import StudyProblems
from cspo.runs.plain import without_nan
from cspo.runs.settings import available_cores
from cspo.settings import positive, setting

if TYPE_CHECKING:
    from cspo.lab.study.mirror import Mirror

FolderArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]


@dataclass(frozen=True)
class RunOptions:
    """Train every run of a study; the same command again continues, whatever happened in between.

    Examples:
        cspo study run paper-main-small --out studies/main
        cspo study run my_study.toml --out studies/mine --jobs 4
        cspo study run my_study.toml --out studies/mine --only '*-seed0' '*-ppo-lag-*'
        cspo study run paper-main --out /shared/main --engine ray

    docs/studies.md explains the file. The exit code is 0 if all runs are finished, 1 if some
    failed.
    """

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
    """TOML file, or the name of a shipped study (`cspo study list`)."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """Folder of the study, new or that of an earlier start; with Ray also an address such as
    s3://bucket/study."""
    jobs: int | None = setting(None, positive)
    """Runs at a time, one process each; by default one per core, of this machine or of the
    cluster."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN")] = ()
    """Train these runs now, in this order: ids or patterns such as '*-seed0' (quoted). All by
    default."""
    archive: Annotated[str | None, tyro.conf.arg(metavar="DIR")] = None
    """An archive of this study: runs that are finished in it are taken over, not trained again."""
    engine: Literal["local", "ray"] = "local"
    """Where to train: on this machine, or on a Ray cluster."""
    address: str | None = None
    """With --engine ray, the cluster: host:port, ray://host:port, or by default the one of this
    machine (auto)."""
    cpus: float | None = setting(None, positive)
    """With --engine ray, cores that a run reserves; 1 by default."""


@dataclass(frozen=True)
class StatusOptions:
    """Show how far every run of a study is, also while another process runs it."""

    folder: FolderArgument
    """Folder of the study, or an archive of it."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class ArchiveOptions:
    """Copy the results of a study for keeping or publishing: epochs (compressed), settings,
    summaries, no checkpoints.

    Again: adds what has been finished since. `cspo report` and `cspo metrics` read the copy like
    the study itself.
    """  # noqa: D205 (its first sentence, which the help shows, is longer than a line)

    folder: FolderArgument
    """Folder of the study."""
    out: Annotated[str, tyro.conf.arg(metavar="OUT")]
    """Folder of the copy, new or that of an earlier archive."""


@dataclass(frozen=True)
class ListOptions:
    """List the shipped studies, and what each would cost."""

    json: bool = False
    """Print a JSON list."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo study ...`."""
    name, *rest = arguments or ["--help"]
    if name in HELP:
        rows = "\n".join(f"  {name:<7} {summary}" for name, (*_, summary) in COMMANDS.items())
        print(f"usage: cspo study {{{','.join(COMMANDS)}}} ...\n\n{rows}")
        return 0
    if name not in COMMANDS:
        raise CspoError(f"cspo study has no command {name!r}: {nearest(name, COMMANDS)}")
    options, command, _ = COMMANDS[name]
    try:
        return command(parse(options, f"study {name}", rest))
    except StudyProblems as error:
        for problem in error.problems:
            print(f"cspo: error: {problem}", file=sys.stderr)
        return 2


def run(options: RunOptions) -> int:
    """Run `cspo study run`."""
    study = read_study(options.study, environments=True)
    chosen = study.named(options.only) if options.only else study.runs
    mirror = _mirror(options.out)
    if mirror is not None and options.archive is not None:
        advice = "take the archive over there, then train"
        raise CspoError(f"--archive is for a study in a folder: {advice}.")
    engine = _engine(options, mirror)
    from cspo.lab.study.schedule import run_study
    from cspo.lab.study.state import StudyFolder
    from cspo.lab.study.view import make_view

    folder = StudyFolder(options.out if mirror is None else mirror.fetch())
    result = run_study(study, folder, engine, make_view(), chosen=chosen, archive=options.archive)
    return 1 if result.failed else 0


def _engine(options: RunOptions, mirror: Mirror | None) -> Engine:
    if options.engine == "ray":
        from cspo.lab.study.ray_engine import RayEngine

        cpus = options.cpus or 1.0
        return RayEngine(options.address, jobs=options.jobs, cpus=cpus, mirror=mirror)
    for name in ("address", "cpus"):
        if getattr(options, name) is not None:
            raise CspoError(f"--{name} is for --engine ray.")
    if mirror is not None:
        where = f"--out {options.out} is an address: that is for --engine ray"
        raise CspoError(f"{where}. Give a folder here.")
    return LocalEngine(options.jobs or available_cores())


def _mirror(place: str) -> Mirror | None:
    """Return the local copy of a study that is in storage; None for a folder."""
    if not is_address(place):
        return None
    from cspo.lab.study.mirror import Mirror

    return Mirror(place)


def _folder(place: str) -> Path:
    """Return the folder to look at: the place itself, or an up-to-date copy of what is there."""
    mirror = _mirror(place)
    return Path(place) if mirror is None else mirror.fetch()


def status(options: StatusOptions) -> int:
    """Run `cspo study status`."""
    from cspo.lab.study.state import StudyFolder
    from cspo.lab.study.view import PLAIN_WIDTH, Statuses, table

    folder = StudyFolder(_folder(options.folder))
    study = folder.read()
    going, found = folder.is_running(), Statuses(folder.status(study))
    statuses = list(found.values())
    slots = sum(one.state == "running" for one in statuses)
    if options.json:
        runs = [asdict(one) | {"seconds_left": one.seconds_left} for one in statuses]
        left = found.seconds_left(slots)
        data = {"name": study.name, "is_running": going, "seconds_left": left, "runs": runs}
        print(json.dumps(without_nan(data)))
        return 0
    from cspo.runs.terminal import Terminal

    console = Terminal(highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(f"study {study.name}: {'running' if going else 'not running'}", markup=False)
    console.print(table(found, slots, console.width, len(found)))
    for one in statuses:
        if one.error:
            console.print(f"failed  {one.id}: {one.error}", markup=False, soft_wrap=True)
    return 0


def archive(options: ArchiveOptions) -> int:
    """Run `cspo study archive`."""
    from cspo.lab.study.archive import archive as keep

    result = keep(_folder(options.folder), options.out)
    print(f"{len(result.kept)} finished runs are in {options.out}.")
    if result.unfinished:
        print(f"{len(result.unfinished)} runs are not finished, and not in it.")
    return 0


def list_studies(options: ListOptions) -> int:
    """Run `cspo study list`."""
    rows = [_row(read_study(name)) for name in shipped_studies()]
    if options.json:
        print(json.dumps(rows))
        return 0
    width = max(len(row["name"]) for row in rows)
    print(f"{'study':<{width}}  {'runs':>5}  {'steps':>8}  {'core hours':>10}  description")
    for row in rows:
        steps, hours = f"{row['steps'] / 1e6:,.0f} M", row["core_hours"]
        cost = f"{steps:>8}  {f'{hours:,.2f}' if hours < 10 else f'{hours:,.0f}':>10}"
        print(f"{row['name']:<{width}}  {row['runs']:>5}  {cost}  {row['description']}")
    speeds = "from 2 950 (Humanoid) to 16 000 (Swimmer) steps/s per core"
    print(f"\nCore hours are estimates, {speeds}: docs/studies.md.")
    return 0


def _row(study: Study) -> dict[str, Any]:
    from cspo.lab.study.speed import core_hours

    return {
        "name": study.name,
        "runs": len(study.runs),
        "steps": study.steps,
        "core_hours": round(core_hours(study), 3),
        "description": study.description,
    }


COMMANDS: dict[str, tuple[type, Callable[[Any], int], str]] = {
    "run": (RunOptions, run, "train every run of a study, or continue it"),
    "status": (StatusOptions, status, "show how far a study is"),
    "archive": (ArchiveOptions, archive, "copy the results of a study, for keeping or publishing"),
    "list": (ListOptions, list_studies, "list the shipped studies"),
}
