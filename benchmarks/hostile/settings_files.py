"""Broken settings files for `cspo train --config`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hostile import damage
from hostile.bases import SHORT, TASK
from hostile.case import EITHER, FINE, REFUSED, Case
from hostile.limits import without_override

KIND = "settings"
WHOLE = f'task = "{TASK}"\ntotal_steps = 400\n'
WORDS = ("train", "--config", "settings.toml", *SHORT[:-4], *SHORT[-2:], "--run-dir", "new")
# Values that no setting takes, whatever its type.
NEVER = ("{a = {b = 1}}", "1979-05-27", "[[1]]", "[{a = 1}]", "07:32:00")
WRONG: dict[str, tuple[str, ...]] = {
    "int": ('"many"', "1.5", "true", "[1]", "nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000),
    "float": ('"x"', "true", "[0.1]", "9" * 400, "9" * 5000),
    "bool": ('"yes"', "1", "0.0", "[true]"),
    "str": ("3", "1.5", "true", '["x"]'),
    "tuple": ('"x"', "[true]", '["x", 1]', "[[8]]"),
    "Literal": ("3", '"nothing"', '""', '["auto"]', "true"),
    "dict": ("3", '"x"', "[1]", "[{a = 1}]"),
}


def cases(random: Random) -> Iterator[Case]:
    """Yield wrong values of settings, drawn, and files that are no settings."""
    for name, value in random.sample(_values(), 70):
        shown = value if len(value) < 40 else f"{value[:10]}... ({len(value)} characters)"
        yield _case(f"{name} = {shown}", f"{WHOLE}{name} = {value}\n".encode())
    for what, text in _texts().items():
        yield _case(what, text.encode(errors="surrogatepass"))
    for what, data in _bytes(random).items():
        yield _case(what, data)
    yield _case("a mark of byte order", ("\ufeff" + WHOLE).encode(), EITHER)
    yield _case("line ends of Windows", WHOLE.replace("\n", "\r\n").encode(), FINE)
    ways = {
        "a folder": damage.folder,
        "a named pipe": damage.pipe,
        "missing": damage.missing,
        "a link to itself": damage.link_to_itself,
        "a link to /dev/zero": damage.link("/dev/zero"),
        "unreadable": damage.unreadable,
    }
    for what, apply in ways.items():
        yield _case(what, WHOLE.encode(), apply=apply, confined=what == "unreadable")


def _case(
    what: str,
    text: bytes,
    expected: tuple[int, ...] = REFUSED,
    apply: damage.Damage | None = None,
    confined: bool = False,
) -> Case:
    def prepare(space: Path) -> None:
        (space / "settings.toml").write_bytes(text)
        if apply is not None:
            apply(space / "settings.toml")

    confine = without_override if confined else None
    return Case(KIND, what, WORDS, {}, prepare, expected, confine=confine)


def _values() -> list[tuple[str, str]]:
    """Return every setting with every value that it cannot have."""
    from cspo.config import general_fields

    found = []
    for _, item in general_fields():
        if item.name in ("plugin", "env_options"):
            continue
        kind = _kind(item)
        never = NEVER if kind != "dict" else NEVER[1:]
        found += [(item.name, value) for value in (*WRONG[kind], *never)]
    # The file has them already, and a key twice is no TOML; or flags take their place.
    of_runs = {"total_steps", "task", "steps_per_epoch", "num_envs"}
    return [(name, value) for name, value in found if name not in of_runs]


def _kind(item: dataclasses.Field[Any]) -> str:
    text = str(item.type)
    for kind in ("Literal", "tuple", "dict", "bool", "int", "float", "str"):
        if text.removeprefix("typing.").startswith(kind):
            return kind
    return "str"


def _texts() -> dict[str, str]:
    return {
        "empty": "",
        "a comment": "# nothing\n",
        "no task": "total_steps = 400\n",
        "task is a number": "task = 3\n",
        "task is empty": 'task = ""\n',
        "task is a list": f'task = ["{TASK}"]\n',
        "task is unknown": 'task = "SafetyHoperVelocity-v1"\n',
        "task is a path": 'task = "../../etc/passwd"\n',
        "task has zero bytes": 'task = "a\\u0000b"\n',
        "task has a colon only": 'task = ":"\n',
        "task of 1e5 letters": f'task = "{"x" * 100_000}"\n',
        "task module is relative": 'task = "..x:Make"\n',
        "task module is empty": 'task = ":Make"\n',
        "task attribute is empty": 'task = "os:"\n',
        "task module has a blank": 'task = "a b:Make"\n',
        "plugin is a number": f"{WHOLE}plugin = 3\n",
        "plugin is empty": f'{WHOLE}plugin = ""\n',
        "plugin is a folder": f'{WHOLE}plugin = "outside/"\n',
        "plugin is missing": f'{WHOLE}plugin = "nothing.py"\n',
        "plugin has zero bytes": f'{WHOLE}plugin = "a\\u0000.py"\n',
        "plugin is relative": f'{WHOLE}plugin = "..x"\n',
        "plugin of 1e5 letters": f'{WHOLE}plugin = "{"x" * 100_000}.py"\n',
        "plugin is no Python": f'{WHOLE}plugin = "outside/precious.txt"\n',
        "algo is unknown": f'{WHOLE}algo = "cpso"\n',
        "algo is a list": f"{WHOLE}algo = [1]\n",
        "algo is empty": f'{WHOLE}algo = ""\n',
        "algo is a path": f'{WHOLE}algo = "../x"\n',
        "algorithm is text": f'{WHOLE}algorithm = "cspo"\n',
        "algorithm is a list of tables": f"{WHOLE}[[algorithm]]\nalpha = 1.0\n",
        "algorithm has an unknown setting": f"{WHOLE}[algorithm]\nalfa = 1.0\n",
        "algorithm has a wrong type": f'{WHOLE}[algorithm]\nalpha = "x"\n',
        "algorithm is nested": f"{WHOLE}[algorithm.alpha.b]\nx = 1\n",
        "unknown key": f"{WHOLE}sede = 1\n",
        "unknown key of 1e5 letters": f"{WHOLE}{'x' * 100_000} = 1\n",
        "unknown key with control characters": f'{WHOLE}"\\u001b[31m" = 1\n',
        "unknown table": f"{WHOLE}[nothing]\nx = 1\n",
        "a key twice": f"{WHOLE}total_steps = 800\n",
        "a key and a table": f"{WHOLE}seed = 1\n[seed]\nx = 1\n",
        "deep lists": f"{WHOLE}seed = {'[' * 50_000}\n",
        "deep lists, closed": f"{WHOLE}seed = {'[' * 5000}{']' * 5000}\n",
        "deep tables": f"{WHOLE}seed = {'{a=' * 20_000}\n",
        "deep keys": f"{WHOLE}{'.'.join('a' * 20_000)} = 1\n",
        "deep options": f"{WHOLE}env_options.{'.'.join('a' * 5000)} = 1\n",
        "options of a native task": f"{WHOLE}[env_options]\nx = 1\n",
        "options with a date": f"{WHOLE}[env_options]\nx = 1979-05-27\n",
        "cost terms unknown": f'{WHOLE}cost_terms = ["x"]\n',
        "cost terms twice": f'{WHOLE}cost_terms = ["velocity", "velocity"]\n',
        "more limits than costs": f"{WHOLE}cost_limit = [25.0, 5.0, 1.0]\n",
        "no limits": f"{WHOLE}cost_limit = []\n",
        "limits infinite": f"{WHOLE}cost_limit = [inf]\n",
        "a lone surrogate": f'{WHOLE}algo = "\ud800"\n',
        "a text that is not closed": f'{WHOLE}algo = "cspo\n',
        "a backslash": f'{WHOLE}algo = "\\q"\n',
        "a control character": f'{WHOLE}algo = "\x01"\n',
        "huge networks": f"{WHOLE}hidden_sizes = [9_000_000_000_000_000_000]\n",
        "large networks": f"{WHOLE}hidden_sizes = [400_000, 400_000]\n",
        "ten thousand layers": f"{WHOLE}hidden_sizes = [{'8, ' * 10_000}]\n",
        "huge window": f"{WHOLE}episode_window = 9_000_000_000_000_000_000\n",
        "seed of 400 digits negative": f"{WHOLE}seed = -{'9' * 400}\n",
        "version 99": f'cspo_version = "99"\nnew_setting = 1\n{WHOLE}',
        "a table of the command line": f"{WHOLE}[train]\nseed = 1\n",
    }


def _bytes(random: Random) -> dict[str, bytes]:
    whole = WHOLE.encode()
    return {
        "binary": random.randbytes(1000),
        "no text": whole + b'algo = "\xff\xfe"\n',
        "utf-16": WHOLE.encode("utf-16"),
        "zero bytes": whole + b"\0" * 4096,
        "gzip": b"\x1f\x8b\x08\0\0\0\0\0" + random.randbytes(100),
        "ten megabytes of brackets": b"x = [" * 2_000_000,
        "two megabytes of digits": whole + b"seed = " + b"9" * 2_000_000,
    }
