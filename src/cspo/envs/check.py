"""`check_env`: says in words what an environment does wrong for training here."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from cspo.envs import gym_batch
from cspo.envs.make import factory_of, is_batch_env, is_environment, sizes_left_open
from cspo.envs.native import check_native
from cspo.envs.tasks import NAMESPACE, native_name
from cspo.errors import CspoError

TRIAL_STEPS = 2000  # random steps of one trial
TRIAL_SECONDS = 3.0  # ... unless the environment is slow


def check_env(
    env: Any,
    cost_fn: Any = None,
    cost_terms: Sequence[str] = (),
    env_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Try an environment with random actions and return what is wrong with it, one sentence each.

    Args:
        env: A task name, a Gymnasium id, "module:factory", a factory, or an environment. Your own
            environment is reset and stepped but not closed; reset it before you use it again.
        cost_fn: The cost function you would train with, if the environment has no cost of its own.
        cost_terms: The terms of its cost you would constrain one by one.
        env_options: The keyword arguments you would make it with.

    Returns:
        The problems found; an empty list means the environment is fit for training.

    Raises:
        CspoError: There is no such environment, or it does not take these options.
    """
    if isinstance(env, str) and (name := native_name(env)) is not None:
        check_native(name, cost_terms, env_options or {})
        env, cost_terms = NAMESPACE + name, ()
    options = env_options or {}
    factory = None if is_environment(env) or is_batch_env(env) else factory_of(env, options)
    if is_batch_env(env) or (factory is not None and sizes_left_open(factory, options)):
        raise CspoError(
            "check_env tries single environments: pass the environment, its name or a factory."
        )
    one = env if factory is None else factory()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same faults, said less plainly
            return _Trial(one, cost_fn, cost_terms).run()
    finally:
        if one is not env:
            one.close()


class _TrialOver(Exception):
    """What was found makes no sense of looking further."""


class _Trial:
    """One environment under test, and the problems found so far."""

    def __init__(self, env: Any, cost_fn: Any, cost_terms: Sequence[str]) -> None:
        self.env, self.cost_fn, self.cost_terms = env, cost_fn, cost_terms
        self.problems: list[str] = []
        self.num_costs: int | None = None
        self.num_values: int | None = None

    def run(self) -> list[str]:
        """Run every check that makes sense after the ones before it."""
        with contextlib.suppress(_TrialOver):
            self._check_spaces()
            self._check_observation(self._reset(seed=1), "reset()")
            self._check_reproducible()
            self._check_steps()
        return self.problems

    def say(self, problem: str) -> None:
        """Add a problem once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def stop(self, problem: str) -> NoReturn:
        """Add a problem, and look no further."""
        self.say(problem)
        raise _TrialOver

    def _check_spaces(self) -> None:
        for what in ("observation", "action"):
            problem = gym_batch.space_problem(getattr(self.env, f"{what}_space", None), what)
            if problem is not None:
                self.say(f"{problem[0].upper()}{problem[1:]}.")
        if self.problems:
            raise _TrialOver
        if not (self.env.action_space.low < self.env.action_space.high).all():
            self.say("The range of its actions is empty: action_space.low must be below high.")

    def _reset(self, seed: int | None) -> Any:
        """Return the first observation of an episode."""
        try:
            answer = self.env.reset(seed=seed) if seed is not None else self.env.reset()
        except Exception as fault:
            hint = ": it must accept reset(seed=...)" if isinstance(fault, TypeError) else ""
            self.stop(f"reset() raised {type(fault).__name__}: {fault}{hint}")
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            self.stop("reset() must return (observation, info), with info a dict.")
        return answer[0]

    def _check_observation(self, observation: Any, where: str) -> None:
        space, array = self.env.observation_space, np.asarray(observation)
        gave, says = f"{where} gave an observation of", "; observation_space says"
        if array.shape != space.shape:
            self.say(f"{gave} shape {array.shape}{says} {space.shape}.")
            return
        if array.dtype != space.dtype:
            self.say(f"{gave} dtype {array.dtype}{says} {space.dtype}.")
        if not np.isfinite(array.astype(np.float64)).all():
            self.say(f"{where} gave a non-finite observation (NaN or infinity).")
        elif (array < space.low).any() or (array > space.high).any():
            self.say(f"{where} gave an observation outside the limits of observation_space.")

    def _action(self, generator: np.random.Generator) -> Any:
        space = self.env.action_space
        low, high = np.maximum(space.low, -1e3), np.minimum(space.high, 1e3)
        return generator.uniform(low, np.maximum(low, high)).astype(space.dtype)

    def _check_reproducible(self) -> None:
        """Reset twice with one seed and take the same steps: everything must come out equal."""
        first, second = self._short_run(), self._short_run()
        same = [np.array_equal(*pair, equal_nan=True) for pair in zip(first, second, strict=False)]
        if len(first) != len(second) or not all(same):
            self.say(
                "reset(seed=...) is not reproducible: the same seed and actions gave other "
                "observations. Draw random numbers from self.np_random only, after "
                "super().reset(seed=seed)."
            )

    def _short_run(self) -> list[Any]:
        """Return the observations of a reset and up to three steps, always the same ones."""
        generator, observations = np.random.default_rng(5), [self._reset(seed=7)]
        for _ in range(3):
            try:
                answer = self.env.step(self._action(generator))
                observation, _, _, terminated, truncated, _ = gym_batch.split_step(answer, "")
            except Exception:
                break  # said by the longer trial
            if terminated or truncated:
                break
            observations.append(observation)
        return [np.array(one, np.float64) for one in observations]

    def _check_steps(self) -> None:
        """Take random steps and look at everything that comes back."""
        generator, observation = np.random.default_rng(0), self._reset(seed=2)
        deadline = time.perf_counter() + TRIAL_SECONDS
        episodes = 0
        for _ in range(TRIAL_STEPS):
            observation, ended = self._step(observation, self._action(generator))
            if ended:
                episodes += 1
                observation = self._reset(seed=None)
                self._check_observation(observation, "reset()")
            if time.perf_counter() > deadline:
                break
        if gym_batch.time_limit_of(self.env) is None and episodes == 0:
            self.say(
                "It has no time limit, and no episode ended in the trial: wrap it in "
                "gymnasium.wrappers.TimeLimit, or register it with max_episode_steps."
            )

    def _step(self, before: Any, action: Any) -> tuple[Any, bool]:
        """Take one step; return the observation and whether the episode ended."""
        before = np.array(before)
        try:
            answer = self.env.step(action)
        except Exception as fault:
            self.stop(f"step() raised {type(fault).__name__}: {fault}")
        try:
            split = gym_batch.split_step(answer, "the environment")
        except CspoError as fault:
            self.stop(str(fault))
        observation, reward, cost, terminated, truncated, info = split
        if self.num_values not in (None, len(answer)):
            both = "sometimes returns five values and sometimes six"
            self.say(f"step() {both}: return the same number always.")
        self.num_values = len(answer)
        self._check_observation(observation, "step()")
        value = _numbers(reward)
        if value is None or value.size != 1:
            self.say(f"The reward must be one number, not {reward!r}.")
        elif not np.isfinite(value).all():
            self.say("The reward was not finite (NaN or infinity).")
        self._check_flags(terminated, truncated, info)
        self._check_cost(cost, answer, before, action)
        return observation, bool(terminated) or bool(truncated)

    def _check_flags(self, terminated: Any, truncated: Any, info: Any) -> None:
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                self.say(f"{name} must be True or False, not {flag!r}.")
        if not isinstance(info, dict):
            self.say(f"info must be a dict, not {type(info).__name__}.")

    def _check_cost(self, cost: Any, answer: tuple[Any, ...], before: Any, action: Any) -> None:
        info = answer[-1] if isinstance(answer[-1], dict) else {}
        if self.cost_terms:
            try:
                cost = gym_batch.named_costs(info, self.cost_terms, "It")
            except CspoError as fault:
                self.stop(str(fault))
        elif self.cost_fn is not None:
            try:
                cost = self.cost_fn(before, action, answer[0], info)
            except Exception as fault:
                self.stop(f"cost_fn raised {type(fault).__name__}: {fault}")
        elif len(answer) == 6 and "cost" in info and not np.array_equal(info["cost"], cost):
            self.say("step() gives two different costs, as its third value and in info['cost'].")
        if cost is None:
            where = " in some steps" if self.num_costs is not None else ""
            advice = "return info['cost'] in every step, or pass cost_fn=..."
            self.stop(f"It gives no cost{where}: {advice}")
        values = _numbers(cost)
        if values is None:
            self.stop(f"The cost must be a number or a sequence of numbers, not {cost!r}.")
        self._check_cost_values(values)

    def _check_cost_values(self, values: Any) -> None:
        if self.num_costs not in (None, values.size):
            counts = f"{self.num_costs} in one step and {values.size} in another"
            self.say(f"The number of costs changes: {counts}.")
        self.num_costs = values.size
        names = None if self.cost_terms else gym_batch.names_of_costs(self.env)
        if names is not None and len(names) != values.size:
            declared = f"{len(names)} costs ({', '.join(names)})"
            self.say(f"It declares {declared} and gives {values.size}.")
        if not np.isfinite(values).all():
            self.say("The cost was not finite (NaN or infinity).")
        elif (values < 0).any():
            meant = "a cost is 0 where nothing is wrong and positive otherwise"
            self.say(f"The cost was negative: {meant}.")


def _numbers(value: Any) -> Any:
    """Return `value` as a flat float array, or None if it is not made of numbers."""
    try:
        return np.asarray(value, np.float64).reshape(-1)
    except (TypeError, ValueError):
        return None
