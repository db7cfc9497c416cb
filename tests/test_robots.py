"""Racecar, Ant and Doggo: their numbers, observations, deaths, draws and motors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from cspo.envs.navigation.facts import TASKS
from cspo.envs.navigation.task import NavigationEnv
from cspo.envs.physics.plain import Recipe
from cspo.envs.physics.step import Physics
from cspo.envs.tools.parity import format_report, replay

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
SUITE = REFERENCE / "traces" / "suite"
ROBOTS = ("Racecar", "Ant", "Doggo")
NAMES = [name for name in TASKS if name.removeprefix("Safety").startswith(ROBOTS)]
ROWS = 60  # of each recording; `cspo parity` replays all of them
Array = np.ndarray[Any, np.dtype[np.float64]]

needs_recordings = pytest.mark.skipif(not SUITE.exists(), reason="the recordings are not here")


def recording(name: str) -> dict[str, Array]:
    with np.load(SUITE / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def put(env: NavigationEnv, qpos: Array, qvel: Array | None = None) -> None:
    data = env.physics.data[0]
    data.qpos[:], data.qvel[:] = qpos, 0.0 if qvel is None else qvel
    env.world.forward(0)


def step(env: NavigationEnv, *action: float) -> Any:
    return env.step(np.array([action or np.zeros(env.action_size)], np.float64))


@needs_recordings
@pytest.mark.parametrize("name", NAMES)
def test_recorded_steps_and_resets_are_reproduced(name, tmp_path):
    trace = recording(name)
    rows = len(trace["action"])
    shorter = {k: v[:ROWS] if v.ndim and len(v) == rows else v for k, v in trace.items()}
    np.savez(tmp_path / f"{name}.npz", **shorter)
    report = replay(tmp_path / f"{name}.npz")
    fields = {field.name: field for field in report.fields}
    flags = {field.name: field for field in report.fields if field.tolerance is None}
    assert {"cost", "goal_met", "terminated", "truncated", "rng_pos_after"} <= flags.keys()
    assert not any(field.mismatches for field in flags.values()), format_report(report)
    exact = TASKS[name].robot.exactness
    assert fields["obs"].p50 <= 1e-8 and fields["obs"].p95 <= exact.observation
    assert fields["reward"].p95 <= 1e-5 and fields["qpos_after"].p95 <= exact.state
    report = replay(SUITE / "resets" / f"{name}.npz")
    assert max(field.max for field in report.fields) <= 1e-9, format_report(report)


@needs_recordings
@pytest.mark.parametrize("robot", ROBOTS)
def test_the_compiled_robot_has_the_numbers_of_the_original(robot):
    original = json.loads((REFERENCE / "models" / f"Safety{robot}Run0-v0.json").read_text())
    model = NavigationEnv(f"Safety{robot}Run0-v0").model
    parts = [one for one in original["bodies"] if one["name"] == "agent" or one["parentid"]]
    assert model.nbody == 1 + len(parts)  # the walls of Run are only drawn
    for body in parts:
        i, massless_root = body["id"], body["id"] == 1 and body["mass"] == 0.0
        same = {"mass": model.body_mass[i], "inertia": model.body_inertia[i]}
        if i > 1:
            same |= {"pos": model.body_pos[i], "quat": model.body_quat[i]}
        if not massless_root:
            same |= {"ipos": model.body_ipos[i], "iquat": model.body_iquat[i]}
            same["invweight0"] = model.body_invweight0[i]
        for key, ours in same.items():
            np.testing.assert_allclose(ours, body[key], rtol=1e-12, atol=1e-15, err_msg=key)
    for i, joint in enumerate(original["joints"][1:], 1):
        place, dof = model.jnt_qposadr[i], model.jnt_dofadr[i]
        assert place == joint["qposadr"] and dof == joint["dofadr"]
        ours = [model.qpos_spring[place], model.jnt_stiffness[i], model.dof_armature[dof]]
        theirs = [joint["springref"], joint["stiffness"], joint["armature"]]
        np.testing.assert_allclose(ours, theirs, rtol=1e-15)
        np.testing.assert_allclose(model.jnt_range[i], joint["range"], rtol=1e-15)
        np.testing.assert_allclose(model.jnt_axis[i], joint["axis"], rtol=0, atol=1e-15)
    for i, actuator in enumerate(original["actuators"]):
        assert model.actuator_trnid[i].tolist() == actuator["trnid"]
        for key in ("gear", "ctrlrange", "forcerange", "gainprm", "biasprm"):
            assert getattr(model, f"actuator_{key}")[i].tolist() == actuator[key], key


# Where the joint of each motor is among the joints behind the root, counted by hand.
MOTORS = {
    "Ant": [0, 1, 2, 3, 4, 5, 6, 7],
    "Doggo": [0, 7, 10, 3, 1, 8, 11, 4, 2, 9, 12, 5],
}
SITE = {"Racecar": (0.02, 0.0, 0.0), "Ant": (0.0, 0.0, -0.02), "Doggo": (0.0, 0.0, 0.0)}


def shown_by_hand(robot: str, qpos: Array, qvel: Array) -> dict[tuple[int, int], Array]:
    """What an observation shows of a state, without the accelerometer and what is touched."""
    matrix = Rotation.from_quat(np.roll(qpos[3:7], -1)).as_matrix()
    spin, site = qvel[3:6], np.array(SITE[robot])
    shown = {
        (3, 6): matrix.T @ qvel[:3] + np.cross(spin, site),
        (6, 9): spin,
        (9, 12): matrix.T @ [0.0, -0.5, 0.0],
    }
    if robot == "Racecar":
        return shown
    joints, speeds = qpos[7:][MOTORS[robot]], qvel[6:][MOTORS[robot]]
    turns = np.stack([np.sin(joints), np.cos(joints)], axis=1).reshape(-1)
    if robot == "Ant":
        height = qpos[2] + matrix[2] @ site
        rest = [*speeds, height, *(matrix @ spin), *turns]
        return shown | {(12, 40): np.array(rest)}
    return shown | {(20, 56): np.concatenate([speeds, turns])}


@needs_recordings
@pytest.mark.parametrize("robot", ROBOTS)
def test_observations_show_what_a_second_transcription_shows(robot):
    name = f"Safety{robot}Circle1-v0"
    trace, env = recording(name), NavigationEnv(name)
    env.reset(seed=0)
    for row in range(0, 250, 10):
        qpos, qvel = trace["qpos_after"][row], trace["qvel_after"][row]
        put(env, qpos, qvel)
        ours = env._observe()[0]
        for bounds, expected in shown_by_hand(robot, qpos, qvel).items():
            columns = slice(*bounds)
            np.testing.assert_allclose(ours[columns], expected, rtol=0, atol=1e-12)
            np.testing.assert_allclose(trace["obs"][row, columns], expected, rtol=0, atol=1e-9)


def test_the_doggo_feels_with_its_knees_and_feet():
    """Readings are sums of normal forces near eight places: 1a 2a 3a 4a, 1b 2b 3b 4b."""
    env = NavigationEnv("SafetyDoggoRun0-v0")
    env.reset(seed=0)
    felt = set()
    for _ in range(12):
        observation = step(env).observation[0]
        model, data = env.model, env.physics.data[0]
        expected, force = np.zeros(8), np.zeros(6)
        for place, site in enumerate(
            f"{part}_{leg}" for part in ("knee", "foot") for leg in range(1, 5)
        ):
            for number, contact in enumerate(data.contact):
                bodies = model.geom_bodyid[contact.geom]
                near = np.linalg.norm(contact.pos - data.site(site).xpos) <= 0.018 + 1e-12
                if model.site(site).bodyid[0] in bodies and near:
                    mujoco.mj_contactForce(model, data, number, force)
                    expected[place] += force[0]
        np.testing.assert_allclose(observation[12:20], expected, rtol=0, atol=1e-9)
        felt |= set(np.flatnonzero(expected))
    assert felt >= {4, 5, 6, 7}  # it falls on its feet
    assert env.world.robot_positions[0, 2] < 0.2


def test_a_motor_of_the_doggo_turns_the_joint_of_its_number():
    for motor, joint in enumerate(MOTORS["Doggo"]):
        env = NavigationEnv("SafetyDoggoRun0-v0")
        env.reset(seed=0)
        start = env.physics.data[0].qpos.copy()
        start[2] = 5.0  # in the air
        # Within the ranges of the joints, at the rest of their springs.
        start[7:] = np.where(env.model.jnt_range[1:, 0] < -1.0, -0.3, 0.2)
        moved = []
        for push in (0.0, 1.0):
            put(env, start)
            action = np.zeros(12)
            action[motor] = push
            step(env, *action)
            moved.append(env.physics.data[0].qpos[7:] - start[7:])
        assert int(np.abs(moved[1] - moved[0]).argmax()) == joint


def test_the_ant_dies_with_its_body_on_the_floor_and_starts_anew():
    env = NavigationEnv("SafetyAntGoal1-v0", num_envs=2)
    env.reset(seed=0)
    result = env.step(np.zeros((2, 8)))
    assert not result.terminated.any()
    data = env.physics.data[1]
    data.qpos[2:7] = 0.063, 0.0, 1.0, 0.0, 0.0  # on its back
    result = env.step(np.zeros((2, 8)))
    assert result.terminated.tolist() == [False, True] and not result.truncated.any()
    # The sensor is 0.02 below the centre, so above it here.
    assert result.final_observation[1, 20] == pytest.approx(0.0825, abs=1e-3)
    assert result.observation[1, 20] == pytest.approx(0.16, abs=1e-12)
    assert env.elapsed.tolist() == [2, 0] and data.qpos[2] == 0.18


@pytest.mark.parametrize(("height", "dies"), [(0.0801, False), (0.08, True)])
def test_the_limit_of_the_ants_life_is_inclusive(height, dies):
    env = NavigationEnv("SafetyAntRun0-v0", autoreset=False)
    env.reset(seed=0)
    env.world.step = lambda *arguments: None  # it stays where it is put
    env.world.robot_poses[0, 2] = height
    assert step(env).terminated[0] == dies


def test_the_ant_draws_its_joints_after_everything_else():
    env = NavigationEnv("SafetyAntRun0-v0")
    env.reset(seed=11)
    random = np.random.RandomState(11)
    for attempt in range(2):
        # Places of the robot and of two walls, then three headings.
        random.random_sample(2 * 3 + 3)
        draws = random.uniform(-0.1, 0.1, 8)
        expected = draws + np.tile([0.0, math.pi / 2], 4)
        expected[[3, 5]] *= -1.0
        np.testing.assert_array_equal(env.physics.data[0].qpos[7:], expected)
        assert not env.physics.data[0].qvel.any()
        if attempt == 0:
            env.reset()


def test_the_racecar_drives_as_fast_as_the_original_and_steers_left():
    env = NavigationEnv("SafetyRacecarRun0-v0")
    env.reset(seed=0)
    assert env.action_high.tolist() == [20.0, 0.785] and env.action_low.tolist() == [-20.0, -0.785]
    speeds = [math.hypot(*env.world.robot_velocities[0, :2]) for _ in range(60) if step(env, 20, 0)]
    measured = [speeds[count - 1] for count in (5, 10, 30, 60)]
    np.testing.assert_allclose(measured, [0.18, 0.35, 0.99, 1.00], rtol=0, atol=0.005)
    gyro = [step(env, 50.0, 0.3).observation[0, 8] for _ in range(20)]  # clipped to 20
    assert np.mean(gyro[10:]) == pytest.approx(0.48, abs=0.03)


@pytest.mark.parametrize(("name", "low", "high"), [("Ant", 0.155, 0.165), ("Doggo", 0.07, 0.085)])
def test_left_alone_a_robot_settles_where_the_original_does(name, low, high):
    env = NavigationEnv(f"Safety{name}Run0-v0")
    env.reset(seed=0)
    for _ in range(30):
        step(env)
    assert low < env.world.robot_positions[0, 2] < high


PRESSED = """<mujoco><option timestep="0.01" {}><flag nativeccd="disable"/></option><worldbody>
<geom type="plane" size="9 9 1"/>
<body pos="0 0 0.1"><freejoint/><geom name="box" type="box" size="0.1 0.1 0.1"/></body>
<body pos="0 0 {}"><freejoint/><geom name="leg" type="capsule" size="0.02 0.05"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("integrator", ["", 'integrator="RK4"'])
@pytest.mark.parametrize(("height", "inside"), [(0.24, True), (0.265, False)])
def test_a_capsule_in_a_box_is_never_deeper_than_its_radius(integrator, height, inside):
    model = mujoco.MjModel.from_xml_string(PRESSED.format(integrator, height))
    pair = {model.geom("box").id, model.geom("leg").id}

    def simulate(steps: int, stepper: Any, shallow: bool) -> tuple[Array, list[float]]:
        recipe = Recipe(steps, chained=bool(integrator), forward=True, shallow=shallow)
        physics = Physics(model, 1, recipe=recipe, stepper=stepper)
        state, contacts = physics.step(np.zeros((1, 0)))[0], physics.data[0].contact
        return state, [one.dist for one in contacts if set(one.geom.tolist()) == pair]

    moved = {}
    for shallow in (False, True):
        at_once, python = simulate(0, "compiled", shallow), simulate(0, "python", shallow)
        assert at_once[1] == python[1] and len(python[1]) == 1
        expected = -0.02 if shallow and inside else -0.03 if inside else -0.005
        assert python[1][0] == pytest.approx(expected, abs=1e-15)
        moved[shallow] = simulate(3, "compiled", shallow)[0]
        np.testing.assert_array_equal(moved[shallow], simulate(3, "python", shallow)[0])
    # Where nothing is too deep, a step is MuJoCo's own, to the last bit.
    assert np.array_equal(moved[True], moved[False]) == (not inside)


@pytest.mark.parametrize(
    "name", ["SafetyAntButton1-v0", "SafetyDoggoGoal2-v0", "SafetyRacecarPush1-v0"]
)
def test_threads_and_steppers_give_the_same_bits(name):
    runs = []
    for stepper, threads in (("python", 1), ("compiled", 1), ("compiled", 2)):
        env = NavigationEnv(name, num_envs=3, threads=threads, stepper=stepper, time_limit=20)
        kept, rng = [env.reset(seed=5).copy()], np.random.default_rng(0)
        for _ in range(25):
            result = env.step(rng.normal(0.0, 0.7, (3, env.action_size)) * env.action_high)
            kept += [array.copy() for array in (result.observation, result.reward, result.cost)]
        runs.append(kept)
        env.close()
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))
