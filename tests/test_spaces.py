"""Every supported space against Gymnasium: flat rows, raw actions, checkpoints, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from forging import forge
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from space_envs import ACTION_SPACES, OBSERVATION_SPACE, SpaceEnv, make_space_env

import cspo
from cspo.envs import make_batch
from cspo.envs.batch import StepResult
from cspo.envs.check import check_env
from cspo.envs.layout import ActionLayout, Misfit, ObservationLayout
from cspo.envs.spaces import Unsupported, action_bounds, action_layout, observation_layout
from cspo.errors import CspoError, EnvironmentFault
from cspo.experience.rollout import collect
from cspo.policy.policy import Policy
from cspo.policy.scaling import ActionScaling
from cspo.policy.settings import PolicySettings
from cspo.runs.checkpoint import list_checkpoints

pytestmark = pytest.mark.usefixtures("no_pictures")
SMALL: dict[str, Any] = {
    "num_envs": 3,
    "steps_per_epoch": 90,
    "total_steps": 180,
    "passes": 1,
    "minibatch_size": 64,
    "hidden_sizes": (8,),
    "tensorboard": False,
    "quiet": True,
}
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
SIDES = st.sampled_from([(-2.0, 3.0), (0.0, np.inf), (-np.inf, 1.0), (-np.inf, np.inf)])
DTYPES = st.sampled_from(["float32", "float64", "uint8", "int16", "int64"])


def box(shape: tuple[int, ...], dtype: str, sides: tuple[float, float]) -> Box:
    low, high = sides
    if np.dtype(dtype).kind != "f":
        low, high = (
            0.0 if np.isinf(low) or dtype[0] == "u" else low,
            9.0 if np.isinf(high) else high,
        )
    return Box(low, high, shape, np.dtype(dtype).type)


@st.composite
def multi_discrete(draw: Any) -> MultiDiscrete:
    shape = draw(SHAPES.filter(len))
    options = np.array(draw(st.lists(st.integers(1, 4), min_size=27, max_size=27)))
    start = np.array(draw(st.lists(st.integers(-3, 3), min_size=27, max_size=27)))
    size = int(np.prod(shape))
    return MultiDiscrete(options[:size].reshape(shape), start=start[:size].reshape(shape))


LEAVES = st.one_of(
    st.builds(box, SHAPES, DTYPES, SIDES),
    st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 5), st.integers(-3, 3)),
    multi_discrete(),
    st.builds(MultiBinary, SHAPES.filter(len)),
)
ANY = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(Tuple),
        st.dictionaries(st.text("abc", min_size=1), inner, min_size=1, max_size=3).map(Dict),
    ),
    max_leaves=5,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(np.array_equal(one, other))


def alike(one: Any, other: Any) -> bool:
    """Whether two actions are equal but for rounding.

    A product with one row and one with several add in another order on some processors.
    """
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if not np.issubdtype(np.asarray(one).dtype, np.floating):
        return equal(one, other)
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-6))


@quick
@given(space=ANY, seed=st.integers(0, 2**31))
def test_flat_observations_are_gymnasiums_own(space: Any, seed: int) -> None:
    space.seed(seed)
    layout = observation_layout(space)
    layout = ObservationLayout(json.loads(json.dumps(layout.description)))  # as a checkpoint has it
    observation = space.sample()
    expected = spaces.utils.flatten(space, observation)
    assert layout.size == spaces.utils.flatdim(space) == len(expected)
    row = layout.flatten(observation)
    np.testing.assert_array_equal(row, expected)
    back = spaces.utils.unflatten(space, row.astype(expected.dtype))
    assert equal(back, observation)
    # What is not standardised is what is one-hot or a bit.
    as_is = np.zeros(layout.size, bool) if layout.as_is is None else layout.as_is
    assert set(row[as_is]) <= {0.0, 1.0}
    boxes = sum(leaf.size for leaf in layout.leaves if leaf.kind == "box")
    assert layout.size - as_is.sum() == boxes


@quick
@given(space=ANY, seed=st.integers(0, 2**31))
def test_every_row_decodes_to_an_action_of_the_space_and_back(space: Any, seed: int) -> None:
    try:
        layout = action_layout(space)
    except Exception as fault:
        assert "nothing to decide" in str(fault)
        return
    layout = ActionLayout(json.loads(json.dumps(layout.description)))
    low, high = action_bounds(space, layout)
    assert len(low) == len(high) == layout.size == layout.gaussians + len(layout.choices)
    rng = np.random.default_rng(seed)
    scaling = ActionScaling(low, high, len(layout.choices))
    drawn = [rng.integers(max(k, 2)) for k in layout.choices]
    row = scaling(np.r_[3.0 * rng.standard_normal(layout.gaussians), drawn], clip=True)
    action = layout.decode(row)
    assert space.contains(action), action
    space.seed(seed)
    sample = space.sample()
    assert equal(layout.decode(layout.encode(sample)), sample)


def test_options_count_from_their_start_and_bits_are_choices_of_their_own() -> None:
    layout = action_layout(ACTION_SPACES["mixed"])
    assert (layout.gaussians, layout.choices) == (2, (3, 1, 1, 2, 3))
    action = layout.decode(np.array([0.5, -0.25, 2.0, 1.0, 0.0, 1.0, 2.0]))
    assert action["gear"] == 2 and type(action["gear"]) is int
    assert action["wheel"].tolist() == [0.5, -0.25] and action["wheel"].dtype == np.float32
    assert [part.tolist() for part in action["lights"]] == [[1, 0], [1, 2]]
    assert action_layout(Discrete(3, start=2)).decode(np.array([1.0])) == 3
    grid = action_layout(ACTION_SPACES["multi_discrete"])
    assert grid.choices == (2, 4, 3)  # one option leaves nothing to choose
    assert grid.decode(np.array([1.0, 3.0, 2.0])).tolist() == [[1, 4], [0, 5]]


def test_whole_numbers_of_a_box_are_rounded_not_cut() -> None:
    layout = action_layout(Box(0, 10, (4,), np.uint8))
    assert layout.decode(np.array([0.4, 0.6, 9.7, 300.0])).tolist() == [0, 1, 10, 255]


def test_unknown_spaces_are_refused_in_a_line_that_says_what_to_do() -> None:
    graph = spaces.Graph(Box(-1, 1, (2,)), Discrete(2))
    refused_spaces = {
        "Text": spaces.Text(3),
        "Graph": graph,
        "Sequence": spaces.Sequence(Discrete(2)),
        "OneOf": spaces.OneOf([Discrete(2)]),
    }
    for name, space in refused_spaces.items():
        for nested in (space, Dict({"a": Tuple([space])})):
            env = SpaceEnv()
            env.observation_space = nested
            with pytest.raises(CspoError) as caught:
                make_batch(env, 1)
            text = str(caught.value)
            assert f"observation_space has a part of type {name}; supported are Box" in text
            assert "wrap the environment" in text and "\n" not in text
    for what, space, words in (
        ("observation", Dict({}), "is empty"),
        ("action", Tuple([]), "is empty"),
        ("action", Discrete(1), "leaves nothing to decide"),
        ("observation", Box(-1, 1, (0,)), "numbers are needed"),
    ):
        env = SpaceEnv()
        setattr(env, f"{what}_space", space)
        with pytest.raises(CspoError, match=f"its {what}_space .*{words}"):
            make_batch(env, 1)
        assert any(words in problem for problem in check_env(env))


def test_several_agents_are_refused_in_a_line_that_says_what_to_do() -> None:
    env = SpaceEnv()
    env.possible_agents = ["a", "b"]  # type: ignore[attr-defined]
    with pytest.raises(CspoError, match=r"several agents \(PettingZoo\): make one of them"):
        make_batch(env, 1)


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_check_env_finds_nothing_wrong_with_any_space(name: str) -> None:
    assert check_env(lambda: SpaceEnv(name)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"room": 9}, r"observation\['room'\] of 9, which is no option there"),
        ({"room": 1.5}, r"observation\['room'\] that is not made of whole numbers"),
        ({"place": np.zeros(3)}, r"observation\['place'\] of 3 numbers; its space says 2"),
        ({"place": np.array(["a", "b"])}, r"observation\['place'\] that is not made of numbers"),
        ({"doors": (np.zeros(2),)}, "observation without the part 1"),
    ],
)
def test_an_observation_that_does_not_fit_names_its_part(change: Any, words: str) -> None:
    class Wrong(SpaceEnv):
        def _observe(self) -> dict[str, Any]:
            return super()._observe() | (change if self.t else {})

    batch = make_batch(Wrong(), 1)
    batch.reset(seed=0)
    with pytest.raises(EnvironmentFault, match=f"gave an {words}"):
        batch.step(np.zeros((1, 1)))
    assert check_env(Wrong)


def test_a_cost_function_gets_raw_observations_and_actions() -> None:
    seen: list[Any] = []

    def cost(before: Any, action: Any, after: Any, info: Any) -> float:
        seen.append((before, action, after))
        return 0.0

    batch = make_batch(lambda: SpaceEnv("mixed"), 1, cost_fn=cost)
    batch.reset(seed=0)
    batch.step(np.zeros((1, batch.action_size)))
    batch.step(np.zeros((1, batch.action_size)))
    (_, _, first), (before, action, after) = seen[-2:]
    for observation in (before, after):
        assert OBSERVATION_SPACE.contains(observation)
    assert ACTION_SPACES["mixed"].contains(action) and equal(before, first)
    assert before["room"] != after["room"]


def test_options_and_bits_are_not_standardised() -> None:
    batch = make_batch(lambda: SpaceEnv("discrete"), 3)
    rng = np.random.default_rng(0)
    sizes = batch.observation_size, batch.action_size, 1
    mask = batch.observation_as_is
    policy = Policy(*sizes, PolicySettings(), rng, choices=batch.action_choices, as_is=mask)
    rollout = collect(batch, policy, 40, rng, 0)
    assert set(np.unique(rollout.observation[..., mask])) == {0.0, 1.0}
    places = rollout.observation[20:, :, ~mask]
    assert abs(places.mean()) < 1.0 and 0.3 < places.std() < 3.0


class ChoosingBatch:
    """A user's own `BatchEnv` with a number and a choice as its action."""

    name, num_envs, observation_size, action_size = "Choosing", 2, 2, 2
    action_low, action_high = np.array([-1.0, 0.0]), np.array([1.0, 2.0])
    cost_names, time_limit = ("cost",), None
    action_choices: Any = (3,)
    observation_as_is: Any = np.array([False, True])

    def reset(self, seed: int | None = None) -> Any:
        self.t = 0
        return np.zeros((2, 2))

    def step(self, actions: Any) -> StepResult:
        self.t += 1
        assert np.isin(actions[:, 1], (0.0, 1.0, 2.0)).all()
        over = np.full(2, self.t % 5 == 0)
        rows = np.column_stack([actions[:, 0], np.ones(2)])
        return StepResult(rows, actions[:, 1].copy(), np.ones((2, 1)), ~over & over, over, rows)

    def random_state(self) -> dict[str, Any]:
        return {}

    def set_random_state(self, state: Any) -> None: ...

    def close(self) -> None: ...


def test_a_batch_env_of_ones_own_may_have_choices(tmp_path: Path) -> None:
    assert check_env(ChoosingBatch()) == []
    settings = {**SMALL, "num_envs": 2, "steps_per_epoch": 60, "total_steps": 120}
    cspo.train(ChoosingBatch(), run_dir=tmp_path / "run", cost_limit=100.0, **settings)
    policy = cspo.load(tmp_path / "run")
    flat = policy(np.zeros((4, 2)), deterministic=False)
    assert flat.shape == (4, 2) and set(flat[:, 1]) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("action_choices", [3], "not a tuple of whole numbers"),
        ("action_choices", (0,), "not a tuple of whole numbers"),
        ("action_choices", (4,), "from 0 to k - 1"),
        ("action_choices", (2, 3, 3), "from 0 to k - 1"),
        ("observation_as_is", np.zeros(3, bool), "not a mask"),
        ("action_low", np.array([-np.inf, 0.0]), "not finite"),
    ],
)
def test_choices_that_do_not_fit_a_batch_env_are_refused(name: str, value: Any, words: str) -> None:
    env = ChoosingBatch()
    setattr(env, name, value)
    with pytest.raises(EnvironmentFault, match=words):
        make_batch(env, 2)


# ---------------------------------------------------------------- trained, kept and used


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One short run per action space."""
    folders = {name: tmp_path_factory.mktemp("spaces") / name for name in ACTION_SPACES}
    for name, folder in folders.items():
        task = "space_envs:make_space_env"
        options = {"action_space": name}
        cspo.train(task, run_dir=folder, cost_limit=3.0, env_options=options, **SMALL)
    return folders


@pytest.mark.parametrize("name", ACTION_SPACES)
def test_a_loaded_policy_takes_raw_observations_and_gives_raw_actions(
    name: str, runs: dict[str, Path]
) -> None:
    policy, env = cspo.load(runs[name]), make_space_env(name)
    observation, _ = env.reset(seed=0)
    for deterministic in (True, False):
        for _ in range(8):
            action = policy(observation, deterministic=deterministic)
            assert env.action_space.contains(action), action
            observation = env.step(action)[0]
    several = [observation, env.reset()[0], env.reset()[0]]
    actions = policy(several)
    assert len(actions) == 3 and all(env.action_space.contains(one) for one in actions)
    assert all(alike(policy(raw), one) for raw, one in zip(several, actions, strict=True))
    flat = np.array([spaces.utils.flatten(env.observation_space, raw) for raw in several])
    assert all(map(equal, policy(flat), actions))
    assert alike(policy(flat[0]), actions[0])
    with pytest.raises(CspoError, match=r"The policy was given an observation without the part"):
        policy({"place": np.zeros(2)})


@pytest.mark.parametrize("name", ["multi_discrete", "mixed"])
def test_evaluation_plays_complete_episodes(name: str, runs: dict[str, Path]) -> None:
    rows = cspo.evaluate(runs[name], 4, trust=True)
    assert [row.mode for row in rows] == ["stochastic", "deterministic"]
    assert all(row.episode_length == 10.0 for row in rows)


def test_single_discrete_observations_and_arrays_of_them(tmp_path: Path) -> None:
    class Walk(gymnasium.Env[Any, Any]):
        num_costs = 1
        observation_space, action_space = Discrete(4), Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.at = int(self.np_random.integers(4))
            return self.at, {}

        def step(self, action: int) -> Any:
            self.at = max(0, min(3, self.at + 2 * action - 1))
            return self.at, float(self.at), False, self.at == 3, {"cost": float(self.at == 0)}

    settings = {**SMALL, "total_steps": 90}
    cspo.train(Walk, run_dir=tmp_path / "run", cost_limit=1.0, **settings)
    policy = cspo.load(tmp_path / "run")
    singles = [policy(at) for at in range(4)]
    assert set(singles) <= {0, 1}
    np.testing.assert_array_equal(policy(np.arange(4)), singles)
    np.testing.assert_array_equal(policy(list(range(4))), singles)
    np.testing.assert_array_equal(policy(np.eye(4)), singles)


def test_a_picture_keeps_its_shape_and_type_in_the_facts(tmp_path: Path) -> None:
    class Picture(SpaceEnv):
        def __init__(self) -> None:
            super().__init__("discrete")
            self.observation_space = Box(0, 255, (4, 3, 3), np.uint8)

        def _observe(self) -> Any:
            return self.np_random.integers(0, 256, (4, 3, 3)).astype(np.uint8)

    settings = {**SMALL, "total_steps": 90}
    cspo.train(Picture, run_dir=tmp_path / "run", cost_limit=1.0, **settings)
    policy = cspo.load(tmp_path / "run")
    described = {"kind": "box", "shape": [4, 3, 3], "dtype": "uint8"}
    assert policy.observation_layout.description == described
    pictures = np.random.default_rng(0).integers(0, 256, (5, 4, 3, 3)).astype(np.uint8)
    actions = policy(pictures)
    assert actions.shape == (5,) and policy(pictures[2]) == actions[2]
    with pytest.raises(CspoError, match=r"of shape \(36,\) or \(B, 36\) or \(4, 3, 3\) or"):
        policy(np.zeros((4, 3)))


def test_a_run_is_not_continued_with_other_choices(runs: dict[str, Path]) -> None:
    bits, more = SpaceEnv("multi_binary"), SpaceEnv("discrete")
    more.action_space = Discrete(4)
    for env, words in ((bits, "has sizes"), (more, "other discrete actions")):
        batch = make_batch(env, 1)
        with pytest.raises(CspoError, match=words):
            cspo.load(runs["discrete"]).check_sizes(batch)


FORGED = {
    "choices of text": {"action_choices": ["3"]},
    "more choices": {"action_choices": [3, 3]},
    "other choices": {"action_choices": [4]},
    "no choices": {"action_choices": []},
    "a space of no kind": {"action_space": {"kind": "graph"}},
    "a space that is code": {"action_space": {"kind": "discrete", "options": "os", "start": 0}},
    "other options": {"action_space": {"kind": "discrete", "options": 4, "start": 0}},
    "endless bits": {"action_space": {"kind": "multi_binary", "shape": [2**30]}},
    "a vast space": {"observation_space": {"kind": "discrete", "options": 2**30, "start": 0}},
    "a deep space": {"observation_space": None},  # made below
    "parts without names": {"observation_space": {"kind": "dict", "parts": [1, 2]}},
    "a smaller space": {"observation_space": {"kind": "multi_binary", "shape": [2]}},
    "an unknown type": {"observation_space": {"kind": "box", "shape": [9], "dtype": "object"}},
    "truth for a number": {"observation_space": {"kind": "multi_binary", "shape": [True]}},
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_spaces_are_refused(name: str, runs: dict[str, Path], tmp_path: Path) -> None:
    deep: Any = {"kind": "multi_binary", "shape": [9]}
    for _ in range(9):
        deep = {"kind": "tuple", "parts": [deep]}
    change = {"observation_space": deep} if name == "a deep space" else FORGED[name]
    copy = shutil.copytree(runs["discrete"], tmp_path / "run")
    *older, newest = list_checkpoints(copy / "checkpoints")
    for path in older:
        path.unlink()
    cspo.load(copy)
    forge(newest, lambda plain, arrays: plain["facts"].update(change))
    with pytest.raises(CspoError, match=r"is damaged: facts"):
        cspo.load(copy)


def test_layouts_say_what_does_not_fit() -> None:
    layout = observation_layout(OBSERVATION_SPACE)
    with pytest.raises(Misfit, match="without the part 'doors'"):
        layout.flatten(SimpleNamespace())
    deep: Any = Discrete(2)
    for _ in range(9):
        deep = Tuple([deep])
    with pytest.raises(Unsupported, match="more than 8 deep"):
        observation_layout(deep)
