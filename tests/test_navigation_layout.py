"""Where things are put: the benchmark's draws one by one, and what a placement promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from navigation_helpers import (
    NAMES,
    POINT_BUTTON,
    POINT_GOAL,
    arrange,
    goal_area,
    goal_of,
    keepouts,
    robot_of,
    rows_of,
    set_goal_button,
    skip_steps,
    try_to_place,
    world,
)

from cspo.envs.navigation.layout import Rooms, Stream
from cspo.envs.navigation.task import NavigationEnv
from cspo.errors import CspoError

KINDS = [POINT_GOAL, POINT_BUTTON]  # the robot makes no difference to a layout
RESETS = Path(__file__).parents[2] / "shared" / "reference" / "traces" / "resets"


@pytest.mark.parametrize("name", KINDS)
def test_everything_keeps_its_distance_in_ten_thousand_layouts(name: str) -> None:
    rooms = np.array(keepouts(name))
    stream = Stream(1)
    layouts = [stream.draw_layout(Rooms.square(1.5, rooms)) for _ in range(10_000)]
    places, rotations = (np.array(one) for one in zip(*layouts, strict=True))
    assert (np.abs(places) <= 1.5 - rooms[:, None]).all()
    gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) - (rooms[:, None] + rooms)
    first, second = np.triu_indices(len(rooms), 1)
    assert -1e-12 <= gaps[:, first, second].min() < 0.01, "kept, and no wider than asked"
    assert (rotations >= 0.0).all() and (rotations < 2.0 * np.pi).all()
    np.testing.assert_allclose(rotations.mean(axis=0), np.pi, atol=0.1)
    np.testing.assert_allclose(places.mean(axis=0), 0.0, atol=0.05)
    assert (places.max(axis=0) > 1.49 - rooms[:, None]).all(), "up to the border"


@pytest.mark.parametrize("name", KINDS)
def test_layouts_are_bit_for_bit_those_of_numpys_own_draws(name: str) -> None:
    for seed in range(10):
        random, stream = np.random.RandomState(seed), Stream(seed)
        for _ in range(2):
            places, rotations = world(random, name)
            ours = stream.draw_layout(Rooms.square(1.5, np.array(keepouts(name))))
            np.testing.assert_array_equal(ours.places, places)
            np.testing.assert_array_equal(ours.rotations, rotations)


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_draws_the_world_then_the_goal_and_builds_it(name: str) -> None:
    env = NavigationEnv(name, num_envs=30)
    env.reset(seed=100)
    for i in range(30):
        random = np.random.RandomState(100 + i)
        places, rotations = world(random, name)
        expected = places[1:].copy()
        if "Button" in name:
            button = random.choice(4)
            assert env.game.goal_button[i] == button
            expected[rows_of(name, "goal")] = expected[rows_of(name, "buttons")][button]
        else:
            expected[0] = goal_area(random, places[0], places[1:])
        np.testing.assert_array_equal(env.world.objects[i], expected)
        in_the_simulator(env, i, places, rotations)
        assert random.random_sample() == env._stream(i)._random.random_sample(), (
            "not one draw more or less"
        )


def in_the_simulator(env: NavigationEnv, index: int, places: Any, rotations: Any) -> None:
    """Every body stands where it was placed, at its height and turned as drawn."""
    data = env.physics.data[index]
    heights = {"agent": 0.1, "vases": 0.1 - 4e-5, "buttons": 0.1, "gremlins": 0.1}
    for kind, height in heights.items():
        if kind == "agent":
            rows, bodies = [0], ["agent"]
        elif (kind == "vases") == ("Button" in env.name):
            continue
        else:
            rows = list(range(1, len(places)))[rows_of(env.name, kind)]
            bodies = [f"{kind[:-1]}{i}" for i in range(len(rows))]
        for row, body in zip(rows, bodies, strict=True):
            expected = [*places[row], height]
            np.testing.assert_allclose(data.body(body).xpos, expected, rtol=0, atol=1e-15)
            turn = rotations[row]
            matrix = [np.cos(turn), -np.sin(turn), 0, np.sin(turn), np.cos(turn), 0, 0, 0, 1]
            np.testing.assert_allclose(data.body(body).xmat, matrix, rtol=0, atol=1e-15)


def test_the_first_goal_is_away_from_the_robot_and_from_everything_else() -> None:
    env = NavigationEnv(POINT_GOAL, num_envs=50)
    distances = []
    for _ in range(20):
        env.reset(seed=None if distances else 7)
        for i in range(50):
            goal, robot = goal_of(env, i), robot_of(env, i)[0][:2]
            distances.append(np.linalg.norm(goal - robot))
            others = np.linalg.norm(env.world.objects[i, 1:] - goal, axis=1)
            assert (others >= 0.305 + np.array([0.18] * 8 + [0.15])).all()
            assert (np.abs(goal) <= 1.5 - 0.305).all()
            assert env.game.last_distance[i] == pytest.approx(distances[-1], abs=1e-12)
    assert 0.705 <= min(distances) < 0.73 and max(distances) > 2.5


def test_the_goal_button_is_any_of_the_four_alike() -> None:
    env = NavigationEnv(POINT_BUTTON, num_envs=100)
    env.reset(seed=3)
    counts = np.bincount(env.game.goal_button, minlength=4)
    for _ in range(5):
        env.reset()
        counts = counts + np.bincount(env.game.goal_button, minlength=4)
    assert counts.sum() == 600 and (np.abs(counts - 150) < 50).all()  # five standard deviations


@pytest.mark.parametrize("steps", [1, 2, 37])
def test_every_step_passes_over_one_random_number_before_the_next_goal(steps: int) -> None:
    env = NavigationEnv(POINT_GOAL, num_envs=2)
    env.reset(seed=11)
    for _ in range(steps - 1):
        env.step(np.zeros((2, 2)))
    env.world.objects[:, 0] = [
        robot_of(env, i)[0][:2] for i in range(2)
    ]  # the goal comes to the robot
    result = env.step(np.zeros((2, 2)))
    assert env.info_terms["goal_met"].tolist() == [1.0, 1.0]
    for i in range(2):
        random = np.random.RandomState(11 + i)
        places, _ = world(random, POINT_GOAL)
        goal_area(random, places[0], places[1:])
        skip_steps(random, steps)
        expected = goal_area(random, robot_of(env, i)[0][:2], env.world.objects[i])
        np.testing.assert_array_equal(goal_of(env, i), expected)
        np.testing.assert_array_equal(
            env.game.last_distance[i], np.sqrt(np.sum((expected - robot_of(env, i)[0][:2]) ** 2))
        )
    assert not result.terminated.any()
    env.reset()  # continues the stream of where it is now
    np.testing.assert_array_equal(robot_of(env, 1)[0][:2], world(random, POINT_GOAL)[0][0])


def test_a_button_pressed_again_and_again_is_drawn_as_numpy_draws() -> None:
    env = NavigationEnv(POINT_BUTTON)
    env.reset(seed=5)
    arrange(env, robot=(0.24, 0.0), heading=np.pi, buttons=[(0, 0), (2, 0), (4, 0), (6, 0)])
    random = np.random.RandomState(5)
    world(random, POINT_BUTTON)
    random.choice(4)
    drawn = []
    for _ in range(40):
        set_goal_button(env, 0)  # whichever was drawn: the one that the robot leans on is the goal
        env.step([[1.0, 0.0]])
        assert env.info_terms["goal_met"][0] == 1.0
        skip_steps(random, 1)
        drawn.append(random.choice(4))
        assert env.game.goal_button[0] == drawn[-1]
        np.testing.assert_array_equal(goal_of(env), [2.0 * drawn[-1], 0.0])
    assert set(drawn) == {0, 1, 2, 3}, "also the one just pressed"


def no_room_for_a_goal(monkeypatch: pytest.MonkeyPatch, env: NavigationEnv) -> None:
    """Make the robot so broad that no goal is clear of it, until the next reset."""
    kept, reset = env.world.rooms.keepouts.copy(), env._reset_one
    env.world.rooms.keepouts[0] = 10.0

    def reset_with_room(index: int) -> None:
        env.world.rooms.keepouts[:] = kept
        reset(index)

    monkeypatch.setattr(env, "_reset_one", reset_with_room)


def test_an_episode_ends_where_no_place_for_the_next_goal_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = NavigationEnv(POINT_GOAL, num_envs=2, time_limit=4)
    watched = NavigationEnv(POINT_GOAL, num_envs=2, time_limit=4, autoreset=False)
    action = np.array([[1.0, 0.5], [1.0, -0.5]])
    for one in (env, watched):
        one.reset(seed=30)
        for _ in range(3):
            one.step(action)
        one.world.objects[1, 0] = (
            robot_of(one, 1)[0][:2] + 0.1
        )  # the second reaches its goal, and that in the last step
        no_room_for_a_goal(monkeypatch, one)
    robot_before = robot_of(env, 1)[0][:2]
    goal_before, elapsed = goal_of(watched, 1), watched.elapsed[1]
    last = env.game.last_distance[1]
    result, theirs = env.step(action), watched.step(action)
    assert theirs.terminated.tolist() == result.terminated.tolist() == [False, True]
    assert theirs.truncated.tolist() == result.truncated.tolist() == [True, False], "never both"
    np.testing.assert_array_equal(result.final_observation, theirs.observation)
    np.testing.assert_array_equal(goal_of(watched, 1), goal_before)
    assert elapsed == 3 and env.elapsed.tolist() == [0, 0]
    distance = np.linalg.norm(goal_before - robot_of(watched, 1)[0][:2])
    assert result.reward[1] == pytest.approx(last - distance + 1.0, abs=1e-12), (
        "the bonus is paid all the same"
    )
    # The new episode: after the ten thousand tries for a goal.
    random = np.random.RandomState(31)
    places, _ = world(random, POINT_GOAL)
    goal_area(random, places[0], places[1:])
    skip_steps(random, 4)
    assert try_to_place(random, 0.305, [(*robot_before, 10.0)], 10_000) is None
    places, _ = world(random, POINT_GOAL)
    np.testing.assert_array_equal(env.world.objects[1, 1:], places[2:])
    np.testing.assert_array_equal(goal_of(env, 1), goal_area(random, places[0], places[1:]))
    np.testing.assert_array_equal(robot_of(env, 1)[0][:2], places[0])
    assert not np.array_equal(result.observation[1], result.final_observation[1])
    result = env.step(action)
    assert not result.terminated.any() and not result.truncated.any()


def test_objects_that_cannot_fit_are_refused_in_words() -> None:
    with pytest.raises(CspoError, match="do not fit into its square"):
        Stream(0).draw_layout(Rooms.square(1.5, np.array([0.4, 1.2, 1.2])))


def test_a_stream_continues_from_its_saved_state() -> None:
    stream, rooms = Stream(8), Rooms.square(1.5, np.array(keepouts(POINT_BUTTON)))
    stream.draw_layout(rooms)
    stream.catch_up(700)  # beyond the 624 numbers the generator makes at a time
    other = Stream()
    other.set_state(json.loads(json.dumps(stream.state())))
    for _ in range(3):
        ours, theirs = stream.draw_layout(rooms), other.draw_layout(rooms)
        np.testing.assert_array_equal(ours.places, theirs.places)
        np.testing.assert_array_equal(ours.rotations, theirs.rotations)
        assert stream.draw_button(4) == other.draw_button(4)


@pytest.mark.skipif(not RESETS.exists(), reason="the recorded reference resets are not here")
@pytest.mark.parametrize("name", NAMES)
def test_recorded_resets_are_reproduced(name: str) -> None:
    with np.load(RESETS / f"{name}.npz") as file:
        recorded = dict(file)
    env = NavigationEnv(name)
    for row, seed in enumerate(recorded["seed"]):
        observation = env.reset(seed=int(seed))[0]
        np.testing.assert_allclose(observation, recorded["obs"][row], rtol=0, atol=1e-9)
        np.testing.assert_allclose(goal_of(env), recorded["goal_pos"][row, :2], rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            env.world.objects[0, rows_of(name, "hazards")],
            recorded["hazards_pos"][row, :, :2],
            rtol=0,
            atol=1e-14,
        )
        np.testing.assert_allclose(
            env.physics.data[0].qpos, recorded["qpos"][row], rtol=0, atol=1e-14
        )
    np.testing.assert_allclose(
        env.reset()[0], recorded["obs_next_unseeded_reset"][0], rtol=0, atol=1e-9
    )
