"""Environments in processes of their own: the same bits, and nothing left behind whatever dies."""

from __future__ import annotations

import gc
import json
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import SMALL, as_flags, assert_same_run, make_tiny, start, wait_for_epochs
from worker_envs import FIRST_SEED, Failing, cost_of_place

import cspo
from cspo.cli import main
from cspo.envs import make_batch
from cspo.envs.foreign import EnvironmentWarning
from cspo.envs.settings import WorkerSettings
from cspo.errors import CspoError, EnvironmentFault
from cspo.experience.rollout import collect, finished_episodes

pytestmark = pytest.mark.usefixtures("no_pictures")
EPOCHS = 3
SHORT = {**SMALL, "steps_per_epoch": 400, "total_steps": 400 * EPOCHS, "hidden_sizes": (4,)}
FAILING = "worker_envs:Failing"


def pids(place: Path) -> list[int]:
    return sorted(int(file.stem) for file in place.glob("*.pid"))


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def assert_gone(place: Path, *, seconds: float = 10.0) -> list[int]:
    """No process that an environment was made in is still there, but for this one."""
    known = [pid for pid in pids(place) if pid != os.getpid()]
    deadline = time.monotonic() + seconds
    while any(map(is_alive, known)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in known if is_alive(pid)]
    return known


@pytest.fixture(autouse=True)
def _nothing_in_shared_memory() -> Any:
    folder = Path("/dev/shm")
    before = {*os.listdir(folder)} if folder.exists() else set()
    yield
    assert not folder.exists() or {*os.listdir(folder)} <= before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Any) -> Path:
    """The run that every disturbed one has to become."""
    folder: Path = tmp_path_factory.mktemp("undisturbed")
    train(folder / "run", place=folder)
    return folder / "run"


def train(run: Path, fault: str = "", *, place: Path, **settings: Any) -> Any:
    options = {"fault": fault, "place": str(place)}
    keywords: Any = {**SHORT, **settings}
    return cspo.train(FAILING, "ppo-lag", run_dir=run, env_options=options, quiet=True, **keywords)


def test_results_do_not_depend_on_the_number_of_workers(tmp_path: Path, undisturbed: Path) -> None:
    for workers in (1, 3):
        place = tmp_path / str(workers)
        place.mkdir()
        train(place / "run", place=place, workers=workers)
        assert_same_run(place / "run", undisturbed)
        assert len(assert_gone(place)) == workers


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ("worker_envs:Counting", {}),
        ("run_helpers:TwoCosts", {"cost_limit": (5.0, 5.0), "algo": "cspo"}),
        (
            "worker_envs:make_named",
            {"cost_terms": ("noise", "heat"), "cost_limit": (5.0, 9.0), "algo": "cspo",
             "env_options": {"scale": 0.5}},
        ),
    ],
)  # fmt: skip
def test_every_way_to_give_a_cost_gives_the_same(tmp_path: Path, env: str, more: Any) -> None:
    keywords: Any = {"algo": "ppo-lag", **SHORT, "total_steps": 800, **more}
    for workers in (0, 3):
        cspo.train(env, run_dir=tmp_path / str(workers), workers=workers, quiet=True, **keywords)
    assert_same_run(tmp_path / "3", tmp_path / "0")


def test_functions_are_imported_by_the_workers(tmp_path: Path) -> None:
    keywords: Any = {"cost_fn": cost_of_place, **SHORT, "total_steps": 800}
    for workers in (0, 2):
        folder = tmp_path / str(workers)
        cspo.train(make_tiny, run_dir=folder, workers=workers, quiet=True, **keywords)
    assert_same_run(tmp_path / "2", tmp_path / "0")


def test_every_array_of_every_step_is_the_same() -> None:
    """And the random state, after episodes that end at different times."""
    seen: list[list[bytes]] = []
    for workers in (0, 3):
        env = make_batch("run_helpers:make_hopper", 4, workers=workers)
        try:
            rng, arrays = np.random.default_rng(0), [env.reset(7).tobytes()]
            for _ in range(60):
                result = env.step(2.0 * rng.normal(size=(4, env.action_size)))
                ended = result.terminated | result.truncated
                arrays += [array.tobytes() for array in result[:5]]
                arrays.append(result.final_observation[ended].tobytes())
            state = env.random_state()
            arrays += [json.dumps(state).encode(), env.reset().tobytes()]
            env.set_random_state(state)
            arrays.append(env.reset().tobytes())
            seen.append(arrays)
        finally:
            env.close()
    assert seen[0] == seen[1] and seen[1][-1] == seen[1][-2]


# What becomes of a worker, what is said of it, and whether it may be started again.
FAULTS = {
    "kill": ("worker 1 (copies 2 to 3)", "was killed by SIGKILL in step()"),
    "exit": ("worker 1 (copies 2 to 3)", "ended with exit code 3 in step()"),
    "crash": ("worker 1 (copies 2 to 3)", "was killed by SIGSEGV in step() ("),
    "hang": ("worker 1 (copies 2 to 3)", "gave no answer to step() within 2 s ("),
    "lock": ("worker 1 (copies 2 to 3)", "gave no answer to step() within 2 s ("),
    "raise": ("(copy 2)", "raised ZeroDivisionError: on purpose ("),
    "nan": ("(copy 2)", "gave a non-finite reward"),
    "text": ("(copy 2)", "gave a reward that is not one number but 'much'"),
}
WITH_PLACE = ("crash", "hang", "lock", "raise", "nan", "text")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_the_run_goes_on_as_if_it_had_not_been(
    fault: str, tmp_path: Path, undisturbed: Path, capfd: Any, monkeypatch: Any
) -> None:
    run, options = tmp_path / "run", {"fault": fault, "place": str(tmp_path)}
    timeout = 2.0 if fault in ("hang", "lock") else 60.0
    spread: Any = {"workers": 2, "worker_timeout": timeout, "env_options": options}
    config = cspo.make_config(FAILING, "ppo-lag", **SHORT, **spread)
    # Reading a hundred flags takes longer than all the rest.
    monkeypatch.setattr("cspo.commands.train.read_arguments", lambda _: (config, str(run), True))
    assert main(["train", FAILING]) == 2
    said = capfd.readouterr().err
    assert said.startswith("cspo: error: ") and "Traceback" not in said
    assert all(words in said for words in FAULTS[fault]), said
    assert "This was in epoch 2 of 3." in said and "The last checkpoint is intact." in said
    if fault in WITH_PLACE:
        assert "worker_envs.py, line " in said
    assert ("`--traceback` shows" in said) == (fault == "raise")
    assert_gone(tmp_path)
    workers = 3 if fault == "kill" else 0
    cspo.resume(run, workers=workers, quiet=True)
    assert_same_run(run, undisturbed)
    assert len(assert_gone(tmp_path)) == 2 + workers


def test_a_fault_in_a_worker_is_told_as_in_one_process(tmp_path: Path) -> None:
    said = []
    for workers in (0, 2):
        place = tmp_path / str(workers)
        place.mkdir()
        with pytest.raises(EnvironmentFault) as caught:
            train(place / "run", "raise", place=place, workers=workers)
        said.append(str(caught.value).replace(str(place), ""))
        chain = [caught.value, caught.value.__cause__, caught.value.__cause__.__cause__]  # type: ignore[union-attr]
        assert "on purpose" in str(chain[2])
    assert said[0] == said[1]


def test_a_worker_is_started_again_if_that_is_allowed(tmp_path: Path) -> None:
    """Twice the same, if it fails at the same step; and exact to resume from there on."""
    runs = []
    for name, epochs in (("whole", 3), ("resumed", 2)):
        place = tmp_path / name
        place.mkdir()
        options = {"fault": "kill", "place": str(place)}
        spread: Any = {"workers": 2, "restart_workers": 1, "env_options": options}
        config = cspo.make_config(FAILING, **SHORT, **spread)
        with (
            pytest.warns(EnvironmentWarning, match=r"begin new episodes .*\(restart 1 of 1\)"),
            cspo.Trainer(config, run_dir=place / "run") as trainer,
        ):
            for report in trainer:
                if report.epoch + 1 == epochs:
                    break
        assert len(assert_gone(place)) == 3
        runs.append(cspo.resume(place / "run", workers=0, quiet=True).run_dir)
    assert_same_run(*runs)


def test_a_worker_whose_environment_raises_is_started_again_too(tmp_path: Path) -> None:
    options = {"fault": "raise", "place": str(tmp_path), "copy": 0, "step": 2}
    env = make_batch(FAILING, 2, env_options=options, workers=WorkerSettings(1, 60.0, 1))
    try:
        env.reset(FIRST_SEED)
        env.step(np.zeros((2, 1)))
        with pytest.warns(EnvironmentWarning, match=r"\(copy 0\) raised ZeroDivisionError"):
            assert env.step(np.zeros((2, 1))).truncated.all()
    finally:
        env.close()
    (tmp_path / "happened").unlink()
    env = make_batch(
        FAILING, 2, env_options=options | {"fault": "nan"}, workers=WorkerSettings(1, 60.0, 1)
    )
    try:
        env.reset(FIRST_SEED)
        env.step(np.zeros((2, 1)))
        with pytest.raises(EnvironmentFault, match="non-finite reward"):
            env.step(np.zeros((2, 1)))
    finally:
        env.close()


def test_no_more_restarts_than_allowed(tmp_path: Path) -> None:
    spread = WorkerSettings(2, 60.0, 1)
    options = {"fault": "exit", "place": str(tmp_path), "step": 1, "copy": 1}
    env = make_batch(FAILING, 2, env_options=options, workers=spread)
    try:
        env.reset(FIRST_SEED)
        with pytest.warns(EnvironmentWarning):
            env.step(np.zeros((2, 1)))
        os.kill(max(pids(tmp_path)), signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match=r"SIGKILL .* All 1 restarts .* used up"):
            env.step(np.zeros((2, 1)))
    finally:
        env.close()
    assert_gone(tmp_path)


def test_a_lost_step_is_no_end_of_an_episode(tmp_path: Path) -> None:
    """It cuts a path, which is bootstrapped from what was seen last, and counts nothing."""
    options = {"fault": "kill", "place": str(tmp_path), "step": 10}
    env: Any = make_batch(FAILING, 4, env_options=options, workers=WorkerSettings(2, 60.0, 1))
    try:
        env.reset(FIRST_SEED)
        for _ in range(9):
            before = env.step(np.zeros((4, 1))).observation.copy()
        assert not env.lost.any()
        with pytest.warns(EnvironmentWarning):
            result = env.step(np.zeros((4, 1)))
        assert env.lost.tolist() == [False, False, True, True]
        assert result.truncated.tolist() == env.lost.tolist() and not result.terminated.any()
        assert not result.reward[2:].any() and not result.cost[2:].any()
        np.testing.assert_array_equal(result.final_observation[2:], before[2:])
        assert (result.observation[2:] != before[2:]).all()
        env.step(np.zeros((4, 1)))
        assert not env.lost.any()

        (tmp_path / "happened").unlink()
        config = cspo.make_config(FAILING, **{**SHORT, "steps_per_epoch": 200})
        policy = cspo.Trainer(config, env=make_tiny).policy
        env._settings = WorkerSettings(2, 60.0, 2)
        os.kill(max(pids(tmp_path)), signal.SIGKILL)
        with pytest.warns(EnvironmentWarning):
            rollout = collect(env, policy, 50, np.random.default_rng(0))
        assert rollout.lost is not None and rollout.lost.sum() == 0  # it was between two epochs
        rollout.lost[19, 0] = True  # the end of the first episode of copy 0
        whole = finished_episodes(rollout)
        assert len(whole) == 4 * 2 - 1 and (whole.lengths == 20).all()
    finally:
        env.close()


def test_no_worker_outlives_a_killed_trainer(tmp_path: Path, undisturbed: Path) -> None:
    """Nor does one that hangs and lets no thread of its process run; the run can be resumed."""
    run = tmp_path / "run"
    options = f'fault="lock",step=230,place="{tmp_path}"'
    words = as_flags({**SHORT, "algo": "ppo-lag", "workers": 2})
    process = start("train", FAILING, *words, "--env-options", options, "--run-dir", run)
    wait_for_epochs(run, 2, process)
    while not (tmp_path / "happened").exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert len(assert_gone(tmp_path)) == 2
    process.communicate()
    cspo.resume(run, quiet=True, trust=True)
    assert_same_run(run, undisturbed)


def test_ctrl_c_reaches_the_trainer_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = as_flags({**SHORT, "algo": "ppo-lag", "workers": 2, "total_steps": 400_000})
    options = f'place="{tmp_path}"'
    command = ("train", FAILING, *words, "--env-options", options, "--run-dir", run)
    process = start(*command, start_new_session=True)
    wait_for_epochs(run, 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in said
    assert said.count("finishing the epoch under way") == 1
    assert_gone(tmp_path)


def test_a_worker_that_somebody_kills_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = as_flags({**SHORT, "workers": 2, "total_steps": 400_000})
    options = f'place="{tmp_path}"'
    process = start("train", FAILING, *words, "--env-options", options, "--run-dir", run)
    wait_for_epochs(run, 1, process)
    os.kill(pids(tmp_path)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2 and "was killed by SIGKILL" in said
    assert f"cspo train --resume {run}" in said
    assert_gone(tmp_path)


def test_interrupting_a_call_leaves_no_answer_behind(tmp_path: Path) -> None:
    """What a broken-off step returns is not taken for the answer of the next call."""
    env: Any = make_batch("run_helpers:make_tiny", 2, workers=1)
    try:
        env.reset(0)
        first = env.step(np.ones((2, 1))).observation.copy()
        env.reset(0)
        env._workers[0].step()  # nobody waits for it
        env.reset(0)
        np.testing.assert_array_equal(env.step(np.ones((2, 1))).observation, first)
    finally:
        env.close()


def test_trainers_and_environments_give_their_workers_back(tmp_path: Path) -> None:
    options = {"place": str(tmp_path)}
    config = cspo.make_config(FAILING, workers=2, env_options=options, **SHORT)
    with cspo.Trainer(config) as trainer:
        next(iter(trainer))
    assert len(assert_gone(tmp_path, seconds=0)) == 2
    trainer = cspo.Trainer(config)
    del trainer
    env = make_batch(FAILING, 2, env_options=options, workers=2)
    del env
    gc.collect()
    assert len(assert_gone(tmp_path, seconds=0)) == 6


def test_an_environment_without_manners_changes_nothing(tmp_path: Path, capfd: Any) -> None:
    here = os.getcwd()
    keywords: Any = {**SHORT, "total_steps": 400, "quiet": True}
    cspo.train("worker_envs:Rude", run_dir=tmp_path / "rude", workers=2, **keywords)
    assert os.getcwd() == here and capfd.readouterr().out.count("hello") == 4
    cspo.train(make_tiny, run_dir=tmp_path / "tiny", **keywords)
    assert_same_run(tmp_path / "rude", tmp_path / "tiny")
    with pytest.warns(EnvironmentWarning, match=r"close\(\) .* will not close .* So did 1 more"):
        make_batch("worker_envs:BadClose", 2, workers=1).close()


def test_evaluation_uses_the_workers_of_the_run(tmp_path: Path, undisturbed: Path) -> None:
    config = cspo.load(undisturbed).config
    place = Path(config.env_options["place"])
    reference = cspo.evaluate(undisturbed, 6)
    assert cspo.evaluate(undisturbed, 6, workers=2) == reference
    assert len(assert_gone(place)) == 2
    assert cspo.evaluate(undisturbed, 6, env=Failing) == reference


def test_a_script_may_define_its_environment(tmp_path: Path) -> None:
    """Its functions are found without a module; what starts training has to be guarded then."""
    text = """import cspo
from run_helpers import SHORT, TinyEnv
def make():
    return TinyEnv()
"""
    call = 'cspo.train(make, run_dir="run", workers=2, quiet=True, **SHORT)\n'
    text = text.replace("SHORT", "SMALL")
    call = call.replace("SHORT", "{**SMALL, 'total_steps': 400}")
    (tmp_path / "guarded.py").write_text(f'{text}if __name__ == "__main__":\n    {call}')
    (tmp_path / "open.py").write_text(text + call)
    for name, code in (("guarded", 0), ("open", 1)):
        process = run_script(tmp_path / f"{name}.py", tmp_path)
        _, said = process.communicate(timeout=60)
        assert process.returncode == code, said
    assert 'put what starts training under `if __name__ == "__main__":`' in said


def run_script(file: Path, folder: Path) -> Any:
    import subprocess
    import sys

    from run_helpers import PYTHONPATH

    variables = {**os.environ, "PYTHONPATH": PYTHONPATH}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(file)], cwd=folder, env=variables, **pipes)


def test_what_cannot_be_spread_is_refused_in_a_line(tmp_path: Path) -> None:
    class Inner(Failing):
        pass

    refused: list[tuple[Any, dict[str, Any], str]] = [
        (lambda: Failing(), {}, "the environment by its name, and .*<lambda> has none .* module"),
        (Inner, {}, "Inner has none that can be imported"),
        (make_tiny, {"cost_fn": lambda *_: 0.0}, "workers import cost_fn by its name"),
        (Failing(), {}, "an object cannot be stepped in other processes: pass a function"),
        ("SafetyHopperVelocity-v1", {}, "is stepped by threads of this process"),
        ("run_helpers:nothing", {}, "run_helpers has no function or id 'nothing'"),
        ("no_such_module:make", {}, "there is no module 'no_such_module'"),
        ("test_workers:whole", {}, "takes num_envs makes all copies at once"),
        (FAILING, {"env_options": {"fualt": 1}}, "no option 'fualt': did you mean 'fault'"),
    ]
    for env, more, words in refused:
        with pytest.raises(CspoError, match=words):
            make_batch(env, 1, workers=2, **more)
    with pytest.raises(CspoError, match="leave --workers out"):
        cspo.make_config("SafetyHopperVelocity-v1", workers=2)
    for wrong in ({"workers": -1}, {"worker_timeout": 0.0}, {"restart_workers": -1}):
        with pytest.raises(CspoError, match="must"):
            cspo.make_config("x:y", **wrong)


def whole(num_envs: int) -> Any:
    raise AssertionError("nobody is asked")


def test_a_worker_imports_neither_compiled_code_nor_the_learner() -> None:
    import subprocess
    import sys

    heavy = {"torch", "mujoco", "numba", "matplotlib", "scipy", "tyro", "rich", "safetensors"}
    code = f"import sys, cspo.envs.workers.process; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_id_registered_here_is_known_there() -> None:
    import gymnasium

    gymnasium.register("cspo-test/Tiny-v0", entry_point="run_helpers:TinyEnv")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = make_batch("cspo-test/Tiny-v0", 2, workers=2)
        assert env.reset(0).shape == (2, 2)
        env.close()
    finally:
        del gymnasium.registry["cspo-test/Tiny-v0"]
