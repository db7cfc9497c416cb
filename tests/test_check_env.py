"""`check_env` finds each planted fault, and nothing in a sound environment."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Text

from cspo.envs import check as check_module
from cspo.envs.check import check_env


@pytest.fixture(autouse=True)
def short_trials(monkeypatch):
    monkeypatch.setattr(check_module, "TRIAL_STEPS", 60)


class Sound(gymnasium.Env):
    """Nothing is wrong with it; the subclasses plant one fault each."""

    observation_space = Box(-5.0, 5.0, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    steps_per_episode = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.uniform(-1, 1)
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        self.place = float(np.clip(self.place + 0.1 * action[0], -5, 5))
        late = self.steps >= self.steps_per_episode
        return self.observe(), self.reward(), False, late, {"cost": self.cost()}

    def observe(self):
        return np.array([self.place, 0.0])

    def reward(self):
        return 1.0

    def cost(self):
        return float(self.place > 0)


class Words(Sound):
    action_space = Text(3)


class NoSpace(Sound):
    observation_space = None


class WrongShape(Sound):
    def observe(self):
        return np.zeros(3)


class WrongType(Sound):
    def observe(self):
        return super().observe().astype(np.float32)


class NotANumber(Sound):
    def observe(self):
        return np.array([np.nan if self.steps > 5 else 0.0, 0.0])


class Outside(Sound):
    def observe(self):
        return np.array([self.place, 6.0 if self.steps > 5 else 0.0])


class BadReward(Sound):
    def reward(self):
        return float("inf") if self.steps > 5 else 0.0


class VectorReward(Sound):
    def reward(self):
        return np.zeros(2)


class NoCost(Sound):
    def step(self, action):
        return *super().step(action)[:4], {}


class SometimesNoCost(Sound):
    def step(self, action):
        answer = super().step(action)
        return answer if self.steps < 5 else (*answer[:4], {})


class NegativeCost(Sound):
    def cost(self):
        return -1.0


class NonFiniteCost(Sound):
    def cost(self):
        return float("nan")


class ChangingCosts(Sound):
    def cost(self):
        return [0.0] * (1 + self.steps % 2)


class MisnamedCosts(Sound):
    cost_names = ("heat", "noise")


class WordCost(Sound):
    def cost(self):
        return "much"


class TwoCosts(Sound):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info["cost"] + 1, terminated, truncated, info


class FiveOrSix(Sound):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps % 2:
            return observation, reward, info["cost"], terminated, truncated, info
        return observation, reward, terminated, truncated, info


class OldStep(Sound):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class OldReset(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class NoSeed(Sound):
    def reset(self):
        return super().reset()


class IgnoresSeed(Sound):
    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.place = np.random.default_rng().uniform(-1, 1)
        return self.observe(), answer[1]


class NoisyStep(Sound):
    def step(self, action):
        answer = super().step(action)
        self.place += np.random.default_rng().uniform(0, 1e-3)
        return self.observe(), *answer[1:]


class Endless(Sound):
    steps_per_episode = 10**9


class Crashes(Sound):
    def step(self, action):
        if self.steps == 7:
            raise RuntimeError("out of fuel")
        return super().step(action)


class NumberFlags(Sound):
    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, 0.5, truncated, info


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (Words, "action_space has a part of type Text; supported are Box, Discrete"),
        (NoSpace, "no observation_space"),
        (WrongShape, "shape (3,); observation_space says (2,)"),
        (WrongType, "dtype float32; observation_space says float64"),
        (NotANumber, "step() gave a non-finite observation"),
        (Outside, "outside the limits of observation_space"),
        (BadReward, "reward was not finite"),
        (VectorReward, "reward must be one number"),
        (NoCost, "gives no cost: return info['cost']"),
        (SometimesNoCost, "gives no cost in some steps"),
        (NegativeCost, "cost was negative"),
        (NonFiniteCost, "cost was not finite"),
        (ChangingCosts, "number of costs changes"),
        (MisnamedCosts, "declares 2 costs (heat, noise) and gives 1"),
        (WordCost, "cost must be a number"),
        (TwoCosts, "two different costs"),
        (FiveOrSix, "sometimes returns five values and sometimes six"),
        (OldStep, "it returned 4 values"),
        (OldReset, "reset() must return (observation, info)"),
        (NoSeed, "must accept reset(seed=...)"),
        (IgnoresSeed, "not reproducible"),
        (NoisyStep, "not reproducible"),
        (Endless, "no time limit"),
        (Crashes, "step() raised RuntimeError: out of fuel"),
        (NumberFlags, "terminated must be True or False"),
    ],
)
def test_a_planted_fault_is_found(faulty, words):
    problems = check_env(faulty())
    assert any(words in problem for problem in problems), problems
    assert len(problems) <= 2  # one fault is not drowned in others
    assert len(set(problems)) == len(problems)


def test_a_sound_environment_has_no_problems():
    assert check_env(Sound()) == []
    assert check_env(Sound) == []
    assert check_env(gymnasium.wrappers.TimeLimit(Endless(), 50)) == []


def test_six_values_are_as_good_as_five():
    class Six(Sound):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, info["cost"], terminated, truncated, {}

    assert check_env(Six()) == []


def test_a_cost_function_fills_in_for_a_missing_cost():
    assert (
        check_env(NoCost(), cost_fn=lambda before, action, after, info: float(after[0] > before[0]))
        == []
    )
    assert check_env(NoCost(), cost_fn=lambda *_: [0.0, 1.0]) == []
    assert any("cost was negative" in one for one in check_env(NoCost(), cost_fn=lambda *_: -1.0))
    assert any(
        "cost_fn raised TypeError" in one for one in check_env(NoCost(), cost_fn=lambda: 0.0)
    )


def test_the_native_tasks_are_sound():
    assert check_env("SafetyHopperVelocity-v1") == []
    assert check_env("cspo/SafetyAntVelocity-v1") == []


def test_a_users_environment_stays_open_and_a_made_one_is_closed():
    closed = []

    class Closing(Sound):
        def close(self):
            closed.append(self)

    check_env(Closing())
    assert closed == []
    check_env(Closing)
    assert len(closed) == len(set(map(id, closed))) == 3  # one by itself, two as training has them


def test_names_and_objects_that_are_no_environment_are_problems():
    (problem,) = check_env("SafetyHoperVelocity-v1")
    assert "did you mean 'SafetyHopperVelocity-v1'" in problem
    (problem,) = check_env(3)
    assert "not int" in problem
