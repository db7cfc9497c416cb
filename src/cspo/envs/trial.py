"""One environment tried with random actions, for `check_env`."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import numpy as np

from cspo.envs.foreign import ForeignCall, WrongAnswer, number, numbers, truth
from cspo.envs.gym_facts import random_state_of, set_random_state_of, time_limit_of
from cspo.envs.gym_step import split_step
from cspo.envs.layout import FloatArray, Misfit
from cspo.envs.spaces import action_bounds, layouts_of, space_problem
from cspo.envs.trial_values import TrialOver, ValueChecks
from cspo.envs.words import words_of_space
from cspo.errors import CspoError, EnvironmentFault, shown


class Trial(ValueChecks):
    """One environment under test."""

    def run(self, steps: int, seconds: float) -> None:
        """Run every check that makes sense after the ones before it, the last in random steps."""
        try:
            with ForeignCall("Its description"):
                self._check_spaces()
            if self.found.faults:
                raise TrialOver
            self.check_observation(self._reset(seed=1), "reset()")
            self._check_picture()
            self._check_reproducible()
            self._look_at_randomness()
            self._check_steps(steps, seconds)
        except TrialOver:
            pass
        except EnvironmentFault as fault:
            self.say(str(fault))

    def close(self) -> None:
        """Close the environment; training would warn of a fault, and go on."""
        try:
            with ForeignCall("close()", code=self.env):
                if (close := getattr(self.env, "close", None)) is not None:
                    close()
        except EnvironmentFault as fault:
            self.advise(str(fault))

    def _check_spaces(self) -> None:
        for what in ("observation", "action"):
            problem = space_problem(self.env, what)
            if problem is not None:
                self.say(f"{problem[0].upper()}{problem[1:]}.")
            if (space := getattr(self.env, f"{what}_space", None)) is not None:
                setattr(self.found, f"{what}s", words_of_space(space))
        self.found.time_limit = time_limit_of(self.env)
        if self.found.faults:
            return
        self.observations, self.actions = layouts_of(self.env, "")
        self.bounds = action_bounds(self.env.action_space, self.actions)
        if not (self.bounds[0] < self.bounds[1]).all():
            self.advise("The range of its actions is empty: action_space.low must be below high.")

    def _reset(self, seed: int | None) -> Any:
        """Return the first observation of an episode."""
        try:
            with ForeignCall("reset()", code=self.env):
                answer = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except EnvironmentFault as fault:
            hint = ": it must accept reset(seed=...)"
            self.stop(f"{fault}{hint if isinstance(fault.__cause__, TypeError) else ''}")
        if not isinstance(answer, tuple) or len(answer) != 2:
            self.stop(f"reset() must return (observation, info), not {shown(answer)}.")
        if not isinstance(answer[1], dict):
            info = f"with info a dict, not {shown(answer[1])}"
            self.advise(f"reset() must return (observation, info), {info}.")
        return answer[0]

    def _check_picture(self) -> None:
        if getattr(self.env, "render_mode", None) != "rgb_array":
            return
        try:
            with ForeignCall("render()", code=self.env):
                picture = np.asarray(self.env.render())
                if picture.ndim != 3 or picture.shape[2] != 3:
                    raise WrongAnswer(f"must give (height, width, 3), not {shown(picture)}")
        except EnvironmentFault as fault:
            self.advise(str(fault))

    def _action(self, generator: np.random.Generator) -> Any:
        row = uniform_actions(*self.bounds, len(self.actions.choices), generator, 1)[0]
        return self.actions.decode(row)

    def _copied(self, observation: Any) -> Any:
        """Return an observation to compare; an environment may go on to use its array."""
        try:
            if not self.observations.box:
                return self.observations.flatten(observation)
            return np.array(numbers(observation, "an observation"), np.float64)
        except (WrongAnswer, Misfit):
            return np.empty(0)  # said by the longer trial

    def _check_reproducible(self) -> None:
        """Reset twice with one seed and take the same steps: everything must come out equal."""
        self.found.seeds_repeat = _equal(self._short_run(seed=7), self._short_run(seed=7))
        if not self.found.seeds_repeat:
            self.advise(
                "reset(seed=...) is not reproducible: the same seed and actions gave other "
                "observations. Draw random numbers from self.np_random only, after "
                "super().reset(seed=seed)."
            )

    def _look_at_randomness(self) -> None:
        """Save what is random, take steps, put it back: they must come out equal again."""
        with ForeignCall("random_state()", code=self.env):
            saved = random_state_of(self.env)
        first = self._short_run(seed=None)
        if saved is not None:  # otherwise nothing may be random
            with ForeignCall("set_random_state()", code=self.env):
                set_random_state_of(self.env, saved)
        self.found.exact_resume = _equal(first, self._short_run(seed=None))

    def _short_run(self, seed: int | None) -> list[Any]:
        """Return the observations of a reset and up to three steps, always the same ones."""
        generator, observations = np.random.default_rng(5), [self._copied(self._reset(seed=seed))]
        for _ in range(3):
            try:
                with ForeignCall("step()"):
                    answer = self.env.step(self._action(generator))
                    observation, _, _, terminated, truncated, _ = split_step(answer)
                    ended = truth(terminated, "terminated") or truth(truncated, "truncated")
            except CspoError:
                break  # said by the longer trial
            if ended:
                break
            observations.append(self._copied(observation))
        return observations

    def _check_steps(self, steps: int, seconds: float) -> None:
        """Take random steps and look at everything that comes back."""
        generator, observation = np.random.default_rng(0), self._reset(seed=2)
        deadline = time.perf_counter() + seconds
        episodes = 0
        for _ in range(steps):
            observation, ended = self._step(observation, self._action(generator))
            if ended:
                episodes += 1
                with self.found.tally:
                    observation = self._reset(seed=None)
                self.check_observation(observation, "reset()")
            if time.perf_counter() > deadline:
                break
        if time_limit_of(self.env) is None and episodes == 0:
            self.advise(
                "It has no time limit, and no episode ended in the trial: wrap it in "
                "gymnasium.wrappers.TimeLimit, or register it with max_episode_steps."
            )

    def _step(self, before: Any, action: Any) -> tuple[Any, bool]:
        """Take one step; return the observation and whether the episode ended."""
        before = np.array(before) if self.observations.box else deepcopy(before)
        with ForeignCall("step()", code=self.env):
            with self.found.tally:
                answer = self.env.step(action)
            observation, reward, cost, terminated, truncated, info = split_step(answer)
        if self.num_values not in (None, len(answer)):
            both = "sometimes returns five values and sometimes six"
            self.advise(f"step() {both}: return the same number always.")
        self.num_values = len(answer)
        self.check_observation(observation, "step()")
        self.check_reward(reward)
        flags = [self.flag("terminated", terminated), self.flag("truncated", truncated)]
        costs = self.check_cost(cost, answer, before, action, info)
        if self.found.trainable:
            self.found.tally.add(number(reward, "a reward"), [costs], [any(flags)])
        return observation, any(flags)


def _equal(first: list[Any], second: list[Any]) -> bool:
    """Whether two runs gave the same observations."""
    same = [np.array_equal(*pair, equal_nan=True) for pair in zip(first, second, strict=False)]
    return len(first) == len(second) and all(same)


def uniform_actions(
    low: FloatArray, high: FloatArray, choices: int, generator: np.random.Generator, rows: int
) -> FloatArray:
    """Return flat actions (rows, A) within bounds; the last `choices` columns whole numbers."""
    low, high = np.maximum(low, -1e3), np.minimum(high, 1e3)
    high = np.maximum(low, high) + (np.arange(len(low)) >= len(low) - choices)
    actions = generator.uniform(low, high, (rows, len(low)))
    if choices:
        actions[:, -choices:] = np.floor(actions[:, -choices:])
    return actions
