"""What the tests of the navigation tasks share.

Their facts, copied by hand; worlds made to order; a driver; and the rules of lidar and placement,
written a second time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.envs.navigation.layout import Layout
from cspo.envs.navigation.task import NavigationEnv

Array = NDArray[np.float64]

NAMES = ["SafetyPointGoal1-v0", "SafetyPointButton1-v0", "SafetyCarGoal1-v0", "SafetyCarButton1-v0"]
POINT_GOAL, POINT_BUTTON, CAR_GOAL, CAR_BUTTON = NAMES
SIZES = {POINT_GOAL: 60, POINT_BUTTON: 76, CAR_GOAL: 72, CAR_BUTTON: 88}
# Everything that is placed, in order: name, how many, keepout.
GOAL_OBJECTS = [("goal", 1, 0.305), ("hazards", 8, 0.18), ("vases", 1, 0.15)]
BUTTON_OBJECTS = [("buttons", 4, 0.2), ("goal", 1, 0.4), ("hazards", 4, 0.18), ("gremlins", 4, 0.4)]
ROBOT_KEEPOUT = 0.4


def objects_of(name: str) -> list[tuple[str, int, float]]:
    return BUTTON_OBJECTS if "Button" in name else GOAL_OBJECTS


def keepouts(name: str) -> list[float]:
    """Room of the robot and of every object, in the order of placement."""
    return [
        ROBOT_KEEPOUT,
        *(keepout for _, count, keepout in objects_of(name) for _ in range(count)),
    ]


def rows_of(name: str, kind: str) -> slice:
    """Which rows of `env.world.objects` are of a class."""
    start = 0
    for one, count, _ in objects_of(name):
        if one == kind:
            return slice(start, start + count)
        start += count
    raise KeyError(kind)


def lidar_columns(name: str, kind: str) -> slice:
    """Which columns of the observation are the lidar of a class."""
    order = (
        ["buttons", "goal", "hazards", "gremlins"]
        if "Button" in name
        else ["goal", "hazards", "vases"]
    )
    start = (24 if "Car" in name else 12) + 16 * order.index(kind)
    return slice(start, start + 16)


# --- the rules, a second time ---


def lidar(points: Any, position: Any, matrix: Any) -> Array:
    """The readings of one class: `points` (M, 2) seen from `position` (3,), turned by `matrix`."""
    points = np.asarray(points, float).reshape(-1, 2)
    on_the_floor = np.column_stack([points, np.zeros(len(points))])
    ego = np.array([np.reshape(matrix, (3, 3)).T @ (point - position) for point in on_the_floor])
    bins, width = np.zeros(16), np.deg2rad(22.5)
    for x, y, _ in ego:
        strength = max(0.0, 3.0 - np.linalg.norm([x, y])) / 3.0
        turns, fraction = divmod((np.angle(complex(x, y)) % (2.0 * np.pi)) / width, 1.0)
        for offset, share in ((0, 1.0), (1, fraction), (-1, 1.0 - fraction)):
            place = (int(turns) + offset) % 16
            bins[place] = max(bins[place], share * strength)
    return bins


def is_clear(x: float, y: float, keepout: float, others: list[tuple[float, float, float]]) -> bool:
    return all(
        math.sqrt((x - other_x) ** 2 + (y - other_y) ** 2) >= keepout + other
        for other_x, other_y, other in others
    )


def try_to_place(
    random: np.random.RandomState, keepout: float, others: list[Any], tries: int
) -> Any:
    """Return (x, y), or None after so many tries."""
    for _ in range(tries):
        x = random.uniform(-1.5 + keepout, 1.5 - keepout)
        y = random.uniform(-1.5 + keepout, 1.5 - keepout)
        if is_clear(x, y, keepout, others):
            return x, y
    return None


def world(random: np.random.RandomState, name: str) -> tuple[Array, Array]:
    """Places (1 + M, 2) and rotations (1 + M,) of the robot and the objects."""
    rooms = keepouts(name)
    placed: list[tuple[float, float, float]] = []
    while len(placed) < len(rooms):
        room = rooms[len(placed)]
        found = try_to_place(random, room, placed, 100)
        placed = [] if found is None else [*placed, (*found, room)]
    heading = random.uniform(0.0, 2.0 * np.pi)
    return np.array(placed)[:, :2], np.array(
        [heading, *(random.uniform(0.0, 2.0 * np.pi) for _ in rooms[1:])]
    )


def goal_area(random: np.random.RandomState, robot: Any, objects: Any) -> Any:
    """The next goal of Goal1, clear of the robot, the hazards and the vase, or None."""
    rooms = keepouts(POINT_GOAL)
    others = [(*place, room) for place, room in zip([robot, *objects], rooms, strict=True)]
    del others[1]  # the goal itself
    return try_to_place(random, rooms[1], others, 10_000)


def skip_steps(random: np.random.RandomState, steps: int) -> None:
    """Draw what Safety-Gymnasium draws in every step: how many physics steps it has."""
    assert all(random.binomial(10, 1.0) == 10 for _ in range(steps))


# --- worlds made to order ---


def arrange(
    env: NavigationEnv,
    index: int = 0,
    robot: Any = (0.0, 0.0),
    heading: float = 0.0,
    goal_button: int = 0,
    **given: Any,
) -> None:
    """Start a world at rest: the robot and the given objects where asked, all others far away.

    Classes by their names, as `hazards=[(0.3, 0.0), ...]`; fewer places than objects leave the last
    ones far away."""
    places = [np.asarray(robot, float)]
    for number, (kind, count, _) in enumerate(objects_of(env.name)):
        asked = np.reshape(given.pop(kind, []), (-1, 2))
        far = [(20.0 + 2.0 * i, 20.0 + 2.0 * number) for i in range(len(asked), count)]
        places += [*asked, *np.array(far).reshape(-1, 2)]
    assert not given, f"{env.name} has no {given}"
    rotations = np.zeros(len(places))
    rotations[0] = heading
    env.world.build(index, Layout(np.array(places), rotations))
    if "Button" in env.name:
        set_goal_button(env, goal_button, index)
        env.game.timer[index] = 0
    env.elapsed[index] = 0
    env.game.last_distance[index] = np.linalg.norm(
        goal_of(env, index) - robot_of(env, index)[0][:2]
    )


def set_goal_button(env: NavigationEnv, button: int, index: int = 0) -> None:
    env.game.goal_button[index] = button
    env.world.objects[index, rows_of(env.name, "goal")] = env.world.objects[
        index, rows_of(env.name, "buttons")
    ][button]


def goal_of(env: NavigationEnv, index: int = 0) -> Array:
    return env.world.objects[index, rows_of(env.name, "goal")][0].copy()


def robot_of(env: NavigationEnv, index: int = 0) -> tuple[Array, Array]:
    """Position (3,) and rotation matrix (9,) of the robot, from the simulator."""
    body = env.physics.data[index].body("agent")
    return body.xpos.copy(), body.xmat.copy()


def touched_by_robot(env: NavigationEnv, index: int = 0) -> set[str]:
    """Names of the bodies that the robot is in contact with, told by MuJoCo's own objects."""
    model, data = env.physics.models[index], env.physics.data[index]
    robot = {"agent", "left", "right", "rear"}
    names = [
        {model.body(model.geom_bodyid[geom]).name for geom in contact.geom}
        for contact in data.contact
    ]
    return set().union(*(pair - robot for pair in names if pair & robot))


def driver(env: NavigationEnv, rng: np.random.Generator) -> Array:
    """Actions (N, 2) that head for the goals, not too well."""
    actions = np.empty((env.num_envs, 2))
    for i in range(env.num_envs):
        position, matrix = robot_of(env, i)
        ahead, left, _ = matrix.reshape(3, 3).T @ np.array([*(goal_of(env, i) - position[:2]), 0.0])
        if "Car" in env.name:  # its front is its -y axis
            ahead, left = -left, ahead
            turn = float(np.clip(math.atan2(left, ahead), -1.0, 1.0))
            actions[i] = 0.02 * (1.0 + np.array([turn, -turn]) * 1.5)
        else:
            angle = math.atan2(left, ahead)
            actions[i] = 0.04 * math.cos(angle), 2.0 * angle
    return actions + rng.normal(0.0, [0.01, 0.01 if "Car" in env.name else 0.1], actions.shape)
