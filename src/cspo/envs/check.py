"""`check_env`: says in words what an environment does wrong for training here."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.batch import BatchEnv
from cspo.envs.foreign import ForeignCall
from cspo.envs.make import factory_of, is_batch_env, is_environment, make_batch, sizes_left_open
from cspo.envs.native import check_native
from cspo.envs.tasks import NAMESPACE, native_name
from cspo.envs.trial import Trial
from cspo.envs.vector_facts import is_vector_env
from cspo.errors import CspoError, EnvironmentFault, told, users_place

TRIAL_STEPS = 2000  # random steps of one trial
TRIAL_SECONDS = 3.0  # ... unless the environment is slow
COPIES = 2  # of an environment, in the trial of what training makes of it


def check_env(
    env: Any,
    cost_fn: Any = None,
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
    problems: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same faults, said less plainly
            _check(env, cost_fn, tuple(cost_terms), env_options or {}, problems)
    except KeyboardInterrupt:
        raise
    except CspoError as fault:
        problems.append(str(fault))
    except BaseException as fault:
        place = users_place(fault)
        problems.append(f"It raised {told(fault)}" + (f" ({place})." if place else "."))
    return problems


def _check(
    env: Any,
    cost_fn: Any,
    cost_terms: tuple[str, ...],
    options: Mapping[str, Any],
    problems: list[str],
) -> None:
    """Add what is wrong to `problems`: one environment by itself, then as training uses it."""
    what = env
    if isinstance(env, str) and (name := native_name(env)) is not None:
        check_native(name, cost_terms, options)
        what, cost_terms = NAMESPACE + name, ()
    given = is_environment(what) or is_batch_env(what)
    factory = None if given else factory_of(what, options)
    whole = (
        is_batch_env(what)
        or is_vector_env(what)
        or (factory is not None and sizes_left_open(factory, options))
    )
    if not whole:
        one = what
        if factory is not None:
            with ForeignCall("construction", code=factory):
                one = factory()
        trial = Trial(one, cost_fn, cost_terms, problems)
        try:
            trial.run(TRIAL_STEPS, TRIAL_SECONDS)
        finally:
            if factory is not None:
                trial.close()
        if trial.over:
            return
    copies = 1 if is_environment(what) else COPIES
    batch = make_batch(what, copies, 1, cost_fn, cost_terms, None if given else options)
    try:
        _try_batch(batch)
    finally:
        if not given:
            batch.close()


def _try_batch(batch: BatchEnv) -> None:
    """Take random steps as training does, and save what it saves; a fault is raised."""
    generator, deadline = np.random.default_rng(1), time.perf_counter() + TRIAL_SECONDS / 2
    low, high = np.asarray(batch.action_low), np.asarray(batch.action_high)
    batch.reset(seed=3)
    for _ in range(max(TRIAL_STEPS // 4, 1)):
        result = batch.step(generator.uniform(low, high, (batch.num_envs, batch.action_size)))
        for name, values in result._asdict().items():
            if name != "final_observation" and not np.isfinite(values).all():
                copy = int(np.argwhere(~np.isfinite(values))[0][0])
                raise EnvironmentFault(f"step() gave a non-finite {name} (copy {copy}).")
        if time.perf_counter() > deadline:
            break
    batch.set_random_state(batch.random_state())
    batch.reset()
