"""Whatever a user's environment does, a command says it in words; `check_env` finds it before."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_envs import Broken, calls, make, values
from run_helpers import SMALL, TinyEnv, as_flags, start

import cspo
from cspo.algorithms import registry
from cspo.cli import main
from cspo.config import make_config
from cspo.envs import StepResult, check, make_batch
from cspo.envs.foreign import EnvironmentWarning
from cspo.errors import CspoError, EnvironmentFault

ZOO = [*calls(), *values()]
METHOD = {"observation": "step()", "start": "reset()", "construction": "construction"}
SETTINGS: dict[str, Any] = {
    "num_envs": 2, "steps_per_epoch": 800, "total_steps": 1600, "hidden_sizes": (4,), "passes": 1,
    "minibatch_size": 400, "tensorboard": False,
}  # fmt: skip


@pytest.fixture(autouse=True)
def anew() -> None:
    Broken.made = 0


def train(case: str, folder: Path, *words: str, env: str = "broken_envs:make", **more: Any) -> int:
    options = ("--env-options", f'case="{case}"') if case else ()
    flags = as_flags({**SETTINGS, **more})
    return main(["train", env, *options, *flags, "--run-dir", str(folder), "--quiet", *words])


def test_the_zoo_is_large() -> None:
    assert len(ZOO) == len(set(ZOO)) >= 90


@pytest.mark.parametrize("case", ZOO)
def test_training_says_what_is_wrong_and_where(
    case: str, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    config = make_config("broken_envs:make", env_options={"case": case}, **SETTINGS)
    # Reading a hundred flags takes longer than all the rest.
    read = (config, str(tmp_path / "run"), True)
    monkeypatch.setattr("cspo.commands.train.read_arguments", lambda words: read)
    assert main(["train", "broken_envs:make"]) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said and said.startswith("cspo: error: ")
    assert "broken_envs.py, line " in said
    where, _, when = case.split()
    call = METHOD.get(where, f"{where}()" if where in ("reset", "step", "random_state") else "")
    assert call in said
    if when == "second":
        assert "(copy 1)" in said
    assert len(said) < 1200 and "\x1b" not in said
    if "construction" not in case and (tmp_path / "run").exists():
        assert "in epoch 1 of 2" in said and "start again" in said


@pytest.mark.parametrize("case", [*ZOO, *(f"close {x} first" for x in ("ValueError", "exit"))])
def test_check_env_finds_it_and_never_raises(case: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(check, "TRIAL_STEPS", 1400)
    assert cspo.check_env("broken_envs:make", env_options={"case": case})
    if case.split()[2] != "second":  # of a single object there is none
        Broken.made = 0
        assert cspo.check_env(lambda: make(case))


def test_check_env_passes_what_is_sound() -> None:
    assert cspo.check_env(make) == []
    assert cspo.check_env(make()) == []


def test_a_fault_in_a_later_epoch_says_how_to_resume_and_resuming_works(
    tmp_path: Path, capfd: Any
) -> None:
    folder = tmp_path / "run"
    assert train("step exit late", folder, steps_per_epoch=400) == 2
    said = capfd.readouterr().err
    assert "step() of the environment broken_envs:make (copy 0) raised SystemExit: 0 (" in said
    assert "epoch 2 of 4" in said and f"cspo train --resume {folder}\n" in said
    assert main(["train", "--resume", str(folder), "--quiet"]) == 2  # at the same place again


def test_traceback_shows_all(tmp_path: Path, capfd: Any) -> None:
    assert train("step ValueError first", tmp_path / "a") == 2
    assert "`--traceback` shows all of it" in capfd.readouterr().err
    assert train("step ValueError first", tmp_path / "b", "--traceback") == 2
    said = capfd.readouterr().err
    assert "Traceback" in said and "raise_named" in said and "EnvironmentFault" in said


@pytest.mark.parametrize("fault", ["ValueError", "exit", "OwnBase"])
def test_a_close_that_fails_is_a_warning_of_a_finished_run(
    fault: str, tmp_path: Path, capfd: Any
) -> None:
    assert train(f"close {fault} first", tmp_path / "run") == 0
    said = capfd.readouterr().err
    assert "cspo: warning: close() of the environment broken_envs:make (copy 0) raised" in said
    assert "So did 1 more." in said and "Traceback" not in said
    assert (tmp_path / "run" / "summary.json").exists()
    with pytest.warns(EnvironmentWarning, match="copy 0"):
        make_batch(lambda: make(f"close {fault} first"), 2).close()


def test_ctrl_c_stays_what_it_is(tmp_path: Path, capfd: Any) -> None:
    assert train("step KeyboardInterrupt late", tmp_path / "run") == 130
    assert "continue with" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        cspo.check_env(lambda: make("step KeyboardInterrupt first"))


MODULES = {
    "syntax": "def f(:\n",
    "exit": "import sys\nsys.exit(0)\n",
    "error": "raise ValueError('at import')\n",
    "pipe": "raise BrokenPipeError(32, 'Broken pipe')\n",
    "needs": "import a_module_that_is_nowhere\n",
    "itself": "import MODULE.part\n",
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_that_cannot_be_imported_names_its_line(
    kind: str, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    name = f"unimportable_{kind}"
    (tmp_path / f"{name}.py").write_text(MODULES[kind].replace("MODULE", name))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert train("", tmp_path / "run", env=f"{name}:make") == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said and f"importing {name}" in said and f"{name}.py, line " in said
    (problem,) = cspo.check_env(f"{name}:make")
    assert f"{name}.py, line " in problem


PLUGIN = """
import sys
import cspo
from cspo.algorithms.ppo_lag import PPOLag

@cspo.register("{name}")
class Own(PPOLag):
    def update(self, batch, J_c, d):
        {body}
"""


@pytest.mark.parametrize("body", ["sys.exit(0)", "raise BrokenPipeError(32, 'x')", "1 / 0"])
def test_an_algorithm_of_a_users_is_no_silent_end_either(
    body: str, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    name = f"own-{abs(hash(body)) % 10**6}"
    file = tmp_path / f"{name.replace('-', '_')}.py"
    file.write_text(PLUGIN.format(name=name, body=body))
    assert train("", tmp_path / "run", "--plugin", str(file), "--algo", name) == 2
    said = capfd.readouterr().err
    assert f"{file}, line 9" in said and "stopped in epoch 1" in said and "Traceback" not in said
    leaves = tmp_path / "leaves.py"
    leaves.write_text("import sys\nsys.exit(0)\n")
    assert train("", tmp_path / "run2", "--plugin", str(leaves)) == 2
    assert f"{leaves}, line 2" in capfd.readouterr().err


@pytest.mark.parametrize("case", ["step exit late", "step BrokenPipeError late"])
def test_a_real_process_ends_with_two_and_says_why(case: str, tmp_path: Path) -> None:
    words = ["train", "broken_envs:make", "--env-options", f'case="{case}"', *as_flags(SETTINGS)]
    process = start(*words, "--run-dir", tmp_path / "run")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and "broken_envs.py, line" in said and "Traceback" not in said


# ---- whole batches of a user's


class Batch:
    """Two copies that take a constant reward; `change` spoils what a step returns."""

    name, num_envs, observation_size, action_size, time_limit = "Batch", 2, 3, 1, 10
    action_low, action_high, cost_names = -np.ones(1), np.ones(1), ("cost",)

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def reset(self, seed: int | None = None) -> Any:
        return self.changed.get("start", np.zeros((2, 3)))

    def step(self, actions: Any) -> Any:
        if "fault" in self.changed:
            raise self.changed["fault"]
        sound = StepResult.zeros(2, 3, 1)._asdict()
        result = StepResult(**{k: self.changed.get(k, v) for k, v in sound.items()})
        return self.changed.get("answer", result)

    def random_state(self) -> Any:
        return self.changed.get("state", {})

    def set_random_state(self, state: Any) -> None: ...

    def close(self) -> None:
        raise SystemExit(0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observation", np.zeros((2, 4))), ("observation", np.zeros((2, 3), complex)),
        ("observation", [[0.0] * 3] * 2), ("reward", np.zeros((2, 1))), ("reward", None),
        ("cost", np.zeros(2)), ("terminated", np.full(2, 0.5)), ("truncated", np.array(["a", "b"])),
        ("final_observation", np.zeros((1, 3))), ("answer", None), ("answer", (1, 2, 3)),
        ("start", np.zeros((2, 2))), ("start", None), ("state", None), ("state", {"a": {1, 2}}),
        ("fault", SystemExit(0)), ("fault", BrokenPipeError()), ("fault", GeneratorExit()),
    ],
)  # fmt: skip
def test_a_batch_of_a_users_is_looked_at_before_compiled_code_sees_it(
    name: str, value: Any, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentFault, match=r"Batch .*test_broken_envs.py, line"):
        cspo.train(Batch(**{name: value}), run_dir=tmp_path / "run", quiet=True, **SETTINGS)
    assert cspo.check_env(Batch(**{name: value}))


def test_a_batch_with_other_types_is_the_same_run(tmp_path: Path) -> None:
    """Single precision, whole numbers for flags, a tuple: what can be understood is."""
    other = Batch(
        observation=np.zeros((2, 3), np.float32),
        terminated=np.zeros(2, np.int8),
        answer=tuple(StepResult.zeros(2, 3, 1)),
    )
    hashes = {
        cspo.train(env, run_dir=tmp_path / str(i), quiet=True, **SETTINGS).parameter_hash
        for i, env in enumerate((Batch(), other))
    }
    assert len(hashes) == 1
    with pytest.warns(EnvironmentWarning, match=r"close\(\) of the environment Batch"):
        make_batch(Batch(), 2).close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_envs", "two"), ("action_low", None), ("cost_names", ()), ("time_limit", "long")],
)
def test_a_batch_that_describes_itself_wrongly_is_refused(name: str, value: Any) -> None:
    env = Batch()
    setattr(env, name, value)
    with pytest.raises(EnvironmentFault, match=name):
        make_batch(env, 2)


# ---- nothing is left open


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux has")
@pytest.mark.parametrize("how", ["abandoned", "dropped", "with", "closed", "finished", "failed"])
def test_a_trainer_gives_back_what_it_opened(how: str, tmp_path: Path) -> None:
    settings = {**SMALL, "tensorboard": True, "total_steps": 800, "threads": 2}
    if how == "failed":
        settings["total_steps"] = 1600  # the fault is in the third epoch
    made: list[TinyEnv] = []

    def factory() -> TinyEnv:
        made.append(TinyEnv(faulty=how == "failed"))
        return made[-1]

    def once(folder: Path) -> None:
        config = make_config("<factory>", **settings)
        trainer = cspo.Trainer(config, env=factory, run_dir=folder)
        if how == "dropped":
            return
        if how == "with":
            with trainer:
                next(iter(trainer))
        elif how == "finished":
            assert len(list(trainer)) == 2
        elif how == "failed":
            with pytest.raises(EnvironmentFault), trainer:
                list(trainer)
        else:
            for _ in trainer:
                break
            if how == "closed":
                trainer.close()
                trainer.close()
                with pytest.raises(CspoError, match="is closed: go on with"):
                    trainer.save()

    once(tmp_path / "first")  # imports, caches
    gc.disable()  # nothing may wait for the collector
    try:
        threads, open_files = set(threading.enumerate()), descriptors()
        for i in range(3):
            once(tmp_path / str(i))
            again = cspo.Trainer.resume(tmp_path / str(i), env=factory)  # the lock is free
            again.close()
        for thread in set(threading.enumerate()) - threads:
            thread.join(timeout=5)
        assert set(threading.enumerate()) <= threads
        assert descriptors() == open_files
        assert all(env.closed for env in made)
    finally:
        gc.enable()


def test_an_environment_object_is_never_closed_by_a_trainer(tmp_path: Path) -> None:
    own = TinyEnv()
    with cspo.Trainer(make_config("<own>", **{**SMALL, "num_envs": 1}), env=own) as trainer:
        next(iter(trainer))
    assert not own.closed


# ---- sizes that cannot fit


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        (["--num-envs", "1e9", "--steps-per-epoch", "1e9", "--total-steps", "1e9"], "--num-envs"),
        (["--num-envs", "1e18", "--steps-per-epoch", "1e18", "--total-steps", "1e18"], "--"),
        (["--hidden-sizes", "1e19"], "--hidden-sizes"),
        (["--hidden-sizes", "1e200,1e300"], "--hidden-sizes"),
        (["--steps-per-epoch", "2e16", "--total-steps", "2e16"], "--steps-per-epoch"),
        (["--minibatch-size", "1e15"], "--minibatch-size"),
    ],
)
@pytest.mark.parametrize("task", ["SafetyHopperVelocity-v1", "run_helpers:make_tiny"])
def test_sizes_that_cannot_fit_are_refused_with_what_they_take(
    task: str, words: list[str], blamed: str, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("cspo.settings.machine_memory", lambda: 10**11)
    assert main(["train", task, *words, "--run-dir", str(tmp_path / "run")]) == 2
    said = capfd.readouterr().err
    assert "would take at least" in said and "this machine has 100 GB: lower" in said
    assert blamed in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("seeds", [10**10, 10**18])
def test_a_study_that_cannot_fit_is_refused(seeds: int, tmp_path: Path, capfd: Any) -> None:
    file = tmp_path / "study.toml"
    tasks = 'tasks = ["SafetyHopperVelocity-v1"]\nalgorithms = ["cspo"]\ntotal_steps = 20000\n'
    file.write_text(f'name = "big"\nseeds = {seeds}\n{tasks}')
    for words in (["run", str(file), "--out", str(tmp_path / "out")], ["status", str(tmp_path)]):
        assert main(["study", *words]) == 2
        assert f"A study of {seeds} seeds would take at least" in capfd.readouterr().err


def test_nothing_of_this_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = make_batch(make, 2)
        batch.reset(0)
        batch.step(np.zeros((2, 1)))
        batch.close()
