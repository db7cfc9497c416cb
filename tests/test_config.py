"""The same settings from the command line, a file and Python; every refusal has a reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from cspo.commands.options import option_names
from cspo.commands.train import options_class, read_arguments
from cspo.config import FREE, TrainConfig, from_dict, general_fields, make_config, preset, to_dict
from cspo.errors import CspoError, flag
from cspo.runs.folder import RunFolder, load_config
from cspo.settings import explanations, parse_text

TASK = "SafetyHopperVelocity-v1"
CHANGES: dict[str, Any] = {
    "cost_limit": (20.0,),
    "total_steps": 1_000_000,
    "hidden_sizes": (32, 16),
    "kl_check": "minibatch",
    "actor_lr_decay": False,
    "cost_gamma": 0.95,
    "target_kl": math.inf,
    "margin": "off",
    "violation_rate": 0.05,
    "form": "paper",
    "alpha": (0.25,),
    "weight_max": 10.0,
}


def in_words(config_of: list[str]) -> TrainConfig:
    return read_arguments(config_of)[0]


def test_command_line_file_and_python_give_the_same_settings(tmp_path: Path) -> None:
    own = {name: CHANGES[name] for name in ("form", "alpha", "weight_max")}
    general = {name: value for name, value in CHANGES.items() if name not in own}
    file = tmp_path / "settings.toml"
    listed = {k: list(v) if isinstance(v, tuple) else v for k, v in general.items()}
    file.write_text(tomli_w.dumps({**listed, "algorithm": {**own, "alpha": [0.25]}}))
    words = (
        "--cost-limit 20 --total-steps 1e6 --hidden-sizes 32,16 --kl-check minibatch "
        "--no-actor-lr-decay --cost-gamma 0.95 --target-kl inf --margin off --violation-rate 0.05 "
        "--form paper --alpha 0.25 --weight-max 10"
    )
    python = make_config(TASK, **CHANGES)
    assert python == make_config(TASK, file=file)
    assert python == in_words([TASK, *words.split()])
    assert python == in_words([TASK, "--config", str(file)])
    assert python == in_words([*words.replace(" --", " --").split(), TASK])
    assert python.algorithm.form == "paper" and python.epochs == 50


def test_priority_is_preset_then_file_then_flag(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        f'task = "{TASK}"\nalgo = "cspo"\nseed = 7\ngamma = 0.9\n'
        '[algorithm]\nform = "paper"\nclip = 0.1\n'
    )
    config = in_words(["--config", str(file), "--gamma", "0.8"])
    assert (config.task, config.seed, config.gamma, config.algorithm.clip) == (TASK, 7, 0.8, 0.1)
    assert list(config.algorithm.alpha) == preset("cspo", TASK, "paper")["algorithm"]["alpha"]
    assert in_words(["--config", str(file), "--clip", "0.3"]).algorithm.clip == 0.3
    assert in_words(["--config", str(file), "--alpha", "0.4"]).algorithm.alpha == (0.4,)


@pytest.mark.parametrize("task", [TASK, "SafetyPointGoal1-v0", "SomebodyElse-v0"])
def test_preset_is_that_of_the_form_wherever_the_form_is_named(tmp_path: Path, task: str) -> None:
    own = {"SafetyPointGoal1-v0": (0.3,)}.get(task, (0.85,))  # the paper's, per family
    file = tmp_path / "paper.toml"
    file.write_text('[algorithm]\nform = "paper"\n')
    named = make_config(task, form="paper")
    assert named.algorithm.alpha == own
    assert make_config(task, file=file) == named
    assert make_config(task, algorithm={"form": "paper"}) == named
    default = make_config(task)
    assert default.algorithm.alpha == (1.0,)
    assert make_config(task, form="price") == make_config(task, file=file, form="price") == default
    if task != "SomebodyElse-v0":  # unknown tasks are refused on the command line
        assert in_words([task, "--form", "paper"]) == in_words([task, "--form=paper"]) == named
        assert in_words([task, "--config", str(file)]) == named
        assert in_words([task, "--config", str(file), "--form", "price"]) == default


def test_presets_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cspo.config.preset", lambda algo, task, form: {"seed": 5, "algorithm": {"clip": 0.15}}
    )
    config = make_config(TASK)
    assert config.seed == 5 and config.algorithm.clip == 0.15
    assert in_words([TASK]) == config
    assert make_config(TASK, clip=0.2).algorithm.clip == 0.2


def test_every_preset_is_valid() -> None:
    from cspo.algorithms import algorithm_names
    from cspo.envs import native_tasks

    for algo in algorithm_names():
        for task in native_tasks():
            make_config(task.name, algo)
            if algo == "cspo":
                make_config(task.name, algo, form="paper")


def test_settings_survive_a_run_folder(tmp_path: Path) -> None:
    config = make_config(TASK, **CHANGES)
    RunFolder.create(tmp_path / "run", config).close()
    assert load_config(tmp_path / "run") == config
    assert from_dict(to_dict(config)) == config
    assert (
        make_config(file=tmp_path / "run" / "config.toml") == config
    )  # a run's settings, used for a new one


def test_every_setting_has_a_flag_and_an_explanation() -> None:
    flags = option_names(options_class("ppo"))
    for group, item in general_fields():
        owner = TrainConfig if group is None else type(getattr(make_config(TASK), group))
        assert explanations(owner)[item.name], item.name
        assert item.name == "task" or flag(item.name) in flags


def test_settings_of_a_group_are_read_from_the_config_too() -> None:
    config = make_config(TASK, gamma=0.9, passes=3)
    assert (config.gamma, config.advantages.gamma, config.passes) == (0.9, 0.9, 3)
    assert config.epochs == config.run.epochs == 500
    with pytest.raises(AttributeError, match="no attribute 'gama'"):
        _ = config.gama


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("1e6", int, 1_000_000),
        ("1_000_000", int, 1_000_000),
        ("12345678901234567", int, 12345678901234567),
        ("25,5", tuple[float, ...], (25.0, 5.0)),
        ("64", tuple[int, ...], (64,)),
        ("none", float | None, None),
        ("inf", float, math.inf),
    ],
)
def test_text_on_the_command_line(text: str, hint: Any, value: Any) -> None:
    read = parse_text(text, hint, "name")
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"totl_steps": 5}, "Unknown setting 'totl_steps': did you mean 'total_steps'"),
        ({"alhpa": 0.5}, "did you mean 'alpha'"),
        ({"algorithm": {"alhpa": 0.5}}, "Unknown setting 'algorithm.alhpa': did you mean 'alpha'"),
        ({"algorithm": "cspo"}, "is not a table"),
        ({"seed": "one"}, "Setting seed = 'one' is not a whole number"),
        ({"seed": 1.5}, "is not a whole number"),
        ({"seed": True}, "is not a whole number"),
        ({"gamma": "high"}, "is not a number"),
        ({"tensorboard": 1}, "is not true or false"),
        ({"kl_check": "passes"}, "did you mean 'pass'"),
        ({"cost_limit": (-1.0,)}, "--cost-limit must be zero or more and finite, not -1"),
        ({"cost_limit": ()}, "--cost-limit"),
        ({"cost_limit": math.nan}, "--cost-limit"),
        ({"total_steps": 0}, "--total-steps must be positive"),
        ({"total_steps": 100}, "less than one epoch"),
        ({"steps_per_epoch": 333, "num_envs": 2}, "not divisible by --num-envs 2"),
        ({"num_envs": 0}, "--num-envs must be positive"),
        ({"passes": 0}, "--passes must be positive"),
        ({"minibatch_size": -1}, "--minibatch-size must be positive"),
        ({"episode_window": 0}, "--episode-window must be positive"),
        ({"checkpoint_every": 0}, "--checkpoint-every must be positive"),
        ({"keep_checkpoints": 0}, "--keep-checkpoints must be positive"),
        ({"actor_lr": 0.0}, "--actor-lr must be positive"),
        ({"critic_lr": math.inf}, "--critic-lr must be positive"),
        ({"target_kl": 0.0}, "--target-kl must be positive"),
        ({"target_kl": math.nan}, "--target-kl must be positive"),
        ({"max_grad_norm": 0.0}, "--max-grad-norm must be positive"),
        ({"observation_clip": 0.0}, "--observation-clip must be positive"),
        ({"observation_std_floor": 0.0}, "--observation-std-floor must be positive"),
        ({"log_std_init": math.nan}, "--log-std-init must be a finite number"),
        ({"seed": -1}, "--seed must not be negative"),
        ({"threads": -1}, "--threads must not be negative"),
        ({"critic_l2": -0.1}, "--critic-l2 must not be negative"),
        ({"entropy_coefficient": -0.1}, "--entropy-coefficient must not be negative"),
        ({"gamma": 1.5}, "--gamma must be between 0 and 1"),
        ({"gae_lambda": -0.1}, "--gae-lambda must be between 0 and 1"),
        ({"cost_gamma": 2.0}, "--cost-gamma must be between 0 and 1"),
        ({"cost_gae_lambda": 2.0}, "--cost-gae-lambda must be between 0 and 1"),
        ({"hidden_sizes": ()}, "--hidden-sizes needs at least one layer"),
        ({"hidden_sizes": (64, 0)}, "--hidden-sizes needs at least one layer"),
        ({"clip": 0.0}, "--clip must be positive"),
        (
            {"alpha": (0.1, 0.2, 0.3)},
            "--alpha must be one non-negative value or one per cost limit",
        ),
        ({"weight_memory": 1.0}, "--weight-memory"),
        ({"weight_min": 5.0, "weight_max": 1.0}, "--weight-min is above --weight-max"),
        ({"patience": 0.0}, "--patience must be positive"),
        ({"form": "papr"}, "did you mean 'paper'"),
        ({"margin": "of"}, "did you mean 'off'"),
        ({"violation_rate": 1.5}, "--violation-rate must be between 0 and 1"),
    ],
)
def test_refusals_give_the_reason(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(CspoError) as refused:
        make_config(TASK, **settings)
    assert reason in str(refused.value) and len(str(refused.value).splitlines()) <= 2


def test_settings_without_a_task_or_with_an_unknown_algorithm(tmp_path: Path) -> None:
    with pytest.raises(CspoError, match="name no task"):
        make_config()
    with pytest.raises(CspoError, match="name no task"):
        from_dict({"seed": 1})
    with pytest.raises(CspoError, match="Unknown algorithm 'cspoo': did you mean 'cspo'"):
        make_config(TASK, "cspoo")
    with pytest.raises(CspoError, match="Cannot read settings file"):
        make_config(TASK, file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("seed = = 3")
    with pytest.raises(CspoError, match="is not valid TOML"):
        make_config(TASK, file=tmp_path / "bad.toml")
    (tmp_path / "unknown.toml").write_text("sede = 3")
    with pytest.raises(CspoError, match="did you mean 'seed'"):
        make_config(TASK, file=tmp_path / "unknown.toml")


def test_the_algorithms_settings_may_be_given_as_their_dataclass() -> None:
    @dataclass(frozen=True, slots=True)
    class Given:
        clip: float = 0.15

    assert make_config(TASK, "ppo", algorithm=Given()).algorithm.clip == 0.15
    own = make_config(TASK, "ppo", clip=0.3).algorithm
    assert make_config(TASK, "ppo", algorithm=own).algorithm == own


def test_settings_say_themselves_what_changes_no_result() -> None:
    free = {"threads", "plugin", "checkpoint_every", "keep_checkpoints", "log", "tensorboard"}
    free |= {"workers", "worker_timeout", "restart_workers"}
    assert set(FREE) == free
