"""Scripts that were written for Safety-Gymnasium run by their imports alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import cspo.envs.six_tuple as safety_gymnasium
from cspo.envs.navigation.games import GAMES
from cspo.envs.navigation.replay import NavigationReplay
from cspo.envs.navigation.robots import ROBOTS
from cspo.envs.six_tuple.vector.async_vector_env import SafetyAsyncVectorEnv
from cspo.envs.six_tuple.wrappers import (
    SafeAutoResetWrapper,
    SafeNormalizeCost,
    SafeNormalizeObservation,
    SafeNormalizeReward,
    SafeRescaleAction,
    SafetyGymnasium2Gymnasium,
    SafeUnsqueeze,
    with_gymnasium_wrappers,
)
from cspo.envs.tools.opengl import find_backend
from cspo.errors import CspoError

GOAL = "SafetyPointGoal1-v0"
RECORDED = Path(__file__).parents[2] / "shared" / "reference" / "traces" / "suite"


def test_a_public_script_with_a_simple_loop() -> None:
    """The names, in the order, of github.com/CrazyLisp/WCSAC_D, test_safety_gymnasium.py."""
    env = safety_gymnasium.make("SafetyPointGoal1-v0")
    observation, info = env.reset()
    steps = 0
    while True:
        action = env.action_space.sample()
        observation, _reward, _cost, terminated, truncated, info = env.step(action)
        steps += 1
        assert observation in env.observation_space
        if terminated or truncated:
            break
        env.render()
    assert steps == 1000 and truncated and "cost_sum" in info


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_public_library_that_wraps_and_stacks(num_envs: int) -> None:
    """The names that Safe-Policy-Optimization uses, as in its safepo/common/env.py.

    github.com/PKU-Alignment/Safe-Policy-Optimization
    """
    if num_envs == 1:
        one: Any = safety_gymnasium.make("SafetyRacecarCircle1-v0")
        one.reset(seed=7)
        space = one.action_space
        env: Any = SafeAutoResetWrapper(one)
        env = SafeRescaleAction(env, -1.0, 1.0)
        env = SafeNormalizeObservation(env)
        env = SafeUnsqueeze(env)
        first, _ = env.reset(seed=7)
    else:

        def made() -> Any:
            return SafeRescaleAction(safety_gymnasium.make("SafetyRacecarCircle1-v0"), -1.0, 1.0)

        env = SafetyAsyncVectorEnv([made for _ in range(num_envs)])
        env = SafeNormalizeObservation(env)
        first, _ = env.reset(seed=7)
        assert env.single_observation_space.shape == (28,) and env.num_envs == 3
        space = env.single_action_space
    assert space.shape == (2,) and first.shape == (num_envs, 28)
    seen = []
    for _ in range(501):
        action = np.full((num_envs, 2), 0.5) if num_envs > 1 else np.full(2, 0.5)
        observation, reward, cost, terminated, truncated, info = env.step(action)
        assert observation.shape == (num_envs, 28)
        assert all(v.shape == (num_envs,) for v in (reward, cost, terminated, truncated))
        seen.append("final_observation" in info)
        if seen[-1]:  # the bootstrap of an episode that was cut
            assert info["final_observation"].shape in ((1, 28), (3,))
    assert seen == [False] * 499 + [True, False]
    assert env.obs_rms.mean.shape == (28,) and env.obs_rms.count > 500


def test_a_batch_and_a_row_of_environments_tell_the_same() -> None:
    options: Any = {"num_envs": 3, "max_episode_steps": 5}
    batch = safety_gymnasium.vector.make("SafetyAntButton1-v0", **options)
    row = safety_gymnasium.vector.make(env_id="SafetyAntButton1-v0", wrappers=[], **options)
    assert isinstance(row, safety_gymnasium.vector.SafetySyncVectorEnv)
    assert batch.action_space == row.action_space
    np.testing.assert_array_equal(batch.reset(seed=4)[0], row.reset(seed=4)[0])
    for action in np.random.default_rng(0).uniform(-1.0, 1.0, (12, 3, 8)).astype(np.float32):
        for one, other in zip(batch.step(action)[:5], row.step(action)[:5], strict=True):
            np.testing.assert_array_equal(one, other)
    for seed in ([1, 2, 3], None):
        np.testing.assert_array_equal(batch.reset(seed=seed)[0], row.reset(seed=seed)[0])
    for _ in range(5):
        ours, theirs = batch.step(action)[5], row.step(action)[5]
        assert set(ours) == set(theirs)
        for key, values in theirs.items():
            for one, other in zip(ours[key], values, strict=True):
                np.testing.assert_equal(one, other)
    assert ours["_final_info"].all() and set(ours["final_info"][0]) > {"cost_sum", "cost_hazards"}
    assert safety_gymnasium.make_vec is safety_gymnasium.vector.make
    for env in (batch, row):
        env.close()


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded transitions are not here")
@pytest.mark.parametrize("name", ["SafetyPointButton1-v0", "SafetyAntButton2-v0"])
def test_the_cost_of_buttons_is_untold_in_the_rows_in_which_it_was(name: str) -> None:
    with np.load(RECORDED / f"{name}.npz") as file:
        trace = {key: file[key] for key in file.files}
    player, present = NavigationReplay(name), trace["cost_buttons_present"].astype(bool)
    untold = []
    for row in range(len(present)):
        player.step(trace, row)
        untold.append(player.env.untold["cost_buttons"][0])
    np.testing.assert_array_equal(untold, ~present)
    assert 0 < present.sum() < len(present)


def test_dark_buttons_are_not_in_the_info() -> None:
    options: Any = {"num_envs": 2, "max_episode_steps": 4}
    batch = safety_gymnasium.vector.make("SafetyPointButton1-v0", **options)
    row = safety_gymnasium.vector.make("SafetyPointButton1-v0", wrappers=[], **options)
    assert isinstance(row, safety_gymnasium.vector.SafetySyncVectorEnv)
    told: list[list[Any]] = []
    for env in (batch, row):
        env.reset(seed=0)
        inside: Any = env
        if isinstance(env, safety_gymnasium.vector.SafetySyncVectorEnv):
            games = [one.unwrapped._batch.game for one in env.envs]
        else:
            games = [inside._inside._batch.game] * 2
        for copy, timer in enumerate((2, 5)):
            games[copy].timer[copy if games[0] is games[1] else 0] = timer
        infos = [env.step(np.zeros((2, 2), np.float32))[5] for _ in range(4)]
        masks = [info.get("_cost_buttons", np.zeros(2, bool)).tolist() for info in infos]
        told.append([*masks, [set(one) for one in infos[3]["final_info"]]])
        env.close()
    others = {"cost", "cost_sum", "cost_hazards", "cost_gremlins"}
    assert told[0] == told[1]
    assert told[0][:4] == [[False, False]] * 2 + [[True, False], [False, False]]
    assert told[0][4] == [others | {"cost_buttons"}, others]


class Counter(gymnasium.Env[Any, Any]):
    """Six values by itself; observes, and is paid and charged by, the number of the step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(np.array([0.0, -3.0], np.float32), np.float32(5.0), (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.action = 0, None
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.steps, self.action = self.steps + 1, action
        number = float(self.steps)
        return np.array([number, -number]), number, 2.0 * number, False, False, {}


@pytest.fixture
def counter() -> Any:
    name = "Counter-v0"
    safety_gymnasium.register(id=name, entry_point=Counter, max_episode_steps=4)
    yield name
    del gymnasium.registry[name]


def test_an_environment_of_ones_own_is_registered_and_made(counter: str) -> None:
    env = safety_gymnasium.make(counter)
    env.reset(seed=0)
    truncated = [env.step(env.action_space.sample())[4] for _ in range(4)]  # type: ignore[misc]
    assert truncated == [False, False, False, True]
    env = safety_gymnasium.make(counter, max_episode_steps=2, autoreset=True)
    env.reset(seed=0)
    env.step(np.zeros(2))
    observation, reward, cost, _, ended, info = env.step(np.zeros(2))  # type: ignore[misc]
    assert (reward, cost, ended) == (2.0, 4.0, True)
    assert observation.tolist() == [0.0, 0.0]
    assert info["final_observation"].tolist() == [2.0, -2.0] and info["final_info"] == {}


def test_normalising_wrappers_do_what_their_formulas_say(counter: str) -> None:
    made: Any = SafeNormalizeReward(safety_gymnasium.make(counter), gamma=0.9)
    env: Any = SafeNormalizeObservation(SafeNormalizeCost(made, gamma=0.5))
    env.reset()
    seen, rewards, costs = [np.zeros(2)], [], []
    for _ in range(3):
        observation, reward, cost, *_ = env.step(np.zeros(2))
        seen.append(np.array([len(seen), -len(seen)], float))
        rewards.append(float(len(seen) - 1) + 0.9 * (rewards[-1] if rewards else 0.0))
        costs.append(2.0 * (len(seen) - 1) + 0.5 * (costs[-1] if costs else 0.0))
    # They begin with a ten-thousandth of an observation of mean 0 and variance 1.
    for values, scaled, raw in ((rewards, reward, 3.0), (costs, cost, 6.0)):
        assert scaled == pytest.approx(raw / np.sqrt(_variance(np.array(values))), rel=1e-3)
    history = np.array(seen)
    mean, spread = history.mean(axis=0), np.sqrt(_variance(history))
    np.testing.assert_allclose(observation, (seen[-1] - mean) / spread, rtol=1e-3)


def _variance(values: Any) -> Any:
    weight = 1e-4 / (len(values) + 1e-4)
    return (1.0 - weight) * values.var(axis=0) + weight * (1.0 + values.mean(axis=0) ** 2)


def test_actions_are_rescaled_from_corner_to_corner(counter: str) -> None:
    env: Any = SafeRescaleAction(safety_gymnasium.make(counter), -1.0, np.array([1.0, 3.0]))
    env.reset()
    assert env.action_space.low.tolist() == [-1.0, -1.0]
    assert env.action_space.high.tolist() == [1.0, 3.0]
    for given, reached in (([-1, -1], [0, -3]), ([1, 3], [5, 5]), ([0, 1], [2.5, 1])):
        env.step(np.array(given, np.float32))
        np.testing.assert_allclose(env.unwrapped.action, reached)


def test_five_values_again_and_gymnasiums_wrappers_inside() -> None:
    env: Any = SafetyGymnasium2Gymnasium(safety_gymnasium.make(GOAL))
    env.reset(seed=0)
    assert len(answer := env.step(env.action_space.sample())) == 5 and "cost" in answer[4]
    env = with_gymnasium_wrappers(
        safety_gymnasium.make(GOAL), lambda inside: gymnasium.wrappers.TransformReward(inside, abs)
    )
    env.reset(seed=0)
    assert len(env.step(env.action_space.sample())) == 6
    env = gymnasium.make("SafetyDoggoRun0Gymnasium-v0")
    env.reset(seed=0)
    assert len(env.step(env.action_space.sample())) == 5
    assert env.spec is not None and env.spec.max_episode_steps == 500


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_scripts_find_where_everything_is(game: Any) -> None:
    robot = ROBOTS[GAMES.index(game) % len(ROBOTS)]
    env: Any = safety_gymnasium.make(f"Safety{robot.name}{game.name}-v0")
    env.reset(seed=2)
    for _ in range(3):
        env.step(env.action_space.sample())
    task, world = env.task, env.unwrapped._batch.world
    assert env.unwrapped.task.agent_name == robot.name and task.num_steps == game.time_limit
    np.testing.assert_array_equal(task.agent.pos, world.robot_positions[0])
    np.testing.assert_allclose(task.agent.mat, env.unwrapped.data.body("agent").xmat.reshape(3, 3))
    np.testing.assert_array_equal(task.agent.vel, world.robot_velocities[0])
    for kind in game.objects_for(robot):
        found = getattr(task, kind.name)
        places = np.atleast_2d(found.pos)
        assert places.shape == (found.num, 3) == (kind.count, 3)
        np.testing.assert_array_equal(places[:, :2], world.where(kind.name)[0])
        body = kind.bodies[0]
        if kind.placement != "drawn":
            np.testing.assert_allclose(places[0], env.unwrapped.data.body(body).xpos, atol=1e-12)
    assert sum(space.shape[0] for space in env.obs_space_dict.values()) == len(env.reset()[0])
    if game.name.startswith(("Goal", "Button")):
        assert task.dist_goal() == pytest.approx(task.last_dist_goal)
        assert task.goal.size == (0.3 if game.name.startswith("Goal") else 0.2)
    assert not hasattr(task, "apples")
    env.close()


def test_what_a_velocity_task_lets_one_look_at() -> None:
    env: Any = safety_gymnasium.make("SafetyHopperVelocity-v1")
    first, _ = env.reset(seed=1)
    np.testing.assert_array_equal(env.unwrapped.data.qpos[1:], first[:5])
    assert env.unwrapped.model.nu == 3 and not hasattr(env, "task")
    env.set_seed(1)
    np.testing.assert_array_equal(env.reset()[0], first)


def test_pictures_have_the_sizes_and_viewpoints_they_have_there() -> None:
    if find_backend().name is None:
        pytest.skip(find_backend().fault)

    def drawn(name: str = "SafetyCarGoal1-v0", **options: Any) -> Any:
        env = safety_gymnasium.make(name, render_mode="rgb_array", **options)
        env.reset(seed=0)
        picture = env.render()
        env.close()
        return picture

    assert drawn().shape == (256, 256, 3)
    assert drawn("SafetyHopperVelocity-v1").shape == (480, 480, 3)
    size = {"width": 64, "height": 48}
    np.testing.assert_array_equal(drawn(**size), drawn(camera_name="vision", **size))
    far = drawn(camera_name="fixedfar", **size)
    np.testing.assert_array_equal(far, drawn(camera_id=1, **size))
    assert (far != drawn(camera_name="track", **size)).any()
    batch = safety_gymnasium.vector.make(
        "SafetyCarGoal1-v0", 3, render_mode="rgb_array", camera_name="fixedfar", **size
    )
    batch.reset(seed=0)
    sheet = batch.render()
    assert sheet.shape == (96, 128, 3)
    np.testing.assert_array_equal(sheet[:48, :64], far)
    assert (sheet[48:, 64:] == 0).all()
    batch.close()


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(CspoError, match="two ways to say one thing"):
        safety_gymnasium.make(GOAL, camera_id=1, camera_name="track")
    with pytest.raises(CspoError, match=r"are 0 \(fixednear\), 1 \(fixedfar\).*not 7"):
        safety_gymnasium.make(GOAL, camera_id=7)
    with pytest.raises(CspoError, match=r"Gym 0\.21"):
        safety_gymnasium.make(GOAL, apply_api_compatibility=True)
    with pytest.raises(CspoError, match="did you mean 'SafetyPointGoal1-v0'"):
        safety_gymnasium.make("SafetyPointGoal1Vision-v0")
    with pytest.raises(CspoError, match="worker"):
        SafetyAsyncVectorEnv([lambda: safety_gymnasium.make(GOAL)], worker=print)
    with pytest.raises(CspoError, match="2 seeds were given for 1"):
        SafetyAsyncVectorEnv([lambda: safety_gymnasium.make(GOAL)]).reset(seed=[1, 2])
    with pytest.raises(CspoError, match="at least one"):
        SafetyAsyncVectorEnv([])
