"""Study files and study folders that are wrong, and archives that were made to do harm."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from hostile import damage
from hostile.bases import RUN_ID, STUDY, TASK
from hostile.case import EITHER, REFUSED, Case
from hostile.limits import without_override

STUDIES, ARCHIVES = "studies", "archives"
RUN = ("study", "run", "study.toml", "--out", "new", "--jobs", "1")
READING: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("study", "status", "study"), ()),
    "status --json": (("study", "status", "study", "--json"), ()),
    "archive": (("study", "archive", "study", "--out", "out"), ("out",)),
    "report": (("report", "study", "--out", "out"), ("out",)),
}


def study_cases(random: Random) -> Iterator[Case]:
    """Yield wrong study files, for `study run` and for what reads a folder."""
    for name, text in _texts(random).items():
        yield Case(STUDIES, f"{name}, run", RUN, {}, _study_file(text))
        command = random.choice(list(READING))
        words, writes = READING[command]
        apply = damage.content(text)
        yield _of_folder(name, command, words, writes, "study.toml", apply)
    ways = {
        "missing": damage.missing,
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "a link to itself": damage.link_to_itself,
        "a link to /dev/zero": damage.link("/dev/zero"),
    }
    for name, apply in ways.items():
        for command in random.sample(list(READING), 2):
            words, writes = READING[command]
            yield _of_folder(f"study.toml: {name}", command, words, writes, "study.toml", apply)
    for name, apply in (ways | {"binary": damage.content(b"\xff" * 99)}).items():
        command = random.choice(list(READING))
        words, writes = READING[command]
        file = f"runs/{RUN_ID}/config.toml"
        yield _of_folder(f"config.toml of a run: {name}", command, words, writes, file, apply)
    for name, text in {
        "deep": b"[" * 100_000,
        "a number": b"3",
        "a list of lists": b"[[1], {}]",
        "null": b"null",
        "5000 digits": b"9" * 5000,
    }.items():
        words, writes = READING["status"]
        apply = damage.content(text)
        yield _of_folder(f"running.json: {name}", "status", words, writes, "running.json", apply)
        yield Case(
            STUDIES,
            f"failures: {name}, status",
            words,
            {"study": "study"},
            _failure(text),
            EITHER,
            reads=True,
        )
    for what in ("empty", "outside/precious.txt", "nothing/here", "", "s3://", "file:///etc"):
        for command, (words, _) in READING.items():
            typed = tuple(what if word == "study" and i else word for i, word in enumerate(words))
            if command != "report":
                typed = (words[0], words[1], what, *words[3:])
            yield Case(
                STUDIES, f"folder {what!r}, {command}", typed, {"empty": "empty"}, reads=True
            )


def _study_file(text: bytes) -> Callable[[Path], None]:
    def prepare(space: Path) -> None:
        (space / "study.toml").write_bytes(text)

    return prepare


def _failure(text: bytes) -> Callable[[Path], None]:
    def prepare(space: Path) -> None:
        folder = space / "study" / "failures"
        folder.mkdir(exist_ok=True)
        (folder / f"{RUN_ID}.json").write_bytes(text)

    return prepare


def _of_folder(
    name: str,
    command: str,
    words: tuple[str, ...],
    writes: tuple[str, ...],
    file: str,
    apply: damage.Damage,
) -> Case:
    return Case(
        STUDIES,
        f"{name}, {command}",
        words,
        {"study": "study"},
        lambda space: apply(space / "study" / file),
        EITHER,
        reads=True,
        writes=writes,
    )


def _texts(random: Random) -> dict[str, bytes]:
    """Return study files that name no study this program could train."""

    def with_line(key: str, value: str) -> str:
        lines = [line for line in STUDY.splitlines() if not line.startswith(f"{key} =")]
        return "\n".join([f"{key} = {value}", *lines]) + "\n"

    texts = {
        "seeds of 1e10": with_line("seeds", "10_000_000_000"),
        "seeds of 30 digits": with_line("seeds", "9" * 30),
        "seeds of 5000 digits": with_line("seeds", "9" * 5000),
        "seeds: a seed of 30 digits, negative": with_line("seeds", "[-" + "9" * 30 + "]"),
        "seeds are text": with_line("seeds", '"x"'),
        "seeds are true": with_line("seeds", "true"),
        "seeds nested": with_line("seeds", "[[1]]"),
        "no seeds": with_line("seeds", "0"),
        "seeds are infinite": with_line("seeds", "inf"),
        "seeds are a date": with_line("seeds", "1979-05-27"),
        "steps are infinite": with_line("total_steps", "inf"),
        "steps are not a number": with_line("total_steps", "nan"),
        "steps of 5000 digits": with_line("total_steps", "9" * 5000),
        "steps of 400 digits": with_line("total_steps", "9" * 400),
        "steps 1e400": with_line("total_steps", "1e400"),
        "steps are a list": with_line("total_steps", "[1]"),
        "steps negative": with_line("total_steps", "-800"),
        "name is a path": with_line("name", '"../../outside"'),
        "name is a number": with_line("name", "3"),
        "name has control characters": with_line("name", '"a\\u001b[31mb\\u0000"'),
        "name is empty": with_line("name", '""'),
        "task is a path": with_line("tasks", '["../../outside"]'),
        "task is a number": with_line("tasks", "[3]"),
        "task is a list": with_line("tasks", f'[["{TASK}"]]'),
        "tasks are text": with_line("tasks", f'"{TASK}"'),
        "task is unknown": with_line("tasks", '["SafetyHoper-v1"]'),
        "tasks are tables": with_line("tasks", "[{a = 1}, {a = 1}]"),
        "algorithm is unknown": with_line("algorithms", '["ppo-leg"]'),
        "algorithm is a path": with_line("algorithms", '["../../../outside/x"]'),
        "algorithm is a number": with_line("algorithms", "[1.5]"),
        "algorithms nested": with_line("algorithms", '[["ppo-lag"]]'),
        "retries are text": with_line("retries", '"x"'),
        "retries negative": with_line("retries", "-1"),
        "description is a table": with_line("description", "{a = 1}"),
        "plugin is a number": with_line("plugin", "3"),
        "plugin is missing": with_line("plugin", '"nothing.py"'),
        "unknown key": with_line("sedes", "3"),
        "settings is a number": with_line("settings", "3").replace("[settings]", "[other]"),
        "setting is unknown": STUDY + "hidden_size = [8]\n",
        "setting has a wrong type": STUDY + 'gamma = "x"\n',
        "setting is huge": STUDY + "num_envs = 4\n".replace("4", "9" * 400),
        "setting of the study": STUDY + "seed = 3\n",
        "settings nested": STUDY + "[settings.algorithm.deeper]\nx = 1\n",
        "huge networks": STUDY.replace("[8, 8]", "[9_000_000_000, 9_000_000_000]"),
        "variants is a number": with_line("variants", "3"),
        "variant without a name": STUDY + "[[variants]]\n",
        "variant is a path": STUDY + '[[variants]]\nname = "../../outside"\n',
        "variant is a list": STUDY + "[[variants]]\nname = [1]\n",
        "variant of no algorithm": STUDY + '[[variants]]\nname = "a"\nalgorithms = ["x"]\n',
        "task table is a number": with_line("task", "3"),
        "algorithm table is a list": with_line("algorithm", "[1]"),
        "keys with a name of 1e5 letters": STUDY + "x" * 100_000 + " = 1\n",
        "a key twice": STUDY + "num_envs = 8\n",
        "cut in a word": STUDY[: random.randrange(10, 100)] + '"',
        "empty": "",
        "a comment": "# nothing\n",
        "deep lists": "x = " + "[" * 50_000,
        "deep tables": "x = " + "{a=" * 20_000,
        "deep keys": ".".join("a" * 20_000) + " = 1\n",
        "a byte order mark": "\ufeff" + with_line("seeds", '"x"'),
    }
    raw = {name: text.encode() for name, text in texts.items()}
    return raw | {
        "binary": random.randbytes(500),
        "no text": b'name = "\xff\xfe"\n',
        "zero bytes": STUDY.encode() + b"\0\0\0",
        "utf-16": STUDY.encode("utf-16"),
    }


def archive_cases(random: Random) -> Iterator[Case]:
    """Yield archives with links, bombs and names that lead out of them."""
    taking = ("study", "run", "study.toml", "--out", "new", "--jobs", "1", "--archive", "archive")
    packed = f"runs/{RUN_ID}/progress.csv.gz"
    files = {
        "bomb": damage.content(damage.bomb(b"epoch\n", b"1,2,3\n")),
        "bomb of zeros": damage.content(damage.bomb(b"", b"\0")),
        "bomb without a line end": damage.content(damage.bomb(b"epoch,", b"x")),
        "cut": damage.cut(random.uniform(0.1, 0.9)),
        "bytes changed": damage.scrambled(random, 4),
        "no gzip": damage.content(b"epoch,steps\n0,1\n"),
        "empty": damage.content(b""),
        "gzip twice": damage.changed(gzip.compress),
        "junk behind": damage.appended(b"junk" * 100),
        "binary inside": damage.content(gzip.compress(random.randbytes(500))),
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "a link to a file outside": damage.link("../../../outside/precious.txt"),
        "a link to /dev/zero": damage.link("/dev/zero"),
        "a link to itself": damage.link_to_itself,
        "missing": damage.missing,
    }
    for name, apply in files.items():
        yield _archived(f"epochs: {name}, taken over", taking, _at(packed, apply))
        for command in random.sample(["status", "report", "metrics"], 2):
            yield _read_archive(f"epochs: {name}", command, _at(packed, apply))
    for file in ("config.toml", "summary.json"):
        for name in ("a folder", "a named pipe", "a link to itself", "missing", "bytes changed"):
            prepare = _at(f"runs/{RUN_ID}/{file}", files[name])
            yield _archived(f"{file}: {name}, taken over", taking, prepare)
        prepare = _at(f"runs/{RUN_ID}/{file}", damage.link("../../../outside/secret.txt"))
        yield _archived(f"{file}: a link to a secret, taken over", taking, prepare, secret=True)
    for name, prepare in _led_out().items():
        yield _archived(f"{name}, taken over", taking, prepare)
        for command in ("status", "report"):
            yield _read_archive(name, command, prepare)
    yield from _written(taking)


def _at(file: str, apply: damage.Damage) -> Callable[[Path], None]:
    def prepare(space: Path) -> None:
        (space / "study.toml").write_text(STUDY, encoding="utf-8")
        (space / "outside" / "secret.txt").write_text("secret = 1\n", encoding="utf-8")
        apply(space / "archive" / file)

    return prepare


def _archived(
    name: str, words: tuple[str, ...], prepare: Callable[[Path], None], secret: bool = False
) -> Case:
    return Case(
        ARCHIVES,
        name,
        words,
        {"archive": "archive"},
        prepare,
        EITHER,
        reads=True,
        writes=("new",),
        verify=_no_secret if secret else None,
        # The command would train what is not taken over; a few cases let it.
        call=None if "bomb, " in name or "a run is a link" in name else _take_over,
    )


def _take_over() -> None:
    from cspo.lab.study.archive import take_over
    from cspo.lab.study.grid import read_study
    from cspo.lab.study.state import StudyFolder

    take_over(read_study("study.toml"), "archive", StudyFolder("new"))


def _no_secret(space: Path, output: str) -> str | None:
    """What a link of an archive leads to is not copied."""
    for path in (space / "new").rglob("*"):
        if path.is_file() and b"secret" in path.read_bytes():
            return f"{path.relative_to(space)} holds what a link led to"
    return None


def _read_archive(name: str, command: str, prepare: Callable[[Path], None]) -> Case:
    words, writes = {
        "status": (("study", "status", "archive"), ()),
        "report": (("report", "archive", "--out", "out"), ("out",)),
        "metrics": (("metrics", f"archive/runs/{RUN_ID}"), ()),
    }[command]
    bases = {"archive": "archive"}
    label = f"{name}, {command}"
    return Case(ARCHIVES, label, words, bases, prepare, EITHER, reads=True, writes=writes)


def _led_out() -> dict[str, Callable[[Path], None]]:
    """Return archives whose folders are links, or whose names lead elsewhere."""

    def base(space: Path) -> Path:
        (space / "study.toml").write_text(STUDY, encoding="utf-8")
        return space / "archive"

    def run_is_link(space: Path) -> None:
        run = base(space) / "runs" / RUN_ID
        run.rename(space / "outside" / "run")
        run.symlink_to("../../outside/run")

    def runs_is_link(space: Path) -> None:
        runs = base(space) / "runs"
        runs.rename(space / "outside" / "runs")
        runs.symlink_to("../outside/runs")

    def runs_is_file(space: Path) -> None:
        runs = base(space) / "runs"
        shutil.rmtree(runs)
        runs.write_text("x", encoding="utf-8")

    def endless(space: Path) -> None:
        (base(space) / "runs" / "again").symlink_to("..")

    def hostile_names(space: Path) -> None:
        run = base(space) / "runs" / RUN_ID
        for name in ("\x1b[31mred", "<img src=x onerror=alert(1)>", "a\nb", "-rf", "x" * 200):
            shutil.copytree(run, run.with_name(name))
        shutil.copytree(run, run.with_name(os.fsdecode(b"no\xfftext")))

    return {
        "a run is a link": run_is_link,
        "runs is a link": runs_is_link,
        "runs is a file": runs_is_file,
        "runs hold a link to what holds them": endless,
        "names of runs that do harm": hostile_names,
    }


def _written(taking: tuple[str, ...]) -> Iterator[Case]:
    """Yield folders that an archive is written to, or taken into, through a link."""
    archive = ("study", "archive", "study", "--out", "out")

    def climbing(space: Path) -> None:
        study = space / "study"
        climb = "x/../../../outside/escaped"
        text = STUDY.replace('"ppo-lag"', f'"{climb}"').replace("seeds = 2", "seeds = [0]")
        (study / "study.toml").write_text(text, encoding="utf-8")
        (study / "runs" / f"{TASK}-x").mkdir()
        (study / "escaped-seed0").mkdir()
        target = study / "runs" / f"{TASK}-{climb}-seed0"
        target = Path(os.path.normpath(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(study / "runs" / RUN_ID, target)

    def failures_link(space: Path) -> None:
        (space / "study" / "failures").symlink_to("../outside")

    def failures_pipe(space: Path) -> None:
        (space / "study" / "failures").mkdir()
        os.mkfifo(space / "study" / "failures" / "x.json")

    def out_link(space: Path) -> None:
        (space / "out").mkdir()
        (space / "out" / "study.toml").symlink_to("../outside/precious.txt")
        (space / "out" / ".study.toml.partial").symlink_to("../outside/precious.txt")

    def runs_link(space: Path) -> None:
        (space / "out").mkdir()
        (space / "out" / "runs").symlink_to("../outside")

    def out_file(space: Path) -> None:
        (space / "out").write_text("x", encoding="utf-8")

    for name, prepare in {
        "names climb out of the archive": climbing,
        "failures is a link to a folder outside": failures_link,
        "failures hold a named pipe": failures_pipe,
        "study.toml of the copy is a link": out_link,
        "runs of the copy is a link": runs_link,
        "the copy is a file": out_file,
    }.items():
        yield Case(
            ARCHIVES,
            f"{name}, archive",
            archive,
            {"study": "study"},
            prepare,
            EITHER,
            reads=True,
            writes=("out",),
        )
    for target in ("study", "study/runs", "study/runs/..", "outside/precious.txt", "", "/dev/null"):
        words = ("study", "archive", "study", "--out", target)
        expected = EITHER if target == "study/runs" else REFUSED
        writes = ("study/runs",) if target == "study/runs" else ()
        yield Case(
            ARCHIVES,
            f"archive into {target!r}",
            words,
            {"study": "study"},
            None,
            expected,
            reads=True,
            writes=writes,
        )
    for target in ("nothing", "empty", "outside/precious.txt", ""):
        words = (*taking[:-1], target)
        prepare = _study_file(STUDY.encode())
        label = f"taken over from {target!r}"
        yield Case(ARCHIVES, label, words, {"empty": "empty"}, prepare, REFUSED)

    def locked(space: Path) -> None:
        (space / "study" / "runs" / RUN_ID / "progress.csv").chmod(0)

    yield Case(
        ARCHIVES,
        "an unreadable run, archive",
        archive,
        {"study": "study"},
        locked,
        EITHER,
        reads=True,
        writes=("out",),
        confine=without_override,
    )
