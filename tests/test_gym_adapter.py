"""Gymnasium in both directions, and the one door for whatever a user calls an environment."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from task_names import SAMPLE

from cspo.envs import make_batch, native_tasks
from cspo.envs.check import check_env
from cspo.envs.gym import SafetyVectorEnv
from cspo.envs.gym_batch import GymBatchEnv
from cspo.envs.native import make_native
from cspo.envs.tasks import task_row
from cspo.envs.tools.opengl import find_backend
from cspo.envs.velocity.facts import TASKS
from cspo.envs.velocity.task import VelocityEnv
from cspo.errors import CspoError, EnvironmentFault
from cspo.policy.scaling import ActionScaling

NAMES = list(TASKS)
ALL_NAMES = SAMPLE


class Toy(gymnasium.Env):
    """A point on a line that ends beyond 3; `form` says how it gives its cost."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, form: str = "info", limit: int = 6) -> None:
        self.form, self.limit, self.closed, self.actions = form, limit, False, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return self._observe(), {}

    def step(self, action):
        self.actions.append(action)
        self.place += float(action[0])
        self.steps += 1
        ended, late = self.place > 3, self.steps >= self.limit
        cost = abs(self.place)
        info = {"info": {"cost": cost}, "vector": {"cost": [cost, 2 * cost, 0.0]}}.get(
            self.form, {}
        )
        if self.form == "six":
            return self._observe(), -cost, cost, ended, late, info
        return self._observe(), -cost, ended, late, info

    def _observe(self):
        return np.array([self.place, self.steps], np.float64)

    def close(self):
        self.closed = True


def make_toy() -> Toy:
    return Toy()


# Our tasks as Gymnasium environments


@pytest.mark.parametrize("name", SAMPLE)
def test_gymnasiums_own_checker_passes(name):
    drawing = {"render_mode": "rgb_array", "width": 32, "height": 32} if find_backend().name else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(f"cspo/{name}", **drawing)
        gymnasium_check_env(env.unwrapped, skip_render_check=not drawing)
        env.close()
    # As in Safety-Gymnasium observations are unbounded, actions of the Racecar are not within one,
    # and there are older versions of some tasks; the checker always remarks on that.
    usual = ("infinity. This is probably too", "symmetric and normalized", "is out of date")
    told = [str(one.message) for one in caught]
    assert [words for words in told if not any(part in words for part in usual)] == []


def test_gymnasium_finds_the_tasks_without_an_import_of_ours():
    code = "import gymnasium; print(gymnasium.make('cspo:cspo/SafetyHopperVelocity-v1').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "cspo/SafetyHopperVelocity-v1"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_single_environment_equals_the_native_batch(name):
    env, batch = gymnasium.make(f"cspo/{name}"), make_native(name, autoreset=False)
    observation, info = env.reset(seed=6)
    np.testing.assert_array_equal(observation, batch.reset(seed=6)[0])
    for action in (
        np.random.default_rng(0).uniform(-1, 1, (5, batch.action_size)).astype(np.float32) * 0.4
    ):
        observation, reward, terminated, truncated, info = env.step(action)
        result = batch.step(action[None])
        np.testing.assert_array_equal(observation, result.observation[0])
        assert (reward, terminated, truncated) == (result.reward[0], result.terminated[0], False)
        assert info["cost"] == result.cost[0, 0]
        assert set(info) == {"cost", *batch.info_terms}
        assert all(info[term] == values[0] for term, values in batch.info_terms.items())
    np.testing.assert_array_equal(env.reset()[0], batch.reset()[0])  # both continue their streams
    env.close()


def test_the_registered_time_limit_is_that_of_the_task():
    assert gymnasium.spec("cspo/SafetySwimmerVelocity-v1").max_episode_steps == 1000
    assert gymnasium.spec("cspo/SafetyAntCircle2-v0").max_episode_steps == 500
    env = gymnasium.make("cspo/SafetySwimmerVelocity-v1", max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(np.zeros(2, np.float32))[3] for _ in range(3)] == [False, False, True]


def test_make_vec_gives_a_native_batch_with_gymnasiums_conventions():
    env = gymnasium.make_vec("cspo/SafetyHopperVelocity-v1", num_envs=4)
    assert isinstance(env.unwrapped, SafetyVectorEnv)
    assert env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    assert env.action_space.shape == (4, 3) and env.observation_space.shape == (4, 11)
    batch = VelocityEnv("SafetyHopperVelocity-v1", num_envs=4)
    np.testing.assert_array_equal(env.reset(seed=1)[0], batch.reset(seed=1))
    finished = 0
    for action in np.random.default_rng(1).uniform(-1, 1, (80, 4, 3)):
        observation, reward, terminated, truncated, info = env.step(action)
        result = batch.step(action)
        np.testing.assert_array_equal(observation, result.observation)
        np.testing.assert_array_equal(reward, result.reward)
        np.testing.assert_array_equal(info["cost"], result.cost[:, 0])
        assert info["x_velocity"].shape == (4,) and info["_cost"].all()
        assert ("final_obs" in info) == bool((terminated | truncated).any())
        for i in np.flatnonzero(terminated | truncated):
            finished += 1
            np.testing.assert_array_equal(info["final_obs"][i], result.final_observation[i])
            assert info["_final_obs"][i] and info["final_info"]["_cost"][i]
            assert info["final_info"]["cost"][i] == result.cost[i, 0]
    assert finished
    env.close()


def test_make_vec_takes_a_list_of_seeds_and_a_time_limit():
    env = gymnasium.make_vec(
        "cspo/SafetySwimmerVelocity-v1", num_envs=2, max_episode_steps=2, threads=2
    )
    observation, _ = env.reset(seed=[9, 3])
    np.testing.assert_array_equal(
        observation[0], VelocityEnv("SafetySwimmerVelocity-v1").reset(seed=9)[0]
    )
    np.testing.assert_array_equal(
        observation[1], VelocityEnv("SafetySwimmerVelocity-v1").reset(seed=3)[0]
    )
    ends = [env.step(np.zeros((2, 2)))[3].tolist() for _ in range(2)]
    assert ends == [[False, False], [True, True]]
    with pytest.raises(ValueError, match="3 seeds"):
        env.reset(seed=[1, 2, 3])
    env.close()


def test_the_vector_environment_agrees_with_gymnasiums_own_vectorisation():
    kwargs = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    ours = gymnasium.make_vec("cspo/SafetyHopperVelocity-v1", num_envs=3)
    theirs = gymnasium.make_vec(
        "cspo/SafetyHopperVelocity-v1", num_envs=3, vectorization_mode="sync", vector_kwargs=kwargs
    )
    np.testing.assert_array_equal(ours.reset(seed=2)[0], theirs.reset(seed=2)[0])
    for action in np.random.default_rng(0).uniform(-1, 1, (60, 3, 3)).astype(np.float32):
        mine, other = ours.step(action), theirs.step(action)
        for a, b in zip(mine[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert ("final_obs" in mine[4]) == ("final_obs" in other[4])
        if "final_obs" in mine[4]:
            np.testing.assert_array_equal(mine[4]["_final_obs"], other[4]["_final_obs"])
            np.testing.assert_array_equal(
                mine[4]["final_info"]["cost"], other[4]["final_info"]["cost"]
            )


@pytest.fixture
def drawing():
    if find_backend().name is None:
        pytest.skip(find_backend().fault)


def picture_of(env):
    env.reset(seed=0)
    return env.render()


@pytest.mark.parametrize("name", ["SafetyHopperVelocity-v1", "SafetyCarButton1-v0"])
def test_pictures_are_arrays_of_the_size_asked_for(name, drawing):
    env = gymnasium.make(f"cspo/{name}", render_mode="rgb_array", width=64, height=48)
    assert env.metadata["render_fps"] == round(1 / task_row(name).step_seconds)
    first = picture_of(env)
    assert first.shape == (48, 64, 3) and first.dtype == np.uint8 and first.std() > 1.0
    for _ in range(20):
        env.step(env.action_space.high)
    assert not np.array_equal(env.render(), first)
    env.close()
    above = gymnasium.make(
        f"cspo/{name}", render_mode="rgb_array", width=64, height=48, camera="top"
    )
    assert not np.array_equal(picture_of(above), first)
    above.close()
    several = gymnasium.make_vec(
        f"cspo/{name}", num_envs=2, render_mode="rgb_array", width=64, height=48
    )
    pictures = picture_of(several)
    assert isinstance(pictures, tuple) and len(pictures) == 2
    np.testing.assert_array_equal(pictures[0], first)
    several.close()


def test_no_picture_is_drawn_unless_asked_for():
    env = gymnasium.make("cspo/SafetySwimmerVelocity-v1").unwrapped
    env.reset(seed=0)
    assert env.render() is None and env.metadata["render_modes"] == ["rgb_array"]
    vector = gymnasium.make_vec("cspo/SafetySwimmerVelocity-v1", num_envs=2)
    vector.reset(seed=0)
    assert vector.unwrapped.render() is None
    with pytest.raises(CspoError, match="must be None or \"rgb_array\", not 'depth'"):
        SafetyVectorEnv("SafetySwimmerVelocity-v1", render_mode="depth")


# Any Gymnasium environment as a BatchEnv


@pytest.mark.parametrize("form", ["info", "six", "function"])
def test_the_cost_comes_from_info_or_six_values_or_a_function(form):
    cost_fn = (lambda before, action, after, info: abs(after[0])) if form == "function" else None
    batch = GymBatchEnv(lambda: Toy(form), num_envs=2, cost_fn=cost_fn)
    batch.reset(seed=0)
    result = batch.step(np.array([[0.5], [-0.5]]))
    np.testing.assert_allclose(result.cost[:, 0], np.abs(result.observation[:, 0]))
    assert batch.cost_names == ("cost",) and batch.name == "Toy"


def test_a_cost_function_sees_both_observations_and_the_action():
    seen = []

    def cost_fn(before, action, after, info):
        seen.append((before.copy(), action.copy(), after.copy(), dict(info)))
        return [after[0] - before[0], 0.0]

    batch = GymBatchEnv([Toy("info")], 1, cost_fn=cost_fn)
    first = batch.reset(seed=0).copy()
    result = batch.step(np.array([[0.25]]))
    before, action, after, info = seen[-1]
    np.testing.assert_array_equal(before, first[0])
    np.testing.assert_array_equal(after, result.observation[0])
    assert action == 0.25 and "cost" in info
    np.testing.assert_allclose(result.cost, [[0.25, 0.0]])
    assert batch.cost_names == ("cost_0", "cost_1")


def test_several_costs_are_found_by_a_probe_or_by_name():
    assert GymBatchEnv([Toy("vector")], 1).cost_names == ("cost_0", "cost_1", "cost_2")
    named = Toy("vector")
    named.cost_names = ["heat", "noise", "wear"]
    batch = GymBatchEnv([named], 1)
    assert batch.cost_names == ("heat", "noise", "wear")
    assert not named.actions  # a named environment is not probed
    batch.reset(seed=0)
    assert batch.step(np.zeros((1, 1))).cost.shape == (1, 3)
    named.cost_names = ["heat"]
    with pytest.raises(EnvironmentFault, match="gave 3 costs instead of 1"):
        batch = GymBatchEnv([named], 1)
        batch.reset(seed=0)
        batch.step(np.zeros((1, 1)))


def test_the_probe_leaves_the_random_stream_alone():
    probed, plain = Toy(), Toy()
    for env in (probed, plain):
        env.reset(seed=8)
    GymBatchEnv([probed], 1)
    assert probed.reset()[0][0] == plain.reset()[0][0]
    fresh = [GymBatchEnv([Toy()], 1).reset()[0, 0] for _ in range(2)]
    assert fresh[0] != fresh[1]  # an unseeded environment stays unpredictable


def test_a_missing_cost_is_said_in_words():
    with pytest.raises(
        CspoError, match=r"Toy \(copy 0\) gives no cost: return info\['cost'\], or pass cost_fn="
    ):
        make_batch(lambda: Toy("none"), num_envs=2)
    with pytest.raises(CspoError, match=r"Pendulum-v1 \(copy 0\) gives no cost"):
        make_batch("Pendulum-v1", num_envs=1)


def test_episodes_end_with_the_true_final_observation_and_reset_in_the_same_step():
    batch = GymBatchEnv(lambda: Toy(limit=4), num_envs=2)
    batch.reset(seed=0)
    for step in range(1, 9):
        result = batch.step(np.array([[0.0], [1.0]]))
        ended = result.terminated | result.truncated
        assert not (result.terminated & result.truncated).any()
        assert ended[0] == (step % 4 == 0)
        for i in np.flatnonzero(ended):
            assert result.final_observation[i, 1] > 0 and result.observation[i, 1] == 0
            assert result.terminated[i] == (result.final_observation[i, 0] > 3)
    env = Toy(limit=1)
    both = GymBatchEnv([env], 1)
    both.reset(seed=0)
    env.place = 5.0
    result = both.step(np.zeros((1, 1)))
    assert result.terminated[0] and not result.truncated[0]


def test_seeds_follow_the_copies_and_the_random_state_survives_json():
    batch, other = (GymBatchEnv(make_toy, num_envs=3) for _ in range(2))
    first = batch.reset(seed=5).copy()
    single = Toy()
    assert first[2, 0] == single.reset(seed=7)[0][0]
    other.reset(seed=0)
    other.set_random_state(json.loads(json.dumps(batch.random_state())))
    assert np.array_equal(batch.reset(), other.reset())

    class Private(Toy):
        def reset(self, *, seed=None, options=None):
            self.place, self.steps = 0.0, 0
            return self._observe(), {}

    assert GymBatchEnv([Private()], 1).random_state() == {"generators": [None]}
    GymBatchEnv([Private()], 1).set_random_state({"generators": [None]})


def test_only_environments_made_here_are_closed():
    own, made = Toy(), []

    def factory():
        made.append(Toy())
        return made[-1]

    make_batch(own, num_envs=1).close()
    make_batch(factory, num_envs=2).close()
    assert not own.closed
    assert [env.closed for env in made] == [True, True]
    with pytest.raises(CspoError):
        make_batch(lambda: made.append(Toy("none")) or made[-1], num_envs=1)
    assert made[-1].closed


def test_actions_are_clipped_to_the_space_unless_told_otherwise():
    for clip, expected in ((True, 1.0), (False, 7.0)):
        env = Toy()
        batch = GymBatchEnv([env], 1, clip_actions=clip)
        batch.reset(seed=0)
        batch.step(np.array([[7.0]]))
        assert env.actions[-1] == expected and env.actions[-1].dtype == np.float32


def test_observations_that_are_not_vectors_are_flattened():
    class Picture(Toy):
        observation_space = Box(-np.inf, np.inf, (2, 3), np.float64)
        action_space = Box(-1.0, 1.0, (2, 2), np.float32)

        def _observe(self):
            return np.arange(6.0).reshape(2, 3) + self.steps

        def step(self, action):
            assert action.shape == (2, 2)
            return super().step(action[0])

    batch = make_batch(Picture, num_envs=2)
    assert (batch.observation_size, batch.action_size) == (6, 4)
    np.testing.assert_array_equal(batch.reset(seed=0)[1], np.arange(6.0))
    np.testing.assert_array_equal(batch.step(np.zeros((2, 4))).observation[0], np.arange(6.0) + 1)


def test_an_action_without_bounds_is_in_the_policys_units_and_cut_off_where_it_has_one():
    given = []

    class Boundless(Toy):
        action_space = gymnasium.spaces.Box(
            np.float32([-np.inf, 0.0, -np.inf]), np.float32([np.inf, np.inf, 1.0]), dtype=np.float32
        )

        def step(self, action):
            given.append(action.tolist())
            return super().step(action[:1])

    batch = make_batch(Boundless, 1)
    batch.reset(seed=0)
    given.clear()
    scaling = ActionScaling(batch.action_low, batch.action_high)
    for action in ([7.0, -3.0, 5.0], [-7.0, 3.0, -5.0]):
        batch.step(scaling(np.array([action])))
    assert given == [[7.0, 0.0, 1.0], [-7.0, 3.0, -5.0]]


def test_a_non_finite_value_names_the_environment():
    env = Toy()
    batch = GymBatchEnv([env], 1)
    batch.reset(seed=0)
    env.place = np.nan
    with pytest.raises(
        EnvironmentFault, match=r"Toy \(copy 0\) gave a non-finite observation, step 1 of"
    ):
        batch.step(np.zeros((1, 1)))


# The one door


def test_make_batch_takes_everything_a_user_calls_an_environment(tmp_path, monkeypatch):
    assert isinstance(make_batch("SafetyHopperVelocity-v1", 2, threads=2), VelocityEnv)
    native = make_batch("cspo/SafetyHopperVelocity-v1", 3)
    assert isinstance(native, VelocityEnv) and native.num_envs == 3
    assert make_batch(native, 3) is native
    assert make_batch(Toy, 2).num_envs == 2
    assert make_batch(Toy(), 1).num_envs == 1
    pendulum = make_batch("Pendulum-v1", 2, cost_fn=lambda *_: 0.0)
    assert (pendulum.name, pendulum.time_limit) == ("Pendulum-v1", 200)
    (tmp_path / "my_module_for_cspo.py").write_text("from tests_toy import Toy as make_env\n")
    monkeypatch.setitem(sys.modules, "tests_toy", sys.modules[__name__])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    batch = make_batch("my_module_for_cspo:make_env", 2)
    assert batch.num_envs == 2 and batch.name == "my_module_for_cspo:make_env"


@pytest.mark.parametrize(
    ("env", "num_envs", "words"),
    [
        ("SafetyHoperVelocity-v1", 1, "did you mean 'SafetyHopperVelocity-v1'"),
        ("Pendulm-v1", 1, "did you mean 'Pendulum-v1'"),
        ("xyzzy-plugh-42", 1, "there is no environment 'xyzzy-plugh-42'"),
        ("no_such_module:make", 1, "there is no module 'no_such_module'"),
        ("tomli_w:make", 1, "tomli_w has no function or id 'make'"),
        ("json:loads", 1, "json is a module of Python itself"),
        ("CartPole-v1", 1, "gives no cost: return info"),
        (3, 1, "not int"),
        ("SafetyHopperVelocity-v1", 0, "at least 1"),
    ],
)
def test_make_batch_says_what_is_wrong(env, num_envs, words):
    with pytest.raises(CspoError) as caught:
        make_batch(env, num_envs)
    assert words in str(caught.value) and len(str(caught.value)) < 300


def test_one_environment_cannot_be_several():
    env = Toy()
    with pytest.raises(CspoError, match="pass a factory"):
        make_batch(env, 2)
    with pytest.raises(CspoError, match="make a new one each time"):
        make_batch(lambda: env, 2)
    with pytest.raises(CspoError, match="has its own cost"):
        make_batch("SafetyHopperVelocity-v1", 1, cost_fn=lambda *_: 0.0)


def test_other_spaces_are_refused_in_words():
    class Words(Toy):
        action_space = gymnasium.spaces.Text(3)

    class Blind(Toy):
        observation_space = None

    with pytest.raises(CspoError, match="action_space has a part of type Text; supported are"):
        make_batch(Words, 1)
    with pytest.raises(CspoError, match="has no observation_space"):
        make_batch(Blind, 1)


def test_importing_the_package_and_its_task_table_loads_no_simulator():
    code = (
        "import sys, cspo.envs; cspo.envs.native_tasks();"
        "print([m for m in ('mujoco', 'numba', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert [row.name for row in native_tasks() if row.family == "velocity"] == NAMES
    assert [row.family for row in native_tasks()] == 12 * ["velocity"] + 65 * ["navigation"]
    assert all(row.cost_limit == 25.0 for row in native_tasks())


def test_a_function_that_takes_num_envs_makes_all_copies_at_once():
    calls = []

    def make(num_envs, threads, time_limit=1000):
        calls.append((num_envs, threads, time_limit))
        return make_batch("SafetyHopperVelocity-v1", num_envs, threads)

    env = make_batch(make, 3, 2, env_options={"time_limit": 5})
    assert calls == [(3, 2, 5)] and env.num_envs == 3 and len(env.reset(0)) == 3
    env.close()
    with pytest.raises(CspoError, match="has no option 'limit'"):
        make_batch(make, 3, env_options={"limit": 5})
    with pytest.raises(CspoError, match="as a BatchEnv or VectorEnv; this one returned Toy"):
        make_batch(lambda num_envs: Toy(), 2)
    assert check_env(make) == []


def test_a_num_envs_among_the_options_is_an_option_like_any_other():
    env = make_batch(lambda num_envs: Toy(limit=num_envs), 2, env_options={"num_envs": 7})
    assert env.num_envs == 2 and [one.limit for one in env.envs] == [7, 7]
