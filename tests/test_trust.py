"""A stranger's folder runs no code: hostile runs and studies, every command, and what one sees.

Every hostile folder would leave the file PWNED behind if what it names were imported or called.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from run_helpers import PYTHONPATH, SMALL, TASK, as_flags, start

import cspo
from cspo.algorithms import registry
from cspo.cli import main
from cspo.config import read_toml, to_dict
from cspo.errors import CspoError
from cspo.lab.study.worker import work
from cspo.runs import trust
from cspo.runs.folder import load_config

pytestmark = pytest.mark.usefixtures("no_pictures")
EVIL = """
import pathlib
pathlib.Path({pwned!r}).touch()
import gymnasium
from os import system as helpful
gymnasium.register("Evil-v0", entry_point="run_helpers:TinyEnv")
from run_helpers import make_tiny as make
from functools import partial
also = partial(helpful, "touch {pwned}")
"""
OWN = "from run_helpers import TinyEnv\ndef make(speed=1): return TinyEnv()\n"
FAST = as_flags({**SMALL, "total_steps": 800, "cost_limit": (3.0,)})
STANDARD, ASKED = "is a module of Python itself", "was not trained here by you"

# The settings of a hostile run; {pwned} is the file it would make, {here} where evil.py lies.
TOUCH = "touch {pwned}"
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "os": ("os:system", {"command": TOUCH}),
    "posix": ("posix:system", {"command": TOUCH}),
    "popen": ("os:popen", {"cmd": TOUCH}),
    "run": ("subprocess:run", {"args": TOUCH, "shell": True}),
    "class": ("subprocess:Popen", {"args": TOUCH, "shell": True}),
    "getoutput": ("subprocess:getoutput", {"cmd": TOUCH}),
    "runpy": ("runpy:run_path", {"path_name": "{here}/evil.py"}),
    "exec": ("builtins:exec", {"source": "open('{pwned}', 'w')"}),
    "eval": ("builtins:eval", {"source": "open('{pwned}', 'w')"}),
    "open": ("builtins:open", {"file": "{pwned}", "mode": "w"}),
    "io": ("io:open", {"file": "{pwned}", "mode": "w"}),
    "pathlib": ("pathlib:os.system", {"command": TOUCH}),
    "timeit": ("timeit:timeit", {"stmt": "open('{pwned}', 'w')", "number": 1}),
    "profile": ("cProfile:run", {"statement": "open('{pwned}', 'w')"}),
    "importlib": ("importlib:import_module", {"name": "evil"}),
    "pty": ("pty:spawn", {"argv": ["touch", "{pwned}"]}),
    "ctypes": ("ctypes:CDLL", {"name": "{here}/evil.so"}),
    "shutil": ("shutil:copyfile", {"src": "{here}/evil.py", "dst": "{pwned}"}),
    "socket": ("multiprocessing.connection:Client", {"address": "{pwned}"}),
    "relative": (".os:system", {"command": TOUCH}),
    "module": ("evil:make", {}),
    "re-exported": ("evil:helpful", {"command": TOUCH}),
    "partial": ("evil:also", {}),
    "dotted attribute": ("evil:pathlib.os.system", {"command": TOUCH}),
    "submodule": ("package.inner:make", {}),
    "gymnasium prefix": ("evil:Evil-v0", {}),
    "option of an id": ("GymV26Environment-v0", {"env_id": "evil:Evil-v0"}),
    "option that is a factory": ("gymnasium:make", {"id": "evil:Evil-v0"}),
    "our own door": ("cspo:make_batch", {"env": "evil:make", "num_envs": 1}),
    "our own loader": ("cspo.plugins:load_plugin", {"name": "{here}/evil.py"}),
}
PLUGINS = {
    "file": "{here}/evil.py",
    "relative file": "./evil.py",
    "module": "evil",
    "submodule": "package.inner",
    "python's own": "antigravity",
}
NETWORKS = {
    "module": "evil:make",
    "submodule": "package.inner:make",
    "os": "os:system",
    "builtins": "builtins:exec",
    "importlib": "importlib:import_module",
    "our own loader": "cspo.plugins:load_plugin",
    "torch": "torch:load",
    "re-exported": "evil:helpful",
}
# What is refused whoever asks for it: it does not look like a factory.
NEVER = [
    name for name in TASKS if TASKS[name][0].partition(":")[0] not in ("evil", "package.inner")
]
NEVER = [name for name in NEVER if name not in ("relative", "option of an id")]
NEVER += ["re-exported", "partial"]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder that holds evil.py and a package, with a state of its own; nothing leaks."""
    registry.algorithm_names()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv(trust.STATE, str(tmp_path / "state"))
    here = tmp_path / "here"
    (here / "package").mkdir(parents=True)
    monkeypatch.chdir(here)
    text = EVIL.format(pwned=str(tmp_path / "PWNED"))
    for name in ("evil.py", "package/__init__.py", "package/inner.py", "numpy_like.py"):
        (here / name).write_text(text)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("evil", "package", "own", "code") or "cspo_plugin" in name:
            del sys.modules[name]


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native run, from which hostile ones are made."""
    run = tmp_path_factory.mktemp("harmless") / "run"
    settings: Any = {**SMALL, "total_steps": 800, "tensorboard": False}
    cspo.train(TASK, "ppo", run_dir=run, quiet=True, **settings)
    return run


def fill(value: Any, tmp_path: Path) -> Any:
    """Put the places of this test into the settings of a hostile run."""
    if isinstance(value, str):
        return value.replace("{pwned}", str(tmp_path / "PWNED")).replace(
            "{here}", str(tmp_path / "here")
        )
    if isinstance(value, list):
        return [fill(item, tmp_path) for item in value]
    return {k: fill(v, tmp_path) for k, v in value.items()} if isinstance(value, dict) else value


def forge(harmless: Path, tmp_path: Path, **changes: Any) -> Path:
    """Return a stranger's run: real checkpoints, and other settings."""
    run = tmp_path / "here" / "stranger"
    shutil.copytree(harmless, run)
    settings = {**read_toml(run / "config.toml"), **fill(changes, tmp_path)}
    (run / "config.toml").write_text(tomli_w.dumps(settings))
    return run


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, *words: Any) -> str:
    """Return the one line that a command says before it leaves with 2, having run nothing."""
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cspo: error: ") and error.count("\n") == 1 and "Traceback" not in error
    assert not (tmp_path / "PWNED").exists()
    return error


@pytest.mark.parametrize("name", TASKS)
def test_a_hostile_task_is_not_imported(
    name: str, harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, options = TASKS[name]
    run = forge(harmless, tmp_path, task=task, env_options=options)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for words in (["eval", run], ["train", "--resume", run, "--total-steps", "1600"]):
        error = refused(capsys, tmp_path, *words)
        assert ASKED in error or STANDARD in error or "there is no module" in error
        assert task in error or "'.os'" in error
        if ASKED in error:  # what would be imported, from where, and how to allow it
            assert f'--task "{task}" or --trust' in error
            assert all(str(value) in error for value in fill(options, tmp_path).values())
            assert ":" not in task or ".py" in error
    policy = cspo.load(run)
    assert policy(np_zeros(policy)).shape == (policy.action_size,)
    for call in (cspo.evaluate, cspo.resume, lambda run: cspo.record(run, tmp_path / "a.gif")):
        with pytest.raises(CspoError):
            call(run)
    with pytest.raises(CspoError):
        cspo.Trainer(policy.config)  # settings of a folder stay settings of a folder
    assert not (tmp_path / "PWNED").exists()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def np_zeros(policy: Any) -> Any:
    return [0.0] * policy.observation_size


@pytest.mark.parametrize("name", PLUGINS)
def test_a_hostile_plugin_is_not_loaded(
    name: str, harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = fill(PLUGINS[name], tmp_path)
    run = forge(harmless, tmp_path, plugin=plugin, algo="evil-algorithm", algorithm={"lambda": 1})
    assert main(["eval", str(run), "--episodes", "1", "--json"]) == 0  # does not need it
    assert len(json.loads(capsys.readouterr().out)) == 2
    error = refused(capsys, tmp_path, "train", "--resume", run)
    assert plugin in error and (STANDARD in error or f'--plugin "{plugin}" or --trust' in error)
    assert to_dict(cspo.load(run).config)["algorithm"] == {"lambda": 1}
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_hostile_network_is_not_imported(
    name: str, harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = NETWORKS[name]
    run = forge(harmless, tmp_path, network=network)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for words in (["eval", run], ["train", "--resume", run, "--total-steps", "1600"]):
        error = refused(capsys, tmp_path, *words)
        assert STANDARD in error or (
            ASKED in error and f'--network "{network}" or --trust' in error
        )
    film = tmp_path / "a.gif"
    for call in (cspo.load, cspo.evaluate, cspo.resume, lambda run: cspo.record(run, film)):
        with pytest.raises(CspoError):
            call(run)
    with pytest.raises(CspoError):
        cspo.Trainer(load_config(run))  # settings of a folder stay settings of a folder
    assert not (tmp_path / "PWNED").exists()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["os", "builtins", "importlib", "our own loader", "torch"])
def test_what_is_no_network_is_refused_whoever_names_it(
    name: str, harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = NETWORKS[name]
    run = forge(harmless, tmp_path, network=network)
    for words in (
        ["eval", run, "--trust"],
        ["eval", run, "--network", network],
        ["train", "--resume", run, "--total-steps", "1600", "--trust"],
        ["train", TASK, "--network", network, "--run-dir", tmp_path / "new", *FAST],
    ):
        error = refused(capsys, tmp_path, *words)
        assert STANDARD in error or "is no factory of networks" in error


def test_a_known_algorithm_goes_on_without_a_hostile_plugin(harmless: Path, tmp_path: Path) -> None:
    run = forge(harmless, tmp_path, plugin="{here}/evil.py")
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("name", NEVER)
def test_what_is_no_factory_is_refused_whoever_names_it(
    name: str, harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, options = TASKS[name][0], fill(TASKS[name][1], tmp_path)
    run = forge(harmless, tmp_path, task=task, env_options=options)
    (tmp_path / "here" / "evil.py").write_text("from os import system as helpful\n" + PARTIAL)
    typed = ",".join(f"{key}={json.dumps(value)}" for key, value in options.items()) or "none"
    for words in (
        ["eval", run, "--trust"],
        ["eval", run, "--task", task],
        ["train", "--resume", run, "--total-steps", "1600", "--trust"],
        ["train", task, "--env-options", typed, "--run-dir", tmp_path / "new", *FAST],
    ):
        error = refused(capsys, tmp_path, *words)
        assert STANDARD in error or "is no factory of environments" in error


PARTIAL = "import functools\nalso = functools.partial(helpful, 'true')\n"


@pytest.fixture
def hostile_study(harmless: Path, tmp_path: Path) -> Path:
    """A study of hostile runs, each finished, and a plugin that its file names."""
    study, names = tmp_path / "here" / "study", ["evil:make", "os:system", "evil:Evil-v0"]
    for task in names:
        run = study / "runs" / f"{task.replace(':', '-')}-evil-seed0"
        run.parent.mkdir(parents=True, exist_ok=True)
        options = {"env_options": {"command": TOUCH}} if task == "os:system" else {}
        changes = {"task": task, "algo": "evil", "plugin": "{here}/evil.py", **options}
        shutil.move(forge(harmless, tmp_path, **changes), run)
    text = {"name": "s", "tasks": names, "algorithms": ["evil"], "seeds": 1, "total_steps": 800}
    (study / "study.toml").write_text(tomli_w.dumps({**text, "plugin": "../evil.py"}))
    return study


def test_reading_a_hostile_study_imports_nothing(
    hostile_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next((hostile_study / "runs").iterdir())
    archive = tmp_path / "archive"
    for words in (
        ["study", "status", hostile_study],
        ["study", "archive", hostile_study, "--out", archive],
        ["study", "status", archive, "--json"],
        ["metrics", archive / "runs" / run.name, run],
        ["plot", run],
        ["report", hostile_study, "--out", tmp_path / "report"],
    ):
        assert main([str(word) for word in words]) == 0, words
        assert "Traceback" not in capsys.readouterr().err
        assert not (tmp_path / "PWNED").exists(), words
    assert len(list((archive / "runs").iterdir())) == 3


def test_a_study_continues_a_strangers_folder_without_its_plugin(
    harmless: Path, tmp_path: Path
) -> None:
    """The settings of a study decide what is imported, on either engine."""
    run = forge(harmless, tmp_path, plugin="{here}/evil.py", total_steps=1600)
    settings = {k: v for k, v in read_toml(run / "config.toml").items() if k != "cspo_version"}
    del settings["plugin"]
    work(settings, str(run))
    assert json.loads((run / "summary.json").read_text())["finished"]
    assert not (tmp_path / "PWNED").exists()
    other = {**settings, "env_options": {"time_limit": 50}}
    with pytest.raises(CspoError, match="env_options"):
        work(other, str(run))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A run that this user trains here, on an environment of an own module."""
    (tmp_path / "here" / "own.py").write_text(OWN)
    words = ["train", "own:make", "--env-options", "speed=2", "--quiet", "--run-dir", "own-run"]
    assert main([*words, *FAST]) == 0
    return tmp_path / "here" / "own-run"


def test_an_own_run_needs_no_flag_wherever_it_is_moved(own: Path, tmp_path: Path) -> None:
    assert main(["eval", str(own), "--episodes", "1"]) == 0
    moved = own.rename(tmp_path / "moved")
    assert main(["eval", str(moved), "--episodes", "1"]) == 0
    assert main(["train", "--resume", str(moved), "--quiet", "--total-steps", "1200"]) == 0
    assert cspo.evaluate(moved, 1) and cspo.resume(moved, quiet=True).finished


def test_an_own_run_that_was_altered_is_a_strangers(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (own / "config.toml").read_text()
    for old, new in (("speed = 2", "speed = 3"), ("own:make", "evil:make")):
        assert old in text
        (own / "config.toml").write_text(text.replace(old, new))
        assert ASKED in refused(capsys, tmp_path, "eval", own)
        assert ASKED in refused(capsys, tmp_path, "train", "--resume", own)
    # Nor does another run become one's own by the same settings, or by its token alone.
    (own / "config.toml").write_text(text)
    (own / trust.TOKEN).write_text("0" * 64)
    assert ASKED in refused(capsys, tmp_path, "eval", own)


def test_the_same_name_from_another_place_is_another_module(own: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "here" / "evil.py", elsewhere / "own.py")
    process = start("eval", own, "--episodes", "1", cwd=elsewhere)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and ASKED in error and str(elsewhere / "own.py") in error
    assert not (tmp_path / "PWNED").exists()


def test_what_lies_in_the_current_directory_hides_nothing(harmless: Path, tmp_path: Path) -> None:
    """A file beside a stranger's run that is called like a package is not taken for it."""
    here = tmp_path / "here"
    for name in ("matplotlib", "gymnasium", "mujoco", "json", "scipy", "tensorboard", "PIL"):
        shutil.copy(here / "evil.py", here / f"{name}.py")
    run = forge(harmless, tmp_path, total_steps=1200)
    # As the installed command does, unlike `python -m`: not with the current directory first.
    code = "import sys; del sys.path[0]; from cspo.cli import main; sys.exit(main())"
    variables = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-c", code, "train", "--resume", str(run), "--quiet"]
    done = subprocess.run(command, cwd=here, env=variables, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "PWNED").exists()


def test_named_or_trusted_runs_are_imported(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(trust.STATE, str(tmp_path / "another user"))
    assert ASKED in refused(capsys, tmp_path, "eval", own)
    assert main(["eval", str(own), "--episodes", "1", "--trust"]) == 0
    assert main(["eval", str(own), "--episodes", "1", "--task", "own:make"]) == 0
    error = refused(capsys, tmp_path, "eval", own, "--task", "own:other")
    assert "was trained on own:make, and not on --task own:other" in error
    assert cspo.evaluate(own, 1, trust=True) and cspo.evaluate(own, 1, env="own:make")
    assert ASKED in refused(capsys, tmp_path, "eval", own)  # said once, for that command
    assert ASKED in refused(capsys, tmp_path, "train", "--resume", own)
    words = ["train", "--resume", str(own), "--quiet", "--total-steps"]
    assert main([*words, "1200", "--task", "own:make"]) == 0
    assert main([*words, "1600"]) == 0  # whoever continues a run has made it an own one
    assert main(["eval", str(own), "--episodes", "1"]) == 0


def test_an_environment_handed_over_does_not_vouch_for_what_the_folder_names(
    harmless: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = forge(harmless, tmp_path, task="evil:make", total_steps=1200)
    assert cspo.resume(run, env=cspo.make_batch(TASK, 4), quiet=True).finished
    assert ASKED in refused(capsys, tmp_path, "eval", run)


def test_the_key_is_the_users_alone(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "state" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert key.read_bytes() not in b"".join(f.read_bytes() for f in own.rglob("*") if f.is_file())
    key.chmod(0o644)  # others may have read it
    assert ASKED in refused(capsys, tmp_path, "eval", own)
    key.chmod(0o600)
    assert main(["eval", str(own), "--episodes", "1"]) == 0
    key.write_bytes(b"x" * 32)
    assert ASKED in refused(capsys, tmp_path, "eval", own)


@pytest.mark.parametrize("state", ["file", "missing home"])
def test_training_does_without_a_place_for_marks(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if state == "file":
        (tmp_path / "state").write_text("in the way")
    else:
        monkeypatch.setenv(trust.STATE, "/proc/none/at all")
    (tmp_path / "here" / "own.py").write_text(OWN)
    assert main(["train", "own:make", "--quiet", "--run-dir", "run", *FAST]) == 0
    assert capsys.readouterr().err == ""
    assert ASKED in refused(capsys, tmp_path, "eval", "run")
    assert main(["eval", "run", "--episodes", "1", "--trust"]) == 0


def test_a_file_of_ones_own_may_be_called_like_a_module_of_python(tmp_path: Path) -> None:
    (tmp_path / "here" / "antigravity.py").write_text(OWN)
    assert cspo.make_batch("antigravity:make", 2).num_envs == 2
    del sys.modules["antigravity"]
