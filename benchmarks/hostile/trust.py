"""Folders of strangers that name code to run, and names that would run it when typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hostile import damage
from hostile.bases import SHORT, TASK
from hostile.case import EITHER, REFUSED, SENTINEL, Case

KIND = "trust"
TOUCH = f"touch {SENTINEL}"
STATEMENT = f"open('{SENTINEL}', 'w').close()"
EVIL = f"""open({SENTINEL + "-import"!r}, "w").close()
import cspo
from cspo.algorithms.ppo import PPO


@cspo.register("evil")
class Evil(PPO):
    title = "Evil"


class Make:
    def __init__(self, **options):
        open({SENTINEL + "-call"!r}, "w").close()
"""
# A name that a settings file or a user can give for an environment, and the options it would take.
CALLABLES: dict[str, dict[str, Any]] = {
    "os:system": {"command": TOUCH},
    "os:popen": {"cmd": TOUCH},
    "posix:system": {"command": TOUCH},
    "subprocess:run": {"args": TOUCH, "shell": True},
    "subprocess:call": {"args": TOUCH, "shell": True},
    "subprocess:Popen": {"args": TOUCH, "shell": True},
    "subprocess:getoutput": {"cmd": TOUCH},
    "subprocess:check_output": {"args": ["touch", SENTINEL]},
    "runpy:run_path": {"path_name": "evil.py"},
    "runpy:run_module": {"mod_name": "evil"},
    "builtins:exec": {"source": STATEMENT},
    "builtins:open": {"file": SENTINEL, "mode": "w"},
    "io:open": {"file": SENTINEL, "mode": "w"},
    "importlib:import_module": {"name": "evil"},
    "timeit:timeit": {"stmt": STATEMENT, "number": 1},
    "timeit:repeat": {"stmt": STATEMENT, "number": 1},
    "cProfile:run": {"statement": STATEMENT},
    "profile:run": {"statement": STATEMENT},
    "pdb:run": {"statement": STATEMENT},
    "pydoc:tempfilepager": {"text": "x", "cmd": f"{TOUCH};"},
    "pydoc:pipepager": {"text": "x", "cmd": TOUCH},
    "pydoc:safeimport": {"path": "evil"},
    "pkgutil:resolve_name": {"name": "evil"},
    "logging.config:dictConfig": {
        "config": {"version": 1, "filters": {"f": {"()": "os.mkdir", "path": SENTINEL}}}
    },
    "logging:basicConfig": {"filename": SENTINEL},
    "logging:FileHandler": {"filename": SENTINEL},
    "zipfile:ZipFile": {"file": SENTINEL, "mode": "w"},
    "tarfile:open": {"name": SENTINEL, "mode": "w"},
    "sqlite3:connect": {"database": SENTINEL},
    "tempfile:NamedTemporaryFile": {"prefix": SENTINEL, "dir": ".", "delete": False},
    "shutil:copyfile": {"src": "outside/precious.txt", "dst": SENTINEL},
    "pathlib:Path.touch": {"self": SENTINEL},
    "os:mkdir": {"path": SENTINEL},
    "os:open": {"path": SENTINEL, "flags": 65},
    "code:interact": {"banner": "x"},
    "venv:create": {"env_dir": SENTINEL, "with_pip": False},
    "numpy:save": {"file": SENTINEL, "arr": [1]},
    "numpy:savetxt": {"fname": SENTINEL, "X": [1]},
    "cspo.plugins:load_plugin": {"name": "evil.py"},
    "cspo.runs.files:write_text": {"path": SENTINEL, "text": "x"},
    "gymnasium:make": {"id": "evil:Env-v0"},
}
# Names that import a stranger's module and nothing else.
IMPORTED = ("evil:Make", "evil:Nothing", "evil:Env-v0", "evil.sub:Make", "evil:Env", "evil/Env-v0")
RUN_COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "eval": (("eval", "run", "--episodes", "1"), ()),
    "resume": (("train", "--resume", "run", "--total-steps", "1000", "--quiet"), ("run",)),
    "plot": (("plot", "run"), ("run/curve.png",)),
    "metrics": (("metrics", "run"), ()),
    "report": (("report", "run", "--out", "out"), ("out",)),
}
STUDY_COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "status": (("study", "status", "study"), ()),
    "status --json": (("study", "status", "study", "--json"), ()),
    "archive": (("study", "archive", "study", "--out", "out"), ("out",)),
    "report": (("report", "study", "--out", "out"), ("out",)),
    "report of a run": (("report", "study/runs", "--out", "out"), ("out",)),
    "metrics": (("metrics", f"study/runs/{TASK}-ppo-lag-seed0"), ()),
}


def cases(random: Random) -> Iterator[Case]:
    """Yield folders and names that would run code."""
    for name, options in CALLABLES.items():
        command = random.choice(["eval", "resume"])
        yield _of_run(f"task = {name}", command, partial(_task, name, options))
        words = ("train", name, "--env-options", _typed(options), *SHORT, "--run-dir", "new")
        typed = f"typed: {name}"
        yield Case(KIND, typed, words, {}, _evil, REFUSED, process=name == "os:system")
    for name in IMPORTED:
        for command in ("eval", "resume", "report"):
            yield _of_run(f"task = {name}", command, partial(_task, name, {}))
    for name in ("evil", "evil.py", "./evil.py", "run/evil.py", "{space}/run/evil.py", "evil.sub"):
        for command in RUN_COMMANDS:
            # Acting does not need the algorithm: `eval` may go on without it.
            expected = EITHER if command == "eval" else None
            yield _of_run(f"plugin = {name}", command, partial(_plugin, name, "evil"), expected)
        yield _of_run(f"plugin = {name}, cspo", "eval", partial(_plugin, name, "cspo"), EITHER)
        for command in random.sample(list(STUDY_COMMANDS), 2):
            yield _of_study(f"plugin = {name}", command, name)
    for name in STUDY_COMMANDS:
        yield _of_study("plugin = runs/evil.py", name, "runs/evil.py")
    calls: dict[str, Callable[[], Any]] = {
        "cspo.load": _load,
        "cspo.evaluate": _evaluate,
        "cspo.resume": _resume,
        "cspo.Trainer.resume": _trainer,
        "cspo.record": _record,
    }
    for what, call in calls.items():
        for label, prepare in {
            "task = os:system": partial(_task, "os:system", CALLABLES["os:system"]),
            "task = evil:Make": partial(_task, "evil:Make", {}),
            "plugin = evil.py": partial(_plugin, "run/evil.py", "evil"),
        }.items():
            yield _of_run(label, what, prepare, EITHER, call)
    yield from _beside()


def _of_run(
    name: str,
    command: str,
    prepare: Any,
    expected: tuple[int, ...] | None = None,
    call: Callable[[], Any] | None = None,
) -> Case:
    words, writes = RUN_COMMANDS.get(command, ((), ()))
    needs, resumed = command in ("eval", "resume"), ("run",) if "esume" in command else ()
    return Case(
        KIND,
        f"{name}, {command}",
        words,
        {"run": "run"},
        prepare,
        expected or (REFUSED if needs else EITHER),
        reads=True,
        writes=writes or {"cspo.record": ("film.gif",)}.get(command, resumed),
        call=call,
    )


def _of_study(name: str, command: str, plugin: str) -> Case:
    words, writes = STUDY_COMMANDS[command]

    def prepare(space: Path) -> None:
        _evil(space)
        study = space / "study" / "study.toml"
        given = plugin.replace("{space}", str(space))
        damage.changed(lambda text: f'plugin = "{given}"\n'.encode() + text)(study)
        for run in (space / "study" / "runs").iterdir():
            config = run / "config.toml"
            damage.replaced(b"algo = ", f'plugin = "{given}"\nalgo = '.encode())(config)
        (space / "study" / "runs" / "evil.py").write_text(EVIL, encoding="utf-8")

    label = f"study: {name}, {command}"
    return Case(KIND, label, words, {"study": "study"}, prepare, EITHER, reads=True, writes=writes)


def _evil(space: Path) -> None:
    """Put a stranger's module where it may be found: here, in the run, in the study."""
    for folder in (space, space / "run", space / "study"):
        if folder.is_dir():
            (folder / "evil.py").write_text(EVIL, encoding="utf-8")


def _toml(value: Any) -> str:
    import tomli_w

    return tomli_w.dumps({"x": value}, multiline_strings=False).partition("=")[2].strip()


def _typed(options: dict[str, Any]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, dict):
            inner = ", ".join(f'"{key}" = {written(item)}' for key, item in value.items())
            return "{" + inner + "}"
        return _toml(value).replace("\n", " ")

    return ",".join(f"{key}={written(value)}" for key, value in options.items())


def _task(name: str, options: dict[str, Any], space: Path) -> None:
    _evil(space)
    config = space / "run" / "config.toml"
    text = config.read_text(encoding="utf-8").replace(f'task = "{TASK}"', f'task = "{name}"')
    before, separator, after = text.partition("[env_options]")
    if not separator:
        before, _, after = text.partition("[algorithm]")
        after = "\n[algorithm]" + after
    table = "".join(f"{key} = {value}\n" for key, value in _items(options))
    config.write_text(f"{before}[env_options]\n{table}{after}", encoding="utf-8")


def _items(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in options.items():
        yield key, _typed({"x": value})[2:]


def _plugin(name: str, algo: str, space: Path) -> None:
    _evil(space)
    given = name.replace("{space}", str(space))
    config = space / "run" / "config.toml"
    damage.replaced(b'algo = "cspo"', f'plugin = "{given}"\nalgo = "{algo}"'.encode())(config)


def _load() -> None:
    import cspo

    cspo.load("run")


def _evaluate() -> None:
    import cspo

    cspo.evaluate("run", 1)


def _resume() -> None:
    import cspo

    cspo.resume("run", total_steps=1000, quiet=True)


def _trainer() -> None:
    import cspo

    list(cspo.Trainer.resume("run", total_steps=1000))


def _record() -> None:
    import cspo

    cspo.record("run", "film.gif")


def _beside() -> Iterator[Case]:
    """Modules that lie in the folder a command is typed in, under names that the program uses."""
    names = ("tomllib", "numba", "scipy", "rich", "matplotlib", "gymnasium", "json", "mujoco")

    def prepare(space: Path) -> None:
        text = f"open({SENTINEL + '-beside'!r}, 'w').close()\n"
        for folder in (space, space / "run"):
            for name in (*names, "sitecustomize", "usercustomize", "cspo"):
                (folder / f"{name}.py").write_text(text, encoding="utf-8")

    for command, (words, writes) in RUN_COMMANDS.items():
        yield Case(
            KIND,
            f"modules beside, {command}",
            words,
            {"run": "run"},
            prepare,
            EITHER,
            reads=True,
            writes=writes,
            process=True,
        )
