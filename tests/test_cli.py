"""Every command, used rightly and wrongly: exit codes, one or two plain lines, no traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_helpers import SMALL, TASK, as_flags, start

import cspo
from cspo.algorithms import algorithm_names, get_algorithm
from cspo.cli import COMMANDS, main
from cspo.commands import lists
from cspo.commands.train import read_arguments
from cspo.envs import native_tasks
from cspo.settings import explanations

HEAVY = ("torch", "mujoco", "numba", "matplotlib", "scipy")
FAST = as_flags({**SMALL, "total_steps": 800})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "run_helpers:make_tiny", "--run-dir", str(folder), "--quiet", *FAST]) == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["tasks"],
        ["algos"],
        ["bench", "--help"],
        ["eval", "-h"],
    ],
)
def test_help_is_light(words: list[str]) -> None:
    script = (
        "import sys; from cspo.cli import main\n"
        f"try: code = main({words!r})\nexcept SystemExit as leaving: code = leaving.code or 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.strip() == "[]" and done.stdout


def processor_seconds(*words: str) -> float:
    """Return what one process of Python takes of a core."""
    resource = pytest.importorskip(
        "resource", reason="processor time of children is counted on POSIX only"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert subprocess.run([sys.executable, *words], capture_output=True).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@pytest.mark.parametrize("words", [("-m", "cspo.cli", "--help"), ("-c", "import cspo")])
def test_starting_is_fast(words: tuple[str, ...]) -> None:
    """0.3 s; on a machine where Gymnasium alone takes most of that, half as much again."""
    known = ("-c", "import gymnasium")  # whose registry the tasks go to
    times: list[tuple[float, float]] = []
    while len(times) < 5 and min(times, default=(1.0,))[0] >= 0.3:  # below it no more is asked
        times.append((processor_seconds(*words), processor_seconds(*known)))
    ours, theirs = map(min, zip(*times, strict=True))
    assert ours < max(0.3, 1.5 * theirs), times


def test_import_is_light() -> None:
    loaded = f"[name for name in {HEAVY!r} if name in sys.modules]"
    script = f"import sys, cspo; print({loaded}, cspo.__version__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == f"[] {cspo.__version__}\n"


def test_public_functions_are_not_hidden_by_submodules() -> None:
    import cspo.train
    import cspo.use.evaluate

    for name in cspo.__all__:
        assert not isinstance(getattr(cspo, name), type(sys)), name


def test_without_arguments_it_says_what_to_do_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) <= 100
    shown = {line.split()[1] for line in lines if line.startswith("  cspo ")}
    assert {"doctor", "train", "eval", "tasks", "init"} <= shown <= {*COMMANDS}


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  {command} " in output


def test_version_says_what_matters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.metadata import version

    from cspo.runs import summary

    monkeypatch.setattr(summary, "commit", lambda: "0123abc-dirty")
    assert main(["--version"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"cspo {cspo.__version__} (commit 0123abc-dirty)"
    shown = dict(row.split(maxsplit=1) for row in rows)
    assert shown.pop("python") == ".".join(map(str, sys.version_info[:3]))
    assert shown == {name: version(name) for name in shown}
    assert {"numpy", "numba", "mujoco", "gymnasium", "torch"} <= set(shown)
    monkeypatch.setattr(summary, "commit", lambda: None)  # installed from a wheel
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"cspo {cspo.__version__}\n")


def test_every_setting_of_every_algorithm_is_explained() -> None:
    for name in algorithm_names():
        explained = explanations(get_algorithm(name).Config)
        assert all(explained.values()), (name, explained)


def test_train_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["train", "--algo", "ppo-lag", "--help"])
    assert leaving.value.code == 0
    output = capsys.readouterr().out
    for shown in (
        "--cost-limit",
        "--multiplier-lr",
        "--steps-per-epoch",
        "(default: 20000)",
        "--no-tensorboard",
    ):
        assert shown in output, shown
    assert "--form" not in output  # another algorithm's


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trian", "there is no command 'trian': did you mean 'train'?"),
        ("--halp", "there is no option '--halp': did you mean '--help'?"),
        ("train", "Name a task"),
        ("train SafetyHoperVelocity-v1", "did you mean 'SafetyHopperVelocity-v1'?"),
        ("train Pendullum-v1", "did you mean 'Pendulum-v1'?"),
        ("train nomodule:make", "there is no module 'nomodule'"),
        (f"train {TASK} --algo cspoo", "Unknown algorithm 'cspoo': did you mean 'cspo'?"),
        (f"train {TASK} --algo", "--algo needs a value"),
        (f"train {TASK} --sede 3", "no option --sede: did you mean '--seed'?"),
        (f"train {TASK} --sede=3", "no option --sede: did you mean '--seed'?"),
        (f"train --sede 3 {TASK}", "no option --sede"),
        (f"train {TASK} extra", "'extra'"),
        (f"train {TASK} --seed", "--seed"),
        (f"train {TASK} --seed x", "--seed x: that is not a whole number."),
        (f"train {TASK} --seed 1.5", "--seed 1.5: that is not a whole number."),
        (f"train {TASK} --seed -1", "--seed must not be negative"),
        (f"train {TASK} --cost-limit low", "--cost-limit low: that is not a number."),
        (f"train {TASK} --cost-limit -5", "--cost-limit must be zero or more"),
        (f"train {TASK} --cost-limit 25,5", "has 1 cost(s)"),
        (f"train {TASK} --form papr", "--form papr: did you mean 'paper'?"),
        (f"train {TASK} --algo ppo --form paper", "no option --form"),
        (f"train {TASK} --total-steps 10", "less than one epoch"),
        (f"train {TASK} --config nothing.toml", "Cannot read settings file"),
        ("train --resume nothing", "nothing holds no run"),
        ("train --resume", "--resume"),
        ("eval", "RUN"),
        ("eval nothing", "nothing holds no run"),
        ("eval nothing --episodes many", "--episodes many: that is not a whole number."),
        ("plot nothing", "nothing holds no run"),
        ("tasks --jason", "did you mean '--json'?"),
        ("algos extra", "'extra'"),
        ("bench tasks", "measures `env` or `train`"),
        ("bench env", "TASK"),
        ("bench env Hopper", "'Hopper'"),
        (f"bench env {TASK} --seconds 0", "--seconds must be positive"),
        (f"bench train {TASK} --epochs 0", "--epochs must be positive"),
        ("bench train nothing:make", "there is no module 'nothing'"),
        ("parity", "recordings"),
        ("parity nothing.npz", "nothing.npz"),
        ("doctor --all", "no option --all"),
    ],
)
def test_wrong_input(
    words: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    output, errors = capsys.readouterr()
    assert errors.startswith("cspo: error: ") and said in errors
    assert len(errors.splitlines()) <= 2 and output == ""
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_real_process_reports_errors_the_same_way() -> None:
    process = start("train", "SafetyHoperVelocity-v1")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and output == ""
    assert errors == (
        "cspo: error: there is no task 'SafetyHoperVelocity-v1': did you mean "
        "'SafetyHopperVelocity-v1'?\n"
    )


def test_train_to_a_file(tmp_path: Path) -> None:
    process = start("train", TASK, *FAST, "--algo", "ppo", cwd=tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    # Where nothing was compiled yet, that is said too.
    (said,) = (line for line in errors.splitlines() if "compiling" not in line)
    assert said.startswith("cspo: an episode lasts up to 1000 steps")
    assert "2/2" in output and "\x1b" not in output and "finished" in output
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {f"{TASK}-ppo-seed3"}


def test_closed_pipe_is_no_error() -> None:
    process = start("tasks", stdin=subprocess.DEVNULL)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as `head` does when it has seen enough
    assert "Traceback" not in process.stderr.read() and process.wait() in (0, 1)


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    names = [row["name"] for row in json.loads(capsys.readouterr().out)]
    assert TASK in names
    assert main(["tasks"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in names)
    assert main(["algos", "--json"]) == 0
    assert {"cspo", "ppo", "ppo-lag"} <= {
        row["name"] for row in json.loads(capsys.readouterr().out)
    }
    assert main(["algos"]) == 0
    assert "ppo-lag" in capsys.readouterr().out


def test_tasks_are_found_by_parts_of_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*words: str) -> list[str]:
        assert main(["tasks", *words, "--json"]) == 0
        return [row["name"] for row in json.loads(capsys.readouterr().out)]

    assert len(listed()) == 65 + 12 and len(listed("racecar")) == 13
    assert listed("PUSH", "2") == [
        f"Safety{robot}Push2-v0" for robot in ("Point", "Car", "Racecar", "Ant", "Doggo")
    ]
    assert listed("velocity", "v1", "hop") == ["SafetyHopperVelocity-v1"]
    assert main(["tasks", "doggo", "run"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["task", "obs", "act", "steps", "limit"]
    assert row.split()[:6] == ["SafetyDoggoRun0-v0", "56", "12", "500", "25", "out_of_boundary"]
    assert main(["tasks", "racecr", "pussh"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "no task has 'racecr' and 'pussh' in its name" in said
    assert "nearest are SafetyRacecarPush0-v0" in said


def test_rows_of_tasks_do_not_wrap_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = os.terminal_size((60, 24))
    monkeypatch.setattr("sys.stdout", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("shutil.get_terminal_size", lambda: narrow)
    lines = lists._task_table(native_tasks()).splitlines()
    # A head, and a line between the robots and the two versions of the velocity tasks.
    assert len(lines) == 1 + 65 + 12 + 6 and max(map(len, lines)) == 60


def test_eval_and_plot(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "4", "--seed", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in rows] == ["stochastic", "deterministic"]
    assert all(row["episodes"] == 4 and len(row["cost"]) == 1 for row in rows)
    assert main(["eval", str(run), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["episode_return"]["low"] is None
    assert main(["eval", str(run), "--episodes", "4"]) == 0
    assert "deterministic, 4 episodes" in capsys.readouterr().out
    (run / "curve.png").unlink()
    assert main(["plot", str(run)]) == 0
    assert (
        capsys.readouterr().out.strip() == str(run / "curve.png") and (run / "curve.png").exists()
    )


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "bench",
                "env",
                TASK,
                "--num-envs",
                "2",
                "--threads",
                "1",
                "--seconds",
                "0.1",
                "--json",
            ]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert set(result) >= {
        "task",
        "num_envs",
        "threads",
        "stepper",
        "steps_per_s",
        "raw_steps_per_s",
        "ratio",
    }
    assert main(["bench"]) == 0


def test_bench_train_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from cspo.lab.bench import EpochTimes, _common_speed, bench_train

    small = {
        "num_envs": 4,
        "steps_per_epoch": 400,
        "passes": 2,
        "hidden_sizes": (16, 16),
        "tensorboard": False,
    }
    result = bench_train(TASK, epochs=2, threads=1, **small)
    assert set(result) >= {
        "task",
        "algo",
        "threads",
        "runs",
        "steps_per_s",
        "rollout_s",
        "update_s",
        "epoch_s",
    }
    assert (
        result["physics_s"] < result["rollout_s"] < result["epoch_s"]
        and 0.0 < result["other_share"] < 1.0
    )
    assert result["steps_per_s"] == pytest.approx(400 / result["epoch_s"])
    # Two runs of 2 s epochs, one of them a second later: both run together from 1 to 4.
    first = [EpochTimes(2.0, 2.0, 0, 0, 0), EpochTimes(4.0, 2.0, 0, 0, 0)]
    second = [EpochTimes(3.0, 2.0, 0, 0, 0), EpochTimes(5.0, 2.0, 0, 0, 0)]
    assert _common_speed([first, second], 100) == pytest.approx(100.0)


def test_parity_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from types import SimpleNamespace

    import cspo.envs.tools.parity

    for ok, code in ((True, 0), (False, 1)):
        report = SimpleNamespace(ok=ok, to_dict=lambda: {"fields": []})
        monkeypatch.setattr(cspo.envs.tools.parity, "replay", lambda path, report=report: report)
        assert main(["parity", "a.npz", "b.npz", "--json"]) == code
        assert json.loads(capsys.readouterr().out) == [{"fields": []}] * 2


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import cspo.commands.doctor

    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["healthy"] and findings["machine"]["stepper"] in ("compiled", "python")
    assert re.search(r"compile.*; [\d.]+ MB in .*numba", findings["machine"]["kernels"])
    assert {"python", "cspo", "scipy", "mujoco", "gymnasium", "numpy", "numba"} == set(
        findings["versions"]
    )

    monkeypatch.setattr(cspo.commands.doctor, "_train_and_reload", lambda: 1 / 0)
    monkeypatch.setattr(cspo.commands.doctor, "_step_task", lambda: "fine")
    assert main(["doctor"]) == 1
    output = capsys.readouterr().out
    assert "FAILED  training: ZeroDivisionError" in output and "Something is wrong" in output
    assert (
        not cspo.commands.doctor._mujoco_version("3.5.0")[0]
        and not cspo.commands.doctor._mujoco_version("2.3.3")[0]
    )
    assert (
        cspo.commands.doctor._mujoco_version("3.2.7")[0]
        and cspo.commands.doctor._mujoco_version("3.4.1")[0]
    )


def test_two_cost_limits_on_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [
        "train",
        "run_helpers:TwoCosts",
        "--cost-limit",
        "25,5",
        "--alpha",
        "0.3,0.5",
        "--run-dir",
        str(run),
    ]
    assert main([*words, "--quiet", *FAST]) == 0
    assert np.allclose(cspo.load(run).cost_limit, [25.0, 5.0])


def test_sizes_of_a_file_and_of_flags_are_compared_together(tmp_path: Path) -> None:
    file = tmp_path / "short.toml"
    file.write_text('task = "SafetyHopperVelocity-v1"\ntotal_steps = 400\n')
    words = ["--config", str(file), "--steps-per-epoch", "200", "--num-envs", "4"]
    config, _, _ = read_arguments(words)
    assert (config.total_steps, config.steps_per_epoch, config.num_envs) == (400, 200, 4)
