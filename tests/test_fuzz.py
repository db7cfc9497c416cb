"""Whatever a file, a flag or an environment says: the answer is a result or a plain `CspoError`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
import tomli_w
from gymnasium.spaces import Box
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from run_helpers import final_state

import cspo
from cspo.algorithms.registry import get_algorithm
from cspo.config import TrainConfig, from_dict, general_fields, make_config, read_settings, to_dict
from cspo.errors import CspoError
from cspo.lab.metrics.series import read_series
from cspo.lab.study.grid import read_study
from cspo.lab.study.plan import read_plan
from cspo.runs.checkpoint import FORMAT, list_checkpoints
from cspo.runs.progress import ProgressFile, read_columns, read_progress
from cspo.settings import parse_text
from cspo.state import digest
from cspo.train import Trainer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
TASK = "SafetyHopperVelocity-v1"
EPOCHS, SAMPLE = 3, 40
SMALL: dict[str, Any] = {
    "num_envs": 2,
    "steps_per_epoch": 40,
    "total_steps": 40 * EPOCHS,
    "passes": 1,
    "minibatch_size": 20,
    "hidden_sizes": (4,),
    "threads": 1,
    "tensorboard": False,
}
STUDY: dict[str, Any] = {
    "name": "small",
    "tasks": [TASK],
    "algorithms": ["ppo-lag"],
    "seeds": 2,
    "total_steps": 800,
    "settings": {"steps_per_epoch": 400, "num_envs": 4},
}
# The same examples every time, and none kept on disk.
fuzz = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=list(HealthCheck),
)
few = settings(fuzz, max_examples=25)

NUMBERS = (0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e300, math.inf, math.nan)
WORDS = ("", "none", "nan", "cspo", "auto", "../..", "a:b", ":", "\x00", "\x1b[31m", "\ud800", "é")
numbers = st.sampled_from(NUMBERS) | st.integers() | st.floats()
texts = st.sampled_from(WORDS) | st.text(max_size=20)
leaves = numbers | texts | st.booleans() | st.none()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
writable = texts.filter(lambda text: "\ud800" not in text)  # in a file of UTF-8
toml_values = st.recursive(
    numbers.filter(lambda x: not (isinstance(x, int) and abs(x) > 10**40))
    | writable
    | st.booleans()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(writable, inner, max_size=3),
    max_leaves=6,
)
SETTINGS = sorted(item.name for _, item in general_fields() if item.name != "plugin")


def answered(call: Callable[[], Any]) -> Any:
    """Return what a call returns; None if it refuses in words. Nothing else may come out of it."""
    try:
        return call()
    except CspoError as error:
        assert str(error).strip(), "an error without a word"
        return None


# Settings


@fuzz
@given(st.dictionaries(st.sampled_from(SETTINGS), values, max_size=3))
@example({"seed": 10**400})
@example({"env_options": {"a": {"b": [10**30, None]}}})
@example({"hidden_sizes": [10**19]})
@example({"num_envs": 10**9, "steps_per_epoch": 10**9, "total_steps": 10**9})
def test_settings_are_taken_and_kept_or_refused(given_values: dict[str, Any]) -> None:
    config = answered(lambda: make_config(**({"task": TASK, **SMALL} | given_values)))
    if isinstance(config, TrainConfig):  # a run can be found again from what it keeps
        again = from_dict(read_back(tomli_w.dumps(to_dict(config))))
        assert repr(again) == repr(config)


def read_back(text: str) -> dict[str, Any]:
    return dict(tomllib.loads(text))


@fuzz
@given(st.sampled_from(SETTINGS), texts | st.text("0123456789.,-+e_ nai[]{}=\"'", max_size=12))
@example("seed", "9" * 5000)
@example("env_options", 'x="y"}\nz = 3 #')
@example("env_options", "a=" + "[" * 3000)
def test_a_typed_value_is_read_or_refused(name: str, text: str) -> None:
    hints = {item.name: item.type for _, item in general_fields()}
    kinds = {"int": int, "float": float, "bool": bool, "str": str}
    hint = kinds.get(str(hints[name]), tuple[float, ...])
    hint = dict[str, Any] if name == "env_options" else hint
    if hint is not bool:
        answered(lambda: parse_text(text, hint, name))


@pytest.mark.parametrize("algo", ["cspo", "cpo", "cppo-pid"])
def test_settings_of_an_algorithm_are_taken_or_refused(algo: str) -> None:
    names = sorted(vars(get_algorithm(algo).Config())) or ["alpha"]

    @few
    @given(st.dictionaries(st.sampled_from(names) | texts, values, max_size=2))
    def check(table: dict[str, Any]) -> None:
        answered(lambda: make_config(TASK, algo, algorithm=table))

    check()


# TOML


def toml_bytes() -> st.SearchStrategy[bytes]:
    """Files that are nearly settings: whole ones with something put in, cut, or not text at all."""
    whole = tomli_w.dumps({"task": TASK, "seed": 3, "hidden_sizes": [8, 8]}).encode()
    pieces = [b"seed = " + b"9" * 5000, b"x = " + b"[" * 5000, b"x = " + b"{a=" * 3000]
    pieces += [b"\xef\xbb\xbf", b"\0", b"\xff", b'"', b"\x1b", b"\r", b"[seed]", b"[[task]]"]
    pieces += [b".".join([b"a"] * 3000) + b" = 1"]
    put_in = st.sampled_from(pieces) | st.binary(max_size=12)
    places = st.integers(0, len(whole))
    return st.builds(lambda at, piece: whole[:at] + piece + whole[at:], places, put_in) | (
        st.binary(max_size=200)
    )


@fuzz
@given(toml_bytes())
@example(b"")
@example(b"\xef\xbb\xbf" + f'task = "{TASK}"\n'.encode())
def test_a_settings_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("toml") / "settings.toml"
    file.write_bytes(data)
    answered(lambda: read_settings(file))
    answered(lambda: make_config(file=file))


@fuzz
@given(
    st.dictionaries(
        st.sampled_from([*STUDY, "plugin", "variants", "task"]), toml_values, max_size=2
    )
)
@example({"seeds": 10**10})
@example({"seeds": 10**18})
@example({"total_steps": math.inf})
@example({"tasks": [{"a": 1}, {"a": 1}]})
@example({"variants": [{"name": [1]}]})
@example({"algorithms": ["x/../../../outside"]})
def test_a_study_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(tomli_w.dumps(STUDY | changes), encoding="utf-8")
    answered(lambda: read_study(folder / "study.toml"))
    plan = answered(lambda: read_plan(folder))
    for run in plan.runs if plan is not None else ():
        inside = (folder / "runs" / run.id).resolve()
        assert inside.parent == (folder / "runs").resolve(), f"{run.id!r} leads elsewhere"


# progress.csv


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run of three epochs, with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = make_config(TASK, **SMALL, keep_checkpoints=EPOCHS)
    trainer = cspo.Trainer(config, run_dir=folder)
    for _ in trainer:
        pass
    assert trainer.run is not None
    trainer.run.close()
    trainer.env.close()
    return folder


@contextlib.contextmanager
def copy_of(run: Path) -> Iterator[Path]:
    """Lend a copy of a run that ends with its use."""
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


PIECES = (b",", b'"', b"\n", b"\r", b"\0", b"nan", b"-inf", b"x", b"1e999", b"9" * 5000, b"\xff")
PIECES += (b",,,,", b"\n\n", b"\xef\xbb\xbf", b"\x1b[31m", b"\xe2\x80\xa8", b"\x0b", b"\x1c", b"'")
edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(PIECES) | st.binary(max_size=8), st.integers(0, 3)),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    """Put something in at some places, over some bytes of what is there."""
    for share, piece, over in changes:
        at = int(share * len(data))
        data = data[:at] + piece + data[at + over :]
    return data


@fuzz
@given(edits)
@example([(0.5, b",", 0)])
@example([(0.0, b"x" * 200_000 + b",", 0)])
def test_damaged_epochs_are_read_or_refused(
    trained: Path, changes: list[tuple[float, bytes, int]]
) -> None:
    with copy_of(trained) as run:
        file = run / "progress.csv"
        file.write_bytes(edited(file.read_bytes(), changes))
        answered(lambda: read_progress(file))
        answered(lambda: read_progress(file, tail=100))
        answered(lambda: ProgressFile(file).complete_rows())
        answered(lambda: read_series(run))
        for foreign in (False, True):
            answered(lambda foreign=foreign: read_columns(file, ["return"], foreign))


@few
@given(edits)
@example([(0.6, b",", 0)])
@example([(0.6, b"nan,", 0)])
@example([(0.0, b"\xff\xff", 0)])
def test_what_cannot_be_read_is_never_lost(
    trained: Path, changes: list[tuple[float, bytes, int]]
) -> None:
    with copy_of(trained) as run:
        file = run / "progress.csv"
        damaged = edited(file.read_bytes(), changes)
        file.write_bytes(damaged)
        opened = answered(lambda: cspo.Trainer.resume(run))
        if opened is not None:
            opened.close()
        kept = [path.read_bytes() for path in run.rglob("*") if path.is_file()]
        held = b"\n".join(kept)
        lost = [line for line in damaged.split(b"\n") if line.strip() and line not in held]
        # A row that is in the checkpoint may have been written again; its numbers are the same.
        assert damaged in kept or not lost, lost


# Checkpoints


def forged(run: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> None:
    """Change every checkpoint of a run, and make its digest right again."""
    for path in list_checkpoints(run / "checkpoints"):
        with safetensors.safe_open(path, framework="numpy") as file:
            names = file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
            plain = json.loads(file.metadata()["state"])
        change(plain, arrays)
        text = json.dumps(plain)
        metadata = {"format": FORMAT, "state": text, "digest": digest(arrays, text)}
        path.write_bytes(safetensors.numpy.save(arrays, metadata))


def use(run: Path, *, refused: bool = False) -> None:
    """Load the policy and act, unless it must be refused; open the run to continue it."""
    policy = answered(lambda: cspo.load(run))
    if policy is not None:
        assert not refused, "the policy was loaded"
        assert np.isfinite(policy(np.zeros(policy.observation_size))).all()
    trainer = answered(lambda: cspo.Trainer.resume(run))
    if trainer is not None:
        trainer.run.close()
        trainer.env.close()


ARRAYS = ("/policy/actor", "/policy/critics", "/policy/normaliser/mean", "/cost_limit")
ARRAYS += ("/policy/normaliser/square_sum", "/learner/actor/first", "/window/costs", "/margin/z")
ARRAYS += ("/facts/action_low", "/window/lengths", "/algorithm/multiplier")
shapes = st.lists(st.integers(0, 40), max_size=3).map(tuple)
types = st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_, np.float16])


@few
@given(st.sampled_from(ARRAYS), shapes, types, st.sampled_from([0.0, 1.0, np.nan, np.inf, -1e300]))
@example("/policy/normaliser/mean", (1,), np.float64, 0.0)
@example("/policy/normaliser/square_sum", (4000,), np.float64, 0.0)
@example("/policy/actor", (10,), np.int64, 1.0)
def test_an_array_of_another_size_or_type_is_refused(
    trained: Path, name: str, shape: tuple[int, ...], kind: Any, value: float
) -> None:
    """With a digest that is right: what reaches compiled code has its size, type and numbers."""
    with np.errstate(all="ignore"):
        other = np.full(shape, value).astype(kind)
    before = final_state(trained)[1][name]
    same = other.shape == before.shape and other.dtype == before.dtype
    wrong = not same or not np.isfinite(other).all()

    def change(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = other

    with copy_of(trained) as run:
        forged(run, change)
        use(run, refused=wrong and name.startswith("/policy"))


@few
@given(st.integers(0, 10**6), values.filter(lambda value: "\ud800" not in repr(value)))
@example(0, "four")
@example(0, 10**30)
def test_a_value_of_another_kind_is_refused(trained: Path, place: int, value: Any) -> None:
    def change(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        places = list(places_in(plain))
        table, key = places[place % len(places)]
        table[key] = value

    with copy_of(trained) as run:
        forged(run, change)
        use(run)


def places_in(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every value of a nested state as the table it is in, and its key."""
    pairs = plain.items() if isinstance(plain, dict) else enumerate(plain)
    for key, value in list(pairs):
        yield plain, key
        if isinstance(value, dict | list):
            yield from places_in(value)


@few
@given(edits)
@example([(0.0, b"\xff\xff\xff\xff\xff\xff\xff\x7f", 8)])
def test_a_checkpoint_file_is_read_or_refused(
    trained: Path, changes: list[tuple[float, bytes, int]]
) -> None:
    with copy_of(trained) as run:
        for path in list_checkpoints(run / "checkpoints"):
            path.write_bytes(edited(path.read_bytes(), changes))
        use(run)


def test_a_forgery_that_changes_nothing_is_read(trained: Path) -> None:
    """The tests above would say nothing if every forgery were refused."""
    with copy_of(trained) as run:
        forged(run, lambda plain, arrays: None)
        assert cspo.load(run).epoch == EPOCHS
        assert final_state(run)[0] == final_state(trained)[0]


# Environments


class Odd(gymnasium.Env[Any, Any]):
    """Returns one odd value in one place, and raises it if it is an exception."""

    num_costs = 1

    def __init__(self, place: str, value: Any) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float64)
        self.place, self.value, self.t = place, value, 0

    def put(self, place: str, usual: Any) -> Any:
        if place != self.place:
            return usual
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        first = self.put("first observation", np.zeros(2))
        return self.put("reset", (first, self.put("first info", {})))

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.put(
            "step",
            (
                self.put("observation", np.full(2, self.t / 10)),
                self.put("reward", 1.0),
                self.put("terminated", False),
                self.put("truncated", self.t == 10),
                self.put("info", {"cost": self.put("cost", 0.5)}),
            ),
        )


PLACES = ("reset", "first observation", "first info", "step", "observation", "reward")
PLACES += ("terminated", "truncated", "info", "cost")
ODD = (None, "x", 1 + 2j, 10**400, math.nan, math.inf, b"x", object(), lambda: 0, {1}, {}, [], ())
ODD += (np.zeros(1), np.zeros(2), np.zeros(7), np.zeros((2, 2)), np.array(["a", "b"]), np.ma.masked)
ODD += (np.array([None, None]), SystemExit(0), BrokenPipeError(), ValueError(), StopIteration())
ODD += (
    MemoryError(),
    GeneratorExit(),
    AssertionError("\ud800"),
    RecursionError(),
    OSError(28, "x"),
)
pairs = st.tuples(st.sampled_from(PLACES), st.sampled_from(ODD) | values)


@settings(fuzz, max_examples=40)
@given(pairs)
@example(("reward", SystemExit(0)))
@example(("step", BrokenPipeError()))
@example(("terminated", np.zeros(2)))
@example(("reward", None))
def test_an_odd_environment_is_trained_on_or_refused(pair: tuple[str, Any]) -> None:
    config = make_config("<odd>", **SMALL | {"total_steps": 40})
    answered(lambda: list(Trainer(config, env=lambda: Odd(*pair))))


def test_check_env_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cspo.envs.check.TRIAL_STEPS", 30)

    @settings(fuzz, max_examples=40)
    @given(pairs)
    @example(("reset", SystemExit(0)))
    @example(("step", None))
    def check(pair: tuple[str, Any]) -> None:
        problems = cspo.check_env(lambda: Odd(*pair))
        assert all(isinstance(problem, str) and problem for problem in problems)

    check()
    assert cspo.check_env(lambda: Odd("nowhere", None)) == []


# Everything, through the command line


PROBES = """
import json, os, sys, time
from pathlib import Path
from hostile.case import FINE, Case
from hostile.runner import run


def raise_an_error():
    raise KeyError("x")


def write(name):
    Path(name).write_text("touched")


PROBES = {
    "traceback": raise_an_error,
    "hang": lambda: time.sleep(60),
    "crash": os.abort,
    "exit": lambda: sys.exit(3),
    "change": lambda: write("outside/precious.txt"),
    "execute": lambda: write("PWNED-here"),
    "fine": lambda: print("fine"),
}
space = Path(sys.argv[1])
(space / "bases" / "home").mkdir(parents=True)
seen = {}
for name, call in PROBES.items():
    case = Case("probe", name, call=call, expected=FINE)
    outcome = run(case, space / "bases", space / name, 1.0 if name == "hang" else 30.0)
    seen[name] = sorted(outcome.faults)
print(json.dumps(seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="every case is forked")
def test_the_campaign_sees_what_goes_wrong(tmp_path: Path) -> None:
    source = os.pathsep.join([str(Path(cspo.__file__).parents[1]), str(ROOT / "benchmarks")])
    done = subprocess.run(  # a process without threads, which a fork would not have
        [sys.executable, "-c", PROBES, tmp_path / "probes"],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "traceback": ["exit", "traceback"],
        "hang": ["hang"],
        "crash": ["crash"],
        "exit": ["exit", "silent"],
        "change": ["changed"],
        "execute": ["executed"],
        "fine": [],
    }


@pytest.mark.timeout(300)  # half a minute on a machine that has nothing else to do
@pytest.mark.skipif(sys.platform != "linux", reason="every case is forked")
def test_a_sample_of_the_campaign_is_right() -> None:
    """`benchmarks/campaign.py` has some 1700 cases; a sample of every kind."""
    source = str(Path(cspo.__file__).parents[1])
    campaign = ROOT / "benchmarks" / "campaign.py"
    done = subprocess.run(
        [sys.executable, campaign, "--limit", str(SAMPLE), "--json", "--timeout", "30"],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert len(found["cases"]) == SAMPLE
    wrong = [case for case in found["cases"] if case["faults"]]
    assert not wrong, "\n".join(f"{x['kind']}: {x['name']}: {x['faults']}" for x in wrong)
