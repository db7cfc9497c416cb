"""`check_env`: says in words what an environment does wrong for training here."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.batch import BatchEnv, FloatArray, extras_of
from cspo.envs.examination import Examination, Tally
from cspo.envs.foreign import ForeignCall
from cspo.envs.given import CostFunction, Environment
from cspo.envs.make import factory_of, is_batch_env, is_environment, make_batch, sizes_left_open
from cspo.envs.tasks import native_name
from cspo.envs.trial import Trial, uniform_actions
from cspo.envs.vector_facts import is_vector_env
from cspo.envs.words import words_of_actions, words_of_vector
from cspo.errors import CspoError, EnvironmentFault, told, users_place

TRIAL_STEPS = 2000  # random steps of one trial
TRIAL_SECONDS = 3.0  # ... unless the environment is slow
COPIES = 2  # of an environment, in the trial of what training makes of it


def check_env(
    env: Environment,
    cost_fn: CostFunction | None = None,
    cost_terms: Sequence[str] = (),
    env_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Try an environment with random actions and return what is wrong with it, one sentence each.

    It raises nothing but Ctrl-C: whatever an environment does is one of the sentences.

    Args:
        env: A task name, a Gymnasium id, "module:factory", a factory, an environment, or a
            `BatchEnv`. Your own environment is reset and stepped but not closed; reset it before
            you use it again. What a factory makes is closed.
        cost_fn: The cost function you would train with, if the environment has no cost of its own.
        cost_terms: The terms of its cost you would constrain one by one.
        env_options: The keyword arguments you would make it with.

    Returns:
        The problems found; an empty list means the environment is fit for training.
    """
    return examine(env, cost_fn, cost_terms, env_options).problems


def examine(
    env: Environment,
    cost_fn: CostFunction | None = None,
    cost_terms: Sequence[str] = (),
    env_options: Mapping[str, Any] | None = None,
    *,
    steps: int | None = None,
    seconds: float = TRIAL_SECONDS,
) -> Examination:
    """Try an environment with random actions and return all that is known of it then.

    It raises nothing but Ctrl-C. The other arguments are those of `check_env`.

    Args:
        env: The environment.
        cost_fn: Its cost function, if any.
        cost_terms: Terms of its cost.
        env_options: Its keyword arguments.
        steps: Random steps to take at most.
        seconds: How long to take them at most.
    """
    found = Examination()
    wanted = TRIAL_STEPS if steps is None else steps
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same faults, said less plainly
            _check(env, cost_fn, tuple(cost_terms), env_options or {}, found, (wanted, seconds))
    except KeyboardInterrupt:
        raise
    except CspoError as fault:
        found.add_fault(str(fault))
    except BaseException as fault:
        place = users_place(fault)
        found.add_fault(f"It raised {told(fault)}" + (f" ({place})." if place else "."))
    return found


def _check(
    env: Any,
    cost_fn: Any,
    cost_terms: tuple[str, ...],
    options: Mapping[str, Any],
    found: Examination,
    most: tuple[int, float],
) -> None:
    """Add what is found: one environment by itself, then as training uses it.

    `most` is how many steps to take, and for how many seconds.
    """
    native = isinstance(env, str) and native_name(env) is not None
    given = is_environment(env) or is_batch_env(env)
    factory = None if given or native else factory_of(env, options)
    whole = native or is_batch_env(env) or is_vector_env(env)
    whole = whole or (factory is not None and bool(sizes_left_open(factory, options)))
    if not whole:
        one = env
        if factory is not None:
            with ForeignCall("construction", code=factory):
                one = factory()
        trial = Trial(one, cost_fn, cost_terms, found)
        try:
            trial.run(*most)
        finally:
            if factory is not None:
                trial.close()
        if not found.trainable:
            return
    copies = 1 if is_environment(env) else COPIES
    batch = make_batch(env, copies, 1, cost_fn, cost_terms, None if given else options)
    try:
        if whole:
            _describe(batch, found)
            _try_seeds(batch, found)
            _try_batch(batch, found.tally, *most)
        else:
            _try_batch(batch, Tally(batch.num_envs), TRIAL_STEPS // 4, TRIAL_SECONDS / 2)
    finally:
        if not given:
            batch.close()


def _describe(batch: BatchEnv, found: Examination) -> None:
    """Keep what a `BatchEnv` says of itself."""
    unbounded = np.full(batch.observation_size, np.inf)
    found.observations = words_of_vector(-unbounded, unbounded)
    choices = extras_of(batch).action_choices
    found.actions = words_of_actions(batch.action_low, batch.action_high, choices)
    found.cost_source, found.cost_names = "what step() returns", tuple(batch.cost_names)
    found.time_limit, found.tally = batch.time_limit, Tally(batch.num_envs)


def _try_seeds(batch: BatchEnv, found: Examination) -> None:
    """Reset twice from one seed, and twice from one saved state."""
    first = np.array(batch.reset(seed=7))
    found.seeds_repeat = np.array_equal(first, batch.reset(seed=7))
    saved = batch.random_state()
    first = np.array(batch.reset())
    batch.set_random_state(saved)
    found.exact_resume = np.array_equal(first, batch.reset())


def random_actions(batch: BatchEnv, generator: np.random.Generator) -> FloatArray:
    """Return flat actions (N, A) within the bounds, uniform, the choices whole numbers."""
    choices = len(extras_of(batch).action_choices)
    return uniform_actions(
        *(batch.action_low, batch.action_high, choices, generator), batch.num_envs
    )


def _try_batch(batch: BatchEnv, tally: Tally, steps: int, seconds: float) -> None:
    """Take random steps as training does, and save what it saves; a fault is raised."""
    generator, deadline = np.random.default_rng(1), time.perf_counter() + seconds
    batch.reset(seed=3)
    for _ in range(max(steps, 1)):
        actions = random_actions(batch, generator)
        with tally:
            result = batch.step(actions)
        for name, values in result._asdict().items():
            if name != "final_observation" and not np.isfinite(values).all():
                copy = int(np.argwhere(~np.isfinite(values))[0][0])
                raise EnvironmentFault(f"step() gave a non-finite {name} (copy {copy}).")
        tally.add(result.reward, result.cost, result.terminated | result.truncated)
        if time.perf_counter() > deadline:
            break
    batch.set_random_state(batch.random_state())
    batch.reset()
