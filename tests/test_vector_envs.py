"""Gymnasium's vector environments, in every mode of resetting: the same steps as one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from run_helpers import SMALL, TinyEnv, assert_same_run
from space_envs import ACTION_SPACES, SpaceEnv, total
from worker_envs import cost_of_place

import cspo
from cspo.envs import make_batch
from cspo.envs.gym_batch import GymBatchEnv
from cspo.errors import CspoError, EnvironmentFault

N = 4


class Fickle(TinyEnv):
    """Ends by chance, or by a time limit that differs from copy to copy."""

    num_costs = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        self.limit = int(self.np_random.integers(5, 12))
        return observation, {"cost": 99.0, "cost_a": 99.0}  # of a reset, which costs nothing

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = super().step(action)
        terminated = bool(self.np_random.random() < 0.05)
        info |= {"cost_a": float(self.x[0]), "cost_b": float(self.t)}
        return observation, reward, terminated, self.t >= self.limit, info


class Square(Fickle):
    """The same, with observations and actions that are no vectors, and two costs."""

    num_costs = 2

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-np.inf, np.inf, (2, 1), np.float32)
        self.action_space = Box(-1.0, 1.0, (1, 1), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation.astype(np.float32)[:, None], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, *others, info = super().step(action[0])
        costs = np.array([info["cost"], abs(self.x[0])])
        return observation.astype(np.float32)[:, None], *others, {"cost": costs}  # type: ignore[return-value]


def vector(kind: str, mode: str, env: type[Any] = Fickle) -> Any:
    made: Any = SyncVectorEnv if kind == "sync" else AsyncVectorEnv
    return made([env] * N, autoreset_mode=AutoresetMode(mode))


def play(env: Any, steps: int = 60) -> list[bytes]:
    rng = np.random.default_rng(1)
    seen = [env.reset(5).tobytes()]
    for t in range(steps):
        if t == steps // 2:
            state = env.random_state()
            seen += [str(state).encode(), env.reset().tobytes()]
            env.set_random_state(state)
            assert env.reset().tobytes() == seen[-1]
        result = env.step(1.5 * rng.normal(size=(env.num_envs, env.action_size)))
        ended = result.terminated | result.truncated
        seen += [array.tobytes() for array in result[:5]]
        seen.append(result.final_observation[ended].tobytes())
    return seen


MODES = [mode.value for mode in AutoresetMode]


# Which costs there are makes no difference to where the copies are.
CASES: dict[str, tuple[str, type[Any], dict[str, Any]]] = {
    "sync": ("sync", Fickle, {}),
    "async": ("async", Fickle, {}),
    "sync square": ("sync", Square, {}),
    "async square": ("async", Square, {}),
    "terms": ("sync", Fickle, {"cost_terms": ("b", "a")}),
    "cost_fn": ("sync", Fickle, {"cost_fn": cost_of_place}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_single_environments(case: str, mode: str) -> None:
    kind, env, more = CASES[case]
    single = GymBatchEnv(env, N, **more)
    made = vector(kind, mode, env)
    try:
        batch = make_batch(made, 99, **more)
        assert batch.num_envs == N and batch.cost_names == single.cost_names
        assert play(batch) == play(single)
    finally:
        made.close()


@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same_and_resumes_exactly(mode: str, tmp_path: Path) -> None:
    settings: Any = {**SMALL, "total_steps": 1200, "hidden_sizes": (4,), "quiet": True}
    cspo.train(Fickle, run_dir=tmp_path / "single", **settings)
    cspo.train(vector("sync", mode), run_dir=tmp_path / "whole", **settings)
    assert_same_run(tmp_path / "whole", tmp_path / "single")
    config = cspo.make_config(
        "<SyncVectorEnv>", **{k: settings[k] for k in settings if k != "quiet"}
    )
    with cspo.Trainer(config, env=vector("sync", mode), run_dir=tmp_path / "cut") as trainer:
        next(iter(trainer))
    cspo.resume(tmp_path / "cut", env=vector("sync", mode), quiet=True)
    assert_same_run(tmp_path / "cut", tmp_path / "single")


def cost_of_action(before: Any, action: Any, after: Any, info: dict[str, Any]) -> float:
    """Return a cost that only the raw values can give."""
    return float(before["room"] + after["room"] + abs(total(action)))


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("space", ACTION_SPACES)
@pytest.mark.parametrize("cost_fn", [None, cost_of_action])
def test_every_space_is_that_of_single_environments(space: str, mode: str, cost_fn: Any) -> None:
    def make() -> SpaceEnv:
        return SpaceEnv(space)

    ours = GymBatchEnv(make, N, cost_fn)
    theirs = make_batch(
        SyncVectorEnv([make] * N, autoreset_mode=AutoresetMode(mode)), N, cost_fn=cost_fn
    )
    assert theirs.action_choices == ours.action_choices  # type: ignore[attr-defined]
    np.testing.assert_array_equal(theirs.observation_as_is, ours.observation_as_is)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(theirs.reset(seed=3), ours.reset(seed=3))
    random = np.random.default_rng(0)
    low, high = np.maximum(ours.action_low, -3.0), np.minimum(ours.action_high, 3.0)
    for _ in range(25):
        actions = random.uniform(low, high, (N, ours.action_size))
        actions[:, -len(ours.action_choices) or ours.action_size :] //= 1.0
        one, other = ours.step(actions), theirs.step(actions)
        ended = one.terminated | one.truncated
        for name in ("observation", "reward", "cost", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name), name)
        np.testing.assert_array_equal(other.final_observation[ended], one.final_observation[ended])


def make_all(num_envs: int, mode: str = "NextStep") -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([Fickle] * num_envs, autoreset_mode=AutoresetMode(mode))


def test_a_function_that_takes_num_envs_may_make_one(tmp_path: Path) -> None:
    options = {"mode": "SameStep"}
    batch: Any = make_batch("test_vector_envs:make_all", 3, env_options=options)
    assert batch.num_envs == 3 and batch.name == "test_vector_envs:make_all"
    batch.close()
    assert all(env.closed for env in batch.vector.envs)
    made = gymnasium.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    batch = make_batch(made, 1, cost_fn=cost_of_place)
    assert batch.time_limit == 200 and batch.reset(0).shape == (2, 3)
    assert cspo.check_env(made, cost_fn=cost_of_place) == []
    batch.close()
    made.reset()  # a user's own stays open
    made.close()


class Own(VectorEnv[Any, Any, Any]):
    """A vector environment of somebody's own, all copies in one."""

    num_envs = 2
    single_observation_space = Box(-1.0, 1.0, (1,), np.float64)
    single_action_space = Box(-1.0, 1.0, (1,), np.float64)

    def __init__(self, mode: Any, fault: str = "") -> None:
        self.metadata = {"autoreset_mode": mode}
        self.fault = fault

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        mask = np.ones(2, bool)
        if self.fault != "mask":
            mask = (options or {}).get("reset_mask", mask)
        if seed is not None or not hasattr(self, "x"):
            self.x = np.zeros((2, 1))
        self.x[mask] = self.np_random.uniform(-1, 1, (2, 1))[mask]
        return self.x.copy(), {}

    def step(self, actions: Any) -> Any:
        ended = np.array([False, True])
        infos: dict[str, Any] = {"cost": np.array([0.0, 1.0])}
        reward = np.full(2, np.nan) if self.fault == "nan" else np.zeros(2)
        if self.fault == "cost":
            infos["_cost"] = np.array([True, False])
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP and self.fault != "final":
            infos["final_obs"] = np.array([None, self.x[1].copy()], object)
            self.x[1] = 0.0
        return self.x.copy(), reward, ended, np.zeros(2, bool), infos


def test_one_of_somebodys_own_is_taken_or_told_what_is_wrong() -> None:
    actions = np.zeros((2, 1))
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        batch: Any = make_batch(Own(mode), 2)
        before = batch.reset(0).copy()
        result = batch.step(actions)
        assert result.final_observation[1] == before[1] != result.observation[1]
        assert result.observation[0] == before[0] and result.cost.tolist() == [[0.0], [1.0]]
        state = batch.random_state()
        first = batch.reset().copy()
        batch.set_random_state(state)
        np.testing.assert_array_equal(batch.reset(), first)
    faults = {
        "mask": r"does not keep to options\['reset_mask'\]",
        "nan": "non-finite reward in copy 0",
        "cost": r"gives no infos\['cost'\] for copy 1",
        "final": r"gives no infos\['final_obs'\]",
    }
    for fault, words in faults.items():
        mode = AutoresetMode.SAME_STEP if fault == "final" else AutoresetMode.DISABLED
        own = Own(mode, fault)
        own.num_costs = 1  # type: ignore[attr-defined]
        batch = make_batch(own, 2)
        batch.reset(0)
        with pytest.raises(EnvironmentFault, match=words):
            batch.step(actions)


def test_what_cannot_be_made_exact_is_refused_with_what_to_do() -> None:
    remedy = r"make it with autoreset_mode=AutoresetMode\.SAME_STEP"
    with pytest.raises(CspoError, match=remedy):
        make_batch(Own(AutoresetMode.NEXT_STEP), 2)
    made: Any = AsyncVectorEnv([Fickle] * 2, shared_memory=False)
    try:
        with pytest.raises(CspoError, match=remedy):
            make_batch(made, 2)
    finally:
        made.close()
    with pytest.raises(CspoError, match=r"metadata\['autoreset_mode'\] must say"):
        make_batch(Own(None), 2)
    with pytest.raises(CspoError, match="other processes"):
        make_batch(Own(AutoresetMode.DISABLED), 2, workers=2)
