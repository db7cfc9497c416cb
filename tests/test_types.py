"""What a user's type checker sees: the names, no Any, and wrong keywords as errors.

mypy runs in strict mode in a folder outside the checkout, on scripts as users write them. It keeps
what it has read beside what `make check` keeps; the first run takes half a minute.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
import typing
from pathlib import Path
from types import MappingProxyType

import pytest

import cspo
from cspo import flat
from cspo.algorithms.registry import algorithm_names, get_algorithm, is_built_in
from cspo.config import FREE, general_fields, make_config
from cspo.runs.folder import CHANGEABLE

SCRIPTS = Path(__file__).parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from check_users_code import pages, run_mypy, write_snippets  # noqa: E402
from make_flat import MODULE, module  # noqa: E402

TYPED = """
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import cspo
from cspo.algorithms import Algorithm
from cspo.envs import BatchEnv

config = cspo.make_config("SafetyHopperVelocity-v1", "cspo", cost_limit=25, total_steps=1e6)
assert_type(config, cspo.TrainConfig)
assert_type(config.gamma, float)
assert_type(config.total_steps, int)
assert_type(config.epochs, int)
assert_type(config.cost_limit, tuple[float | cspo.Schedule, ...])
assert_type(config.hidden_sizes, tuple[int, ...])


moving = cspo.make_config("CartPole-v1", cost_limit="25@0, 15@2e6")
assert_type(moving, cspo.TrainConfig)


class Sink:
    def write(self, report: cspo.EpochReport) -> None:
        assert_type(report.metrics, dict[str, float])

    def close(self) -> None: ...


def cost(observation: NDArray[np.float64], action: int, after: Any, info: dict[str, Any]) -> bool:
    return abs(float(after[0])) > 0.2


small: cspo.Settings = {"total_steps": 800, "num_envs": 4, "cost_limit": (25, 5.0)}
summary = cspo.train("CartPole-v1", "ppo-lag", cost_fn=cost, sinks=[Sink()], multiplier_lr=0.1)
assert_type(summary, cspo.Summary)
assert_type(summary.cost, tuple[float, ...])
assert_type(summary.run_dir, Path)
assert_type(cspo.train(lambda: gymnasium.make("CartPole-v1"), **small), cspo.Summary)
assert_type(cspo.train(gymnasium.make("CartPole-v1"), num_envs=1), cspo.Summary)
assert_type(cspo.resume(summary.run_dir, total_steps=1600, threads=2), cspo.Summary)

with cspo.Trainer(config, run_dir="runs/mine") as trainer:
    assert_type(trainer, cspo.Trainer)
    assert_type(trainer.env, BatchEnv)
    assert_type(trainer.algorithm, Algorithm)
    assert_type(trainer.cost_limit, NDArray[np.float64])
    for report in trainer:
        assert_type(report, cspo.EpochReport)
        assert_type(report.epoch, int)
        assert_type(report.episode_return, float)
        assert_type(report.cost, tuple[float, ...])
        assert_type(report.multiplier, tuple[float, ...])
        assert_type(report.violated, bool)

policy = cspo.load("runs/mine")
assert_type(policy, cspo.TrainedPolicy[cspo.Action])
assert_type(policy([0.0]), cspo.Action)
assert_type(policy.act(np.zeros((1, 11))), NDArray[np.float64])
ferry: cspo.TrainedPolicy[int] = cspo.load("runs/first")  # one who knows says what comes out
assert_type(ferry([0.0, 0.0, 1.0]), int)

found = cspo.probe("SafetyHopperVelocity-v1", total_steps=10_000, seed=1)
assert_type(found, cspo.ProbeResult)
assert_type(found.cost_limit, tuple[float, ...] | None)
assert_type(cspo.evaluate(ferry), list[cspo.EvaluationRow])
assert_type(cspo.check_env("my_env:make"), list[str])
"""
# One wrong line each, and what mypy says of it.
WRONG = {
    'cspo.train("CartPole-v1", seeds=3)': 'did you mean "seed"?',
    'cspo.make_config("CartPole-v1", gamma="0.9")': 'expected "float"',
    'cspo.make_config("CartPole-v1", kl_check="epoch")': "Literal['pass', 'minibatch']",
    'cspo.make_config("CartPole-v1", price=2.0)': 'Unexpected keyword argument "price"',
    'cspo.resume("run", gamma=0.9)': 'Unexpected keyword argument "gamma"',
    'cspo.probe("CartPole-v1", cost_limit=25)': 'Unexpected keyword argument "cost_limit"',
    "cspo.train(3)": "expected",
    'cspo.tarin("CartPole-v1")': 'Module has no attribute "tarin"',
    'cspo.make_config("CartPole-v1", cost_limit={})': "arg-type",
    'cspo.make_config("CartPole-v1").gama': 'has no attribute "gama"',
    'cspo.make_config("CartPole-v1").gamma = 0.9': "read-only",
    'cspo.load("run")([0.0]) + 1 + "a"': "Unsupported operand types",
}


def test_a_users_script_has_no_any_and_wrong_lines_are_errors(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    (tmp_path / "wrong.py").write_text("\n".join(["import cspo", *WRONG]), encoding="utf-8")
    _, errors = run_mypy(tmp_path, "typed.py", "wrong.py")
    assert "typed.py" not in errors, errors
    for line, (code, fault) in enumerate(WRONG.items(), start=2):
        told = [one for one in errors.splitlines() if one.startswith(f"wrong.py:{line}: error")]
        assert any(fault in one for one in told), f"{code}\n{errors}"


def test_no_any_is_handed_out(tmp_path: Path) -> None:
    """Whatever a function of the package returns, or a report has, is of a type."""
    lines = [
        'config = cspo.make_config("CartPole-v1")',
        "trainer = cspo.Trainer(config)",
        "report = next(iter(trainer))",
        'policy = cspo.load("run")',
        'action = policy("anything")',
    ]
    fields = [item.name for item in dataclasses.fields(cspo.EpochReport)]
    shown = ["config", "trainer", "report", "policy", "action", 'policy.predict("anything")']
    shown += [f"report.{name}" for name in fields]
    shown += [f"config.{item.name}" for _, item in general_fields() if item.name != "env_options"]
    shown += ["trainer.policy", "trainer.learner", "trainer.window", "config.algorithm"]
    code = ["import cspo", *lines, *(f"reveal_type({one})" for one in shown)]
    (tmp_path / "shown.py").write_text("\n".join(code), encoding="utf-8")
    exit_code, notes = run_mypy(tmp_path, "shown.py")
    assert exit_code == 0 and notes.count("Revealed type is") == len(shown), notes
    for name, note in zip(shown, notes.splitlines(), strict=True):
        # The shape of an array, and the precision of its numbers, are nobody's business.
        bare = note.replace("tuple[Any, ...]", "").replace("floating[Any]", "")
        assert "Any" not in bare.replace("integer[Any]", ""), f"{name}: {note}"


def test_type_checkers_are_told_every_public_name() -> None:
    """The block for type checkers and the names handed out on first use are the same."""
    tree = ast.parse(Path(cspo.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    told = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name  # which makes it public
            told[alias.name] = getattr(importlib.import_module(str(node.module)), alias.name)
    assert told == {name: getattr(cspo, name) for name in cspo.__all__ if name != "__version__"}


def test_the_flat_names_are_up_to_date() -> None:
    assert MODULE.read_text(encoding="utf-8") == module(), "run python scripts/make_flat.py"


def test_the_keywords_are_those_that_are_accepted() -> None:
    """Independent of how they were written down: every setting is one, and nothing else."""
    own = {
        item.name
        for name in algorithm_names()
        if is_built_in(get_algorithm(name))
        for item in dataclasses.fields(get_algorithm(name).Config)
    }
    general = {item.name for _, item in general_fields()} - {"task", "algo"}
    assert set(flat.Settings.__annotations__) == general | own | {"algorithm"}
    assert set(flat.ResumeSettings.__annotations__) == CHANGEABLE
    assert set(flat.FreeSettings.__annotations__) == set(FREE)
    assert typing.get_type_hints(flat.Settings)["gamma"] is float


def test_a_table_of_an_algorithms_settings_may_be_any_mapping() -> None:
    """As their type says."""
    flat_one = make_config("CartPole-v1", clip=0.1)
    assert make_config("CartPole-v1", algorithm=MappingProxyType({"clip": 0.1})) == flat_one
    assert make_config("CartPole-v1", algorithm=flat_one.algorithm) == flat_one
    with pytest.raises(cspo.CspoError, match="Unknown setting"):
        make_config("CartPole-v1", algorithm=MappingProxyType({"clap": 0.1}))


def test_wrong_code_on_a_page_is_found_at_its_line(tmp_path: Path) -> None:
    """So that the check of the pages can fail."""
    written = write_snippets(tmp_path, pages())
    assert len(written) >= 16 and "docs/ten-minutes.md" in written.values()
    (file,) = [name for name, page in written.items() if page == "README.md"][:1]
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert "cost_limit=25" in text
    (tmp_path / file).write_text(text.replace("cost_limit=25", "cost_limits=25"), encoding="utf-8")
    line = text[: text.index("cspo.make_config(")].count("\n") + 1
    assert f"{file}:{line}: error: Unexpected keyword" in run_mypy(tmp_path, file)[1]
