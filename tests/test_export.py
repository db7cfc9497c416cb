"""Exported files act as the policy does, without cspo, in every format and action space."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from own_networks import Plain
from run_helpers import SMALL, TinyEnv
from space_envs import ACTION_SPACES, OBSERVATION_SPACE, SpaceEnv

import cspo
from cspo.cli import main
from cspo.use.export import compare as comparing
from cspo.use.export.exported import ExportedPolicy

pytest.importorskip("onnxruntime", reason="pip install 'cspo[export]'")
pytestmark = pytest.mark.usefixtures("no_pictures")
SPACES = {
    **ACTION_SPACES,
    "bounded": Box(np.float32([-3.0, 0.5]), np.float32([1.0, 0.75]), dtype=np.float32),
    "whole": Box(-3, 4, (2, 2), np.int16),
}
SHORT: dict[str, Any] = {**SMALL, "total_steps": 400, "quiet": True}
FORMATS = ("onnx", "torchscript", "numpy")
# Runs where importing cspo fails; prints the actions as JSON.
ELSEWHERE = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
try:
    import cspo
except ImportError:
    pass
else:
    raise SystemExit("cspo can be imported")
import numpy as np
inputs = dict(np.load("inputs.npz"))
{code}
print(json.dumps([np.asarray(value).tolist() for value in actions]))
"""
IN_ONNX = """
import onnxruntime
session = onnxruntime.InferenceSession("policy.onnx")
names = [output.name for output in session.get_outputs()]
actions = session.run([name for name in names if name.startswith("action")], inputs)
"""
IN_NUMPY = """
from policy import Policy
outputs = Policy().run(inputs)
actions = [value for name, value in outputs.items() if name.startswith("action")]
"""


class Any_(SpaceEnv):
    """`SpaceEnv`, with two action spaces more."""

    def __init__(self, action_space: str) -> None:
        self.action_space, self.observation_space = SPACES[action_space], OBSERVATION_SPACE


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for every action space."""
    root = tmp_path_factory.mktemp("runs")
    for name in SPACES:
        cspo.train(lambda n=name: Any_(n), "ppo-lag", run_dir=root / name, **SHORT)
    return {name: root / name for name in SPACES}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("name", list(SPACES))
def test_every_format_acts_as_the_policy_in_every_space(
    runs: dict[str, Path], name: str, to: Any, tmp_path: Path
) -> None:
    for deterministic in (True, False):
        out = tmp_path / str(deterministic)
        own: Any = {"env": lambda: Any_(name), "deterministic": deterministic, "episodes": 10}
        done = cspo.export(runs[name], to, out=out, **own)
        assert done.comparison.same and done.comparison.recorded
        assert done.comparison.relative < 1e-6
        file = cspo.load_exported(done.path)
        (row,) = cspo.evaluate(file, 10, env=lambda: Any_(name))
        (wanted,) = cspo.evaluate(
            runs[name], 10, deterministic=deterministic, env=lambda: Any_(name)
        )
        assert row.mode == wanted.mode
        if deterministic:  # the same episodes, but for rounding
            assert row.episode_return.mean == pytest.approx(wanted.episode_return.mean, rel=1e-3)


def observations(count: int) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Return raw observations, and the same as a file takes them."""
    OBSERVATION_SPACE.seed(5)
    raw = [OBSERVATION_SPACE.sample() for _ in range(count)]
    for one in raw:
        one["place"] = np.random.default_rng(len(raw)).normal(size=2)
    inputs = {
        "observation.place": np.stack([one["place"] for one in raw]),
        "observation.room": np.array([one["room"] for one in raw]),
        "observation.doors.0": np.stack([one["doors"][0] for one in raw]),
        "observation.doors.1": np.stack([one["doors"][1] for one in raw]),
    }
    return raw, inputs


@pytest.mark.parametrize(("to", "code"), [("onnx", IN_ONNX), ("numpy", IN_NUMPY)])
def test_a_file_runs_where_cspo_cannot_be_imported(
    runs: dict[str, Path], to: Any, code: str, tmp_path: Path
) -> None:
    cspo.export(runs["mixed"], to, out=tmp_path, episodes=0)
    raw, inputs = observations(7)
    np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
    blocked = {"cspo", "torch"} | ({"onnxruntime", "onnx", "numba"} if to == "numpy" else set())
    words = [sys.executable, "-c", ELSEWHERE.format(blocked=blocked, code=code)]
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(words, cwd=tmp_path, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    gear, bits, options, wheel = (None,) * 4
    names = [port["name"] for port in json.loads((tmp_path / "config.json").read_text())["outputs"]]
    found = dict(zip(names, json.loads(done.stdout), strict=False))
    policy = cspo.load(runs["mixed"])
    for i, one in enumerate(raw):
        action = policy(one)
        gear, wheel, (bits, options) = action["gear"], action["wheel"], action["lights"]
        assert found["action.gear"][i] == gear
        np.testing.assert_allclose(found["action.wheel"][i], wheel, atol=1e-6)
        np.testing.assert_array_equal(found["action.lights.0"][i], bits)
        np.testing.assert_array_equal(found["action.lights.1"][i], options)


def test_the_numpy_file_predicts_as_stable_baselines3_does(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    cspo.export(runs["mixed"], "numpy", out=tmp_path, episodes=0)
    names: dict[str, Any] = {}
    exec(compile((tmp_path / "policy.py").read_text(), "policy.py", "exec"), names)
    policy, trained = names["Policy"](seed=0), cspo.load(runs["mixed"])
    raw, _ = observations(3)
    action, state = policy.predict(raw[0], state="kept", deterministic=True)
    wanted, same = trained.predict(raw[0], state="kept", deterministic=True)
    assert state == same == "kept" and action["gear"] == wanted["gear"]
    assert ACTION_SPACES["mixed"].contains(action)
    drawn = policy.predict(raw[0], deterministic=False)[0]
    policy.seed(0)
    again = policy.predict(raw[0], deterministic=False)[0]
    np.testing.assert_array_equal(drawn["wheel"], again["wheel"])
    with pytest.raises(ValueError, match="no option there"):
        policy.predict({**raw[0], "room": 9})


def test_drawing_follows_the_policys_distribution(runs: dict[str, Path], tmp_path: Path) -> None:
    """Frequencies and deviations of many draws of one observation, in every format."""
    policy = cspo.load(runs["mixed"])
    rows = np.repeat(policy._rows(observations(1)[0][0])[0], 4000, axis=0)
    output = policy.networks.actor.outputs(policy.networks.normaliser(rows[:1]))[0]
    weights = np.exp(output[2:5] - output[2:5].max())  # the wheel's means, then the gear's logits
    for to in FORMATS:
        done = cspo.export(runs["mixed"], to, out=tmp_path / to, episodes=0, deterministic=False)
        file = cspo.load_exported(done.path)
        file.seed(1)
        action = file.act(rows, deterministic=False)
        deviations = action[:, :2].std(axis=0)
        free = np.abs(output[:2]) + 2.5 * np.exp(policy.networks.actor.log_std) < 1.0
        wanted = np.exp(policy.networks.actor.log_std)
        assert np.allclose(deviations[free], wanted[free], rtol=0.1)
        found = np.bincount(action[:, 2].astype(int), minlength=3) / len(rows)
        np.testing.assert_allclose(found, weights / weights.sum(), atol=0.05)
        with pytest.raises(cspo.CspoError, match="to act stochastically"):
            file.act(rows, deterministic=True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "run"
    cspo.train("run_helpers:make_tiny", "cspo", run_dir=folder, **SHORT)
    return folder


def test_the_command_writes_a_hub_folder_and_eval_takes_the_file(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yaml = pytest.importorskip("yaml")
    assert main(["export", str(tiny), "--to", "onnx"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"on \d+ recorded observations: \d\.\de-0[6-9] in actions", said)
    folder = tiny / "export-onnx"
    card = json.loads((folder / "config.json").read_text())
    text = (folder / "README.md").read_text()
    header = yaml.safe_load(text.split("---")[1])
    assert header["library_name"] == "cspo" and "run_helpers:make_tiny" in header["tags"]
    (cost,) = card["results"]["cost"]
    assert card["results"]["source"] == "evaluation"
    assert cost["low"] <= cost["mean"] <= cost["high"] and card["cost_limit"] == [25.0]
    assert f"[{cost['low']:.2f}, {cost['high']:.2f}] | 25 |" in text
    assert card["inputs"] == [
        {"name": "observation", "shape": ["batch", 2], "dtype": "float64", "content": "numbers"}
    ]
    assert card["results"]["exported_at_commit"] and "Commit" in text
    words = ["eval", str(folder / "policy.onnx"), "--json", "--episodes", "3"]
    assert main(words) == 2  # a stranger's file may name a task, too
    assert "--task" in capsys.readouterr().err
    assert main([*words, "--task", "run_helpers:make_tiny"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    main(["eval", str(tiny), "--json", "--episodes", "3"])
    wanted = json.loads(capsys.readouterr().out)[1]
    assert row["cost"][0]["mean"] == pytest.approx(wanted["cost"][0]["mean"])


def test_a_file_that_differs_is_found_and_the_command_fails(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    original = ExportedPolicy.results

    def shifted(self: Any, rows: Any) -> Any:
        action, outputs = original(self, rows)
        return action + 3e-5, outputs

    monkeypatch.setattr(ExportedPolicy, "results", shifted)
    assert main(["export", str(tiny), "--to", "numpy", "--out", str(tmp_path / "x")]) == 1
    assert "does NOT act as the policy does" in capsys.readouterr().out


def test_without_an_environment_the_summary_is_told(tiny: Path, tmp_path: Path) -> None:
    done = cspo.export(tiny, "numpy", out=tmp_path / "out", episodes=0)
    assert done.results["source"] == "summary" and not done.comparison.recorded
    assert "Read from the run's summary" in (tmp_path / "out" / "README.md").read_text()


def test_a_folder_of_somebody_else_is_not_overwritten(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(cspo.CspoError, match="holds other files"):
        cspo.export(tiny, "numpy", out=tmp_path, episodes=0)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("to", ["onnx", "torchscript"])
def test_networks_in_torch_are_exported_and_numpy_refuses_them(to: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cspo.train(TinyEnv, policy=Plain, run_dir=run, **SHORT | {"total_steps": 400})
    own: Any = {"policy": Plain, "env": TinyEnv}
    for deterministic in (True, False):
        assert cspo.export(run, to, deterministic=deterministic, **own).comparison.same
    with pytest.raises(cspo.CspoError, match="cannot be written in plain NumPy"):
        cspo.export(run, "numpy", **own)


def test_code_of_a_stranger_is_not_run(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = cspo.export(tiny, "torchscript", out=tmp_path / "t", episodes=0).path
    plain = cspo.export(tiny, "numpy", out=tmp_path / "n", episodes=0).path
    cspo.load_exported(script)
    cspo.load_exported(plain)
    monkeypatch.setenv("CSPO_STATE_DIR", str(tmp_path / "another user"))
    cspo.load_exported(plain)  # its code is ours, word for word
    with pytest.raises(cspo.CspoError, match="add --trust"):
        cspo.load_exported(script)
    cspo.load_exported(script, trust=True)
    code = plain.read_text()
    for changed in (
        "import os\n" + code,
        code.replace("import json\n", "import json, os\n", 1),
        code + "import os\n",
        code.replace('DATA = """', 'DATA = open("x").read() + """'),
    ):
        plain.write_text(changed)
        with pytest.raises(cspo.CspoError):
            cspo.load_exported(plain)


@pytest.mark.parametrize("name", ["policy.onnx", "policy.pt", "policy.py"])
def test_damaged_files_are_told_in_a_line(name: str, tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 nothing", b'DATA = """\nAAAA\n"""\n'):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(cspo.CspoError, match=re.escape(name)):
            cspo.load_exported(tmp_path / name)
    with pytest.raises(cspo.CspoError, match="Cannot read"):
        cspo.load_exported(tmp_path / "nothing.onnx")


def test_predict_takes_what_a_vector_environment_gives(runs: dict[str, Path]) -> None:
    policy = cspo.load(runs["discrete"])
    raw, _ = observations(5)
    together = {
        "place": np.stack([one["place"] for one in raw]),
        "room": np.array([one["room"] for one in raw]),
        "doors": tuple(np.stack([one["doors"][i] for one in raw]) for i in range(2)),
    }
    actions, state = policy.predict(together, deterministic=True)
    assert state is None and actions.shape == (5,)
    for one, action in zip(raw, actions, strict=True):
        single, _ = policy.predict(one, deterministic=True)
        assert isinstance(single, np.ndarray) and single.shape == () and single == action
        assert SPACES["discrete"].contains(single)


def test_the_tolerance_sees_rounding_at_a_border_only(runs: dict[str, Path]) -> None:
    """A whole number may fall to either side of a half, and nowhere else."""
    from cspo.use.export.recipe import recipe_of

    recipe = recipe_of(cspo.load(runs["whole"]), True)
    scaled = np.array([[0.5 + 1e-6, 1.2, -2.0, 3.4]])
    near, far = np.array([[0.0, 1.0, -2.0, 3.0]]), np.array([[1.0, 2.0, -2.0, 3.0]])
    assert comparing._differences(recipe, near, scaled).max() == 0.0
    assert comparing._differences(recipe, far, scaled).max() == 1.0
