"""One environment tried with random actions, for `check_env`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NoReturn

import numpy as np

from cspo.envs.foreign import ForeignCall, WrongAnswer, number, numbers, truth
from cspo.envs.gym_facts import names_of_costs, time_limit_of
from cspo.envs.gym_step import named_costs, split_step
from cspo.envs.layout import FloatArray, Misfit
from cspo.envs.spaces import action_bounds, layouts_of, space_problem
from cspo.errors import CspoError, EnvironmentFault, shown


class _TrialOver(Exception):
    """What was found makes no sense of looking further."""


class Trial:
    """One environment under test.

    Attributes:
        problems: Those found so far.
        over: Whether training would stop at one of them.
    """

    def __init__(
        self, env: Any, cost_fn: Any, cost_terms: Sequence[str], problems: list[str]
    ) -> None:
        """Nothing is called yet; what is found goes to `problems`."""
        self.env, self.cost_fn, self.cost_terms = env, cost_fn, cost_terms
        self.problems, self.over = problems, False
        self.num_costs: int | None = None
        self.num_values: int | None = None

    def run(self, steps: int, seconds: float) -> None:
        """Run every check that makes sense after the ones before it, the last in random steps."""
        try:
            with ForeignCall("Its description"):
                self._check_spaces()
            self._check_observation(self._reset(seed=1), "reset()")
            self._check_picture()
            self._check_reproducible()
            self._check_steps(steps, seconds)
        except _TrialOver:
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

    def advise(self, problem: str) -> None:
        """Add a problem that training would live with, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def say(self, problem: str) -> None:
        """Add a problem at which training would stop, once."""
        self.over = True
        self.advise(problem)

    def stop(self, problem: str) -> NoReturn:
        """Add a problem, and look no further."""
        self.say(problem)
        raise _TrialOver

    def _check_spaces(self) -> None:
        for what in ("observation", "action"):
            problem = space_problem(self.env, what)
            if problem is not None:
                self.say(f"{problem[0].upper()}{problem[1:]}.")
        if self.problems:
            raise _TrialOver
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

    def _check_observation(self, observation: Any, where: str) -> None:
        space = self.env.observation_space
        if not self.observations.box:
            self._check_nested(observation, where)
            return
        with ForeignCall(where, code=self.env):
            numbers(observation, "an observation")
        array = np.asarray(observation)
        gave, says = f"{where} gave an observation of", "; observation_space says"
        if array.shape != space.shape:
            tell = self.advise if array.size == np.prod(space.shape) else self.say
            tell(f"{gave} shape {array.shape}{says} {space.shape}.")
            return
        if array.dtype != space.dtype:
            self.advise(f"{gave} dtype {array.dtype}{says} {space.dtype}.")
        if not np.isfinite(array.astype(np.float64)).all():
            self.say(f"{where} gave a non-finite observation (NaN or infinity).")
        elif (array < space.low).any() or (array > space.high).any():
            self.advise(f"{where} gave an observation outside the limits of observation_space.")

    def _check_nested(self, observation: Any, where: str) -> None:
        """Check an observation of a space that is not a single box."""
        try:
            row = self.observations.flatten(observation)
        except Misfit as fault:
            self.say(f"{where} gave {fault}.")
            return
        if not np.isfinite(row).all():
            self.say(f"{where} gave a non-finite observation (NaN or infinity).")
        elif not self.env.observation_space.contains(observation):
            self.advise(f"{where} gave an observation that observation_space does not contain.")

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
        first, second = self._short_run(), self._short_run()
        same = [np.array_equal(*pair, equal_nan=True) for pair in zip(first, second, strict=False)]
        if len(first) != len(second) or not all(same):
            self.advise(
                "reset(seed=...) is not reproducible: the same seed and actions gave other "
                "observations. Draw random numbers from self.np_random only, after "
                "super().reset(seed=seed)."
            )

    def _short_run(self) -> list[Any]:
        """Return the observations of a reset and up to three steps, always the same ones."""
        generator, observations = np.random.default_rng(5), [self._copied(self._reset(seed=7))]
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
                observation = self._reset(seed=None)
                self._check_observation(observation, "reset()")
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
            answer = self.env.step(action)
            observation, reward, cost, terminated, truncated, info = split_step(answer)
        if self.num_values not in (None, len(answer)):
            both = "sometimes returns five values and sometimes six"
            self.advise(f"step() {both}: return the same number always.")
        self.num_values = len(answer)
        self._check_observation(observation, "step()")
        self._check_reward(reward)
        flags = [self._flag("terminated", terminated), self._flag("truncated", truncated)]
        self._check_cost(cost, answer, before, action, info)
        return observation, any(flags)

    def _check_reward(self, reward: Any) -> None:
        try:
            if not np.isfinite(number(reward, "a reward")):
                self.say("The reward was not finite (NaN or infinity).")
        except (WrongAnswer, OverflowError):
            self.say(f"The reward must be one number, not {shown(reward)}.")

    def _flag(self, name: str, flag: Any) -> bool:
        """Return whether an episode ended; a flag that is 0 or 1 is a problem, and understood."""
        problem = f"{name} must be True or False, not {shown(flag)}."
        if not isinstance(flag, bool | np.bool_):
            self.advise(problem)
        try:
            return truth(flag, name)
        except WrongAnswer:
            self.stop(problem)

    def _check_cost(
        self, cost: Any, answer: tuple[Any, ...], before: Any, action: Any, info: dict[str, Any]
    ) -> None:
        if self.cost_terms:
            with ForeignCall("It"):
                cost = named_costs(info, self.cost_terms)
        elif self.cost_fn is not None:
            with ForeignCall("cost_fn", code=self.cost_fn):
                cost = self.cost_fn(before, action, answer[0], info)
        elif len(answer) == 6 and "cost" in info and not np.array_equal(info["cost"], cost):
            both = "as its third value and in info['cost']"
            self.advise(f"step() gives two different costs, {both}.")
        if cost is None:
            where = " in some steps" if self.num_costs is not None else ""
            advice = "return info['cost'] in every step, or pass cost_fn=..."
            self.stop(f"It gives no cost{where}: {advice}")
        try:
            values = numbers(cost, "a cost")
        except WrongAnswer:
            self.stop(f"The cost must be a number or a sequence of numbers, not {shown(cost)}.")
        self._check_cost_values(values)

    def _check_cost_values(self, values: Any) -> None:
        if self.num_costs not in (None, values.size):
            counts = f"{self.num_costs} in one step and {values.size} in another"
            self.say(f"The number of costs changes: {counts}.")
        self.num_costs = values.size
        names = None if self.cost_terms else names_of_costs(self.env)
        if names is not None and len(names) != values.size:
            declared = f"{len(names)} costs ({', '.join(names)})"
            self.say(f"It declares {declared} and gives {values.size}.")
        if not np.isfinite(values).all():
            self.say("The cost was not finite (NaN or infinity).")
        elif (values < 0).any():
            meant = "a cost is 0 where nothing is wrong and positive otherwise"
            self.advise(f"The cost was negative: {meant}.")


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
