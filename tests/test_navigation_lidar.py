"""The lidar: the benchmark's rule written a second time, and what holds of any such sensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from navigation_helpers import (
    CAR_GOAL,
    NAMES,
    POINT_BUTTON,
    POINT_GOAL,
    Array,
    arrange,
    driver,
    lidar,
    lidar_columns,
    objects_of,
    robot_of,
    rows_of,
)
from scipy.spatial.transform import Rotation

from cspo.envs.navigation.lidar import read_lidars
from cspo.envs.navigation.robots.sensing import rotation_matrices
from cspo.envs.navigation.task import NavigationEnv

BIN = np.deg2rad(22.5)


def read(
    places: Any,
    position: Any = (0.0, 0.0, 0.1),
    matrix: Any = None,
    columns: Any = None,
    lidars: int = 1,
) -> Array:
    """Readings (N, lidars * 16) of the kernel, for places (N, M, 2) or (M, 2)."""
    places = np.asarray(places, float)
    places = places.reshape(-1, *places.shape[-2:])
    count, objects = places.shape[:2]
    readings = np.full((count, 16 * lidars), np.nan)
    position = np.ascontiguousarray(np.broadcast_to(np.asarray(position, float), (count, 3)))
    matrix = np.eye(3).reshape(9) if matrix is None else np.asarray(matrix, float).reshape(-1, 9)
    matrix = np.ascontiguousarray(np.broadcast_to(matrix, (count, 9)))
    columns = np.zeros(objects, np.int64) if columns is None else np.asarray(columns)
    read_lidars(readings, columns, 3.0, places, position, matrix)
    return readings


def around_z(angle: float) -> Array:
    return Rotation.from_euler("z", angle).as_matrix().reshape(9)


@pytest.mark.parametrize("tilt", [0.0, 0.3, np.pi], ids=["upright", "tilted", "any way up"])
def test_readings_follow_the_rule_in_random_worlds(tilt: float) -> None:
    rng = np.random.default_rng(1)
    turns = Rotation.from_euler("zyx", rng.uniform(-1, 1, (200, 3)) * [np.pi, tilt, tilt])
    matrices, positions = turns.as_matrix(), rng.uniform(-2, 2, (200, 3)) * [1, 1, 0.2]
    places = rng.uniform(-2.5, 2.5, (200, 7, 2))
    columns = np.array([16, 16, 0, 32, 32, 32, 0])  # three classes, their objects not in order
    ours = read(places, positions, matrices, columns, lidars=3)
    for n in range(200):
        for start in (0, 16, 32):
            expected = lidar(places[n, columns == start], positions[n], matrices[n])
            np.testing.assert_allclose(ours[n, start : start + 16], expected, rtol=0, atol=1e-12)
    assert ours.min() == 0.0 and 0.9 < ours.max() <= 1.0
    assert np.isfinite(ours).all()


def test_readings_of_one_object_by_hand() -> None:
    # 1.2 m away at 33.75 degrees: the middle of bin 1, so both neighbours get half of (3 - 1.2) / 3
    # = 0.6.
    expected = np.zeros(16)
    expected[[0, 1, 2]] = 0.3, 0.6, 0.3
    angle = 1.5 * BIN
    np.testing.assert_allclose(
        read([[1.2 * np.cos(angle), 1.2 * np.sin(angle)]])[0], expected, rtol=0, atol=1e-12
    )
    # Straight ahead is the beginning of bin 0: all of it for the bin before, nothing for the one
    # after.
    expected = np.zeros(16)
    expected[[0, 15]] = 0.75
    np.testing.assert_array_equal(read([[0.75, 0.0]])[0], expected)
    np.testing.assert_array_equal(read([[0.75, -0.0]])[0], expected)
    # The smallest angle to the right is the end of bin 15, and a full turn when rounded.
    np.testing.assert_allclose(read([[0.75, -1e-300]])[0], expected, rtol=0, atol=1e-12)
    # To the left comes bin 4.
    assert read([[0.0, 1.5]])[0].argmax() in (3, 4) and read([[-0.01, 1.5]])[0].argmax() == 4


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_a_turn_by_whole_bins_shifts_every_lidar(bins: int) -> None:
    rng = np.random.default_rng(2)
    places, columns = rng.uniform(-2, 2, (50, 6, 2)), np.array([0, 0, 0, 16, 16, 16])
    before = read(places, (0.3, -0.2, 0.1), around_z(0.7), columns, 2).reshape(50, 2, 16)
    after = read(places, (0.3, -0.2, 0.1), around_z(0.7 + bins * BIN), columns, 2).reshape(
        50, 2, 16
    )
    np.testing.assert_allclose(after, np.roll(before, -bins, axis=2), rtol=0, atol=1e-12)
    assert np.abs(after - before).max() > 0.1


def test_what_is_three_metres_away_is_not_seen() -> None:
    angles = np.linspace(0.0, 6.0, 50)
    unit = np.column_stack([np.cos(angles), np.sin(angles)])[:, None]
    assert not read(3.0000001 * unit).any() and not read(50.0 * unit).any()
    assert not read([[3.0, 0.0]]).any()
    assert (read(2.999 * unit).max(axis=1) > 3e-4).all()
    np.testing.assert_allclose(read(1.5 * unit).max(axis=1), 0.5, rtol=1e-12)


def test_readings_fall_in_a_straight_line_from_one_at_the_robot() -> None:
    assert read([[0.0, 0.0]]).max() == 1.0
    distances = np.linspace(0.0, 3.0, 31)
    ours = [read([[d * np.cos(0.2), d * np.sin(0.2)]])[0, 0] for d in distances]
    np.testing.assert_allclose(ours, 1.0 - distances / 3.0, rtol=0, atol=1e-12)


def test_the_nearest_object_wins_in_each_bin_and_order_means_nothing() -> None:
    rng = np.random.default_rng(3)
    places = rng.uniform(-1.5, 1.5, (40, 9, 2))
    together = read(places)
    alone = np.stack([read(places[:, m : m + 1]) for m in range(9)])
    np.testing.assert_array_equal(together, alone.max(axis=0))
    assert ((alone > 0).sum(axis=0) > 1).any(), "objects share a bin"
    for _ in range(5):
        np.testing.assert_array_equal(read(places[:, rng.permutation(9)]), together)


def test_a_tiny_turn_or_move_changes_readings_by_little() -> None:
    """Also where an object goes over from one bin to the next: readings are continuous."""
    rng = np.random.default_rng(4)
    places = rng.uniform(-1.5, 1.5, (20, 5, 2))
    turned = np.stack(
        [read(places, matrix=around_z(angle)) for angle in np.arange(0.0, 2.0 * np.pi, 1e-2)]
    )
    steps = np.abs(np.diff(turned, axis=0, append=turned[:1]))
    assert 1e-3 < steps.max() < 1.1e-2 / BIN, "a reading changes by at most 1 per bin"
    moved = np.stack([read(places - [x, 0.0]) for x in np.arange(0.0, 0.02, 1e-5)])
    nearest = np.linalg.norm(places, axis=2).min() - 0.02
    assert np.abs(np.diff(moved, axis=0)).max() < 1e-5 * (1 / 3 + 1 / (BIN * nearest))
    for border in range(16):
        sides = [
            read([[np.cos(angle), np.sin(angle)]])
            for angle in (border * BIN - 1e-9, border * BIN + 1e-9)
        ]
        np.testing.assert_allclose(sides[0], sides[1], rtol=0, atol=1e-8)


def test_rotation_matrices_are_those_of_scipy() -> None:
    turns = Rotation.from_quat(np.random.default_rng(5).standard_normal((100, 4)))
    quaternions = np.roll(turns.as_quat(), 1, axis=1)  # scipy writes the real part last
    matrices = np.empty((100, 9))
    rotation_matrices(matrices, quaternions)
    np.testing.assert_allclose(matrices.reshape(100, 3, 3), turns.as_matrix(), rtol=0, atol=1e-14)


def places_in_simulator(env: NavigationEnv, kind: str, index: int) -> Array:
    """Where the objects of a class are: bodies by their names, the rest from the environment."""
    data = env.physics.data[index]
    if kind in ("vases", "gremlins", "buttons"):
        count = {"vases": 1}.get(kind, 4)
        return np.array([data.body(f"{kind[:-1]}{i}").xpos[:2] for i in range(count)])
    return env.world.objects[index, rows_of(env.name, kind)]


@pytest.mark.parametrize("name", NAMES)
def test_observations_hold_the_lidars_of_where_everything_is_now(name: str) -> None:
    env = NavigationEnv(name, num_envs=3, autoreset=False)
    rng = np.random.default_rng(6)
    observation = env.reset(seed=20)
    moved = places_in_simulator(env, "gremlins" if "Button" in name else "vases", 0)
    for step in range(60):
        if step:
            observation = env.step(driver(env, rng)).observation
        for i in range(3):
            for kind, _, _ in objects_of(name):
                if kind == "buttons" and env.game.timer[i] > 0:
                    continue
                expected = lidar(places_in_simulator(env, kind, i), *robot_of(env, i))
                np.testing.assert_allclose(
                    observation[i, lidar_columns(name, kind)], expected, rtol=0, atol=1e-12
                )
    if "Button" in name:
        assert np.abs(places_in_simulator(env, "gremlins", 0) - moved).max() > 0.1


def test_a_car_that_leans_sees_the_floor_leaning() -> None:
    """The ego frame is the robot's in space, with objects on the floor, also higher ones."""
    env = NavigationEnv(CAR_GOAL)
    env.reset(seed=0)
    arrange(env, vases=[(1.0, 0.4)], goal=[(-0.5, 0.3)], hazards=[(0.3, -0.6)])
    turn = Rotation.from_euler("zyx", [0.4, 0.5, -0.7])
    data = env.physics.data[0]
    data.qpos[3:7] = np.roll(turn.as_quat(), 1)
    data.qpos[2] = 0.4
    env.world.forward(0)
    observation = env._observe()[0]
    for kind, place in (("vases", (1.0, 0.4)), ("goal", (-0.5, 0.3)), ("hazards", (0.3, -0.6))):
        ego = turn.as_matrix().T @ (np.array([*place, 0.0]) - [0.0, 0.0, 0.4])
        strongest = 1.0 - np.hypot(ego[0], ego[1]) / 3.0
        seen = observation[lidar_columns(CAR_GOAL, kind)]
        assert seen.max() == pytest.approx(strongest, abs=1e-12)
        assert seen.argmax() == int(np.arctan2(ego[1], ego[0]) % (2 * np.pi) / BIN)
        flat = lidar([place], (0.0, 0.0, 0.0), around_z(0.4))
        assert np.abs(seen - flat).max() > 0.01, "the tilt matters"


@pytest.mark.parametrize("name", [POINT_GOAL, POINT_BUTTON])
def test_turning_the_robot_turns_what_the_environment_shows(name: str) -> None:
    env = NavigationEnv(name)
    env.reset(seed=0)
    given = {"hazards": [(1.0, 0.2), (-0.7, 0.9)], "goal": [(0.2, -1.1)]}
    if "Button" in name:
        given = {
            "hazards": given["hazards"],
            "buttons": [(1.0, 0.2), (-0.3, -0.9)],
            "gremlins": [(-1.0, 1.0)],
        }
    start = lidar_columns(name, "buttons" if "Button" in name else "goal").start
    seen = []
    for heading in (0.1, 0.1 + 3 * BIN):
        arrange(env, heading=heading, **given)
        seen.append(env._observe()[0, start:].reshape(-1, 16).copy())
    np.testing.assert_allclose(seen[1], np.roll(seen[0], -3, axis=1), rtol=0, atol=1e-12)
    assert (seen[0].max(axis=1) > 0).sum() >= 2
