"""`cost_terms` and `env_options`: from every door to the environment and the run folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from run_helpers import SMALL, NamedCosts, as_flags, assert_same_run

import cspo
from cspo.cli import main
from cspo.commands.train import read_arguments
from cspo.config import from_dict, make_config, to_dict
from cspo.envs import make_batch
from cspo.errors import CspoError
from cspo.runs.folder import load_config
from cspo.settings import parse_text, written

TASK, BUTTON = "run_helpers:NamedCosts", "SafetyPointButton1-v0"
OPTIONS: dict[str, Any] = {"scale": 0.5, "shape": "ring", "weights": [1.0, 2.0]}
TYPED = 'scale=0.5,shape="ring",weights=[1.0, 2.0]'
TERMS = ("heat", "noise")
FAST = {**SMALL, "total_steps": 800, "cost_limit": (9.0, 4.0)}


def test_command_line_file_and_python_agree(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        tomli_w.dumps({"cost_terms": list(TERMS), "cost_limit": [9, 4], "env_options": OPTIONS})
    )
    python = make_config(
        TASK, cost_terms=TERMS, cost_limit=(9, 4), env_options={**OPTIONS, "weights": (1.0, 2.0)}
    )
    flags = ["--cost-terms", "heat,noise", "--cost-limit", "9,4", "--env-options", TYPED]
    assert python == make_config(TASK, file=file)
    assert python == read_arguments([TASK, *flags])[0]
    assert python == read_arguments([TASK, "--config", str(file)])[0]
    assert python == from_dict(to_dict(python))
    assert python.env_options == OPTIONS and python.cost_terms == TERMS
    assert hash(python) == hash(from_dict(to_dict(python)))
    assert parse_text(written(OPTIONS), dict[str, Any], "env_options") == OPTIONS
    assert "[env_options]" in tomli_w.dumps(to_dict(python))


def test_what_a_flag_gives_replaces_what_the_file_gave(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps({"cost_terms": ["heat"], "env_options": OPTIONS}))
    config = read_arguments(
        [TASK, "--config", str(file), "--env-options", "scale=2", "--cost-terms", "none"]
    )[0]
    assert config.env_options == {"scale": 2} and config.cost_terms == ()
    assert (
        read_arguments([TASK, "--config", str(file), "--env-options", "none"])[0].env_options == {}
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"env_options": 3}, "env_options = 3 is not a table"),
        ({"env_options": {1: 2}}, "is not a table of names and values"),
        (
            {"env_options": {"a": None}},
            "env_options.a = None cannot be kept in a run's config.toml",
        ),
        ({"env_options": {"a": {"b": [object]}}}, "env_options.a.b = <class 'object'>"),
        ({"cost_terms": 3}, "cost_terms = 3 is not text"),
        ({"env_option": {}}, "did you mean 'env_options'"),
        ({"cost_term": ("a",)}, "did you mean 'cost_terms'"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(CspoError) as refused:
        make_config(TASK, **settings)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--env-options", "shape=ring"],
            "--env-options shape=ring: write key=value,key=value with text in quotes",
        ),
        (
            ["--env-options", "sclae=2"],
            "run_helpers:NamedCosts has no option 'sclae': did you mean 'scale'?",
        ),
        (
            ["--cost-terms", "heat,nosie"],
            "gives no info['cost_nosie'] in a step: did you mean 'noise'?",
        ),
        (
            ["--cost-terms", "heat,noise"],
            "has 2 cost(s) (heat, noise), but --cost-limit gives 1 value(s)",
        ),
        (["--cost-terms"], "--cost-terms"),
    ],
)
def test_wrong_words_are_one_plain_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", TASK, *words]) == 2
    output, errors = capsys.readouterr()
    assert said in errors and len(errors.splitlines()) == 1 and output == ""
    assert not any((tmp_path / "runs").glob("*"))


def test_a_native_task_is_checked_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", BUTTON, "--cost-terms", "hazard,gremlins", "--cost-limit", "25,5"]) == 2
    assert (
        "has no cost term 'hazard': it has buttons, gremlins, hazards." in capsys.readouterr().err
    )
    assert main(["train", BUTTON, "--env-options", "button_timer=3"]) == 2
    assert (
        "has no option 'button_timer': did you mean 'button_timer_after_reset'?"
        in capsys.readouterr().err
    )
    with pytest.raises(CspoError, match="has no cost term"):
        make_config(BUTTON, cost_terms=("vases",))


@pytest.mark.parametrize("algo", ["cspo", "ppo-lag"])
def test_named_terms_are_constraints(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = tmp_path / "run", tmp_path / "resumed"
    words = [
        "train",
        TASK,
        "--algo",
        algo,
        "--cost-terms",
        "heat,noise",
        "--env-options",
        TYPED,
        *as_flags(FAST),
    ]
    assert main([*words, "--run-dir", str(run)]) == 0
    output = capsys.readouterr().out
    assert "cost heat" in output and "cost noise" in output
    assert load_config(run).env_options == OPTIONS and load_config(run).cost_terms == TERMS
    summary = json.loads((run / "summary.json").read_text())
    assert summary["cost_names"] == list(TERMS) and len(summary["cost"]) == 2
    assert summary["cost"][0] == pytest.approx(20 * 0.5)  # 20 steps of weight 1 times scale 0.5
    noise = 40 * summary["cost"][1]  # of all 40 episodes: a whole number of steps of weight 2
    assert noise > 0 and noise / 2 == pytest.approx(round(noise / 2), abs=1e-6)

    trainer = cspo.Trainer(make_config(file=run / "config.toml"), run_dir=other)
    next(iter(trainer))
    trainer.run.close()
    assert cspo.resume(other, quiet=True).parameter_hash == summary["parameter_hash"]
    assert_same_run(other, run)
    if algo == "cspo":
        assert main(["eval", str(run), "--episodes", "3"]) == 0
        output = capsys.readouterr().out
        assert output.count("cost heat   10.00") == 2 and output.count("limit 4") == 2
        assert cspo.evaluate(run, 2)[0].cost_names == TERMS
        assert main(["plot", str(run)]) == 0
        (run / "summary.json").unlink()  # a run under way has none: numbers instead of names
        assert main(["plot", str(run)]) == 0


def test_bench_takes_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cspo.lab.bench import bench_train

    small = {key: value for key, value in FAST.items() if key != "total_steps"}
    result = bench_train(TASK, epochs=1, cost_terms=TERMS, env_options=OPTIONS, **small)
    assert result["steps_per_s"] > 0
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        "cspo.lab.bench.bench_train", lambda **settings: seen.update(settings) or {}
    )
    words = [
        "bench",
        "train",
        TASK,
        "--cost-terms",
        "heat,noise",
        "--cost-limit",
        "9,4",
        "--env-options",
        TYPED,
    ]
    assert main([*words, "--runs", "2"]) == 0
    assert (seen["task"], seen["runs"], seen["cost_limit"]) == (TASK, 2, (9.0, 4.0))
    assert seen["cost_terms"] == TERMS and seen["env_options"] == OPTIONS and "json" not in seen


def test_options_reach_whatever_makes_the_environment() -> None:
    for env in (TASK, NamedCosts, lambda **options: NamedCosts(**options)):
        batch = make_batch(env, 2, cost_terms=TERMS, env_options=OPTIONS)
        batch.reset(seed=0)
        cost = batch.step(np.zeros((2, 1))).cost
        assert batch.cost_names == TERMS and cost[0, 0] == 0.5 and cost[0, 1] in (0.0, 2.0)
    pendulum = make_batch(
        "Pendulum-v1", 1, cost_fn=lambda *_: 0.0, env_options={"g": 5.0, "max_episode_steps": 30}
    )
    assert pendulum.envs[0].unwrapped.g == 5.0 and pendulum.time_limit == 30
    with pytest.raises(
        CspoError, match="Gymnasium cannot make Pendulum-v1 with the options gravity"
    ):
        make_batch("Pendulum-v1", 1, cost_fn=lambda *_: 0.0, env_options={"gravity": 5.0})
    with pytest.raises(CspoError, match="has no option 'a': it has none"):
        make_batch(lambda: NamedCosts(), 1, env_options={"a": 5.0})
    with pytest.raises(CspoError, match="env_options given: missing a required argument: 'scale'"):
        make_batch(lambda scale: NamedCosts(scale), 1)
    for ready in (NamedCosts(), make_batch("SafetyHopperVelocity-v1", 1)):
        with pytest.raises(CspoError, match="not for an object"):
            make_batch(ready, 1, env_options={"scale": 5.0})


def test_terms_of_an_environment_object_and_of_a_batch() -> None:
    batch = make_batch(NamedCosts(), 1, cost_terms=("noise",))
    assert batch.cost_names == ("noise",)
    assert make_batch(batch, 1, cost_terms=("noise",)) is batch
    with pytest.raises(CspoError, match="gives the costs noise, not heat"):
        make_batch(batch, 1, cost_terms=("heat",))
    with pytest.raises(CspoError, match="cost_fn and cost_terms both"):
        make_batch(NamedCosts(), 1, cost_fn=lambda *_: 0.0, cost_terms=("heat",))
    with pytest.raises(
        CspoError, match=r"gives no info\['cost_heat'\] in a step: no name in it starts with cost_"
    ):
        make_batch("run_helpers:make_tiny", 1, cost_terms=("heat",))


def test_check_env_tries_terms_and_options() -> None:
    assert cspo.check_env(TASK, cost_terms=TERMS, env_options=OPTIONS) == []
    (problem,) = cspo.check_env(NamedCosts(), cost_terms=("heat", "dust"))
    assert problem.startswith("It gives no info['cost_dust'] in a step")
    assert any(
        "negative" in one
        for one in cspo.check_env(TASK, cost_terms=TERMS, env_options={"scale": -1.0})
    )
    (problem,) = cspo.check_env(TASK, env_options={"size": 1})
    assert "has no option 'size'" in problem
    (problem,) = cspo.check_env("SafetySwimmerVelocity-v1", cost_terms=("speed",))
    assert "has no cost term 'speed': it has velocity" in problem


def test_a_native_task_in_disguise_resumes_exactly(tmp_path: Path) -> None:
    """Through Gymnasium the random stream is the simulator's own; a checkpoint keeps it too."""
    env = "run_helpers:make_hopper"
    settings = {**SMALL, "num_envs": 2, "total_steps": 1200, "cost_limit": (25.0,)}
    summary = cspo.train(env, run_dir=tmp_path / "whole", quiet=True, **settings)
    trainer = cspo.Trainer(make_config(env, **settings), run_dir=tmp_path / "parts")
    next(iter(trainer))
    trainer.run.close()
    assert cspo.resume(tmp_path / "parts", quiet=True).parameter_hash == summary.parameter_hash
    assert dataclasses.replace(summary, run_dir=Path()).cost_names == ("velocity",)


@pytest.mark.parametrize("algo", ["cspo", "ppo-lag"])
def test_terms_of_a_native_task_are_constraints(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [
        "train",
        BUTTON,
        "--algo",
        algo,
        "--cost-terms",
        "hazards,gremlins",
        "--cost-limit",
        "25,5",
    ]
    options = ["--env-options", "button_timer_after_reset=10,time_limit=50"]
    assert (
        main([*words, *options, *as_flags({**SMALL, "total_steps": 800}), "--run-dir", str(run)])
        == 0
    )
    assert "cost hazards" in capsys.readouterr().out
    summary = json.loads((run / "summary.json").read_text())
    assert summary["cost_names"] == ["hazards", "gremlins"] and summary["cost_limit"] == [25.0, 5.0]
    assert summary["episode_length"] == 50.0
    assert cspo.resume(run, total_steps=1200, quiet=True).epochs == 3
    assert cspo.evaluate(run, 2)[0].episode_length == 50.0
