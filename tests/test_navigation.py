"""The four navigation tasks as a batch: sizes, robots, episodes, equal bits, training."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from navigation_helpers import (
    CAR_BUTTON,
    CAR_GOAL,
    NAMES,
    POINT_BUTTON,
    POINT_GOAL,
    SIZES,
    Array,
    arrange,
    robot_of,
)
from run_helpers import SMALL, assert_same_run
from scipy.spatial.transform import Rotation

import cspo
import cspo.runs.curves
from cspo.envs.native import make_native
from cspo.envs.navigation.task import NavigationEnv
from cspo.envs.tasks import native_tasks
from cspo.errors import CspoError


def wild(env: NavigationEnv, steps: int, seed: int = 0) -> Array:
    """Actions with pauses, in and out of range."""
    rng = np.random.default_rng(seed)
    actions = rng.normal(0.0, 0.6, (steps, env.num_envs, 2))
    actions[rng.uniform(size=actions.shape) < 0.3] = 0.0
    return actions


def kept(env: NavigationEnv, actions: Array, seed: int | None = 3) -> list[Array]:
    """Everything that some steps return."""
    found = [env.reset(seed=seed).copy()]
    for action in actions:
        result = env.step(action)
        ended = result.terminated | result.truncated
        found += [array.copy() for array in result[:-1]] + [result.final_observation[ended].copy()]
        found += [value.copy() for value in env.info_terms.values()] + [env.total_cost.copy()]
    return found


def assert_same(ours: list[Array], theirs: list[Array]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


# --- what the tables say ---


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_tell_the_true_sizes(name: str) -> None:
    env = NavigationEnv(name, num_envs=2)
    row = next(row for row in native_tasks() if row.name == name)
    assert env.observation_size == row.observation_size == SIZES[name]
    assert env.action_size == row.action_size == env.model.nu == 2
    assert row.step_seconds == env.model.opt.timestep * 10
    assert env.reset(seed=0).shape == (2, SIZES[name])
    np.testing.assert_array_equal([env.action_low, env.action_high], [[-1.0, -1.0], [1.0, 1.0]])
    assert env.cost_names == ("cost",) and env.time_limit == 1000
    assert row.cost_terms == (
        ("buttons", "gremlins", "hazards") if "Button" in name else ("hazards",)
    )
    assert set(env.info_terms) == {"goal_met", *(f"cost_{term}" for term in row.cost_terms)}
    env.step(np.zeros((2, 2)))
    assert env.physics.data[0].time == pytest.approx(row.step_seconds)
    assert row.step_seconds == (0.04 if "Car" in name else 0.02)


@pytest.mark.parametrize("name", NAMES)
def test_sensors_at_rest_tell_gravity_and_heading(name: str) -> None:
    env = NavigationEnv(name)
    env.reset(seed=0)
    for heading in (0.0, 0.8, 3.0):
        arrange(env, heading=heading)
        for _ in range(5):
            seen = env.step(np.zeros((1, 2))).observation[0]
        np.testing.assert_allclose(seen[:3], [0.0, 0.0, 9.81], atol=0.05)
        np.testing.assert_allclose(seen[3:9], 0.0, atol=0.01)
        field = Rotation.from_euler("z", -heading).apply([0.0, -0.5, 0.0])
        np.testing.assert_allclose(seen[9:12], field, atol=2e-3)


def test_the_rear_wheel_of_the_car_is_shown_as_a_rotation_matrix() -> None:
    env = NavigationEnv(CAR_GOAL)
    env.reset(seed=0)
    arrange(env)
    for _ in range(25):
        seen = env.step([[1.0, 0.6]]).observation[0]
    joint = env.physics.data[0].joint("rear")
    turn = Rotation.from_quat(np.roll(joint.qpos, -1))
    np.testing.assert_allclose(seen[12:15], joint.qvel, rtol=0, atol=1e-12)
    np.testing.assert_allclose(seen[15:24].reshape(3, 3), turn.as_matrix(), rtol=0, atol=1e-12)
    assert turn.magnitude() > 0.5


# --- robots ---


def path(name: str, action: Any, steps: int) -> tuple[Array, Array]:
    """Positions and velocities of every step, from rest, in an empty world."""
    env = NavigationEnv(name, time_limit=None)
    env.reset(seed=0)
    arrange(env)
    data, states = env.physics.data[0], []
    for _ in range(steps):
        env.step([action])
        states.append((data.qpos.copy(), data.qvel.copy()))
    positions, velocities = zip(*states, strict=True)
    return np.array(positions), np.array(velocities)


def test_the_points_thrust_saturates_at_a_twentieth_of_its_command() -> None:
    full, more, beyond = (path(POINT_GOAL, (thrust, 0.0), 61) for thrust in (0.06, 1.0, 7.0))
    assert all(
        np.array_equal(a, b) and np.array_equal(a, c)
        for a, b, c in zip(full, more, beyond, strict=True)
    )
    np.testing.assert_allclose(full[1][[9, 29, 59], 0], [0.48, 1.03, 1.35], atol=0.0051)
    half, nearly = path(POINT_GOAL, (0.025, 0.0), 60), path(POINT_GOAL, (0.049, 0.0), 60)
    np.testing.assert_allclose(half[1][:, 0], 0.5 * full[1][:60, 0], rtol=1e-9)
    assert not np.array_equal(nearly[0], full[0][:60])
    np.testing.assert_allclose(
        path(POINT_GOAL, (-1.0, 0.0), 60)[1][:, 0], -full[1][:60, 0], rtol=1e-9
    )
    assert path(POINT_GOAL, (1.0, 0.0), 500)[1][-1, 0] == pytest.approx(1.5, abs=1e-3)


YAW_RATES = {
    0.05: 0.0,
    0.1: 0.03,
    0.15: 0.26,
    0.2: 0.50,
    0.3: 0.78,
    0.5: 1.35,
    0.7: 2.06,
    1.0: 3.0,
    -1.0: -3.0,
}


@pytest.mark.parametrize("command", YAW_RATES)
def test_the_point_turns_as_measured_with_its_dead_zone(command: float) -> None:
    positions, _ = path(POINT_GOAL, (0.0, command), 150)
    rate = (positions[-1, 2] - positions[49, 2]) / (100 * 0.02)
    assert rate == pytest.approx(YAW_RATES[command], abs=0.0051 + 0.002)


def test_the_points_gyro_trembles_once_disturbed() -> None:
    env = NavigationEnv(POINT_GOAL)
    env.reset(seed=0)
    arrange(env)
    assert [env.step([[0.0, 0.0]]).observation[0, 8] for _ in range(3)] == [0.0, 0.0, 0.0]
    env.step([[0.0, 1.0]])
    readings = [env.step([[0.0, 0.0]]).observation[0, 8] for _ in range(30)]
    np.testing.assert_allclose(np.abs(readings[10:]), 0.476, atol=0.0005)


def test_the_car_drives_and_spins_as_measured_and_saturates_at_a_fiftieth() -> None:
    full, more = path(CAR_GOAL, (0.02, 0.02), 150), path(CAR_GOAL, (1.0, 0.5), 150)
    assert all(np.array_equal(a, b) for a, b in zip(full, more, strict=True))
    assert not np.array_equal(path(CAR_GOAL, (0.019, 0.019), 20)[0], full[0][:20])
    speed = np.linalg.norm(full[1][100:, :2], axis=1)
    assert speed.mean() == pytest.approx(0.79, abs=0.02)
    forward = Rotation.from_quat(np.roll(full[0][-1, 3:7], -1)).apply([0.0, -1.0, 0.0])
    assert full[1][-1, :3] @ forward == pytest.approx(0.79, abs=0.02), "along its -y axis"
    for sign in (1.0, -1.0):
        positions, velocities = path(CAR_GOAL, (sign, -sign), 150)
        assert 1.2 <= sign * velocities[50:, 5].mean() <= 1.5
        assert np.linalg.norm(positions[-1, :2]) < 0.2, "on the spot"


# --- a batch and its episodes ---


@pytest.mark.parametrize("name", NAMES)
def test_threads_and_steppers_give_the_same_bits_across_resets(name: str) -> None:
    ways: list[tuple[Any, int]] = [
        ("python", 1),
        ("python", 3),
        ("compiled", 1),
        ("compiled", 2),
        ("compiled", 3),
    ]
    runs = []
    for stepper, threads in ways:
        env = NavigationEnv(name, num_envs=3, threads=threads, stepper=stepper, time_limit=45)
        assert env.physics.stepper == stepper
        runs.append(
            [*kept(env, wild(env, 200)), np.array([data.time for data in env.physics.data])]
        )
        assert env.elapsed.tolist() == [200 % 45] * 3
        env.close()
    for other in runs[1:]:
        assert_same(runs[0], other)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_does_not_depend_on_its_neighbours(name: str) -> None:
    many = NavigationEnv(name, num_envs=3, time_limit=20)
    actions = wild(many, 50)
    together = kept(many, actions, seed=5)
    alone = [
        kept(NavigationEnv(name, time_limit=20), actions[:, i : i + 1], seed=5 + i)
        for i in range(3)
    ]
    for number, array in enumerate(together):
        np.testing.assert_array_equal(array, np.concatenate([one[number] for one in alone]))


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_repeats_everything_and_a_reset_without_one_continues(name: str) -> None:
    env, other = (NavigationEnv(name, num_envs=2, time_limit=15) for _ in range(2))
    actions = wild(env, 40)
    first = kept(env, actions)
    assert_same(kept(other, actions), first)
    assert_same(kept(env, actions), first)
    continued = env.reset().copy()
    np.testing.assert_array_equal(other.reset(), continued)
    assert not np.array_equal(continued, first[0])
    assert not np.array_equal(env.reset(), continued)
    assert not np.array_equal(env.reset(seed=4), first[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_leaves_nothing_of_the_episode_before(name: str) -> None:
    used, fresh = (NavigationEnv(name, num_envs=2, time_limit=None) for _ in range(2))
    used.reset(seed=1)
    for action in wild(used, 60, seed=1):
        used.step(3.0 * action)
    if "Goal" in name:
        assert used.world.resting is not None and used.world.resting.resting.any(), (
            "a vase that rests has something to leave"
        )
    for steps in (0, 30):
        assert_same(kept(used, wild(used, steps), seed=9), kept(fresh, wild(fresh, steps), seed=9))
        for ours, theirs in zip(used.physics.data, fresh.physics.data, strict=True):
            for field in ("time", "qpos", "qvel", "qacc", "qacc_warmstart", "ctrl", "mocap_pos"):
                np.testing.assert_array_equal(
                    getattr(ours, field), getattr(theirs, field), err_msg=field
                )


@pytest.mark.parametrize("name", NAMES)
def test_the_random_state_survives_json_and_continues_identically(name: str) -> None:
    env = NavigationEnv(name, num_envs=3, time_limit=12)
    actions = wild(env, 30)
    kept(env, actions[:7])  # in the middle of an episode: steps that owe random numbers
    state = json.loads(json.dumps(env.random_state()))
    assert json.dumps(env.random_state()) == json.dumps(state), "asking changes nothing"
    other = NavigationEnv(name, num_envs=3, time_limit=12)
    other.set_random_state(state)
    assert_same(kept(other, actions, seed=None), kept(env, actions, seed=None))
    with pytest.raises(CspoError, match="3 environments, not 2"):
        NavigationEnv(name, num_envs=2).set_random_state(state)
    unused = json.loads(json.dumps(NavigationEnv(name, num_envs=2).random_state()))
    both = NavigationEnv(name, num_envs=2)
    both.set_random_state(unused)
    first = both.reset()
    assert not np.array_equal(first[0], first[1]), "streams that were never used stay so"


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_copy_shows_its_new_episode_and_keeps_its_last_observation(name: str) -> None:
    env = NavigationEnv(name, num_envs=2, time_limit=6)
    watched = NavigationEnv(name, num_envs=2, time_limit=6, autoreset=False)
    env.reset(seed=2)
    watched.reset(seed=2)
    for step, action in enumerate(wild(env, 18), start=1):
        ours, theirs = env.step(action), watched.step(action)
        assert not ours.terminated.any() and not theirs.terminated.any()
        assert ours.truncated.tolist() == theirs.truncated.tolist() == [step % 6 == 0] * 2
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        if step % 6 == 0:
            np.testing.assert_array_equal(ours.final_observation, theirs.observation)
            assert not np.array_equal(ours.observation, theirs.observation)
            np.testing.assert_array_equal(ours.observation, watched.reset())
            assert env.elapsed.tolist() == [0, 0]
        else:
            np.testing.assert_array_equal(ours.observation, theirs.observation)


def test_copies_end_their_episodes_each_in_its_own_time() -> None:
    env = NavigationEnv(POINT_GOAL, num_envs=3, time_limit=10)
    env.reset(seed=0)
    env.elapsed[:] = 0, 4, 8
    ends = [env.step(np.zeros((3, 2))).truncated.tolist() for _ in range(10)]
    expected = [[step == 10, step == 6, step == 2] for step in range(1, 11)]
    assert ends == expected


def test_an_episode_has_a_thousand_steps() -> None:
    env = NavigationEnv(POINT_GOAL)
    env.reset(seed=0)
    ends = [bool(env.step(np.zeros((1, 2))).truncated[0]) for _ in range(1001)]
    assert np.flatnonzero(ends).tolist() == [999]


@pytest.mark.parametrize("stepper", ["python", "compiled"])
@pytest.mark.parametrize("name", [POINT_GOAL, CAR_BUTTON])
def test_helper_threads_end_with_their_simulators(name: str, stepper: Any) -> None:
    def helpers() -> int:
        return sum(thread.name == "cspo-physics" for thread in threading.enumerate())

    def settled(count: int) -> bool:
        deadline = time.perf_counter() + 5.0
        while helpers() != count and time.perf_counter() < deadline:
            time.sleep(0.005)
        return helpers() == count

    gc.collect()
    before = helpers()
    env = NavigationEnv(name, num_envs=3, threads=3, stepper=stepper)
    assert helpers() == before + 2
    env.reset(seed=0)
    env.step(np.zeros((3, 2)))
    env.close()
    env.close()
    assert settled(before)
    env.step(np.zeros((3, 2)))  # slower, but no helper is waited for
    forgotten = NavigationEnv(name, num_envs=3, threads=2, stepper=stepper)
    forgotten.reset(seed=0)
    forgotten.step(np.zeros((3, 2)))
    alive = [weakref.ref(forgotten), weakref.ref(forgotten.physics)]
    del forgotten
    gc.collect()
    assert [one() for one in alive] == [None, None]
    assert settled(before)


# --- what is refused ---


@pytest.mark.parametrize("name", [POINT_GOAL, CAR_BUTTON])
def test_actions_that_cannot_be_taken_are_refused_in_words_and_change_nothing(name: str) -> None:
    env = NavigationEnv(name, num_envs=2)
    env.reset(seed=0)
    before = [*robot_of(env, 1), env.random_state()]
    wrong: list[tuple[Any, str]] = [
        (np.zeros(2), r"\(2, 2\), not \(2,\)"),
        (np.zeros((3, 2)), r"\(2, 2\), not \(3, 2\)"),
        (np.zeros((2, 3)), r"\(2, 2\), not \(2, 3\)"),
        ("go", "not an array of numbers"),
        ([[0.0, 0.0], [np.nan, 0.0]], "not finite.*copy 1"),
        ([[0.0, -np.inf], [0.0, 0.0]], "not finite.*copy 0"),
    ]
    for actions, words in wrong:
        with pytest.raises(CspoError, match=f"{name}.*{words}"):
            env.step(actions)
    np.testing.assert_array_equal(robot_of(env, 1)[0], before[0])
    assert env.random_state() == before[2] and env.elapsed.tolist() == [0, 0]


def test_names_seeds_and_sizes_that_do_not_exist_are_refused_in_words() -> None:
    with pytest.raises(CspoError, match=r"did you mean 'SafetyPointGoal[012]-v0'"):
        NavigationEnv("SafetyPointGoal-v0")
    with pytest.raises(CspoError, match=r"has no cost term 'vases': it has hazards"):
        NavigationEnv(POINT_GOAL, cost_terms=("vases",))
    with pytest.raises(CspoError, match="names a term twice"):
        NavigationEnv(POINT_BUTTON, cost_terms=("buttons", "buttons"))
    with pytest.raises(CspoError, match="at least 1"):
        NavigationEnv(POINT_GOAL, num_envs=0)
    with pytest.raises(CspoError, match="has no option 'button_timer_after_reset'"):
        make_native(POINT_GOAL, button_timer_after_reset=10)
    with pytest.raises(CspoError, match="from 0 on"):
        make_native(POINT_BUTTON, button_timer_after_reset=-1)
    env = NavigationEnv(POINT_GOAL, num_envs=2)
    for seed in (
        -1,
        2**32,
        2**32 - 1,
        1.5,
        True,
        "3",
    ):  # the second copy has the seed after the first's
        with pytest.raises(CspoError, match="a whole number from 0 to 4294967294, not"):
            env.reset(seed=seed)
    assert np.isfinite(env.reset(seed=2**32 - 2)).all()


# --- training ---


@pytest.mark.parametrize("name", NAMES)
def test_two_epochs_of_training_stopped_between_or_not_end_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run
    )  # takes longer than the rest
    terms = ("buttons", "gremlins", "hazards") if "Button" in name else ("hazards",)
    settings = {
        **SMALL,
        "num_envs": 2,
        "steps_per_epoch": 100,
        "total_steps": 200,
        "minibatch_size": 50,
    }
    settings |= {
        "env_options": {"time_limit": 30},
        "cost_terms": terms,
        "cost_limit": (25.0,) * len(terms),
    }
    summary = cspo.train(name, run_dir=tmp_path / "whole", quiet=True, **settings)
    assert summary.finished and summary.epochs == 2
    trainer = cspo.Trainer(cspo.make_config(name, **settings), run_dir=tmp_path / "stopped")
    report = next(iter(trainer))
    assert report.steps == 100 and report.episode_length == 30.0
    assert (
        len(report.cost) == len(terms)
        and np.isfinite([report.episode_return, report.kl, *report.cost]).all()
    )
    trainer.run.close()
    trainer.env.close()
    assert cspo.resume(tmp_path / "stopped", quiet=True).finished
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
