"""A study file becomes a list of runs, or a list of everything that is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from cspo.algorithms import registry
from cspo.cli import main
from cspo.config import make_config
from cspo.errors import CspoError
from cspo.lab.study import StudyProblems, read_study, shipped_studies
from cspo.lab.study.speed import STEPS_PER_SECOND, core_hours

GOOD: dict[str, Any] = {
    "name": "good",
    "tasks": ["SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"],
    "algorithms": ["cspo", "ppo-lag"],
    "seeds": [3, 1],
    "total_steps": 100_000,
}


def write(folder: Path, data: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Write the good study with changes; None takes a key away."""
    merged = (GOOD if data is None else data) | changes
    file = folder / "study.toml"
    file.write_text(
        tomli_w.dumps({key: value for key, value in merged.items() if value is not None})
    )
    return file


def problems_of(folder: Path, **changes: Any) -> list[str]:
    file = write(folder, **changes)
    with pytest.raises(StudyProblems) as refused:
        read_study(file, environments=True)
    assert str(refused.value).splitlines() == refused.value.problems, "one line each"
    return [problem.removeprefix(f"{file}: ") for problem in refused.value.problems]


def test_the_grid_is_every_task_with_every_algorithm_and_seed(tmp_path: Path) -> None:
    study = read_study(write(tmp_path))
    assert [spec.id for spec in study.runs] == [
        f"{task}-{algo}-seed{seed}"
        for seed in (3, 1)
        for task in GOOD["tasks"]
        for algo in GOOD["algorithms"]
    ], "seed by seed"
    assert (
        study.retries == 2
        and study.name == "good"
        and study.text == (tmp_path / "study.toml").read_text()
    )
    spec = study.runs[0]
    assert (spec.task, spec.algo, spec.variant, spec.seed) == (
        "SafetyHopperVelocity-v1",
        "cspo",
        "",
        3,
    )
    alone = make_config("SafetyHopperVelocity-v1", "cspo", total_steps=100_000, seed=3, threads=1)
    assert spec.config == alone, "what `cspo train` would train with, on one thread"


def test_a_count_of_seeds(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, seeds=3, tasks=GOOD["tasks"][:1]))
    assert [spec.seed for spec in study.runs] == [0, 0, 1, 1, 2, 2]


def test_layers_of_settings_lie_over_each_other(tmp_path: Path) -> None:
    """preset < [settings] < [algorithm.X] < [task.Y] < variant."""
    hopper, goal = GOOD["tasks"]
    study = read_study(
        write(
            tmp_path,
            settings={"gamma": 0.9, "passes": 1, "actor_lr": 1e-3, "critic_lr": 1e-4, "threads": 2},
            algorithm={"cspo": {"passes": 2, "actor_lr": 2e-3, "critic_lr": 2e-4, "alpha": 0.2}},
            task={goal: {"actor_lr": 3e-3, "critic_lr": 3e-4}},
            variants=[
                {
                    "name": "v",
                    "algorithms": ["cspo"],
                    "settings": {"critic_lr": 4e-4, "algorithm": {"clip": 0.1}},
                }
            ],
            seeds=1,
        )
    )
    found = {(s.task, s.algo): s.config for s in study.runs}
    full = found[goal, "cspo"]
    assert (full.gamma, full.passes, full.actor_lr, full.critic_lr, full.threads) == (
        0.9,
        2,
        3e-3,
        4e-4,
        2,
    )
    assert (full.algorithm.alpha, full.algorithm.clip) == ((0.2,), 0.1)
    assert found[hopper, "cspo"].actor_lr == 2e-3 and found[hopper, "cspo"].critic_lr == 4e-4
    plain = found[hopper, "ppo-lag"]
    assert (plain.passes, plain.actor_lr, plain.critic_lr, plain.algorithm.clip) == (
        1,
        1e-3,
        1e-4,
        0.2,
    )


def test_variants_name_runs_and_an_algorithm_without_one_is_run_once(tmp_path: Path) -> None:
    variants = [
        {"name": f"alpha-{a}", "algorithms": ["cspo"], "settings": {"alpha": [a]}}
        for a in (0.1, 1.0)
    ]
    study = read_study(write(tmp_path, variants=variants, tasks=["SafetyPointGoal1-v0"], seeds=[0]))
    assert [(spec.id, spec.variant) for spec in study.runs] == [
        ("SafetyPointGoal1-v0-cspo-alpha-0.1-seed0", "alpha-0.1"),
        ("SafetyPointGoal1-v0-cspo-alpha-1.0-seed0", "alpha-1.0"),
        ("SafetyPointGoal1-v0-ppo-lag-seed0", ""),
    ]
    assert [spec.config.algorithm.alpha for spec in study.runs[:2]] == [(0.1,), (1.0,)]


PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"taks": 1}, "unknown key 'taks': did you mean 'tasks'?"),
    ({"name": None}, "name is missing"),
    ({"tasks": None}, "tasks is missing"),
    ({"algorithms": None}, "algorithms is missing"),
    ({"seeds": None}, "seeds is missing"),
    ({"total_steps": None}, "total_steps is missing"),
    ({"name": "a b"}, "name = 'a b' is not made of letters, digits and dashes"),
    ({"description": 3}, "description = 3 is not text"),
    ({"tasks": []}, "tasks is not a list of at least one name"),
    ({"tasks": "SafetyPointGoal1-v0"}, "tasks is not a list of at least one name"),
    ({"tasks": ["SafetyPointGoal1-v0", 7]}, "tasks: 7 is not a name"),
    (
        {"tasks": ["SafetyPontGoal1-v0", "SafetyCarGoal1-v0"]},
        "there is no task 'SafetyPontGoal1-v0': did you mean 'SafetyPointGoal1-v0'?",
    ),
    ({"tasks": ["NoSuchThing-v0"]}, "there is no environment 'NoSuchThing-v0'"),
    (
        {"tasks": ["no_such_module:make"]},
        "there is no module 'no_such_module' (asked for by 'no_such_module:make')",
    ),
    (
        {"tasks": ["SafetyPointGoal1-v0"] * 2},
        "tasks: 'SafetyPointGoal1-v0' is named more than once",
    ),
    ({"algorithms": ["cspo", "pp-lag"]}, "unknown algorithm 'pp-lag': did you mean 'ppo-lag'?"),
    ({"algorithms": ["cspo", "cspo"]}, "algorithms: 'cspo' is named more than once"),
    ({"seeds": [0, -1]}, "seeds: -1 is negative"),
    ({"seeds": [0, 1.5]}, "seeds: 1.5 is not a whole number"),
    ({"seeds": [True]}, "seeds: True is not a whole number"),
    ({"seeds": [1, 1]}, "seeds: 1 is named more than once"),
    ({"seeds": 0}, "seeds = 0: a count of seeds is at least 1"),
    ({"seeds": []}, "seeds is neither a count nor a list of whole numbers"),
    ({"seeds": "0-4"}, "seeds is neither a count nor a list of whole numbers"),
    ({"total_steps": -1}, "total_steps = -1 is not a positive number"),
    ({"total_steps": "1e6"}, "total_steps = '1e6' is not a positive number"),
    ({"total_steps": 100_000.5}, "total_steps = 100000.5 is not a whole number"),
    (
        {"total_steps": 400},
        "total_steps: --total-steps 400 is less than one epoch of --steps-per-epoch 20000.",
    ),
    ({"retries": -1}, "retries = -1 is not a whole number of zero or more"),
    ({"plugin": "missing.py"}, "plugin: There is no plugin file "),
    ({"settings": {"gama": 0.9}}, "[settings]: Unknown setting 'gama': did you mean 'gamma'?"),
    (
        {"settings": {"seed": 1}},
        "[settings]: seed is decided by the study, not by a table of settings",
    ),
    ({"settings": {"gamma": "x"}}, "[settings]: Setting gamma = 'x' is not a number."),
    (
        {"settings": {"num_envs": 7}},
        "[settings]: --steps-per-epoch 20000 is not divisible by --num-envs 7",
    ),
    (
        {"settings": {"steps_per_epoch": -400, "num_envs": 30}},
        "[settings]: --steps-per-epoch must be positive",
    ),
    (
        {"settings": {"cost_limit": [25, 5]}},
        "[settings]: --cost-limit gives 2 value(s), but there are 1 cost(s)",
    ),
    (
        {"settings": {"cost_limit": [1, 2, 3], "cost_terms": ["buttons", "gremlins", "hazards"]},
         "tasks": ["SafetyPointButton1-v0"], "algorithms": ["cspo", "cpo"]},
        "[settings]: CPO is defined for one cost limit, not 3; "
        "cspo and trpo-pid take several. (for cpo)",
    ),
    ({"settings": 3}, "[settings] is not a table of settings"),
    (
        {"algorithm": {"cspo": {"alpha": -1}}},
        "[algorithm.cspo]: --alpha must be one non-negative value",
    ),
    (
        {"algorithm": {"cpo": {}}},
        "[algorithm.cpo]: the study has no algorithm 'cpo': did you mean 'cspo'?",
    ),
    (
        {"task": {"SafetyCarGoal1-v0": {}}},
        "[task.SafetyCarGoal1-v0]: the study has no task 'SafetyCarGoal1-v0'",
    ),
    ({"variants": [{"settings": {}}]}, "variant 1 has no name"),
    (
        {"variants": [{"name": "a/b"}]},
        "variant 1: name = 'a/b' is not made of letters, digits, dots and dashes",
    ),
    ({"variants": [{"name": "a"}, {"name": "a"}]}, "variants: 'a' is named more than once"),
    (
        {"variants": [{"name": "a", "algorithms": ["cup"]}]},
        "variant 'a': the study has no algorithm 'cup'",
    ),
    (
        {"variants": [{"name": "a", "setting": {}}]},
        "variant 'a': unknown key 'setting': did you mean 'settings'?",
    ),
    (
        {"variants": [{"name": "a", "settings": {"alpha": [0.1]}}]},
        "variant 'a': Unknown setting 'alpha': ",  # ppo-lag has none
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), PROBLEMS, ids=[line[:40] for _, line in PROBLEMS])
def test_one_problem_gives_one_line(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    (problem,) = problems_of(tmp_path, **changes)
    assert problem.startswith(expected)


def test_two_runs_of_the_same_name_are_refused(tmp_path: Path) -> None:
    variants = [{"name": "x", "algorithms": ["cspo"]}, {"name": "x-seed1", "algorithms": ["cspo"]}]
    assert read_study(write(tmp_path, variants=variants))
    made = tmp_path / "made_for_ids.py"
    made.write_text("def thing(): ...\n")
    file = write(tmp_path, tasks=["a/b:c", "a-b-c"], algorithms=["cspo"], seeds=[0])
    with pytest.raises(StudyProblems, match=r"two runs would be called 'a-b-c-cspo-seed0'"):
        read_study(file)


def test_twenty_problems_are_twenty_lines_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(
        tmp_path,
        name="no name",
        descripton="x",
        tasks=["SafetyHoperVelocity-v1", "SafetyHopperVelocity-v1", "SafetyHopperVelocity-v1", 3],
        algorithms=["cspo", "pp-lag", "ppo-lag", "cspo"],
        seeds=[0, -1, 2.5, 0],
        total_steps=0,
        retries=-1,
        settings={"gama": 0.9, "cost_limit": -3, "seed": 4, "num_envs": 30},
        algorithm={"cpo": {}},
        task={"Foo": {}},
        variants=[
            {"name": "a", "algorithms": ["cspoo"]},
            {"name": "b", "setings": 3, "settings": {"clip": -1}},
        ],
    )
    assert main(["study", "run", str(file), "--out", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) == 21
    assert all(line.startswith(f"cspo: error: {file}: ") for line in lines)
    assert not (tmp_path / "out").exists()


def test_what_is_not_toml_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('name = "cut')
    with pytest.raises(StudyProblems, match="this is not valid TOML"):
        read_study(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StudyProblems, match="this is not valid TOML"):
        read_study(file)
    with pytest.raises(CspoError, match="Cannot read study file"):
        read_study(tmp_path / "none.toml")
    with pytest.raises(CspoError, match="did you mean 'paper-main'"):
        read_study("paper-mian")


def test_a_plugin_is_found_beside_the_study_and_from_the_study_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.algorithm_names()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    lines = [
        "import cspo",
        "from cspo.algorithms.ppo import PPO",
        '@cspo.register("mine")',
        "class Mine(PPO): ...",
    ]
    (tmp_path / "my_algorithm.py").write_text("\n".join(lines) + "\n")
    file = write(tmp_path, algorithms=["mine"], plugin="my_algorithm.py")
    study = read_study(file)
    assert {spec.config.plugin for spec in study.runs} == {str(tmp_path / "my_algorithm.py")}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "study.toml").write_text(study.text)
    assert read_study(elsewhere / "study.toml").runs == study.runs


def test_shipped_studies_are_complete_and_come_in_two_sizes() -> None:
    names = shipped_studies()
    full = {
        "paper-main",
        "alpha",
        "cost-limit",
        "lambda-init",
        "lambda-lr",
        "sensitivity-split",
    }
    assert set(names) == full | {f"{name}-small" for name in full}
    studies = {name: read_study(name) for name in names}
    assert all(study.name == name and study.description for name, study in studies.items())
    main_table = studies["paper-main"]
    assert len(main_table.runs) == 9 * 12 * 5 and main_table.steps == 540 * 10_000_000
    assert {spec.task for spec in main_table.runs} == set(STEPS_PER_SECOND)
    for name in full:
        assert 3600 * core_hours(studies[f"{name}-small"]) / 2 < 240, "minutes on two cores"
        assert {spec.variant for spec in studies[name].runs} == {
            spec.variant for spec in studies[f"{name}-small"].runs
        }
        for spec in studies[f"{name}-small"].runs:
            assert spec.config.epochs >= 25
            assert spec.config.steps_per_epoch // spec.config.num_envs == 1000, (
                "episodes fit into an epoch"
            )
    changed = make_config(
        "SafetyPointGoal1-v0", "cspo", total_steps=10_000_000, threads=1, alpha=(0.5,)
    )
    assert changed in [spec.config for spec in studies["alpha"].runs]
    for name in ("lambda-init", "lambda-lr"):  # only the paper's form has a multiplier that ascends
        for study in (studies[name], studies[f"{name}-small"]):
            forms = {getattr(spec.config.algorithm, "form", None) for spec in study.runs}
            assert forms == {"paper", None}, "None is PPO-Lag"


def test_core_hours_are_steps_over_speed() -> None:
    study = read_study("sensitivity-split")
    by_hand = 5 * 10_000_000 * (1 / 4_450 + 1 / 2_950 + 1 / 14_300) / 3600
    assert core_hours(study) == pytest.approx(by_hand)


def test_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == shipped_studies()
    assert main(["study", "list"]) == 0
    out = capsys.readouterr().out
    assert "paper-main " in out and "  540   5,400 M" in out
    assert main(["study"]) == 0 and "status" in capsys.readouterr().out
    assert main(["study", "runn"]) == 2


def test_reading_a_study_does_not_load_torch() -> None:
    reading = "import sys; from cspo.lab.study import read_study; read_study('paper-main')"
    code = f"{reading}; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
