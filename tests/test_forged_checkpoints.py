"""A checkpoint that is not what the run's trainer would have written is damaged, whatever it says.

Every forgery here has a digest that fits: only the schema stands between it and compiled code.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import at, forge, leaves, put_together, tables, take_apart
from run_helpers import SMALL, TASK, assert_same_run, start

import cspo
from cspo.cli import main
from cspo.envs.navigation.layout import WORDS, Stream
from cspo.runs import checkpoint
from cspo.runs.checkpoint import AnotherVersion, DamagedCheckpoint, list_checkpoints, load
from cspo.runs.folder import load_config
from cspo.runs.schema import check_state

EPOCHS = 3
SETTINGS = {**SMALL, "total_steps": 400 * EPOCHS}


@pytest.fixture(scope="module")
def reference(no_pictures: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with two checkpoints."""
    run = tmp_path_factory.mktemp("reference") / "run"
    cspo.train(TASK, run_dir=run, quiet=True, **SETTINGS)
    return run


@pytest.fixture
def run(reference: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(reference, tmp_path / "run")
    return tmp_path / "run"


def newest(run: Path) -> Path:
    return list_checkpoints(run / "checkpoints")[-1]


def refused(path: Path, config: Any) -> bool:
    """Whether a file is called damaged; anything else that is raised fails the test."""
    try:
        load(path, lambda state: check_state(state, config))
    except DamagedCheckpoint as fault:
        told = (DamagedCheckpoint.told, AnotherVersion.told)
        assert path.name in str(fault) and any(words in str(fault) for words in told)
        return True
    return False


def longer_normaliser(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for name in ("mean", "square_sum"):
        arrays[f"/policy/normaliser/{name}"] = np.ones(3)


def whole_weights(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["/policy/actor"] = arrays["/policy/actor"].astype(np.int64)


def no_policy(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for name in [name for name in arrays if name.startswith("/policy/")]:
        del arrays[name]
    del plain["policy"]


def huge_sizes(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    plain["facts"]["observation_size"] = 2**30  # a network of it would not fit into any memory


def other_epoch(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    plain["epoch"] = 1


FORGERIES = [longer_normaliser, whole_weights, no_policy, huge_sizes, other_epoch]


@pytest.mark.parametrize("change", FORGERIES, ids=lambda change: change.__name__)
def test_the_one_before_is_used_and_said_so(
    run: Path, reference: Path, change: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = cspo.load(reference, checkpoint=EPOCHS - 1)
    forge(newest(run), change)
    capsys.readouterr()
    policy = cspo.load(run)
    said = capsys.readouterr().err
    assert f"{newest(run).name} is damaged" in said and "using the one before it" in said
    assert policy.epoch == EPOCHS - 1
    observation = np.linspace(-1.0, 1.0, policy.observation_size)
    np.testing.assert_array_equal(policy(observation), before(observation))
    with pytest.raises(cspo.CspoError, match="is damaged"):
        cspo.load(run, checkpoint=EPOCHS)
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    said = capsys.readouterr().err
    assert f"{newest(run).name} is damaged" in said and "using the one before it" in said
    assert_same_run(run, reference)


def earlier(plain: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """As if the algorithm had remembered another thing, and one less."""
    plain["algorithm"]["forecast"]["gain"] = plain["algorithm"]["forecast"].pop("delta")
    arrays["/algorithm/forecast/gain"] = arrays.pop("/algorithm/forecast/delta")
    plain["algorithm"]["forecast"]["gain"] = {"array": "/algorithm/forecast/gain"}


def test_a_checkpoint_of_another_version_of_the_algorithm_acts_and_does_not_train(
    run: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its policy is whole; what its algorithm remembers is not what today's would."""
    for path in list_checkpoints(run / "checkpoints"):
        forge(path, earlier)
    policy, before = cspo.load(run), cspo.load(reference)
    assert policy.epoch == EPOCHS
    observation = np.linspace(-1.0, 1.0, policy.observation_size)
    np.testing.assert_array_equal(policy(observation), before(observation))
    settings = SETTINGS | {"total_steps": 400, "init_from": str(run)}
    assert cspo.train(TASK, run_dir=run.with_name("next"), quiet=True, **settings).epochs == 1
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "was written by another version of the algorithm: only one of the two" in said
    assert "damaged" not in said and len(said.splitlines()) <= 2


def test_a_normaliser_of_the_wrong_length_in_real_processes(run: Path) -> None:
    """It made the allocator abort, and `eval` print what it read beside the array."""
    forge(newest(run), longer_normaliser)
    for words in (["eval", run, "--episodes", "1"], ["train", "--resume", run, "--quiet"]):
        process = start(*words)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "policy/normaliser/mean has the shape (3,), not (11,)" in errors
        assert "Traceback" not in errors


def test_when_all_are_forged_there_are_two_lines(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in list_checkpoints(run / "checkpoints"):
        forge(path, longer_normaliser)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    for words in (["train", "--resume", str(run)], ["eval", str(run)]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "No checkpoint" in said and len(said.splitlines()) <= 2
    assert before == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


def test_every_array_is_checked(run: Path) -> None:
    path, config = newest(run), load_config(run)
    plain, arrays = take_apart(path)
    assert len(arrays) > 20
    for name, array in arrays.items():
        flat = array.ravel()
        wrong = {
            "longer": np.resize(flat, flat.size + 1),
            "half": array.astype(np.float16 if array.dtype != np.float16 else np.float32),
            "whole": np.nan_to_num(array, posinf=0.0, neginf=0.0).astype(np.int64),
            "deeper": array[None],
        }
        if array.dtype.kind == "f" and not name.startswith("/progress"):
            wrong["infinite"] = np.full_like(array, np.inf)
        for kind, forged in wrong.items():
            put_together(path, plain, {**arrays, name: np.ascontiguousarray(forged)})
            assert refused(path, config), (name, kind)


def test_every_name_is_checked(run: Path) -> None:
    path, config = newest(run), load_config(run)
    plain, arrays = take_apart(path)
    for where in tables(plain):
        for key in at(plain, where):
            forged = copy.deepcopy(plain)
            gone = json.dumps(at(forged, where).pop(key))
            kept = {name: one for name, one in arrays.items() if f'"{name}"' not in gone}
            put_together(path, forged, kept)
            optional = where == () and key == "progress"  # the first release had none
            of_environment = where[:1] == ("env",)  # which only the environment knows
            assert refused(path, config) != (optional or of_environment), (where, key)
            put_together(path, forged, arrays)
            assert len(kept) == len(arrays) or refused(path, config), (where, key)
        forged = copy.deepcopy(plain)
        at(forged, where)["more"] = 1
        put_together(path, forged, arrays)
        assert refused(path, config) != (where[:1] == ("env",)), where


def test_every_value_may_be_anything(run: Path) -> None:
    path, config, trainer = newest(run), load_config(run), cspo.Trainer(load_config(run))
    plain, arrays = take_apart(path)
    for where in leaves(plain):
        for value in (None, "text", -1, 10**39, 1.5, True, [], {}):
            forged = copy.deepcopy(plain)
            holder, before = at(forged, where[:-1]), at(plain, where)
            if type(before) is type(value):
                continue
            holder[where[-1]] = value
            put_together(path, forged, arrays)
            if where[0] not in ("env", "facts"):
                assert refused(path, config), (where, value)
            elif not refused(path, config):
                state = load(path)
                try:
                    trainer.load_state_dict(state)
                except Exception as fault:  # `RunFolder.restore` calls that damaged as well
                    assert not isinstance(fault, AssertionError)
    trainer.env.close()


HOSTILE = {
    "deep": "[" * 100_000,
    "deep table": '{"a":' * 50 + "1" + "}" * 50,
    "digits": '{"epoch": ' + "9" * 5000 + "}",
    "list": "[1, 2]",
    "number": "7",
    "empty": "",
    "cut": '{"epoch": 3',
    "reference": '{"epoch": 3, "x": {"array": "/nowhere"}}',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_json_is_damage(run: Path, text: str) -> None:
    path = newest(run)
    put_together(path, None, take_apart(path)[1], text)
    assert refused(path, load_config(run))


def test_random_changes_of_header_and_lengths(run: Path) -> None:
    """Whatever bytes change, in the header, its length or the end: damaged, or the same state."""
    path, config, rng = newest(run), load_config(run), random.Random(17)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    intact, accepted = load(path), 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            content[rng.randrange(8 + size)] = rng.randrange(256)
        if rng.random() < 0.3:
            content = content[: rng.randrange(len(content))]
        path.write_bytes(content)
        if not refused(path, config):
            accepted += 1
            assert load(path)["epoch"] == intact["epoch"]
            assert load(path)["policy"]["actor"].tobytes() == intact["policy"]["actor"].tobytes()
    assert accepted < 20


def test_what_is_no_file_is_damage(run: Path) -> None:
    path, config = newest(run), load_config(run)
    path.unlink()
    path.mkdir()
    assert refused(path, config)
    path.rmdir()
    os.mkfifo(path)  # opening it would wait for ever
    assert refused(path, config)


def test_equal_states_are_equal_files(tmp_path: Path) -> None:
    state = {"epoch": 1, **{f"x{i}": np.arange(float(i)) for i in range(9)}, "facts": {"ä": "ö"}}
    contents = {checkpoint.save(tmp_path, 1, state).read_bytes() for _ in range(20)}
    assert len(contents) == 1
    assert load(tmp_path / "epoch-000001.safetensors")["facts"] == {"ä": "ö"}


def test_a_damaged_checkpoint_does_not_push_out_good_ones(tmp_path: Path) -> None:
    """Only those up to the epoch just written are counted when old ones are removed."""
    for epoch in (3, 9):
        checkpoint.save(tmp_path, epoch, {"epoch": epoch}, keep=5)
    (tmp_path / "epoch-000009.safetensors").write_bytes(b"damaged")
    checkpoint.save(tmp_path, 4, {"epoch": 4}, keep=1)
    state, notes = checkpoint.load_newest(tmp_path)
    assert state is not None and state["epoch"] == 4 and len(notes) == 1
    assert not (tmp_path / "epoch-000003.safetensors").exists()


def test_a_random_stream_that_points_beside_its_words_is_refused() -> None:
    draws = Stream(0)
    state = draws.state()
    for changes in ({"pos": 10**6}, {"pos": -1}, {"key": state["key"][:-1]}, {"key": [1] * 10**4}):
        with pytest.raises(ValueError, match="no state"):
            draws.set_state({**state, **changes})
    draws.set_state({**state, "pos": WORDS})
