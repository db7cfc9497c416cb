"""The velocity tasks: formulas, draws, episodes, and equal bits however stepped."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref

import gymnasium
import numpy as np
import pytest

from cspo.envs.physics.plain import Recipe
from cspo.envs.physics.step import Physics
from cspo.envs.tasks import native_tasks
from cspo.envs.tools.bench import bench_env
from cspo.envs.velocity.facts import TASKS
from cspo.envs.velocity.task import VelocityEnv
from cspo.errors import CspoError

NAMES = list(TASKS)
ROBOTS = [name for name in NAMES if name.endswith("-v1")]  # version v0 differs in its costs alone
# Transcribed by hand: speed limit, planar, forward, alive, control weight, seconds per step.
FACTS = {
    "SafetyAntVelocity-v1": (2.6222, True, 1.0, 1.0, 0.5, 0.05),
    "SafetyHumanoidVelocity-v1": (1.4149, True, 1.25, 5.0, 0.1, 0.015),
    "SafetyHalfCheetahVelocity-v1": (3.2096, False, 1.0, 0.0, 0.1, 0.05),
    "SafetyHopperVelocity-v1": (0.7402, False, 1.0, 1.0, 1e-3, 0.008),
    "SafetySwimmerVelocity-v1": (0.2282, False, 1.0, 0.0, 1e-4, 0.04),
    "SafetyWalker2dVelocity-v1": (2.3415, False, 1.0, 1.0, 1e-3, 0.008),
    "SafetyAntVelocity-v0": (2.5745, True, 1.0, 1.0, 0.5, 0.05),
    "SafetyHumanoidVelocity-v0": (2.3475, True, 1.25, 5.0, 0.1, 0.015),
    "SafetyHalfCheetahVelocity-v0": (2.8795, False, 1.0, 0.0, 0.1, 0.05),
    "SafetyHopperVelocity-v0": (0.37315, False, 1.0, 1.0, 1e-3, 0.008),
    "SafetySwimmerVelocity-v0": (0.04845, True, 1.0, 0.0, 1e-4, 0.04),
    "SafetyWalker2dVelocity-v0": (1.7075, False, 1.0, 1.0, 1e-3, 0.008),
}


def gaussian(env: VelocityEnv, steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((steps, env.num_envs, env.action_size))


def trajectory(env: VelocityEnv, steps: int) -> list[np.ndarray]:
    first = env.reset(seed=3).copy()
    kept = [first]
    for action in gaussian(env, steps):
        result = env.step(action)
        ended = result.terminated | result.truncated
        kept += [array.copy() for array in result[:-1]] + [result.final_observation[ended].copy()]
    return kept


@pytest.mark.parametrize("name", NAMES)
def test_the_static_table_tells_the_true_sizes(name):
    env = VelocityEnv(name)
    row = next(row for row in native_tasks() if row.name == name)
    assert (row.observation_size, row.action_size) == (env.observation_size, env.action_size)
    robot, model, data = TASKS[name].robot, env.model, env.physics.data[0]
    terms = sum(getattr(data, term).size for term in robot.body_terms)
    assert row.observation_size == model.nq + model.nv - robot.skipped + terms
    assert row.action_size == model.nu
    assert row.step_seconds == model.opt.timestep * robot.frame_skip == FACTS[name][-1]
    assert str(TASKS[name].speed_limit) in row.description
    limit = 0.4 if "Humanoid" in name else 1.0
    assert np.array_equal(env.action_high, np.full(env.action_size, limit))
    assert np.array_equal(env.action_low, -env.action_high)
    assert env.cost_names == ("velocity",)
    assert env.time_limit == 1000


@pytest.mark.parametrize("name", ROBOTS)
def test_threads_and_steppers_give_the_same_bits_across_resets(name):
    steps = 63 if "Hopper" in name else 25
    ways = [("python", 1), ("python", 3), ("compiled", 1), ("compiled", 2)]
    runs = []
    for stepper, threads in ways:
        env = VelocityEnv(name, num_envs=5, threads=threads, stepper=stepper, time_limit=20)
        assert env.physics.stepper == stepper
        runs.append([*trajectory(env, steps), np.array([data.time for data in env.physics.data])])
        assert runs[-1][-1].max() > 0
        env.close()
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_does_not_depend_on_its_neighbours(name):
    many, one = (
        VelocityEnv(name, num_envs=3, time_limit=10),
        VelocityEnv(name, num_envs=1, time_limit=10),
    )
    actions = gaussian(many, 15)
    assert np.array_equal(many.reset(seed=5)[2], one.reset(seed=7)[0])
    for action in actions:
        ours, theirs = many.step(action), one.step(action[2:])
        np.testing.assert_allclose(ours.observation[2], theirs.observation[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours.reward[2], theirs.reward[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_resets_draw_what_gymnasium_draws(name):
    env = VelocityEnv(name, num_envs=2)
    model, noise = (
        env.model,
        {"Ant": 0.1, "Humanoid": 0.01, "HalfCheetah": 0.1, "Hopper": 0.005, "Swimmer": 0.1}
        | {"Walker2d": 0.005},
    )
    scale = next(value for robot, value in noise.items() if robot in name)
    for i in range(2):
        rng, _ = gymnasium.utils.seeding.np_random(11 + i)
        for attempt in range(2):  # seeded, and then continuing the stream
            if i == 0:
                env.reset(seed=11 if attempt == 0 else None)
            elif attempt == 0:
                env.reset(seed=11)
            else:
                env.reset()
            qpos = model.qpos0 + rng.uniform(low=-scale, high=scale, size=model.nq)
            if "Ant" in name or "HalfCheetah" in name:
                qvel = scale * rng.standard_normal(model.nv)
            else:
                qvel = rng.uniform(low=-scale, high=scale, size=model.nv)
            if "Ant" in name or "Humanoid" in name:
                qpos[3:7] /= np.linalg.norm(qpos[3:7])
            ours = env.get_state(i)
            np.testing.assert_allclose(ours[0], qpos, rtol=0, atol=1e-15)
            np.testing.assert_array_equal(ours[1], qvel)


@pytest.mark.parametrize("name", NAMES)
def test_reward_and_cost_follow_their_formulas_with_unclipped_actions(name):
    limit, planar, forward, alive, control, seconds = FACTS[name]
    env = VelocityEnv(name, num_envs=2, autoreset=False)
    env.reset(seed=0)
    costs = set()
    for step, action in enumerate(3.0 * gaussian(env, 12)):
        if step == 0:  # at rest, and left alone
            action[:] = 0.0
            for i in range(2):
                env.set_state(i, env.model.qpos0, np.zeros(env.model.nv))
        if step % 3 == 2:  # a push, so that the speed limit is crossed
            for i in range(2):
                qpos, qvel, _ = env.get_state(i)
                qvel[:2] = (3.0 + 2 * i, 2.0)
                env.set_state(i, qpos, qvel)
        before = np.array([position_of(env, i) for i in range(2)])
        result = env.step(action)
        velocity = (np.array([position_of(env, i) for i in range(2)]) - before) / seconds
        speed = np.hypot(velocity[:, 0], velocity[:, 1]) if planar else velocity[:, 0]
        reward = forward * velocity[:, 0] + alive - control * (action**2).sum(axis=1)
        np.testing.assert_allclose(result.reward, reward, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(result.cost[:, 0], (speed > limit).astype(float))
        np.testing.assert_allclose(env.info_terms["x_velocity"], velocity[:, 0], rtol=0, atol=1e-9)
        costs |= set(result.cost[:, 0])
    assert costs == {0.0, 1.0}


def position_of(env: VelocityEnv, index: int) -> np.ndarray:
    data = env.physics.data[index]
    if "Ant" in env.name:
        return data.body("torso").xpos[:2].copy()
    if "Humanoid" in env.name:
        return np.average(data.xipos, axis=0, weights=env.model.body_mass)[:2]
    return data.qpos[:2].copy()


def test_backward_speed_costs_nothing_where_only_forward_speed_counts():
    env = VelocityEnv("SafetyHalfCheetahVelocity-v1")
    env.reset(seed=0)
    qpos, qvel, _ = env.get_state(0)
    qvel[0] = -8.0
    env.set_state(0, qpos, qvel)
    assert env.step(np.zeros((1, 6))).cost[0, 0] == 0.0
    assert env.info_terms["x_velocity"][0] < -3.3


def test_sideways_speed_costs_the_swimmer_of_version_v0_only():
    costs = {}
    for version in ("v0", "v1"):
        env = VelocityEnv(f"SafetySwimmerVelocity-{version}")
        env.reset(seed=0)
        qpos, _, _ = env.get_state(0)
        env.set_state(0, qpos, np.array([-0.1, 1.0, 0.0, 0.0, 0.0]))
        costs[version] = env.step(np.zeros((1, 2))).cost[0, 0]
        assert env.info_terms["x_velocity"][0] < 0.04
    assert costs == {"v0": 1.0, "v1": 0.0}


@pytest.mark.parametrize(
    ("name", "changes", "ends"),
    [
        ("SafetyHopperVelocity-v1", {1: 1.25}, False),
        ("SafetyHopperVelocity-v1", {1: 0.6}, True),
        ("SafetyHopperVelocity-v1", {2: 0.25}, True),
        ("SafetyHopperVelocity-v1", {2: -0.25}, True),
        ("SafetyAntVelocity-v1", {2: 1.5}, True),
        ("SafetyAntVelocity-v1", {2: 0.75}, False),
        ("SafetyHumanoidVelocity-v1", {2: 0.9}, True),
        ("SafetyHumanoidVelocity-v1", {2: 2.2}, True),
        ("SafetyHumanoidVelocity-v1", {2: 1.4}, False),
        ("SafetyWalker2dVelocity-v1", {1: 0.7}, True),
        ("SafetyWalker2dVelocity-v1", {1: 2.1}, True),
        ("SafetyWalker2dVelocity-v1", {2: 1.1}, True),
        ("SafetyWalker2dVelocity-v1", {2: -0.9}, False),
        ("SafetyHalfCheetahVelocity-v1", {2: 3.1}, False),
        ("SafetySwimmerVelocity-v1", {2: 3.1}, False),
    ],
)
def test_an_episode_terminates_where_the_table_says(name, changes, ends):
    env = VelocityEnv(name, autoreset=False)
    env.reset(seed=0)
    qpos, qvel, _ = env.get_state(0)
    for place, value in changes.items():
        qpos[place] = value
    env.set_state(0, qpos, 0 * qvel)
    result = env.step(np.zeros((1, env.action_size)))
    assert bool(result.terminated[0]) is ends
    assert not result.truncated[0]


def test_the_limits_of_health_are_inclusive_for_the_ant_only():
    def healthy(name: str, nq: int, place: int, values: list[float]) -> list[bool]:
        state = np.zeros((len(values), 2 * nq))
        state[:, 1] = 1.0  # the Hopper's height
        state[:, place] = values
        return TASKS[name].robot.healthy(state).tolist()

    nan, inf = np.nan, np.inf
    ant = healthy("SafetyAntVelocity-v1", 15, 2, [0.199, 0.2, 1.0, 1.001, nan, inf])
    assert ant == [False, True, True, False, False, False]
    humanoid = healthy("SafetyHumanoidVelocity-v1", 24, 2, [1.0, 1.001, 1.999, 2.0, nan])
    assert humanoid == [False, True, True, False, False]
    assert healthy("SafetyHopperVelocity-v1", 6, 1, [0.7, 0.701, 9.0, nan]) == [
        False,
        True,
        True,
        False,
    ]
    walker = healthy("SafetyWalker2dVelocity-v1", 9, 1, [0.8, 0.801, 1.999, 2.0, nan])
    assert walker == [False, True, True, False, False]
    walker = healthy("SafetyWalker2dVelocity-v1", 9, 2, [1.0, 0.999, -0.999, -1.0, nan])
    assert walker == [False, True, True, False, False]
    assert healthy("SafetyHopperVelocity-v1", 6, 2, [0.2, 0.199, -0.199, -0.2]) == [
        False,
        True,
        True,
        False,
    ]
    assert healthy("SafetyHopperVelocity-v1", 6, 7, [100.0, 99.9, -99.9, nan]) == [
        False,
        True,
        True,
        False,
    ]


def test_the_hopper_terminates_when_a_speed_leaves_its_range():
    env = VelocityEnv("SafetyHopperVelocity-v1", autoreset=False)
    env.reset(seed=0)
    qpos, qvel, _ = env.get_state(0)
    qvel[0] = 150.0
    env.set_state(0, qpos, qvel)
    result = env.step(np.zeros((1, 3)))
    assert result.terminated[0]
    assert np.abs(result.observation[0, 5:]).max() == 10.0  # what is seen of it is clipped


def test_a_finished_copy_shows_its_new_episode_and_keeps_its_last_observation():
    name = "SafetyHopperVelocity-v1"
    env, watched = VelocityEnv(name, num_envs=4), VelocityEnv(name, num_envs=4, autoreset=False)
    env.reset(seed=0)
    watched.reset(seed=0)
    finished = 0
    for action in gaussian(env, 60):
        ours, theirs = env.step(action), watched.step(action)
        ended = np.flatnonzero(theirs.terminated)
        np.testing.assert_array_equal(ours.terminated, theirs.terminated)
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        for i in ended:
            np.testing.assert_array_equal(ours.final_observation[i], theirs.observation[i])
            watched._reset_one(i)  # the same draws, one step later
            watched._observe()
            finished += 1
        np.testing.assert_array_equal(ours.observation, watched._result.observation)
    assert finished > 3


def test_the_time_limit_truncates_unless_the_step_terminates():
    env = VelocityEnv("SafetyHopperVelocity-v1", num_envs=2, time_limit=5)
    env.reset(seed=0)
    for step in range(1, 11):
        if step == 10:
            qpos, qvel, _ = env.get_state(1)
            qpos[1] = 0.5
            env.set_state(1, qpos, qvel)
        result = env.step(np.zeros((2, 3)))
        expected = [step % 5 == 0, step == 5]
        np.testing.assert_array_equal(result.truncated, expected)
        np.testing.assert_array_equal(result.terminated, [False, step == 10])
    assert np.array_equal(env.elapsed, [0, 0])


def test_the_default_time_limit_is_1000():
    env = VelocityEnv("SafetySwimmerVelocity-v1")
    env.reset(seed=0)
    ends = [bool(env.step(np.zeros((1, 2))).truncated[0]) for _ in range(1001)]
    assert np.flatnonzero(ends).tolist() == [999]


def test_the_random_state_survives_json():
    env, other = (VelocityEnv("SafetyHopperVelocity-v1", num_envs=3) for _ in range(2))
    env.reset(seed=4)
    env.reset()
    other.set_random_state(json.loads(json.dumps(env.random_state())))
    assert np.array_equal(env.reset(), other.reset())
    with pytest.raises(CspoError, match="3 environments, not 2"):
        VelocityEnv("SafetyHopperVelocity-v1", num_envs=2).set_random_state(env.random_state())


def test_unseeded_environments_differ_and_seeds_must_not_be_negative():
    env = VelocityEnv("SafetyHopperVelocity-v1", num_envs=2)
    first = env.reset().copy()
    assert not np.array_equal(first[0], first[1])
    with pytest.raises(CspoError, match="whole number from 0"):
        env.reset(seed=-1)


def test_wrong_shapes_and_names_are_said_in_words():
    env = VelocityEnv("SafetyHopperVelocity-v1", num_envs=2)
    env.reset(seed=0)
    with pytest.raises(CspoError, match=r"\(2, 3\), not \(3,\)"):
        env.step(np.zeros(3))
    with pytest.raises(CspoError, match="did you mean 'SafetyHopperVelocity-v1'"):
        VelocityEnv("SafetyHoperVelocity-v1")
    with pytest.raises(CspoError, match="at least 1"):
        VelocityEnv("SafetyHopperVelocity-v1", num_envs=0)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_reset_leaves_nothing_of_the_episode_before(name):
    """A reset does not clear all of MjData: what it leaves must not show, then or later."""
    used = VelocityEnv(
        name, num_envs=2, autoreset=False
    )  # ends lying on the ground, with contact forces
    fresh = VelocityEnv(name, num_envs=2, autoreset=False)
    actions = np.random.default_rng(3).standard_normal((60, 2, used.action_size))
    used.reset(seed=5)
    for action in actions:
        used.step(3.0 * action)
    np.testing.assert_array_equal(used.reset(seed=7), fresh.reset(seed=7))
    for action in actions:
        np.testing.assert_array_equal(used.step(action).observation, fresh.step(action).observation)
    assert [data.time for data in used.physics.data] == [data.time for data in fresh.physics.data]


def test_helpers_that_went_to_sleep_miss_no_step():
    """Awake, falling asleep or asleep, helpers must give complete steps."""
    model = VelocityEnv("SafetySwimmerVelocity-v1").model
    physics = Physics(model, num_envs=3, threads=3, stepper="compiled")
    controls, pauses = np.zeros((3, 2)), np.random.default_rng(0).uniform(0.0, 2e-3, 500)
    for pause in pauses:
        physics.step(controls)
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass
    np.testing.assert_allclose([data.time for data in physics.data], 5.0, rtol=1e-9)
    physics.close()


@pytest.mark.parametrize("stepper", ["python", "compiled"])
def test_helper_threads_end_with_their_simulators(stepper):
    def helpers() -> int:
        return sum(thread.name == "cspo-physics" for thread in threading.enumerate())

    def settle(count: int) -> bool:
        deadline = time.perf_counter() + 5.0
        while helpers() != count and time.perf_counter() < deadline:
            time.sleep(0.01)
        return helpers() == count

    gc.collect()
    time.sleep(0.3)  # helpers of what was just collected are still leaving
    before = helpers()
    env = VelocityEnv("SafetySwimmerVelocity-v1", num_envs=4, threads=3, stepper=stepper)
    assert helpers() == before + 2
    env.reset(seed=0)
    env.step(np.zeros((4, 2)))
    env.close()
    env.close()
    assert settle(before)
    env.step(np.zeros((4, 2)))  # slower, but no helper is waited for
    forgotten = VelocityEnv("SafetySwimmerVelocity-v1", num_envs=4, threads=2, stepper=stepper)
    forgotten.reset(seed=0)
    forgotten.step(np.zeros((4, 2)))
    alive = weakref.ref(forgotten.physics)
    del forgotten
    gc.collect()
    assert alive() is None
    assert settle(before)
    VelocityEnv("SafetySwimmerVelocity-v1", num_envs=4, threads=1, stepper=stepper)
    assert helpers() == before


@pytest.mark.parametrize("stepper", ["python", "compiled"])
def test_a_step_returns_only_when_every_thread_is_done(stepper):
    model = VelocityEnv("SafetyHalfCheetahVelocity-v1").model
    physics = Physics(model, num_envs=2, threads=2, recipe=Recipe(400), stepper=stepper)
    for step in range(1, 6):  # long enough for the helper to wake up and take one of the two
        rows = physics.step(np.full((2, 6), 0.1)).copy()
        np.testing.assert_allclose([data.time for data in physics.data], 4.0 * step)
        np.testing.assert_array_equal(rows[0], rows[1])
    physics.close()


def test_many_short_steps_lose_no_environment():
    """Steps this short may end before a helper wakes up, which then joins a later one."""
    model = VelocityEnv("SafetySwimmerVelocity-v1").model
    physics = Physics(model, num_envs=3, threads=3, stepper="compiled")
    controls = np.zeros((3, 2))
    for _ in range(2_000):
        physics.step(controls)
    np.testing.assert_allclose([data.time for data in physics.data], 20.0, rtol=1e-9)
    physics.close()


def test_an_error_in_a_helper_thread_surfaces():
    import mujoco

    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    physics = Physics(model, num_envs=8, threads=2, stepper="python")
    physics.data[:] = ["not a simulator"] * 8
    with pytest.raises(TypeError):
        physics.step(np.zeros((8, 0)))


def test_the_compiled_stepper_says_when_it_is_impossible(monkeypatch):
    monkeypatch.setattr("cspo.envs.physics.compiled.addresses", lambda: None)
    assert VelocityEnv("SafetySwimmerVelocity-v1").physics.stepper == "python"
    with pytest.raises(CspoError, match="compiled stepper needs the MuJoCo library"):
        VelocityEnv("SafetySwimmerVelocity-v1", stepper="compiled")


def test_the_benchmark_compares_the_same_motion():
    report = bench_env("SafetyHopperVelocity-v1", num_envs=4, threads=2, seconds=0.2)
    assert set(report) == {
        "task",
        "num_envs",
        "threads",
        "stepper",
        "steps_per_s",
        "raw_steps_per_s",
        "ratio",
        "reset_ms",
    }
    assert report["ratio"] == pytest.approx(report["steps_per_s"] / report["raw_steps_per_s"])
    from cspo.envs.tools import bench

    env = VelocityEnv("SafetyHopperVelocity-v1", num_envs=4)
    env.reset(seed=0)
    raw = bench._RawLoop(env, threads=2)
    starts = [bench._state(env, i) for i in range(4)]
    actions = gaussian(env, 60)
    _, resets = bench._run_round(env, actions)
    raw.run(starts, actions, resets)
    raw.close()
    assert sum(len(one) for one in resets) > 3
    for i in range(4):
        np.testing.assert_array_equal(raw.data[i].qpos, env.get_state(i)[0])
