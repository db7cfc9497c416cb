"""From first contact to a limit: `cspo check-env`, `cspo probe`, `cspo init`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from broken_envs import Broken, calls, values
from gymnasium import spaces
from probe_envs import ConstantSignals, Probe, ScriptedBatch
from run_helpers import PYTHONPATH, TinyEnv, TwoCosts, start

import cspo
from cspo.cli import main
from cspo.commands import check_env
from cspo.envs.check import examine
from cspo.envs.examination import Tally
from cspo.envs.words import words_of_space
from cspo.lab.distribution import Distribution
from cspo.lab.limits import propose
from cspo.lab.suggest import command, suggest_sizes, suggest_workers

ZOO = [*calls(), *values()]
FAST: dict[str, Any] = {"hidden_sizes": (8,), "passes": 2, "minibatch_size": 256}


class Silent(TinyEnv):
    """Has no cost."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {}


class Chatty(TinyEnv):
    """Prints in the middle of everything."""

    def step(self, action: Any) -> Any:
        print("a step")
        return super().step(action)


class Restless(TinyEnv):
    """Draws from a generator that nobody can save."""

    other = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        return observation + 1e-3 * self.other.random(), info


class Still(gymnasium.Env[Any, Any]):
    """Nothing in it is random, and it knows no generator."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (1,)), spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), 0.0, self.t == 5, False, {"cost": 0.0}


class Sleepy(TinyEnv):
    """Waits for something else."""

    def step(self, action: Any) -> Any:
        time.sleep(2e-3)
        return super().step(action)


class Sum(Probe):
    """Earns a and pays 1 + a in a step, for an action a in [-1, 1]."""

    def outcome(self, a: float) -> tuple[float, Any]:
        return a, 1.0 + a


def make_silent() -> Silent:
    return Silent()


def make_chatty() -> Chatty:
    return Chatty()


def make_sleepy() -> Sleepy:
    return Sleepy()


def make_batch(num_envs: int) -> ScriptedBatch:
    ends = {(t, n): "terminated" for t in range(4, 40_000, 5) for n in range(num_envs)}
    return ScriptedBatch(40_000, num_envs, ends, num_costs=2)


def in_json(words: str, capsys: Any, code: int = 0) -> Any:
    assert main([*words.split(), "--json"]) == code
    return json.loads(capsys.readouterr().out)


# ------------------------------------------------------------------------------------- check-env


def test_a_space_is_told_in_words() -> None:
    box = spaces.Box
    told = {
        "2 numbers from -1 to 1": box(-1.0, 1.0, (2,)),
        "1 number from 0 on": box(0.0, np.inf, (1,)),
        "2 x 3 numbers without bounds": box(-np.inf, np.inf, (2, 3)),
        "1 number up to 3": box(-np.inf, 3.0, ()),
        "2 numbers, each with its own bounds": box(
            np.zeros(2), np.arange(1.0, 3.0), dtype=np.float64
        ),
        "a picture of 8 x 8 x 3 bytes": box(0, 255, (8, 8, 3), np.uint8),
        "one of 4 choices": spaces.Discrete(4),
        "2 choices at once, among 2 and 3": spaces.MultiDiscrete([2, 3]),
        "5 switches, on or off": spaces.MultiBinary(5),
        "a dict with a (one of 2 choices) and b (3 switches, on or off)": spaces.Dict(
            a=spaces.Discrete(2), b=spaces.MultiBinary(3)
        ),
        "a tuple of one of 2 choices": spaces.Tuple([spaces.Discrete(2)]),
        "a Text space": spaces.Text(4),
    }
    assert {words_of_space(space): space for space in told.values()} == told
    many = spaces.Dict({f"part{i}": box(0.0, 1.0, (1,)) for i in range(50)})
    assert len(words_of_space(many)) <= 300


def test_what_is_found_is_what_the_environment_is() -> None:
    found = examine(TwoCosts, steps=600)
    assert found.trainable and found.problems == []
    assert found.observations == "2 numbers without bounds"
    assert found.actions == "1 number from -2 to 1"
    assert (found.cost_source, found.cost_names) == ('info["cost"]', ("cost_0", "cost_1"))
    assert found.seeds_repeat and found.exact_resume
    assert found.tally.steps == 600 and found.tally.lengths == [20] * 30
    assert np.shape(found.tally.costs) == (30, 2)
    found = examine(ConstantSignals(length=7), steps=70)
    assert found.tally.returns == [14.0] * 10 and found.tally.costs == [[7.0]] * 10


@pytest.mark.parametrize(
    ("arguments", "source", "names"),
    [
        ({"cost_fn": lambda *_: 1.0}, "your cost function", ("cost",)),
        ({"cost_terms": ("heat", "noise")}, 'info["cost_heat"], info["cost_noise"]', None),
    ],
)
def test_where_the_cost_was_found_is_told(arguments: Any, source: str, names: Any) -> None:
    from run_helpers import NamedCosts

    found = examine(NamedCosts, steps=100, **arguments)
    assert found.cost_source == source
    assert found.cost_names == (names or ("heat", "noise"))


def test_six_values_are_told_and_so_is_a_whole_batch() -> None:
    class Six(TinyEnv):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, info["cost"], terminated, truncated, {}

    assert examine(Six, steps=100).cost_source == "the third of six values"
    found = examine(make_batch, steps=50)
    assert found.trainable and found.cost_names == ("cost_0", "cost_1")
    assert found.tally.steps == 100 and set(found.tally.lengths) == {5}


def test_randomness_that_cannot_be_saved_is_found_and_none_is_fine() -> None:
    assert examine(Restless, steps=60).exact_resume is False
    assert examine(Still, steps=60).exact_resume is True
    assert examine(TinyEnv, steps=60).exact_resume is True


def test_a_tally_adds_up_each_environment_by_itself() -> None:
    tally = Tally(2)
    for t in range(6):
        tally.add([1.0, 10.0], [[1.0, 0.0], [0.0, 2.0]], [t % 2 == 1, t == 3])
    assert tally.lengths == [2, 2, 4, 2] and tally.returns == [2.0, 2.0, 40.0, 2.0]
    assert np.array(tally.costs).tolist() == [[2, 0], [2, 0], [0, 8], [2, 0]]
    assert tally.steps == 12 and Tally().step_seconds is None


def test_waiting_is_told_from_working() -> None:
    assert examine(Sleepy, steps=40).tally.waits
    assert not examine(TinyEnv, steps=2000).tally.waits


def timed(seconds: float, worked: float) -> Tally:
    tally = Tally()
    tally.steps, tally.seconds, tally.worked = 1000, 1000 * seconds, 1000 * worked
    tally.pauses = 1000 * (worked < seconds)
    return tally


def test_workers_are_for_slow_steps_only() -> None:
    assert suggest_workers(timed(5e-6, 5e-6), 20, 8).count == 0
    assert suggest_workers(timed(1e-2, 1e-5), 20, 8).count == 20  # they wait
    assert suggest_workers(timed(1e-2, 1e-2), 20, 8).count == 8
    assert suggest_workers(timed(1e-2, 1e-2), 4, 8).count == 4
    assert suggest_workers(timed(1e-2, 1e-2), 20, 1).count == 0
    assert suggest_workers(Tally(), 20, 8).count == 0
    crowded = timed(1e-2, 1e-5)
    crowded.pauses = 3  # others had its core
    assert crowded.step_seconds == 1e-5 and suggest_workers(crowded, 20, 8).count == 0


@pytest.mark.parametrize("time_limit", [1, 7, 50, 200, 300, 700, 999, 1000, 1600, 5000, 30_000])
def test_whole_episodes_fit_into_the_suggested_epoch(time_limit: int) -> None:
    sizes = suggest_sizes(time_limit)
    assert sizes.steps_per_epoch % sizes.num_envs == 0
    assert sizes.steps_per_env % time_limit == 0 and sizes.steps_per_env >= time_limit
    assert 4 <= sizes.num_envs <= 20
    assert sizes.steps_per_epoch <= max(21_000 + 20 * time_limit / 2, 4 * time_limit)


def test_without_a_time_limit_the_longest_episode_fits_twice() -> None:
    assert suggest_sizes(None).steps_per_env == 1000
    assert suggest_sizes(None, 3000).steps_per_env == 6000


def test_a_command_can_be_pasted_into_a_shell() -> None:
    line = command("train", "m:f", {"track": "wet one"}, ("a", "b"), cost_limit=(2.0, 0.5))
    arguments = subprocess.run(
        ["sh", "-c", f'cspo() {{ printf "%s\\n" "$@"; }}; {line}'], capture_output=True, text=True
    ).stdout.splitlines()
    wanted = ["train", "m:f", "--env-options", 'track="wet one"', "--cost-terms", "a,b"]
    assert arguments == [*wanted, "--cost-limit", "2,0.5"]


def test_check_env_reports_what_is_good_and_how_to_train(capsys: Any) -> None:
    assert main(["check-env", "run_helpers:TwoCosts", "--seconds", "0.3"]) == 0
    said = capsys.readouterr().out
    for words in (
        "ok    observations  2 numbers without bounds\n",
        'cost          2 (cost_0, cost_1), found in info["cost"]\n',
        "a resumed run is exact",
        "microseconds per step",
        "It can be trained on.",
        "cspo probe run_helpers:TwoCosts\n",
        "cspo train run_helpers:TwoCosts --num-envs 20 --steps-per-epoch 20000 --total-steps ",
    ):
        assert words in said, words
    assert "\x1b" not in said  # plain where it is no terminal


def test_the_training_that_check_env_suggests_is_accepted(capsys: Any) -> None:
    from cspo.commands.train import read_arguments

    found = in_json("check-env run_helpers:NamedCosts --cost-terms heat,noise", capsys)
    assert found["trainable"] and found["cost_names"] == ["heat", "noise"]
    config, _, _ = read_arguments(found["suggestion"]["train"].split()[2:])
    assert config.cost_terms == ("heat", "noise") and len(config.cost_limit) == 2
    assert config.steps_per_epoch % config.num_envs == 0


def test_an_environment_that_waits_is_given_a_worker_per_copy(capsys: Any) -> None:
    from cspo.commands.train import read_arguments

    found = in_json("check-env test_contact:make_sleepy --seconds 0.3", capsys)
    assert found["waits"] and found["step_microseconds"] > 2000.0
    config, _, _ = read_arguments(found["suggestion"]["train"].split()[2:])
    assert config.workers == config.num_envs == 20


def test_a_native_task_has_the_limit_of_the_benchmark(capsys: Any) -> None:
    found = in_json("check-env SafetyHopperVelocity-v1 --seconds 0.3", capsys)
    assert found["trainable"] and found["time_limit"] == 1000 and found["exact_resume"]
    assert found["suggestion"]["cost_limit"] == [25.0] and found["suggestion"]["workers"] == 0
    terms = "check-env SafetyPointButton1-v0 --cost-terms hazards,gremlins --seconds 0.3"
    assert len(in_json(terms, capsys)["suggestion"]["cost_limit"]) == 2


def test_an_environment_without_a_cost_is_told_how_to_get_one(capsys: Any) -> None:
    assert main(["check-env", "test_contact:make_silent"]) == 1
    said = capsys.readouterr().out
    assert "WRONG" in said and "gives no cost" in said and "docs/own-environment.md" in said
    assert "It cannot be trained on yet" in said and "cspo train" not in said


def test_what_an_environment_prints_does_not_spoil_json(capsys: Any) -> None:
    assert in_json("check-env test_contact:make_chatty --seconds 0.1", capsys)["trainable"]


@pytest.mark.parametrize("case", ZOO)
def test_check_env_says_what_is_wrong_with_every_broken_environment(
    case: str, capfd: Any, monkeypatch: Any
) -> None:
    Broken.made = 0
    monkeypatch.setattr(check_env, "MOST_STEPS", 1400)
    assert main(["check-env", "broken_envs:make", "--env-options", f'case="{case}"']) == 1
    said, errors = capfd.readouterr()
    assert "WRONG" in said and "It cannot be trained on yet" in said
    assert "Traceback" not in said + errors and "_TrialOver" not in said
    assert "\x1b" not in said


# ----------------------------------------------------------------------------------------- probe


def spread(*values: float) -> Distribution:
    return Distribution.of(values)


def test_a_distribution_is_that_of_numpy() -> None:
    data = np.random.default_rng(0).exponential(size=200) * (np.arange(200) % 4 > 0)
    found = Distribution.of(data)
    assert found.episodes == 200 and found.mean == data.mean() and found.zero_share == 0.25
    ordered = np.sort(data)
    assert (found.lowest, found.highest) == (0.0, ordered[-1])
    assert ordered[19] <= found.q10 <= ordered[20] and ordered[179] <= found.q90 <= ordered[180]
    assert found.median == (ordered[99] + ordered[100]) / 2


def test_limits_of_a_cost_that_rises_lie_on_the_way_up() -> None:
    found = propose("cost", spread(0.0, 20.0), spread(80.0, 100.0))
    assert found.limits == {"tight": 30.0, "moderate": 50.0, "loose": 70.0} and found.first == 50.0
    assert "They can be kept" in found.reason


def test_limits_of_a_cost_that_training_does_not_raise_are_shares_of_it() -> None:
    found = propose("cost", spread(120.0, 160.0), spread(60.0, 100.0))
    assert found.limits == {"tight": 20.0, "moderate": 40.0, "loose": 60.0} and found.first == 60.0
    assert "is not known" in found.reason
    found = propose("cost", spread(60.0, 60.0), spread(100.0, 100.0))
    assert found.first == 75.0 and "known only of the loose one" in found.reason


def test_no_limit_is_proposed_where_none_would_matter() -> None:
    zero = spread(0.0, 0.0)
    assert propose("cost", zero, zero).limits == {}
    assert "never occurred" in propose("cost", zero, zero).reason
    same = propose("cost", spread(7.0, 7.0), spread(7.0))
    assert same.limits == {} and same.first == 7.0 and "in every episode" in same.reason
    gone = propose("cost", spread(3.0, 5.0), zero)
    assert gone.limits == {} and "removes it" in gone.reason


def test_the_probe_finds_a_distribution_that_is_known() -> None:
    result = cspo.probe(lambda: ConstantSignals(length=10), total_steps=3000, num_envs=2, **FAST)
    for stage in (result.untrained, result.trained):
        (cost,) = stage.cost
        assert cost.mean == cost.lowest == cost.highest == 10.0 and cost.zero_share == 0.0
        assert stage.episode_return.mean == 20.0 and stage.length.mean == 10.0
    assert result.cost_limit is None and result.steps == 3000


def test_the_probe_proposes_limits_between_untrained_and_unconstrained() -> None:
    """An episode pays 20 + its return: about 20 at first, 40 once it earns all there is."""
    settings: Any = {"length": 20}
    result = cspo.probe(
        Sum, env_options=settings, total_steps=40_000, actor_lr=3e-3, hidden_sizes=(16,)
    )
    for stage in (result.untrained, result.trained):
        assert stage.cost[0].mean == pytest.approx(20.0 + stage.episode_return.mean)
        assert stage.cost[0].q90 == pytest.approx(20.0 + stage.episode_return.q90)
    assert result.untrained.cost[0].mean == pytest.approx(20.0, abs=4.0)
    assert result.trained.cost[0].mean > 33.0
    assert result.cost_limit is not None
    assert 0.0 < result.cost_limit[0] < result.trained.cost[0].mean


def test_every_constraint_has_its_own_proposal_and_a_pasted_command(capsys: Any) -> None:
    from cspo.commands.train import read_arguments

    found = in_json("probe probe_envs:RandomWalk --total-steps 12000 --seed 4", capsys)
    assert [one["cost_name"] for one in found["proposals"]] == ["cost_0", "cost_1"]
    config, _, _ = read_arguments(found["commands"]["first"].split()[2:])
    assert list(config.cost_limit) == found["cost_limit"] and len(config.cost_limit) == 2
    assert set(found["commands"]) == {"tight", "moderate", "loose", "first"}


def test_a_probe_leaves_no_file_unless_asked(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["probe", "run_helpers:make_tiny", "--total-steps=4000", "--steps-per-epoch=2000"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "At first" in said and "In the end" in said and "\x1b" not in said
    assert list(tmp_path.iterdir()) == []
    assert main([*words, "--run-dir", "kept"]) == 0
    assert (tmp_path / "kept" / "progress.csv").exists()


def test_a_probe_takes_a_settings_file_and_flags_win(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'task = "run_helpers:NamedCosts"\nalgo = "ppo-lag"\ncost_limit = [1, 2]\n'
        'cost_terms = ["heat", "noise"]\nsteps_per_epoch = 800\nnum_envs = 2\n'
        "total_steps = 1e6\n[env_options]\nscale = 3\n[algorithm]\nmultiplier_lr = 0.1\n"
    )
    found = in_json(f"probe --config {file} --total-steps 3200 --num-envs 4", capsys)
    assert found["cost_names"] == ["heat", "noise"] and found["steps"] == 3200
    assert found["trained"]["cost"][0]["mean"] == 60.0  # 20 steps of heat 3


def test_workers_change_no_result_of_a_probe(capsys: Any) -> None:
    words = "probe run_helpers:make_tiny --total-steps 2000 --steps-per-epoch 1000 --num-envs 2"
    alone, spread = in_json(words, capsys), in_json(f"{words} --workers 2", capsys)
    assert "--workers 2" in spread["commands"]["first"]
    for found in (alone, spread):
        del found["seconds"], found["commands"]
    assert alone == spread


def test_a_probe_of_a_users_object_leaves_it_open() -> None:
    env = TinyEnv()
    cspo.probe(env, total_steps=800, steps_per_epoch=400, **FAST)
    assert not env.closed


def test_a_probe_without_the_end_of_an_episode_says_so(capsys: Any) -> None:
    words = "probe SafetyHopperVelocity-v1 --num-envs 2 --steps-per-epoch 4 --total-steps 4"
    assert main(words.split()) == 2
    assert "No episode ended within the 2 steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    "case", ["construction exit first", "step OSError late", "reward text first"]
)
def test_a_probe_of_a_broken_environment_is_one_line(case: str, capsys: Any) -> None:
    Broken.made = 0
    words = ["probe", "broken_envs:make", "--total-steps", "4000"]
    assert main([*words, "--env-options", f'case="{case}"']) == 2
    said = capsys.readouterr().err
    assert said.startswith("cspo: error: ") and "broken_envs.py, line " in said
    assert len(said.splitlines()) <= 2


# ------------------------------------------------------------------------------------------ init


def cspo_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    process = start(*words, cwd=folder)
    output, errors = process.communicate(timeout=100)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def test_the_starter_works_as_its_readme_says(tmp_path: Path) -> None:
    """As a user would: init, then every command of its README in that folder, shortened."""
    done = cspo_in(tmp_path, "init", "mine")
    assert done.returncode == 0 and "cd mine && cspo check-env my_env:make" in done.stdout
    folder = tmp_path / "mine"
    lines = (folder / "README.md").read_text(encoding="utf-8").split("```")[1].splitlines()
    commands = [line.split("#")[0].split() for line in lines if line]
    short = {
        "check-env": ["--seconds", "0.5"],
        "probe": ["--total-steps", "8000"],
        "train": ["--total-steps", "16000", "--quiet"],
        "eval": ["--episodes", "2"],
    }
    assert [words[1] if words[0] == "cspo" else words[0] for words in commands] == [
        *short,
        "pytest",
    ]
    for words in commands[:-1]:
        done = cspo_in(folder, *words[1:], *short[words[1]])
        assert done.returncode == 0 and done.stderr == "", done.stderr
    bare = {"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    compiled = {"NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}  # or all is compiled once more
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"],
        cwd=folder,
        env=bare | compiled,
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0 and "3 passed" in tested.stdout, tested.stdout


def test_init_overwrites_nothing(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.toml").write_text("mine")
    assert main(["init", "."]) == 2
    assert "settings.toml is already there" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]
    assert (tmp_path / "settings.toml").read_text() == "mine"
    assert main(["init", "settings.toml"]) == 2
    assert "is a file" in capsys.readouterr().err
    assert main(["init"]) == 0 and main(["init"]) == 2
    assert sorted(path.name for path in (tmp_path / "my-problem").iterdir()) == [
        "README.md",
        "my_env.py",
        "settings.toml",
        "test_my_env.py",
    ]


# ----------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check-env", "TASK"),
        ("check-env SafetyHoperVelocity-v1", "did you mean 'SafetyHopperVelocity-v1'?"),
        ("check-env Pendullum-v1", "did you mean 'Pendulum-v1'?"),
        ("check-env nomodule:make", "there is no module 'nomodule'"),
        ("check-env run_helpers:nothing", "no function or id 'nothing'"),
        ("check-env run_helpers:make_tiny --env-options size=2", "has no option 'size'"),
        ("check-env os:system", "module of Python itself"),
        ("check-env run_helpers:make_tiny --seconds 0", "--seconds must be positive"),
        ("check-env SafetyHopperVelocity-v1 --cost-terms heat", "heat"),
        ("check-env run_helpers:make_tiny extra", "'extra'"),
        ("check-env run_helpers:make_tiny --jason", "did you mean '--json'?"),
        ("probe", "Name an environment to probe"),
        ("probe SafetyHoperVelocity-v1", "did you mean 'SafetyHopperVelocity-v1'?"),
        ("probe nomodule:make", "there is no module 'nomodule'"),
        ("probe run_helpers:make_tiny --total-steps 10", "less than one epoch"),
        ("probe run_helpers:make_tiny --total-steps -1", "--total-steps must be positive"),
        ("probe run_helpers:make_tiny --num-envs 0", "--num-envs must be positive"),
        ("probe run_helpers:make_tiny --num-envs 3 --steps-per-epoch 100", "not divisible"),
        ("probe run_helpers:make_tiny --cost-limit 3", "no option --cost-limit"),
        ("probe run_helpers:make_tiny --config nothing.toml", "Cannot read settings file"),
        ("init a b", "'b'"),
        ("init --force", "no option --force"),
    ],
)
def test_wrong_input_is_one_line(
    words: str, said: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    output, errors = capsys.readouterr()
    assert errors.startswith("cspo: error: ") and said in errors
    assert len(errors.splitlines()) <= 2 and output == ""
    assert list(tmp_path.iterdir()) == []
