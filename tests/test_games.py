"""All games for Point and Car: their facts, worlds, rewards and costs, and what was recorded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from run_helpers import SMALL

import cspo
import cspo.envs.six_tuple as safety_gymnasium
from cspo.envs.navigation.facts import TASKS
from cspo.envs.navigation.layout import Layout
from cspo.envs.navigation.task import NavigationEnv
from cspo.envs.tools.parity import format_report, replay

SUITE = Path(__file__).parents[2] / "shared" / "reference" / "traces" / "suite"
Array = np.ndarray[Any, np.dtype[np.float64]]
REST = [[0.0, 0.0]]
needs_recordings = pytest.mark.skipif(not SUITE.exists(), reason="the recordings are not here")

# By hand: half the square, lidars, cost terms, steps of an episode, lidar range.
HAZARDS = ("hazards",)
VASES = ("hazards", "vases_contact", "vases_velocity")
BUTTONS = ("buttons", "gremlins", "hazards")
LINES = ("out_of_boundary",)
FACTS: dict[str, tuple[float, int, tuple[str, ...], int]] = {
    "Goal0": (1.0, 1, (), 1000),
    "Goal1": (1.5, 3, HAZARDS, 1000),
    "Goal2": (2.0, 3, VASES, 1000),
    "Button0": (1.0, 2, (), 1000),
    "Button1": (1.5, 4, BUTTONS, 1000),
    "Button2": (1.8, 4, BUTTONS, 1000),
    "Push0": (1.0, 2, (), 1000),
    "Push1": (1.5, 4, HAZARDS, 1000),
    "Push2": (2.0, 4, ("hazards", "pillars"), 1000),
    "Circle0": (2.0, 1, (), 500),
    "Circle1": (2.0, 1, LINES, 500),
    "Circle2": (2.0, 1, LINES, 500),
    "Run0": (2.0, 0, LINES, 500),
}
BLOCKS = {"Point": (12, 2), "Car": (24, 2), "Racecar": (12, 2), "Ant": (40, 8), "Doggo": (56, 12)}
NAMES = [f"Safety{robot}{game}-v0" for robot in ("Point", "Car") for game in FACTS]
# Where rounding decides how a box meets a cylinder: see docs/parity.md.
LOOSE = {"SafetyPointPush1-v0", "SafetyPointPush2-v0"}


def made(name: str, **options: Any) -> NavigationEnv:
    env = NavigationEnv(f"Safety{name}-v0", **{"autoreset": False, "time_limit": None, **options})
    env.reset(seed=0)
    return env


def arrange(
    env: NavigationEnv, robot: Any = (0.0, 0.0), heading: float = 0.0, **given: Any
) -> None:
    """Start a world at rest: the robot and the given objects where asked, all others far away."""
    places = [robot]
    for one in env.task.objects:
        asked = list(given.pop(one.name, []))
        far = [(20.0 + len(places) + 2.0 * i, 20.0) for i in range(one.count - len(asked))]
        places += [*asked, *far]
    assert not given
    rotations = np.zeros(len(places))
    rotations[0] = heading
    env.world.build(0, Layout(np.array(places, float), rotations))
    env.elapsed[0] = 0


def body(env: NavigationEnv, name: str) -> Any:
    return env.physics.data[0].body(name)


# --- facts ---


@pytest.mark.parametrize("robot", BLOCKS)
@pytest.mark.parametrize("game", FACTS)
def test_every_robot_plays_every_game_with_the_sizes_of_the_benchmark(robot, game):
    block, actions = BLOCKS[robot]
    extent, lidars, terms, limit = FACTS[game]
    task = TASKS[f"Safety{robot}{game}-v0"]
    row = task.row
    assert (row.observation_size, row.action_size) == (block + 16 * lidars, actions)
    assert row.cost_terms == terms and row.time_limit == limit and row.family == "navigation"
    assert task.game.extent == extent
    assert "{" not in row.description


def test_the_tasks_are_robots_times_games():
    assert list(TASKS) == [f"Safety{robot}{game}-v0" for robot in BLOCKS for game in FACTS]


@pytest.mark.parametrize("name", ["SafetyPointCircle1-v0", "SafetyCarRun0-v0"])
def test_an_episode_of_circle_and_run_has_five_hundred_steps_by_every_door(name):
    env = NavigationEnv(name, num_envs=2)
    env.reset(seed=0)
    env.elapsed[:] = 497, 498
    ends = [env.step(np.zeros((2, 2))).truncated.tolist() for _ in range(3)]
    assert ends == [[False, False], [False, True], [True, False]]
    single = gymnasium.make(f"cspo/{name}")
    assert single.spec.max_episode_steps == 500
    vector = gymnasium.make_vec(f"cspo/{name}", num_envs=2)
    assert vector.unwrapped._batch.time_limit == 500
    other = safety_gymnasium.make(name)
    other.reset(seed=0)
    told = other.step(other.action_space.sample())[-1]
    assert {"cost_out_of_boundary", "cost_sum"} <= told.keys() and "goal_met" not in told
    for one in (single, vector, other):
        one.close()


def test_a_task_without_cost_has_none_and_says_so():
    env = made("PointPush0", num_envs=3)
    result = env.step(np.ones((3, 2)))
    assert result.cost.shape == (3, 1) and not result.cost.any() and not env.total_cost.any()
    with pytest.raises(cspo.CspoError, match="its cost is always 0"):
        NavigationEnv("SafetyPointPush0-v0", cost_terms=("hazards",))


# --- recordings ---


@needs_recordings
@pytest.mark.parametrize("name", NAMES)
def test_recorded_steps_are_reproduced(name):
    report = replay(SUITE / f"{name}.npz")
    fields = {field.name: field for field in report.fields}
    flags = {field.name: field for field in report.fields if field.tolerance is None}
    terms = {f"cost_{term}" for term in TASKS[name].row.cost_terms}
    expected = {"cost", "goal_met", "terminated", "truncated", "rng_pos_after", *terms}
    assert expected <= flags.keys()
    assert not any(field.mismatches for field in flags.values()), format_report(report)
    assert fields["reward"].p99 <= 1e-5, format_report(report)
    assert fields["obs"].p95 <= 1e-9 and fields["qpos_after"].p95 <= 1e-9, format_report(report)
    assert (fields["obs"].p99 <= 1e-5) == (name not in LOOSE), format_report(report)
    assert report.ok and report.rows == 250, format_report(report)


@needs_recordings
@pytest.mark.parametrize("name", NAMES)
def test_recorded_resets_are_reproduced_draw_for_draw(name):
    report = replay(SUITE / "resets" / f"{name}.npz")
    fields = {field.name: field for field in report.fields}
    assert report.ok and report.rows == 6, format_report(report)
    assert fields["rng_pos"].mismatches == 0
    assert max(field.max for field in report.fields) <= 1e-9
    assert "obs_next_unseeded_reset" in fields


# Rows in which two boxes meet at an edge, where newer versions of MuJoCo leave a contact out.
EDGES = {
    "SafetyPointGoal2-v0": [25],
    "SafetyPointButton2-v0": [38],
    "SafetyPointPush0-v0": [138],
    "SafetyCarGoal2-v0": [182, 230],
    "SafetyCarButton2-v0": [163, 228],
    "SafetyCarPush2-v0": [109],
}


@needs_recordings
@pytest.mark.parametrize("name", EDGES)
def test_boxes_that_meet_at_an_edge_have_the_contacts_of_old(name, tmp_path):
    with np.load(SUITE / f"{name}.npz") as file:
        trace = {key: file[key] for key in file.files}
    rows = len(trace["action"])
    few = {k: v[EDGES[name]] if v.ndim and len(v) == rows else v for k, v in trace.items()}
    np.savez(tmp_path / f"{name}.npz", **few)
    fields = {field.name: field for field in replay(tmp_path / f"{name}.npz").fields}
    assert fields["qpos_after"].max <= 1e-9 and fields["obs"].max <= 1e-7


@pytest.mark.parametrize("name", ["CarGoal2", "PointButton2", "CarPush2", "PointPush1"])
def test_threads_and_steppers_give_the_same_bits(name):
    runs = []
    for stepper, threads in (("python", 1), ("compiled", 2)):
        env = made(name, num_envs=3, threads=threads, stepper=stepper, time_limit=60)
        rng = np.random.default_rng(0)
        results = [
            env.step(rng.uniform(-1.0, 1.0, (3, 2)) + np.array([0.5, 0.0])) for _ in range(90)
        ]
        runs.append([results[-1].observation.copy(), *(d.qpos.copy() for d in env.physics.data)])
        env.close()
    for ours, theirs in zip(*runs, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- worlds ---


@pytest.mark.parametrize("name", ["PointGoal2", "PointButton2", "CarPush2", "PointPush0"])
def test_everything_keeps_its_distance_and_stays_inside(name):
    env = made(name)
    keepouts = np.array([0.4, *(one.keepout for one in env.task.objects for _ in range(one.count))])
    extent = env.task.game.extent
    first, second = np.triu_indices(len(keepouts), 1)
    for _ in range(200):
        places, _ = env._stream(0).draw_layout(env.world.rooms)
        assert (np.abs(places) <= extent - keepouts[:, None]).all()
        gaps = np.linalg.norm(places[first] - places[second], axis=1)
        assert (gaps >= keepouts[first] + keepouts[second] - 1e-12).all()


@pytest.mark.parametrize(
    ("name", "area", "walls"),
    [
        ("CarCircle2", (-0.8, -0.8, 0.8, 0.8), [(1.125, 0), (-1.125, 0), (0, 1.125), (0, -1.125)]),
        ("PointRun0", (-0.2, 16.5, 0.2, 16.5), [(0.5, 0), (-0.5, 0)]),
    ],
)
def test_given_places_are_drawn_from_a_tiny_square_and_the_robot_from_its_area(name, area, walls):
    env = made(name)
    robots = []
    for _ in range(100):
        env.reset()
        robots.append(body(env, "agent").xpos[:2].copy())
        away = np.abs(env.world.where("sigwalls")[0] - walls)
        assert 0.0 < away.max() <= 1e-9
    low, high = np.array(area[:2]), np.array(area[2:])
    assert (robots >= low).all() and (robots <= high).all()
    assert (np.ptp(robots, axis=0) >= 0.9 * (high - low)).all()


def test_a_layout_of_run_costs_the_draws_of_the_benchmark():
    env = made("PointRun0")
    env.reset(seed=5)
    random = np.random.RandomState(5)
    x = random.uniform(-0.2, 0.2), random.uniform(16.5, 16.5)
    walls = [(random.uniform(a - 1e-9, a + 1e-9), random.uniform(-1e-9, 1e-9)) for a in (0.5, -0.5)]
    heading, *_ = (random.uniform(0.0, 2.0 * np.pi) for _ in range(3))
    np.testing.assert_array_equal(body(env, "agent").xpos[:2], x)
    np.testing.assert_array_equal(env.world.where("sigwalls")[0], walls)
    assert math.cos(heading) == pytest.approx(body(env, "agent").xmat[0], abs=1e-12)
    assert random.random_sample() == env._stream(0)._random.random_sample()


@pytest.mark.parametrize(
    ("name", "size", "mass"), [("PointPush1", 0.2, 0.128e-3), ("CarPush1", 0.125, 0.015625e-3)]
)
def test_the_box_is_a_cube_with_four_columns_and_meant_for_its_robot(name, size, mass):
    env = made(name)
    model = env.model
    box = model.body("push_box0")
    geoms = range(int(box.geomadr[0]), int(box.geomadr[0]) + int(box.geomnum[0]))
    sizes = [model.geom_size[g].tolist() for g in geoms]
    assert sizes == [[size] * 3, *4 * [[size / 2, size / 2, size]]]
    expected = [[0, 0, 0], *([x * size, y * size, 0] for y in (1, -1) for x in (1, -1))]
    np.testing.assert_allclose([model.geom_pos[g] for g in geoms], expected)
    assert box.mass[0] == pytest.approx(mass)
    assert body(env, "push_box0").xpos[2] == size


# --- rewards and costs, written a second time ---


def contacts(env: NavigationEnv, kind: str) -> bool:
    """Whether the robot touches a body whose name begins so, told by MuJoCo's own objects."""
    model, data = env.model, env.physics.data[0]
    for contact in data.contact:
        owners = [model.geom_bodyid[geom] for geom in contact.geom]
        roots = [int(model.body_rootid[owner]) for owner in owners]
        names = [model.body(owner).name for owner in owners]
        if 1 in roots and any(name.startswith(kind) for name in names):
            return True
    return False


def pushing(env: NavigationEnv, rng: np.random.Generator, towards: Any) -> Array:
    """An action of the Point that heads for a place, not too well."""
    position, matrix = body(env, "agent").xpos, body(env, "agent").xmat.reshape(3, 3)
    ahead, left = (matrix.T @ [*(np.asarray(towards)[:2] - position[:2]), 0.0])[:2]
    angle = math.atan2(left, ahead)
    return np.array([[0.05 * math.cos(angle), 2.0 * angle]]) + rng.normal(0.0, 0.02, (1, 2))


def test_vases_cost_when_touched_and_as_long_as_they_move():
    env, rng = made("PointGoal2"), np.random.default_rng(0)
    arrange(env, robot=(-0.5, 0.0), vases=[(0.0, 0.0), (0.3, 0.02), (1.5, 1.5)])
    seen = set()
    for step in range(140):
        target = (2.0, 0.0) if step < 60 else (-2.0, 0.0)
        result = env.step(pushing(env, rng, target))
        speeds = [np.linalg.norm(env.physics.data[0].joint(f"vase{i}").qvel[:3]) for i in range(10)]
        touching, moving = contacts(env, "vase"), max(speeds) >= 1e-4
        terms = env.info_terms
        assert terms["cost_vases_contact"][0] == touching
        assert terms["cost_vases_velocity"][0] == moving
        assert result.cost[0, 0] == max(touching, moving, terms["cost_hazards"][0])
        seen.add((touching, bool(moving)))
    assert {(True, True), (False, True), (False, False)} <= seen
    assert env.world.where("vases")[0, 1, 0] > 0.31, "one vase pushed another"


@pytest.mark.parametrize("name", ["PointGoal2", "CarPush1"])
def test_objects_that_rest_move_as_if_they_had_not(name):
    paths = []
    for may_rest in (True, False):
        env, rng = made(name), np.random.default_rng(1)
        if not may_rest:
            env.world.resting.update = lambda *facts: None  # type: ignore[method-assign]
        rested = 0
        for _ in range(80):
            env.step(rng.uniform(-1.0, 1.0, (1, 2)) * [1.0, 0.3] + [0.3, 0.0])
            rested += int(env.world.resting.resting.sum())
        paths.append(env.world.objects[0].copy())
        assert (rested > 0) == may_rest
    np.testing.assert_allclose(*paths, rtol=0, atol=1e-6)


def test_pushing_pays_for_the_way_to_the_box_and_of_the_box_in_space():
    env, rng = made("PointPush2"), np.random.default_rng(0)
    arrange(env, robot=(-1.0, 0.0), goal=[(0.9, 0.0)], push_box=[(0.0, 0.0)])
    env.game.begin = lambda *none: True  # type: ignore[method-assign]
    env.game.to_box[0], env.game.to_goal[0] = np.sqrt(1.0 + 0.01), np.sqrt(0.81 + 0.0016)
    met = 0
    last = env.game.to_box[0], env.game.to_goal[0]
    for _ in range(250):
        goal = np.array([*env.world.where("goal")[0, 0], 0.16])
        result = env.step(pushing(env, rng, body(env, "push_box0").xpos))
        robot, box = body(env, "agent").xpos, body(env, "push_box0").xpos
        now = np.linalg.norm(box - robot), np.linalg.norm(box - goal)
        reached = now[1] <= 0.3
        expected = last[0] - now[0] + last[1] - now[1] + reached
        assert result.reward[0] == pytest.approx(expected, abs=1e-12)
        assert env.info_terms["goal_met"][0] == reached
        met += reached
        if reached:  # only the goal moves, clear of the box
            assert np.linalg.norm(env.world.where("goal")[0, 0] - box[:2]) >= 0.6 - 1e-12
            goal = np.array([*env.world.where("goal")[0, 0], 0.16])
            now = now[0], np.linalg.norm(box - goal)
        last = now
    assert met >= 1


@pytest.mark.parametrize(("name", "costs"), [("PointPush2", True), ("PointPush1", False)])
def test_a_pillar_is_solid_and_costs_at_the_second_level_only(name, costs):
    env, rng = made(name), np.random.default_rng(0)
    arrange(env, robot=(-0.5, 0.0), pillars=[(0.0, 0.0)], push_box=[(5.0, 5.0)])
    touched = []
    for _ in range(40):
        result = env.step(pushing(env, rng, (5.0, 0.0)))
        touched.append(contacts(env, "pillar"))
        assert result.cost[0, 0] == (costs and touched[-1])
    assert touched[0] is False and any(touched)
    assert body(env, "agent").xpos[0] < -0.2, "it does not go through"


@pytest.mark.parametrize("heading", [0.0, math.pi])  # its nose, or its ball, in front
def test_a_ball_meets_a_pillar_by_an_ellipsoid_of_no_weight(heading):
    env = made("PointPush1")
    arrange(env, robot=(-0.29, 0.0), heading=heading, pillars=[(0.0, 0.0)], push_box=[(5.0, 5.0)])
    pillar = env.model.geom("pillar0").id
    kinds = {
        int(env.model.geom_type[geom])
        for contact in env.physics.data[0].contact
        for geom in set(contact.geom) - {pillar}
        if pillar in contact.geom
    }
    assert kinds == ({4, 6} if heading == 0.0 else {4}), "ellipsoid and box, never the sphere"
    assert env.model.body("agent").mass[0] == pytest.approx(0.005188790204786391, rel=1e-12)


@pytest.mark.parametrize("name", ["PointCircle2", "CarCircle1"])
def test_circling_pays_by_speed_and_radius_and_crossing_a_line_costs(name):
    env, rng = made(name), np.random.default_rng(3)
    arrange(env, robot=(1.05, 0.3), heading=1.2)
    lines = 2 if "2" in name else 1
    costs = set()
    for _ in range(150):
        before = body(env, "agent").xpos.copy()
        result = env.step(rng.uniform(-0.5, 1.0, (1, 2)))
        data = env.physics.data[0]
        x, y = data.body("agent").xpos[:2]
        velocity = np.zeros(6)
        if "Car" in name:
            velocity[:3] = data.qvel[:3]
        else:  # its joints lie along the axes it started with
            matrix = np.array([[math.cos(1.2), -math.sin(1.2)], [math.sin(1.2), math.cos(1.2)]])
            velocity[:2] = matrix @ data.qvel[:2]
        radius = math.hypot(x, y)
        around = (x * velocity[1] - y * velocity[0]) / radius
        expected = 0.1 * around / (1.0 + abs(radius - 1.5))
        assert result.reward[0] == pytest.approx(expected, abs=1e-13)
        assert not np.array_equal(before, data.body("agent").xpos)
        cost = float(abs(x) > 1.125 or (lines == 2 and abs(y) > 1.125))
        assert result.cost[0, 0] == cost
        costs.add(cost)
    assert costs == {0.0, 1.0}


def test_the_circle_is_seen_from_six_metres_at_the_origin_itself():
    env = made("PointCircle1")
    for distance, reading in ((1.5, 0.75), (4.5, 0.25), (6.5, 0.0)):
        arrange(env, robot=(distance, 0.0), circle=[(1e-9, 1e-9)])
        env.game.begin(0, env._stream(0))
        seen = env.step(REST).observation[0, 12:]
        assert seen.max() == pytest.approx(reading, abs=1e-6)
    assert env.world.where("circle")[0, 0].tolist() == [0.0, 0.0]


def test_running_pays_sixty_per_metre_unclipped_and_leaving_the_path_costs():
    env, rng = made("PointRun0"), np.random.default_rng(0)
    for x, cost in ((0.45, 0.0), (0.55, 1.0), (-0.55, 1.0)):
        arrange(env, robot=(x, 16.5), heading=-math.pi / 2)
        env.game.begin(0, env._stream(0))
        for _ in range(10):
            before = body(env, "agent").xpos[:2].copy()
            result = env.step([[1.0, rng.uniform(-0.05, 0.05)]])
            now = body(env, "agent").xpos[:2]
            way = np.hypot(*(before - [0, -1000])) - np.hypot(*(now - [0, -1000]))
            assert result.reward[0] == pytest.approx(60.0 * way, abs=1e-9)
            assert result.cost[0, 0] == cost
    assert result.reward[0] > 0.3
    env.game.potential[0] -= 600.0
    assert env.step(REST)[1][0] > 500.0, "no limit of ten here"


def test_dark_buttons_are_hidden_without_costs_too():
    env = made("PointButton0")
    env.game.timer[0] = 2
    dark = env.step(REST).observation[0, 12:28].max(), env.step(REST).observation[0, 12:28].max()
    assert dark[0] == 0.0 and dark[1] > 0.0


# --- pictures and training ---


@pytest.mark.parametrize("name", ["PointPush2", "CarCircle2", "PointRun0", "PointGoal2"])
def test_a_scene_has_every_object_where_it_is(name):
    env = made(name)
    env.step(np.ones((1, 2)))
    scene = env.scene()
    seen = [one for one in env.task.objects if one.lidar]
    assert len(scene.marks) == 16 * len(seen)
    for one in env.task.objects:
        for place, body_name in zip(env.world.where(one.name)[0], one.bodies, strict=True):
            np.testing.assert_allclose(scene.data.body(body_name).xpos[:2], place, atol=1e-12)
    if name == "CarCircle2":
        across = scene.data.body("sigwall2").xmat.reshape(3, 3)
        np.testing.assert_allclose(across[:2, :2], [[0, -1], [1, 0]], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "algo"),
    [
        ("SafetyPointGoal0-v0", "cspo"),
        ("SafetyCarGoal2-v0", "ppo-lag"),
        ("SafetyPointButton0-v0", "cpo"),
        ("SafetyCarButton2-v0", "cspo"),
        ("SafetyPointPush0-v0", "ppo-lag"),
        ("SafetyCarPush2-v0", "cpo"),
        ("SafetyPointCircle2-v0", "cspo"),
        ("SafetyCarRun0-v0", "ppo-lag"),
    ],
)
def test_algorithms_train_on_every_game(name, algo, tmp_path):
    settings = {**SMALL, "num_envs": 2, "steps_per_epoch": 60, "total_steps": 300}
    settings |= {"minibatch_size": 30, "env_options": {"time_limit": 30}}
    trainer = cspo.Trainer(cspo.make_config(name, algo, **settings), run_dir=tmp_path / "run")
    reports = list(trainer)
    assert len(reports) == 5
    assert all(np.isfinite([report.episode_return, report.kl]).all() for report in reports)
    trainer.run.close()
    trainer.env.close()
