"""Damaged run folders: whatever lies in place of a file, no command fails in its own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from hostile import damage
from hostile.bases import EPOCHS
from hostile.case import EITHER, FINE, REFUSED, Case, Verify
from hostile.limits import without_override

KIND = "runs"
LONGER = ("--total-steps", str(200 * (EPOCHS + 1)))
# What is typed, whether it only reads, and what it may write nevertheless.
COMMANDS: dict[str, tuple[tuple[str, ...], bool, tuple[str, ...]]] = {
    "plot": (("plot", "run"), True, ("run/curve.png", "run/.curve.png.partial")),
    "metrics": (("metrics", "run"), True, ()),
    "metrics --json": (("metrics", "run", "--json"), True, ()),
    "report": (("report", "run", "--out", "out"), True, ("out",)),
    "eval": (("eval", "run", "--episodes", "1"), True, ()),
    "resume": (("train", "--resume", "run", *LONGER, "--quiet"), False, ()),
    "resume done": (("train", "--resume", "run", "--quiet"), False, ()),
}
READERS = ("plot", "metrics", "report", "eval")
DEEP = b"[" * 100_000


def cases(random: Random) -> Iterator[Case]:
    """Yield every damage of every file with the commands that read it."""
    yield from _of_progress(random)
    yield from _of_summary(random)
    yield from _of_config(random)
    yield from _of_folders(random)
    yield from _of_links()


def _case(
    what: str,
    command: str,
    prepare: Callable[[Path], None],
    expected: tuple[int, ...] = EITHER,
    base: str = "run",
    verify: Verify | None = None,
    confined: bool = False,
) -> Case:
    words, reads, writes = COMMANDS[command]
    return Case(
        KIND,
        f"{what}, {command}",
        words,
        {"run": base},
        prepare,
        expected,
        reads=reads,
        writes=writes,
        verify=verify,
        confine=without_override if confined else None,
    )


def _on(file: str, apply: damage.Damage) -> Callable[[Path], None]:
    return lambda space: apply(space / "run" / file)


def _rows_kept(space: Path, output: str) -> str | None:
    """A row that was whole before is in progress.csv, or in a file beside it."""
    run = space / "run"
    files = [path for path in run.rglob("*") if path.is_file() and "progress" in path.name]
    text = b"\n".join(path.read_bytes() for path in files)
    epochs = {line.split(b",")[0] for line in text.splitlines() if line.count(b",") > 5}
    lost = [epoch for epoch in range(EPOCHS) if str(epoch).encode() not in epochs]
    return f"rows of epochs {lost} are in no file" if lost else None


def _of_progress(random: Random) -> Iterator[Case]:
    number = random.randrange(1, EPOCHS + 1)
    cell = lambda text: lambda line: b",".join([*line.split(b",")[:2], text, *line.split(b",")[3:]])  # noqa: E731
    header = lambda text: damage.in_line(0, lambda line: text)  # noqa: E731
    rows: dict[str, tuple[damage.Damage, bool]] = {  # and whether all rows can still be found
        "a comma too many": (damage.in_line(number, lambda line: line + b","), True),
        "a comma too many in the first row": (damage.in_line(1, lambda line: line + b","), True),
        "a comma too few": (damage.in_line(number, lambda x: x.rpartition(b",")[0]), True),
        "a row of commas": (damage.in_line(number, lambda line: b"," * 400), False),
        "an empty epoch": (damage.in_line(number, lambda x: b"," + x.partition(b",")[2]), False),
        "a row twice": (damage.in_line(number, lambda line: line + b"\n" + line), True),
        "text for a number": (damage.in_line(number, cell(b"many")), True),
        "not a number": (damage.in_line(number, cell(b"nan")), True),
        "infinity": (damage.in_line(number, cell(b"-inf")), True),
        "a number of 5000 digits": (damage.in_line(number, cell(b"9" * 5000)), True),
        "1e400": (damage.in_line(number, cell(b"1e400")), True),
        "a quote that is not closed": (damage.in_line(number, lambda line: b'"' + line), False),
        "a cell of 200 000 characters": (damage.in_line(number, cell(b"x" * 200_000)), True),
        "epochs out of order": (damage.in_line(number, lambda line: b"7" + line), False),
        "a negative epoch": (damage.in_line(EPOCHS, lambda line: b"-" + line), False),
        "an epoch of 400 digits": (damage.in_line(EPOCHS, lambda x: b"9" * 400 + x), False),
        "an epoch that is infinite": (
            damage.in_line(EPOCHS, lambda line: b"inf," + line.partition(b",")[2]),
            False,
        ),
        "an epoch that is not a number": (
            damage.in_line(EPOCHS, lambda line: b"nan," + line.partition(b",")[2]),
            False,
        ),
        "line ends of Windows": (
            damage.changed(lambda data: data.replace(b"\n", b"\r\n")),
            True,
        ),
        "a mark of byte order": (damage.in_line(0, lambda line: b"\xef\xbb\xbf" + line), True),
        "cut in the last row": (damage.cut(0.97), False),
        "cut in half": (damage.cut(random.uniform(0.3, 0.7)), False),
        "bytes changed": (damage.scrambled(random, 8), False),
        "zeros at the end": (damage.appended(b"\0" * 4096), True),
        "zeros in the middle": (damage.in_line(number, lambda line: b"\0" * 100), False),
        "binary": (damage.content(random.randbytes(5000)), False),
        "empty": (damage.content(b""), False),
        "one line end": (damage.content(b"\n"), False),
        "commas only": (damage.content(b",,,,\n,,,,\n"), False),
        "a header alone": (damage.cut(0.0), False),
        "no header": (header(b""), True),
        "another header": (header(b"a,b,c"), True),
        "a header with a name twice": (
            damage.in_line(0, lambda line: line.replace(b"steps,", b"epoch,", 1)),
            True,
        ),
        "a header without return": (damage.replaced(b",return,", b",turn,"), True),
        "a header without cost": (damage.replaced(b",cost,", b",coast,"), True),
        "a header without cost_limit": (damage.replaced(b"cost_limit", b"limit_of"), True),
        "a header with control characters": (
            damage.replaced(b",kl,", b",\x1b[31mkl\x07,"),
            True,
        ),
        "fifty thousand columns": (
            damage.changed(lambda data: b"".join(x + b",1" * 50_000 + b"\n" for x in data.split())),
            True,
        ),
        "a folder": (damage.folder, False),
        "a named pipe": (damage.pipe, False),
        "missing": (damage.missing, False),
        "a link to itself": (damage.link_to_itself, False),
        "a link to /dev/zero": (damage.link("/dev/zero"), False),
        "compressed, 3 GB": (damage.as_bomb, False),
    }
    for what, (apply, whole) in rows.items():
        prepare, label = _on("progress.csv", apply), f"progress.csv: {what}"
        verify = _rows_kept if whole else None
        readers = random.choice([("plot", "resume"), ("metrics", "resume done")])
        for command in (*readers, *random.sample(["report"], random.random() < 0.3)):
            resumes = command.startswith("resume")
            yield _case(label, command, prepare, verify=verify if resumes else None)
    for command in ("plot", "metrics", "report", "resume"):
        prepare = _on("progress.csv", damage.unreadable)
        yield _case("progress.csv: unreadable", command, prepare, REFUSED, confined=True)


def _of_summary(random: Random) -> Iterator[Case]:
    texts = {
        "a list": b"[]",
        "a number": b"3",
        "text": b'"x"',
        "null": b"null",
        "no JSON": b"{",
        "deep": DEEP,
        "a number of 5000 digits": b'{"epochs": ' + b"9" * 5000 + b"}",
        "1e400": b'{"epochs": 1e400, "finished": true}',
        "NaN": b'{"epochs": NaN, "seconds": Infinity, "finished": "yes"}',
        "other types": b'{"epochs": [], "finished": {}, "versions": 3, "commit": [1], "seed": {}}',
        "binary": random.randbytes(300),
        "empty": b"",
        "a lone surrogate": b'{"commit": "\\ud800", "task": "\\ud800", "algo": "\\u0000"}',
    }
    ways = {name: damage.content(text) for name, text in texts.items()} | {
        "cut": damage.cut(random.random()),
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "a link to itself": damage.link_to_itself,
    }
    for what, apply in ways.items():
        prepare, label = _on("summary.json", apply), f"summary.json: {what}"
        for command in ("report", random.choice(["resume done", "plot", "metrics", "eval"])):
            yield _case(label, command, prepare)
        yield Case(
            KIND,
            f"{label} of a study, study status",
            ("study", "status", "study"),
            {"study": "study"},
            lambda space, apply=apply: apply(_first_run(space / "study") / "summary.json"),
            EITHER,
            reads=True,
        )


def _first_run(study: Path) -> Path:
    return sorted((study / "runs").iterdir())[0]


def _of_config(random: Random) -> Iterator[Case]:
    ways: dict[str, damage.Damage] = {
        "empty": damage.content(b""),
        "cut": damage.cut(random.uniform(0.1, 0.9)),
        "binary": damage.content(random.randbytes(400)),
        "a mark of byte order": damage.changed(lambda data: b"\xef\xbb\xbf" + data),
        "deep": damage.content(b"x = " + DEEP),
        "deep tables": damage.content(b"x = " + b"{a=" * 20_000),
        "a seed of 5000 digits": damage.replaced(b"seed = 0", b"seed = " + b"9" * 5000),
        "a seed of 30 digits": damage.replaced(b"seed = 0", b"seed = " + b"9" * 30),
        "steps of 400 digits": damage.replaced(b"total_steps = ", b"total_steps = " + b"9" * 400),
        "a negative seed": damage.replaced(b"seed = 0", b"seed = -1"),
        "no task": damage.replaced(b"task = ", b"tusk = "),
        "a task that is a number": damage.replaced(b'task = "', b'task = 3 # "'),
        "an algorithm that is a list": damage.replaced(b'algo = "cspo"', b"algo = [1]"),
        "an empty algorithm": damage.replaced(b'algo = "cspo"', b'algo = ""'),
        "an algorithm that is a path": damage.replaced(b'"cspo"', b'"../../../etc/passwd"'),
        "a version that is a table": damage.in_line(0, lambda line: b"cspo_version = {x = 1}"),
        "an unknown setting": damage.replaced(b"seed = 0", b"seed = 0\nsede = 1"),
        "other sizes": damage.replaced(b"hidden_sizes = [\n    8,", b"hidden_sizes = [\n    9,"),
        "huge sizes": damage.replaced(b"hidden_sizes = [\n    8,", b"hidden_sizes = [\n    8e18,"),
        "no sizes": damage.replaced(b"hidden_sizes = [\n    8,\n    8,\n]", b"hidden_sizes = []"),
        "limits that are text": damage.replaced(b"cost_limit = [", b'cost_limit = ["x",'),
        "many limits": damage.replaced(b"cost_limit = [", b"cost_limit = [" + b"1,\n" * 5000),
        "control characters": damage.appended(b"\x00\x01\x1b[2J"),
        "a date": damage.replaced(b"seed = 0", b"seed = 1979-05-27"),
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "missing": damage.missing,
        "a link to itself": damage.link_to_itself,
        "a link to /dev/zero": damage.link("/dev/zero"),
        "very long": damage.appended(b"# " + b"x" * 3_000_000 + b"\n"),
    }
    # A file that was cut may still say enough, and a seed may be as long as anyone likes.
    harmless = {"very long", "a version that is a table", "cut", "a seed of 30 digits"}
    harmless |= {"a mark of byte order", "an algorithm that is a path"}  # acting does without it
    for what, apply in ways.items():
        prepare, label = _on("config.toml", apply), f"config.toml: {what}"
        strict = EITHER if what in harmless else REFUSED
        yield _case(label, random.choice(["eval", "resume"]), prepare, strict)
        yield _case(label, random.choice(["plot", "metrics", "report"]), prepare)
    for command in ("eval", "resume", "report", "metrics"):
        prepare = _on("config.toml", damage.unreadable)
        yield _case("config.toml: unreadable", command, prepare, confined=True)


def _emptied(space: Path) -> None:
    for path in sorted((space / "run" / "checkpoints").iterdir()):
        path.unlink()


def _flat(space: Path) -> None:
    _emptied(space)
    (space / "run" / "checkpoints").rmdir()
    (space / "run" / "checkpoints").write_text("x", encoding="utf-8")


def _strange_names(space: Path) -> None:
    folder = space / "run" / "checkpoints"
    for name in ("epoch-x.safetensors", "epoch-.safetensors", "epoch--00001.safetensors"):
        (folder / name).write_bytes(b"x" * 100)
    (folder / "epoch-zzzzzz.safetensors").mkdir()


def _started(space: Path) -> None:
    _emptied(space)
    (space / "run" / "progress.csv").unlink()
    (space / "run" / "summary.json").unlink()


def _partial_folder(space: Path) -> None:
    (space / "run" / ".progress.csv.partial").mkdir()
    (space / "run" / ".config.toml.partial").mkdir()


def _event_file(space: Path) -> None:
    (space / "run" / "tensorboard").mkdir(exist_ok=True)
    for path in (space / "run" / "tensorboard").iterdir():
        path.write_bytes(b"\xff" * 1000)


def _lock_folder(space: Path) -> None:
    (space / "run" / ".lock").unlink(missing_ok=True)
    (space / "run" / ".lock").mkdir()


def _tensorboard_file(space: Path) -> None:
    (space / "run" / "tensorboard").write_text("x", encoding="utf-8")


def _curve_folder(space: Path) -> None:
    (space / "run" / "curve.png").unlink(missing_ok=True)
    (space / "run" / "curve.png").mkdir()


def _of_folders(random: Random) -> Iterator[Case]:
    for what, prepare in {"no checkpoints": _emptied, "checkpoints is a file": _flat}.items():
        yield _case(what, "eval", prepare, REFUSED)
        yield _case(what, "resume", prepare, REFUSED)
        yield _case(what, "plot", prepare, FINE)
    for command in ("eval", "resume", "resume done"):
        yield _case("strange names among checkpoints", command, _strange_names)
    yield _case("nothing was finished", "eval", _started, REFUSED)
    yield _case("nothing was finished", "resume done", _started, FINE)
    yield _case("partial files are folders", "resume", _partial_folder)
    yield _case("damaged event files", "resume", _event_file, FINE, base="events")
    yield _case("tensorboard is a file", "resume", _tensorboard_file)
    yield _case("the lock is a folder", "resume", _lock_folder)
    yield _case("curve.png is a folder", "plot", _curve_folder, REFUSED)
    yield _case("curve.png is a folder", "resume", _curve_folder)
    for command in random.sample(list(COMMANDS), 4):
        words = COMMANDS[command][0]
        for what, name in {"an empty folder": "empty", "a file": "outside/precious.txt"}.items():
            typed = tuple(name if word == "run" else word for word in words)
            yield Case(KIND, f"{what}, {command}", typed, {"empty": "empty"}, reads=True)
        typed = tuple("no\udce9such" if word == "run" else word for word in words)
        yield Case(KIND, f"a name that is no text, {command}", typed, reads=True)
        typed = tuple("x" * 5000 if word == "run" else word for word in words)
        yield Case(KIND, f"a name too long, {command}", typed, reads=True)
        typed = tuple("" if word == "run" else word for word in words)
        yield Case(KIND, f"an empty name, {command}", typed, reads=True)


def _of_links() -> Iterator[Case]:
    """A link inside a run is not followed when something is written."""
    precious = "../outside/precious.txt"
    for file in (".lock", "curve.png", "progress.csv", "summary.json", "config.toml"):
        prepare = _on(file, damage.link(precious))
        yield _case(f"{file} is a link to a file outside", "resume", prepare)
    for file in (".config.toml.partial", ".progress.csv.partial", ".summary.json.partial"):
        prepare = _on(file, damage.link(precious))
        yield _case(f"{file} is a link to a file outside", "resume", prepare)
    for file in ("curve.png", ".curve.png.partial"):
        prepare = _on(file, damage.link(precious))
        yield _case(f"{file} is a link to a file outside", "plot", prepare)

    def folder_outside(name: str) -> Callable[[Path], None]:
        def prepare(space: Path) -> None:
            place = space / "run" / name
            if place.is_dir():
                place.rename(space / "outside" / name)
            else:
                (space / "outside" / name).mkdir()
            place.symlink_to(f"../outside/{name}")

        return prepare

    for name in ("checkpoints", "tensorboard"):
        prepare = folder_outside(name)
        yield _case(f"{name} is a link to a folder outside", "resume", prepare, base="events")

    def report_outside(space: Path) -> None:
        (space / "run" / "report").symlink_to("../outside")

    yield Case(
        KIND,
        "report is a link to a folder outside, report",
        ("report", "run"),
        {"run": "run"},
        report_outside,
        EITHER,
        reads=True,
    )
