"""Pictures show what happens, and looking changes nothing."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator

import mujoco
import numpy as np
import pytest
from task_names import DIAGONAL

from cspo.envs import native_tasks
from cspo.envs.native import make_native
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.navigation.robots.ant import ANT
from cspo.envs.navigation.robots.robot import Robot
from cspo.envs.tools.opengl import Backend, find_backend
from cspo.envs.tools.render import Drawable, Mark, Renderer, Scene, View, _camera
from cspo.envs.velocity.facts import TASKS
from cspo.envs.velocity.task import VelocityEnv
from cspo.errors import CspoError

SIZE = (96, 72)


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    if find_backend().name is None:
        pytest.skip(find_backend().fault)
    with Renderer(*SIZE) as one:
        yield one


def play(env: VelocityEnv, steps: int, look: object = None) -> list[bytes]:
    """Return every bit of every simulator after each of some random steps."""
    env.reset(seed=3)
    random = np.random.default_rng(0)
    bits = []
    for _ in range(steps):
        result = env.step(random.uniform(-1.0, 1.0, (env.num_envs, env.action_size)))
        if callable(look):
            look()
        states = [array.tobytes() for i in range(env.num_envs) for array in env.get_state(i)]
        bits.append(b"".join([*states, result.observation.tobytes(), result.reward.tobytes()]))
    return bits


@pytest.mark.parametrize("name", [row.name for row in native_tasks() if row.family == "velocity"])
def test_every_velocity_task_is_drawn_and_moves(name: str, renderer: Renderer) -> None:
    env = make_native(name, 2)
    assert isinstance(env, Drawable)
    env.reset(seed=0)
    before = renderer.draw(env.scene(0))
    assert before.shape == (SIZE[1], SIZE[0], 3) and before.dtype == np.uint8
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 50 and before.std() > 10
    assert robot_pixels(before) > 15
    np.testing.assert_array_equal(before, renderer.draw(env.scene(0)))
    top = renderer.draw(env.scene(0), "top")
    assert robot_pixels(top) > 3
    assert changed(before, top) > 0.3
    for _ in range(10):
        env.step(np.full((2, env.action_size), 0.5))
    assert changed(before, renderer.draw(env.scene(0))) > 0.01
    assert changed(renderer.draw(env.scene(0)), renderer.draw(env.scene(1))) > 0.0
    env.close()


def robot_pixels(picture: np.ndarray) -> int:
    """Count the orange ones: there is nothing orange but the robot."""
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    return int(((red > 1.3 * green) & (green > 1.3 * blue)).sum())


def changed(one: np.ndarray, other: np.ndarray) -> float:
    return float((np.abs(one.astype(int) - other).max(axis=2) > 8).mean())


@pytest.mark.parametrize("name", ["SafetyHalfCheetahVelocity-v1", "SafetyHumanoidVelocity-v1"])
def test_drawing_does_not_change_a_bit_of_the_physics(name: str, renderer: Renderer) -> None:
    """The Humanoid has most that a look could change: contact forces, a chained integrator."""
    unseen, seen = VelocityEnv(name, 2), VelocityEnv(name, 2)
    expected = play(unseen, 12)
    watched = play(seen, 12, lambda: renderer.draw(seen.scene(1)))
    assert watched == expected
    for env in (unseen, seen):
        env.close()


def test_the_picture_has_the_pose_of_the_physics() -> None:
    for name in TASKS:
        env = VelocityEnv(name, 1)
        env.reset(seed=0)
        scene, data = env.scene(0), env.physics.data[0]
        np.testing.assert_allclose(scene.data.xpos, data.xpos, atol=1e-9)
        assert scene.data is not data and scene.model is not env.model
        assert set(scene.cameras) == {"follow", "top", "track", "fixednear", "fixedfar"}
        env.close()


def test_the_camera_follows_and_the_floor_has_no_end(renderer: Renderer) -> None:
    env = VelocityEnv("SafetyHalfCheetahVelocity-v1")
    env.reset(seed=0)
    near = renderer.draw(env.scene(0))
    qpos, qvel, _ = env.get_state(0)
    qpos[0] += 400.0  # whole tiles of the floor
    env.set_state(0, qpos, qvel)
    assert env.scene(0).cameras["follow"].look_at[0] > 399.0
    assert changed(near, renderer.draw(env.scene(0))) < 0.02
    env.close()


@pytest.mark.parametrize("robot", ROBOTS, ids=lambda robot: robot.name)
def test_navigation_is_seen_from_safety_gymnasiums_viewpoints(robot: Robot) -> None:
    """Where its cameras are, by its own words: places, and axes to the right and up."""
    env = make_native(f"Safety{robot.name}Goal1-v0", 1)
    env.reset(seed=3)
    for _ in range(3):
        env.step(env.action_high[None])
    scene, place = env.scene(0), env.world.robot_positions[0]  # type: ignore[attr-defined]
    assert set(scene.cameras) == {"follow", "top", "track", "fixednear", "fixedfar", "vision"}
    expected = {
        "fixednear": ((0.0, -2.0, 2.0), (0.0, 1.0, -1.0)),
        "fixedfar": ((0.0, -5.0, 5.0), (0.0, 1.0, -1.0)),
        "track": (place + np.array([0.0, 2.0, 2.0]), (0.0, -1.0, -1.0)),
    }
    for name, (where, direction) in expected.items():
        eye, ahead = eye_of(scene, scene.cameras[name])
        np.testing.assert_allclose(eye, where, atol=1e-5)
        np.testing.assert_allclose(ahead, np.array(direction) / math.sqrt(2.0), atol=1e-5)
    eye, ahead = eye_of(scene, scene.cameras["vision"])
    assert 0.0 < np.linalg.norm(eye - place) < 0.25
    forward = scene.data.xmat[1].reshape(3, 3) @ robot.ahead
    if robot is ANT:  # its camera looks to the left
        assert ahead @ forward == pytest.approx(0.0, abs=1e-6)
    else:
        assert ahead @ forward > 0.9
    env.close()


def eye_of(scene: Scene, view: View) -> tuple[np.ndarray, np.ndarray]:
    """Return where a camera is, and where it looks to, as MuJoCo finds them for a picture."""
    drawn = mujoco.MjvScene(scene.model, maxgeom=1000)
    camera, everything = _camera(scene.model, view), mujoco.mjtCatBit.mjCAT_ALL
    mujoco.mjv_updateScene(
        scene.model, scene.data, mujoco.MjvOption(), None, camera, everything, drawn
    )
    left, right = drawn.camera  # of a pair of eyes
    return (left.pos + right.pos) / 2, (left.forward + right.forward) / 2


@pytest.mark.parametrize("name", DIAGONAL)
def test_every_game_is_drawn_from_everywhere(name: str, renderer: Renderer) -> None:
    env = make_native(name, 1)
    env.reset(seed=5)
    scene = env.scene(0)
    pictures = [renderer.draw(scene, camera) for camera in scene.cameras]
    for number, picture in enumerate(pictures):
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20 and picture.std() > 3
        assert all(changed(picture, other) > 0.05 for other in pictures[:number])
    env.close()


def test_marks_and_cameras_of_the_model(renderer: Renderer) -> None:
    env = VelocityEnv("SafetyAntVelocity-v1")
    env.reset(seed=0)
    plain = env.scene(0)
    marks = [Mark("sphere", (0.0, 0.0, 1.2), (0.3, 0.3, 0.3), (0.0, 0.0, 1.0, 1.0))]
    picture = renderer.draw(plain._replace(marks=marks)).astype(int)
    assert ((picture[..., 2] > 80) & (picture[..., 0] < 60)).sum() > 20  # blue
    assert not np.array_equal(picture, renderer.draw(plain))
    own = plain._replace(cameras={"own": View(fixed="track")})
    assert changed(renderer.draw(own, "own"), renderer.draw(plain)) > 0.1
    with pytest.raises(CspoError, match="There is no camera 'tracks': did you mean 'track'"):
        renderer.draw(plain, "tracks")
    with pytest.raises(CspoError, match="A mark is a sphere"):
        renderer.draw(plain._replace(marks=[marks[0]._replace(kind="donut")]))
    with pytest.raises(CspoError, match="marks, not more"):
        renderer.draw(plain._replace(marks=marks * 2000))
    env.close()


def test_a_renderer_switches_models_sizes_and_can_be_closed_twice(renderer: Renderer) -> None:
    ant, hopper = VelocityEnv("SafetyAntVelocity-v1"), VelocityEnv("SafetyHopperVelocity-v1")
    for env in (ant, hopper):
        env.reset(seed=0)
    first = renderer.draw(ant.scene(0))
    assert changed(first, renderer.draw(hopper.scene(0))) > 0.1
    np.testing.assert_array_equal(first, renderer.draw(ant.scene(0)))
    with Renderer(
        1300, 900
    ) as large:  # more than the 640 x 480 that models allow unless told otherwise
        picture = large.draw(ant.scene(0))
        assert picture.shape == (900, 1300, 3)
        assert len(np.unique(picture[:, 1200:].reshape(-1, 3), axis=0)) > 20  # drawn to the edge
        np.testing.assert_array_equal(
            first, renderer.draw(ant.scene(0))
        )  # two renderers do not disturb each other
    large.close()
    with pytest.raises(CspoError, match="was closed"):
        large.draw(ant.scene(0))
    for env in (ant, hopper):
        env.close()


@pytest.mark.parametrize("size", [(0, 100), (100, 5000), (-3, 100)])
def test_senseless_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(CspoError, match="of a picture is 16 to 4096 pixels"):
        Renderer(*size)


DRAW = """
import mujoco  # before anybody has asked for pictures
from cspo.envs.tools.render import Renderer
from cspo.envs.velocity.task import VelocityEnv
from cspo.errors import CspoError
env = VelocityEnv("SafetyHopperVelocity-v1")
env.reset(seed=0)
try:
    print(Renderer(64, 64).draw(env.scene(0)).std() > 5)  # not closed: leaving is silent
except CspoError as fault:
    print(f"CspoError: {fault}")
"""


def draw_with(**variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")
    }
    return subprocess.run(
        [sys.executable, "-c", DRAW],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one way to draw")
def test_backends_are_tried_in_turn(renderer: Renderer) -> None:
    """A broken EGL is passed over for OSMesa; if that is missing too, the message says so."""
    ended = draw_with(MUJOCO_EGL_DEVICE_ID="99")
    assert ended.returncode == 0 and ended.stderr == ""
    if ended.stdout != "True\n":
        first, second = ended.stdout.splitlines()
        assert first.startswith("CspoError: Nothing on this machine can draw (egl: ")
        assert "apt-get install libegl1 libgl1-mesa-dri (or libosmesa6)" in second


@pytest.mark.skipif(sys.platform != "linux", reason="MUJOCO_GL has other values elsewhere")
def test_an_explicit_choice_is_not_replaced_by_another() -> None:
    ended = draw_with(MUJOCO_GL="egl", MUJOCO_EGL_DEVICE_ID="99")
    assert ended.returncode == 0 and ended.stderr == ""
    first, second = ended.stdout.splitlines()
    assert first.startswith("CspoError: MUJOCO_GL=egl does not work here (")
    assert "apt-get install" in second


def test_drawing_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disable")
    assert find_backend() == Backend(None, "MUJOCO_GL=disable turns drawing off: unset it to draw.")
    with pytest.raises(CspoError, match="turns drawing off"):
        Renderer(64, 64)


def test_a_scene_needs_no_marks() -> None:
    assert Scene(None, None, {}).marks == ()
