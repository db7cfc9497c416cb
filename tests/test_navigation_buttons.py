"""What is paid and what it costs, by hand and against a second set of rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from navigation_helpers import (
    CAR_BUTTON,
    CAR_GOAL,
    NAMES,
    POINT_BUTTON,
    POINT_GOAL,
    arrange,
    driver,
    goal_area,
    goal_of,
    lidar_columns,
    robot_of,
    rows_of,
    set_goal_button,
    skip_steps,
    touched_by_robot,
    world,
)

from cspo.envs.navigation.task import NavigationEnv

REST = [[0.0, 0.0]]
PUSH = [[1.0, 0.0]]  # the Point's full thrust
FOUR = [(0.0, 0.0), (0.0, 3.0), (3.0, 3.0), (3.0, 0.0)]  # buttons; the first is the one that is met
LEANING = {
    "robot": (-0.24, 0.0),
    "heading": 0.0,
    "buttons": FOUR,
}  # the Point's nose on the first button


def made(name: str, **options: Any) -> NavigationEnv:
    env = NavigationEnv(name, **{"autoreset": False, "time_limit": None, **options})
    env.reset(seed=0)
    return env


# --- hazards ---


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("distance", "cost"), [(0.0, 1.0), (0.199, 1.0), (0.201, 0.0), (0.5, 0.0)])
def test_a_hazard_costs_inside_its_radius_only(name: str, distance: float, cost: float) -> None:
    env = made(name)
    for angle in (0.3, 2.0, 4.5):
        hazard = distance * np.cos(angle), distance * np.sin(angle)
        arrange(env, heading=1.0, hazards=[(5.0, 5.0), hazard])
        result = env.step(REST)
        actual = np.linalg.norm(robot_of(env)[0][:2] - hazard)
        assert actual == pytest.approx(distance, abs=5e-4), "it hardly moved"
        assert result.cost[0, 0] == env.info_terms["cost_hazards"][0] == env.total_cost[0] == cost


def test_height_and_size_do_not_matter_to_a_hazard() -> None:
    """It is the distance of centres in the plane: the nose in a hazard costs nothing."""
    env = made(POINT_GOAL)
    arrange(env, hazards=[(0.25, 0.0)])  # its rim at 0.05, the robot's front at 0.15
    assert env.step(REST).cost[0, 0] == 0.0
    env = made(CAR_GOAL)
    arrange(env, hazards=[(0.1, 0.0)])
    env.physics.data[0].qpos[2] = 1.0  # high above, falling
    env.world.forward(0)
    assert env.step(REST).cost[0, 0] == 1.0
    assert robot_of(env)[0][2] > 0.9


def test_a_vase_costs_nothing_and_gives_way() -> None:
    env = made(POINT_GOAL)
    arrange(env, vases=[(0.3, 0.0)])
    touched, costs = set(), 0.0
    for _ in range(40):
        costs += env.step(PUSH).cost.sum()
        touched |= touched_by_robot(env)
    assert "vase0" in touched and costs == 0.0
    place = env.world.objects[0, rows_of(POINT_GOAL, "vases")][0]
    assert place[0] > 0.4
    np.testing.assert_array_equal(place, env.physics.data[0].body("vase0").xpos[:2])


@pytest.mark.parametrize(
    ("name", "heading"), [(POINT_GOAL, 0.0), (CAR_GOAL, np.pi / 2)]
)  # the Car drives along its -y
def test_a_vase_left_alone_rests_and_is_hit_as_if_it_had_not(name: str, heading: float) -> None:
    """Out of reach it is spared the solver; that must not show in where robot or vase go."""
    paths = []
    for may_rest in (True, False):
        env = made(name)
        arrange(env, heading=heading, vases=[(0.9, 0.02)])
        assert env.world.resting is not None
        if not may_rest:
            env.world.resting.update = lambda *facts: None  # type: ignore[method-assign]
        path, rested, touched = [], [], []
        for _ in range(80):
            env.step([[1.0, 0.0 if name == POINT_GOAL else 1.0]])
            rested.append(bool(env.world.resting.resting[0, 0]))
            touched.append("vase0" in touched_by_robot(env))
            path.append(np.concatenate([robot_of(env)[0], env.physics.data[0].body("vase0").xpos]))
        first = touched.index(True)
        assert any(rested[:first]) == may_rest and not rested[first - 1] and not rested[first]
        paths.append(np.array(path))
        before = paths[-1][first - 1, 3:]
        np.testing.assert_allclose(before, [0.9, 0.02, 0.1], rtol=0, atol=1e-4)
        assert paths[-1][-1, 3] > 1.0, "pushed"
        env.reset(seed=5)
        assert not env.world.resting.resting[0, 0]
    np.testing.assert_allclose(paths[0], paths[1], rtol=0, atol=1e-6)


# --- buttons ---


def test_the_wrong_button_costs_only_while_the_timer_is_zero() -> None:
    env = made(POINT_BUTTON)
    arrange(env, goal_button=1, **LEANING)
    env.game.timer[0] = 3
    costs, timers = [], []
    for _ in range(8):
        result = env.step(PUSH)
        assert touched_by_robot(env) >= {"button0"}
        costs.append(result.cost[0, 0])
        timers.append(env.game.timer[0])
        assert (
            env.info_terms["cost_buttons"][0] == costs[-1] and env.info_terms["goal_met"][0] == 0.0
        )
    assert costs == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert timers == [2, 1, 0, 0, 0, 0, 0, 0]


def test_the_goal_button_pays_costs_nothing_and_starts_the_timer() -> None:
    env = made(POINT_BUTTON)
    arrange(env, goal_button=0, **LEANING)
    before = env.game.last_distance[0]
    result = env.step(PUSH)
    moved = before - np.linalg.norm(robot_of(env)[0][:2] - FOUR[0])
    assert touched_by_robot(env) >= {"button0"}
    assert result.reward[0] == pytest.approx(1.0 + moved, abs=1e-12)
    assert env.info_terms["goal_met"][0] == 1.0 and result.cost[0, 0] == 0.0
    assert env.game.timer[0] == 10 and not result.terminated[0]
    np.testing.assert_array_equal(goal_of(env), FOUR[env.game.goal_button[0]])
    set_goal_button(env, 2)  # from now on the same touch is wrong, and free for ten steps
    costs = [env.step(PUSH).cost[0, 0] for _ in range(13)]
    assert costs == [0.0] * 10 + [1.0] * 3


def test_the_same_button_drawn_again_pays_again_in_the_next_step() -> None:
    env = made(POINT_BUTTON)
    arrange(env, goal_button=0, **LEANING)
    for _ in range(5):  # the timer does not block it
        result = env.step(PUSH)
        assert env.info_terms["goal_met"][0] == 1.0 and result.reward[0] > 0.99
        assert env.game.timer[0] == 10
        set_goal_button(env, 0)
        env.game.last_distance[0] = np.linalg.norm(robot_of(env)[0][:2] - FOUR[0])


def test_being_near_a_button_is_not_touching_it() -> None:
    env = made(POINT_BUTTON)
    arrange(env, robot=(-0.26, 0.0), buttons=FOUR, goal_button=0)
    assert env.step(REST).reward[0] == 0.0
    arrange(env, robot=(-0.26, 0.0), buttons=FOUR, goal_button=1)
    assert env.step(REST).cost[0, 0] == 0.0
    arrange(env, robot=(0.19, 0.0), buttons=FOUR, goal_button=1)  # with its back
    assert env.step(REST).cost[0, 0] == 1.0
    arrange(
        env, robot=(0.0, 0.0), buttons=[*FOUR[1:], (-0.19, 0.0)], goal_button=0
    )  # the last of the four
    assert env.step(REST).cost[0, 0] == 1.0


def test_every_part_of_the_car_touches() -> None:
    env = made(CAR_BUTTON)
    # Its front bumper reaches to -0.175 and the back one to 0.16 along y, its wheels to 0.155 along
    # x.
    for place in ((0.0, -0.27), (0.0, 0.25), (0.24, 0.1), (-0.24, 0.1)):
        for goal_button, cost in ((0, 0.0), (1, 1.0)):
            arrange(env, buttons=[place, *FOUR[1:]], goal_button=goal_button)
            result = env.step(REST)
            assert touched_by_robot(env) >= {"button0"}
            assert (env.info_terms["goal_met"][0], result.cost[0, 0]) == (1.0 - cost, cost)
    arrange(env, buttons=[(0.0, -0.29), *FOUR[1:]], goal_button=1)
    assert env.step(REST).cost[0, 0] == 0.0


@pytest.mark.parametrize("name", [POINT_BUTTON, CAR_BUTTON])
def test_buttons_are_dark_while_the_timer_runs_and_the_goal_is_not(name: str) -> None:
    env = made(name)
    arrange(
        env,
        buttons=[(1.0, 0.3), (-1.0, 0.0), (0.0, 1.2), (0.3, -1.0)],
        goal_button=2,
        hazards=[(0.5, 0.5)],
    )
    env.game.timer[0] = 4
    buttons, goal = lidar_columns(name, "buttons"), lidar_columns(name, "goal")
    for timer in (3, 2, 1, 0, 0):
        seen = env.step(REST).observation[0]
        assert env.game.timer[0] == timer
        assert (seen[buttons].max() == 0.0) == (timer > 0)
        assert seen[goal].max() == pytest.approx(0.6, abs=1e-3), "1.2 of 3 metres away"
        assert seen[lidar_columns(name, "hazards")].max() > 0.7
    assert seen[buttons].max() == pytest.approx(1.0 - 1.0 / 3.0, abs=1e-3)


@pytest.mark.parametrize("name", [POINT_BUTTON, CAR_BUTTON])
def test_episodes_may_begin_with_dark_buttons(name: str) -> None:
    buttons = lidar_columns(name, "buttons")
    usual, later = (
        NavigationEnv(name),
        NavigationEnv(name, button_timer_after_reset=10, time_limit=15),
    )
    first, dark = usual.reset(seed=4)[0], later.reset(seed=4)[0]
    assert usual.game.timer[0] == 0 and first[buttons].any()
    assert later.game.timer[0] == 10 and not dark[buttons].any()
    np.testing.assert_array_equal(np.delete(first, np.r_[buttons]), np.delete(dark, np.r_[buttons]))
    for step in range(1, 16):
        seen = later.step(REST).observation[0]
        assert seen[buttons].any() == (10 <= step < 15), "and a new episode is dark again"
    arrange(later, goal_button=1, buttons=[(0.0, -0.25 if "Car" in name else -0.19), *FOUR[1:]])
    later.game.timer[0] = 1
    assert [later.step(REST).cost[0, 0] for _ in range(2)] == [0.0, 1.0]


# --- gremlins ---


@pytest.mark.parametrize(("name", "seconds"), [(POINT_BUTTON, 0.02), (CAR_BUTTON, 0.04)])
def test_gremlins_run_clockwise_on_their_circles_and_hover(name: str, seconds: float) -> None:
    env = made(name)
    centres = np.array([(2.0, 0.0), (0.0, 2.0), (-2.0, 0.5), (0.5, -2.0)])
    arrange(env, gremlins=centres)
    data = env.physics.data[0]
    for step in range(1, 161):
        env.step(REST)
        time = (10 * step - 1) * seconds / 10  # targets are set before a physics step
        target = 0.35 * np.array([np.sin(time), np.cos(time)])
        np.testing.assert_allclose(
            data.mocap_pos[:, :2], np.tile(target, (4, 1)), rtol=0, atol=1e-12
        )
        np.testing.assert_array_equal(
            env.world.objects[0, rows_of(name, "gremlins")], data.xpos[gremlins_of(env), :2]
        )
        if step >= 30:
            np.testing.assert_allclose(data.xpos[gremlins_of(env), 2], 0.2, atol=0.01)
            now = step * seconds
            expected = centres + 0.35 * np.array([np.sin(now), np.cos(now)])
            np.testing.assert_allclose(data.xpos[gremlins_of(env), :2], expected, atol=0.05)


def gremlins_of(env: NavigationEnv) -> list[int]:
    return [env.model.body(f"gremlin{i}").id for i in range(4)]


@pytest.mark.parametrize("name", [POINT_BUTTON, CAR_BUTTON])
@pytest.mark.parametrize("which", [0, 3])
def test_a_gremlin_costs_when_it_touches_the_robot(name: str, which: int) -> None:
    env = made(name)
    places = [(9.0 + i, 9.0) for i in range(4)]
    places[which] = (0.0, -0.5)  # it is pulled to 0.35 north of there, and then eastward around
    arrange(env, gremlins=places)
    costs = []
    for _ in range(60):
        result = env.step(REST)
        touching = f"gremlin{which}" in touched_by_robot(env)
        assert result.cost[0, 0] == env.info_terms["cost_gremlins"][0] == float(touching)
        assert env.info_terms["cost_buttons"][0] == env.info_terms["cost_hazards"][0] == 0.0
        costs.append(result.cost[0, 0])
    assert costs[0] == 0.0 and 1.0 in costs


# --- all together ---


def test_the_cost_is_one_however_many_terms_are_and_terms_come_in_the_order_asked() -> None:
    three = ("hazards", "buttons", "gremlins")
    envs = [
        made(POINT_BUTTON),
        made(POINT_BUTTON, cost_terms=three),
        made(POINT_BUTTON, cost_terms=("gremlins",)),
    ]
    assert [env.cost_names for env in envs] == [("cost",), three, ("gremlins",)]
    seen = set()
    for hazard, button, gremlin in np.ndindex(2, 2, 2):
        for env in envs:
            arrange(
                env,
                goal_button=1,
                hazards=[(0.0, 0.1)] if hazard else [],
                buttons=[(-0.19, 0.0), *FOUR[1:]] if button else [(9.0, 9.0), *FOUR[1:]],
                gremlins=[(0.2, -0.1)] if gremlin else [],
            )
        one, split, single = (env.step(REST).cost[0].tolist() for env in envs)
        assert split == [hazard, button, gremlin]
        assert one == [max(split)] and single == [gremlin]
        assert all(env.total_cost[0] == one[0] for env in envs)
        seen.add(tuple(split))
    assert len(seen) == 8


class SecondRules:
    """The task of one copy once more, from MuJoCo's bodies and contacts and NumPy's numbers."""

    def __init__(self, env: NavigationEnv, index: int, seed: int) -> None:
        self.env, self.index, self.random = env, index, np.random.RandomState(seed)
        places, _ = world(self.random, env.name)
        self.objects, self.timer, self.presses = places[1:], 0, "Button" in env.name
        self.hazards = self.objects[rows_of(env.name, "hazards")]
        self.next_goal(places[0])

    def next_goal(self, robot: Any) -> None:
        if self.presses:
            self.button = self.random.choice(4)
            self.goal = self.objects[:4][self.button]
        else:
            self.objects[9] = self.env.physics.data[self.index].body("vase0").xpos[:2]
            self.goal = np.array(goal_area(self.random, robot, self.objects))
        self.last = np.linalg.norm(self.goal - robot)

    def step(self) -> tuple[float, dict[str, float]]:
        """Judge the step just taken: its reward, and what was touched, entered and reached."""
        skip_steps(self.random, 1)
        robot, touched = (
            robot_of(self.env, self.index)[0][:2],
            touched_by_robot(self.env, self.index),
        )
        distance = np.linalg.norm(self.goal - robot)
        terms = {"cost_hazards": float(np.linalg.norm(self.hazards - robot, axis=1).min() < 0.2)}
        if self.presses:
            reached = f"button{self.button}" in touched
            wrong = {name for name in touched if name.startswith("button")} - {
                f"button{self.button}"
            }
            terms["cost_buttons"] = float(bool(wrong) and self.timer == 0)
            terms["cost_gremlins"] = float(any(name.startswith("gremlin") for name in touched))
        else:
            reached = bool(distance <= 0.3)
        reward = self.last - distance + reached
        self.last, self.timer = distance, max(0, self.timer - 1)
        if reached:
            self.next_goal(robot)
            self.timer = 10
        return reward, {**terms, "goal_met": float(reached)}


@pytest.mark.parametrize("name", NAMES)
def test_drives_are_judged_as_by_a_second_set_of_rules(name: str) -> None:
    env = made(name, num_envs=6)
    env.reset(seed=40)
    rules = [SecondRules(env, i, 40 + i) for i in range(6)]
    rng, totals = np.random.default_rng(0), dict.fromkeys(env.info_terms, 0.0)
    for _ in range(280):
        result = env.step(driver(env, rng))
        for i, rule in enumerate(rules):
            reward, terms = rule.step()
            assert result.reward[i] == pytest.approx(reward, abs=1e-12)
            assert terms == {key: values[i] for key, values in env.info_terms.items()}
            costs = [value for key, value in terms.items() if key.startswith("cost_")]
            assert result.cost[i].tolist() == [max(costs)] == [env.total_cost[i]]
            np.testing.assert_array_equal(goal_of(env, i), rule.goal)
            if rule.presses:
                assert (env.game.timer[i], env.game.goal_button[i]) == (rule.timer, rule.button)
            for key, value in terms.items():
                totals[key] += value
    assert min(totals.values()) > 0, f"all of it happened: {totals}"
    assert totals["goal_met"] >= 5


@pytest.mark.parametrize("name", NAMES)
def test_rewards_between_goals_sum_to_the_distance_won(name: str) -> None:
    env = made(name, num_envs=2)
    rng = np.random.default_rng(1)
    started = np.array(
        [np.linalg.norm(goal_of(env, i) - robot_of(env, i)[0][:2]) for i in range(2)]
    )
    total, segments = np.zeros(2), 0
    for _ in range(250):
        goals = [goal_of(env, i) for i in range(2)]
        total += env.step(driver(env, rng)).reward
        left = np.array([np.linalg.norm(goals[i] - robot_of(env, i)[0][:2]) for i in range(2)])
        reached = env.info_terms["goal_met"]
        np.testing.assert_allclose(total, started - left + reached, rtol=0, atol=1e-10)
        for i in np.flatnonzero(reached):
            started[i], total[i] = np.linalg.norm(goal_of(env, i) - robot_of(env, i)[0][:2]), 0.0
            segments += 1
    assert segments > 0


@pytest.mark.parametrize(("distance", "reached"), [(0.299, 1.0), (0.301, 0.0)])
def test_a_goal_is_reached_inside_its_radius(distance: float, reached: float) -> None:
    env = made(POINT_GOAL)
    arrange(env, goal=[(0.0, distance)])
    result = env.step(REST)
    assert env.info_terms["goal_met"][0] == result.reward[0] == reached
    assert np.array_equal(goal_of(env), [0.0, distance]) != bool(reached), (
        "a new goal where it was reached"
    )


def test_a_reward_is_at_most_ten() -> None:
    env = made(POINT_GOAL)
    for jump, reward in ((50.0, 10.0), (-50.0, -10.0)):
        arrange(env, goal=[(100.0, 0.0)])
        env.game.last_distance[0] = 100.0 + jump
        assert env.step(REST).reward[0] == reward
