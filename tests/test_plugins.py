"""Algorithms in a user's own file: commands take them, a run finds them, mistakes are one line."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import SMALL, as_flags, assert_same_run, start, wait_for_epochs

import cspo
from cspo.algorithms import registry
from cspo.cli import main
from cspo.config import from_dict, to_dict
from cspo.runs.folder import load_config

EXAMPLE = Path(__file__).parents[1] / "examples" / "my_algorithm.py"
TINY = "run_helpers:make_tiny"
FAST = as_flags({**SMALL, "total_steps": 800, "cost_limit": (3.0,)})
SMALLEST = """
from dataclasses import dataclass
import cspo

@cspo.register({name!r})
class Mine:
    @dataclass(frozen=True)
    class Config:
        price: float = 1.0
    def update(self, batch, J_c, d): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
"""


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers or imports does not reach the next."""
    registry.algorithm_names()  # loads the built-in ones
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield
    forget_plugins(tmp_path)


def forget_plugins(folder: Path = EXAMPLE) -> None:
    """Take what was loaded as a plugin, or from a folder, out of this process."""
    for name, cls in list(registry._registry.items()):
        if cls.__module__.startswith("cspo_plugin_"):
            del registry._registry[name]
    for name, module in list(sys.modules.items()):
        if name.startswith("cspo_plugin_") or str(getattr(module, "__file__", "")).startswith(
            str(folder)
        ):
            del sys.modules[name]


def write(name: str, text: str) -> Path:
    path = Path.cwd() / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the error of a command, which must be one or two lines and exit code 2."""
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cspo: error: ") and error.count("\n") <= 2 and "Traceback" not in error
    return error


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, trained without a disturbance."""
    run = tmp_path_factory.mktemp("reference") / "run"
    words = [
        "--plugin",
        str(EXAMPLE),
        "--algo",
        "step-price",
        "--run-dir",
        str(run),
        "--quiet",
        *FAST,
    ]
    assert main(["train", TINY, *words]) == 0
    forget_plugins()
    return run


def test_example_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 52


def test_killed_and_resumed_from_another_folder(tmp_path: Path, reference: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path / "mine.py")
    run = tmp_path / "run"
    words = [
        "train",
        TINY,
        "--plugin",
        "mine.py",
        "--algo",
        "step-price",
        "--run-dir",
        run,
        "--quiet",
        *FAST,
    ]
    process = start(*words, cwd=tmp_path)
    wait_for_epochs(run, 1, process)
    time.sleep(0.01)
    process.kill()
    assert process.wait() in (-signal.SIGKILL, 0)
    process.communicate()
    (tmp_path / "elsewhere").mkdir()
    process = start(
        "train", "--resume", run, "--quiet", cwd=tmp_path / "elsewhere"
    )  # it knows where its plugin is
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert_same_run(run, reference)


def test_stopped_and_resumed_in_python(tmp_path: Path, reference: Path) -> None:
    settings = {**SMALL, "total_steps": 800, "cost_limit": (3.0,), "plugin": str(EXAMPLE)}
    trainer = cspo.Trainer(
        cspo.make_config(TINY, "step-price", **settings), run_dir=tmp_path / "run"
    )
    next(iter(trainer))
    assert trainer.run is not None
    trainer.run.close()
    cspo.resume(tmp_path / "run", quiet=True)
    assert_same_run(tmp_path / "run", reference)


def test_own_settings_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--plugin", str(EXAMPLE), "--algo", "step-price", "--help"])
    shown = capsys.readouterr().out
    assert (
        "--step " in shown and "By how much the price moves" in shown and "--plugin FILE" in shown
    )
    error = refused(
        capsys, "train", TINY, "--plugin", EXAMPLE, "--algo", "step-price", "--stap", "1"
    )
    assert "did you mean '--step'?" in error


def test_algos_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algos", "--plugin", str(EXAMPLE), "--json"]) == 0
    rows = {row["name"]: row["summary"] for row in json.loads(capsys.readouterr().out)}
    assert rows["step-price"].startswith("PPO with a price") and "cspo" in rows


def test_resume_finds_it_or_says_what_to_pass_and_eval_does_without(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(reference), "--episodes", "2", "--json"]) == 0
    rows = capsys.readouterr().out
    run, gone = tmp_path / "run", tmp_path / "gone.py"
    shutil.copytree(reference, run)
    text = (run / "config.toml").read_text(encoding="utf-8")
    assert f'plugin = "{EXAMPLE}"' in text
    (run / "config.toml").write_text(text.replace(str(EXAMPLE), str(gone)), encoding="utf-8")
    forget_plugins()
    error = refused(capsys, "train", "--resume", run)
    assert f"There is no plugin file {gone}." in error and "pass --plugin" in error
    assert main(["plot", str(run)]) == 0  # needs no algorithm
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2", "--json"]) == 0  # nor does this
    assert capsys.readouterr().out == rows
    assert main(["eval", str(run), "--episodes", "2", "--json", "--plugin", str(EXAMPLE)]) == 0
    assert capsys.readouterr().out == rows
    assert main(["train", "--resume", str(run), "--quiet", "--plugin", str(EXAMPLE)]) == 0
    assert load_config(run).plugin == str(EXAMPLE)  # and from now on it is known again


def test_a_run_of_a_built_in_algorithm_does_not_need_its_plugin(tmp_path: Path) -> None:
    plugin = write("mine.py", SMALLEST.format(name="unused"))
    run = tmp_path / "run"
    assert (
        main(
            [
                "train",
                TINY,
                "--plugin",
                str(plugin),
                "--algo",
                "ppo",
                "--run-dir",
                str(run),
                "--quiet",
                *FAST,
            ]
        )
        == 0
    )
    plugin.unlink()
    forget_plugins()
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert main(["train", "--resume", str(run), "--quiet"]) == 0


def test_run_of_an_algorithm_from_a_program_says_what_to_pass(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(reference, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    lines = config.read_text(encoding="utf-8").splitlines()
    config.write_text(
        "\n".join(line for line in lines if not line.startswith("plugin")), encoding="utf-8"
    )
    error = refused(capsys, "train", "--resume", tmp_path / "run")
    assert "'step-price'" in error and "is not built in: pass --plugin" in error


def test_bench_takes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cspo.lab import bench

    monkeypatch.setattr(
        bench, "make_config", lambda *words, **given: cspo.make_config(*words, **{**given, **small})
    )
    small = {"steps_per_epoch": 400, "num_envs": 4, "total_steps": 800, "tensorboard": False}
    words = ["--plugin", str(EXAMPLE), "--algo", "step-price", "--epochs", "1", "--json"]
    assert main(["bench", "train", TINY, *words]) == 0
    assert json.loads(capsys.readouterr().out)["algo"] == "step-price"


def test_settings_cross_to_another_process_as_plain_data() -> None:
    config = cspo.make_config(TINY, "step-price", plugin=str(EXAMPLE), step=0.3)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_module_name_and_settings_file(capsys: pytest.CaptureFixture[str]) -> None:
    write("my_module.py", SMALLEST.format(name="from-module"))
    assert main(["algos", "--plugin", "my_module"]) == 0
    assert "from-module" in capsys.readouterr().out
    config = cspo.make_config(
        TINY, file=write("s.toml", 'algo = "from-module"\nplugin = "my_module"\n')
    )
    assert config.plugin == "my_module" and config.algorithm.price == 1.0
    assert (
        cspo.make_config(TINY, "from-module", plugin="my_module.py", price=3.0).algorithm.price
        == 3.0
    )


def test_two_files_of_one_name_and_what_lies_beside_them() -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        write(
            f"{folder}/mine.py",
            f"import beside_{folder}\n" + SMALLEST.format(name=f"from-{folder}"),
        )
        write(f"{folder}/beside_{folder}.py", "")
    for folder in ("a", "b"):
        assert (
            cspo.make_config(TINY, f"from-{folder}", plugin=f"{folder}/mine.py").algo
            == f"from-{folder}"
        )
    assert {"from-a", "from-b"} <= set(registry.algorithm_names())


def test_a_later_class_replaces_an_earlier_one_of_the_user() -> None:
    for text in ("first.py", "second.py"):
        cspo.make_config(TINY, "again", plugin=str(write(text, SMALLEST.format(name="again"))))
    assert registry.get_algorithm("again").__module__.startswith("cspo_plugin_second")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def update(:\n", "bad.py, line 1: invalid syntax"),
        ("x = 1\n", "registers no algorithm: put @cspo.register"),
        ("\n\nprint(nothing)\n", "NameError: name 'nothing' is not defined"),
        ("import nosuchmodule\n", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        (SMALLEST.format(name="ppo-lag"), "'ppo-lag' is the name of a built-in algorithm"),
        (SMALLEST.format(name="a/b"), "'a/b' cannot name an algorithm"),
        (SMALLEST.format(name="mine").replace("def update", "def improve"), "Mine has no update()"),
        (
            SMALLEST.format(name="mine").replace("class Config", "class Settings"),
            "give Mine a frozen dataclass Config",
        ),
    ],
)
def test_mistakes_in_a_file(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("bad.py", text)
    for words in (["algos"], ["train", TINY]):
        error = refused(capsys, *words, "--plugin", path)
        assert said in error and "bad.py" in error
    assert registry.get_algorithm("ppo-lag").__module__ == "cspo.algorithms.ppo_lag"


def test_mistakes_in_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no plugin file nofile.py." in refused(capsys, "algos", "--plugin", "nofile.py")
    assert "There is no plugin module 'nomodule'" in refused(
        capsys, "bench", "train", TINY, "--plugin", "nomodule"
    )
    assert "--plugin" in refused(capsys, "train", TINY, "--plugin")
    write("imports_missing.py", "import nosuchmodule\n")
    assert "No module named 'nosuchmodule'" in refused(
        capsys, "algos", "--plugin", "imports_missing"
    )
    assert "Unknown algorithm 'other'" in refused(
        capsys, "train", TINY, "--plugin", EXAMPLE, "--algo", "other"
    )
