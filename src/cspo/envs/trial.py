"""One environment tried with random actions, for `check_env`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from cspo.envs.examination import Examination
from cspo.envs.foreign import ForeignCall, WrongAnswer, number, numbers, truth
from cspo.envs.gym_batch import named_costs, split_step
from cspo.envs.gym_facts import (
    names_of_costs,
    numbered_costs,
    random_state_of,
    set_random_state_of,
    space_problem,
    time_limit_of,
)
from cspo.envs.words import words_of_space
from cspo.errors import CspoError, EnvironmentFault, shown


class _TrialOver(Exception):
    """What was found makes no sense of looking further."""


class Trial:
    """One environment under test.

    Attributes:
        found: What is known so far.
    """

    def __init__(
        self, env: Any, cost_fn: Any, cost_terms: Sequence[str], found: Examination
    ) -> None:
        """Nothing is called yet; what is found goes to `found`."""
        self.env, self.cost_fn, self.cost_terms = env, cost_fn, cost_terms
        self.found = found
        self.num_costs: int | None = None
        self.num_values: int | None = None

    def run(self, steps: int, seconds: float) -> None:
        """Run every check that makes sense after the ones before it, the last in random steps."""
        try:
            with ForeignCall("Its description"):
                self._check_spaces()
            if self.found.faults:
                raise _TrialOver
            self._check_observation(self._reset(seed=1), "reset()")
            self._check_picture()
            self._check_reproducible()
            self._look_at_randomness()
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
        self.found.advise(problem)

    def say(self, problem: str) -> None:
        """Add a problem at which training would stop, once."""
        self.found.add_fault(problem)

    def stop(self, problem: str) -> NoReturn:
        """Add a problem, and look no further."""
        self.say(problem)
        raise _TrialOver

    def _check_spaces(self) -> None:
        for what in ("observation", "action"):
            space = getattr(self.env, f"{what}_space", None)
            problem = space_problem(space, what)
            if problem is not None:
                self.say(f"{problem[0].upper()}{problem[1:]}.")
            if space is not None:
                setattr(self.found, f"{what}s", words_of_space(space))
        self.found.time_limit = time_limit_of(self.env)
        if self.found.faults:
            return
        if not (self.env.action_space.low < self.env.action_space.high).all():
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
        with ForeignCall(where, code=self.env):
            numbers(observation, "an observation")
        space, array = self.env.observation_space, np.asarray(observation)
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
        space = self.env.action_space
        low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
        return generator.uniform(low, np.maximum(low, high)).astype(space.dtype)

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
        generator, observations = np.random.default_rng(5), [_copied(self._reset(seed=seed))]
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
            observations.append(_copied(observation))
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
        before = np.array(before)
        with ForeignCall("step()", code=self.env):
            with self.found.tally:
                answer = self.env.step(action)
            observation, reward, cost, terminated, truncated, info = split_step(answer)
        if self.num_values not in (None, len(answer)):
            both = "sometimes returns five values and sometimes six"
            self.advise(f"step() {both}: return the same number always.")
        self.num_values = len(answer)
        self._check_observation(observation, "step()")
        self._check_reward(reward)
        flags = [self._flag("terminated", terminated), self._flag("truncated", truncated)]
        costs = self._check_cost(cost, answer, before, action, info)
        if self.found.trainable:
            self.found.tally.add(number(reward, "a reward"), [costs], [any(flags)])
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
    ) -> Any:
        """Return the costs (K,) of a step."""
        source = "the third of six values" if len(answer) == 6 else 'info["cost"]'
        if self.cost_terms:
            source = ", ".join(f'info["cost_{term}"]' for term in self.cost_terms)
            with ForeignCall("It"):
                cost = named_costs(info, self.cost_terms)
        elif self.cost_fn is not None:
            source = "your cost function"
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
        self.found.cost_source = source
        self._check_cost_values(values)
        return values

    def _check_cost_values(self, values: Any) -> None:
        if self.num_costs not in (None, values.size):
            counts = f"{self.num_costs} in one step and {values.size} in another"
            self.say(f"The number of costs changes: {counts}.")
        self.num_costs = values.size
        names = None if self.cost_terms else names_of_costs(self.env)
        named = names or tuple(self.cost_terms) or numbered_costs(values.size)
        self.found.cost_names = self.found.cost_names or named
        if names is not None and len(names) != values.size:
            declared = f"{len(names)} costs ({', '.join(names)})"
            self.say(f"It declares {declared} and gives {values.size}.")
        if not np.isfinite(values).all():
            self.say("The cost was not finite (NaN or infinity).")
        elif (values < 0).any():
            meant = "a cost is 0 where nothing is wrong and positive otherwise"
            self.advise(f"The cost was negative: {meant}.")


def _equal(first: list[Any], second: list[Any]) -> bool:
    """Whether two runs gave the same observations."""
    same = [np.array_equal(*pair, equal_nan=True) for pair in zip(first, second, strict=False)]
    return len(first) == len(second) and all(same)


def _copied(observation: Any) -> Any:
    """Return an observation to compare; an environment may go on to use its array."""
    try:
        return np.array(numbers(observation, "an observation"), np.float64)
    except WrongAnswer:
        return np.empty(0)  # said by the longer trial
