"""Safety-Gymnasium's six values per step, for code that was written for them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from task_names import SAMPLE

import cspo
import cspo.envs.six_tuple as safety_gymnasium
from cspo.envs import make_batch
from cspo.envs.six_tuple import SixTuple
from cspo.errors import CspoError

NAMES = SAMPLE


@pytest.mark.parametrize("name", NAMES)
def test_the_cost_comes_third_and_nothing_else_changes(name):
    ours, theirs = gymnasium.make(f"cspo/{name}"), safety_gymnasium.make(name)
    assert (
        theirs.observation_space == ours.observation_space
        and theirs.action_space == ours.action_space
    )
    first, info = theirs.reset(seed=5)
    np.testing.assert_array_equal(first, ours.reset(seed=5)[0])
    assert info == {}
    for action in (
        np.random.default_rng(0).uniform(-1, 1, (5, *ours.action_space.shape)).astype(np.float32)
    ):
        observation, reward, terminated, truncated, info = ours.step(action)
        answer = theirs.step(action)
        np.testing.assert_array_equal(answer[0], observation)
        assert answer[1:5] == (reward, info["cost"], terminated, truncated)
        assert answer[5]["cost_sum"] == info["cost"]
        assert {key: value for key, value in info.items() if key != "goal_met"}.items() <= answer[
            5
        ].items()
    theirs.close()


def test_a_script_for_safety_gymnasium_runs_unchanged():
    env = safety_gymnasium.make("SafetySwimmerVelocity-v1", render_mode=None, max_episode_steps=30)
    observation, info = env.reset(seed=0)
    episode_reward, episode_cost, steps = 0.0, 0.0, 0
    while True:
        observation, reward, cost, terminated, truncated, info = env.step(env.action_space.sample())
        episode_reward += reward
        episode_cost += cost
        steps += 1
        assert observation in env.observation_space and "x_velocity" in info
        if terminated or truncated:
            break
    assert steps == 30 and truncated and not terminated
    env.close()


class Goals(gymnasium.Env):
    """Reaches a goal in every second step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, cost: bool = True) -> None:
        self.cost, self.steps = cost, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        self.steps += 1
        info = {"goal_met": float(self.steps % 2 == 0)} | ({"cost": 1.0} if self.cost else {})
        return np.zeros(1), 0.0, False, False, info


def test_a_goal_is_mentioned_only_when_it_is_met():
    env = cspo.six_tuple(Goals())
    env.reset(seed=0)
    infos = [env.step(np.zeros(1, np.float32))[-1] for _ in range(4)]
    assert ["goal_met" in info for info in infos] == [False, True, False, True]
    assert infos[1]["goal_met"] is True


def test_it_can_be_trained_on_and_says_what_is_wrong():
    batch = make_batch(lambda: cspo.six_tuple("SafetyHopperVelocity-v1"), 2)
    batch.reset(seed=0)
    np.testing.assert_array_equal(
        batch.reset(seed=3), make_batch("SafetyHopperVelocity-v1", 2).reset(seed=3)
    )
    assert batch.step(np.zeros((2, 3))).cost.shape == (2, 1)
    assert isinstance(cspo.six_tuple("cspo/SafetyHopperVelocity-v1", time_limit=3), SixTuple)
    with pytest.raises(CspoError, match="did you mean 'SafetyHopperVelocity-v1'"):
        cspo.six_tuple("SafetyHoperVelocity-v1")
    with pytest.raises(CspoError, match="has no option 'time_limt'"):
        cspo.six_tuple("SafetyHopperVelocity-v1", time_limt=3)
    with pytest.raises(CspoError, match="not for an object"):
        cspo.six_tuple(Goals(), time_limit=3)
    silent = cspo.six_tuple(Goals(cost=False))
    silent.reset(seed=0)
    with pytest.raises(CspoError, match=r"gives no info\['cost'\]"):
        silent.step(np.zeros(1, np.float32))
