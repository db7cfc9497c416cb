"""The one door to environments: whatever a user calls an environment becomes a `BatchEnv`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import find_highest_version, parse_env_id

from cspo.envs.batch import BatchEnv
from cspo.envs.foreign import ForeignCall
from cspo.envs.foreign_batch import surrounded
from cspo.envs.given import CostFunction, Environment
from cspo.envs.gym_batch import GymBatchEnv
from cspo.envs.modules import check_factory, import_of_user
from cspo.envs.native import check_native, make_native
from cspo.envs.settings import WorkerSettings
from cspo.envs.tasks import FACTS, NAMESPACE, native_name
from cspo.envs.vector_batch import VectorBatchEnv
from cspo.envs.vector_facts import is_vector_env
from cspo.envs.workers.batch import WorkerBatchEnv
from cspo.errors import CspoError, nearest, users_place

_BATCH_ENV_NAMES = (
    *("num_envs", "observation_size", "action_size", "cost_names"),
    *("random_state", "set_random_state"),
)


def make_batch(
    env: Environment,
    num_envs: int,
    threads: int = 1,
    cost_fn: CostFunction | None = None,
    cost_terms: Sequence[str] = (),
    env_options: Mapping[str, Any] | None = None,
    workers: WorkerSettings | int = 0,
) -> BatchEnv:
    """Return `num_envs` copies of `env` as a `BatchEnv`.

    Args:
        env: A native task ("SafetyHopperVelocity-v1"), a Gymnasium id, "module:factory", a factory
            (called once per copy, or once for all if it takes `num_envs`), one environment (then
            `num_envs` must be 1), a Gymnasium `VectorEnv`, or a `BatchEnv`; one of your own comes
            back in a shell that says what goes wrong in it.
        num_envs: Number of copies; a `BatchEnv` or `VectorEnv` brings its own.
        threads: Threads that step a native task; other environments are stepped one after another.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without
            its own cost.
        cost_terms: Terms of the cost to constrain one by one, K of them: those of a native task
            (`cspo tasks`), or, of any other environment, the values `info["cost_TERM"]` of a step.
        env_options: Keyword arguments for a native task, for `gymnasium.make` or for the factory.
        workers: Processes over which the copies are spread, for slow environments that are made by
            a name or an importable factory; 0 steps them in this process.

    Raises:
        CspoError: Says in words what is wrong with the name or the environment.
    """
    options, terms = dict(env_options or {}), tuple(cost_terms)
    spread = WorkerSettings(workers) if isinstance(workers, int) else workers
    if cost_fn is not None and terms:
        raise CspoError("cost_fn and cost_terms both say what the cost is: give one of them.")
    _check_object(env, options, spread.workers)
    if is_batch_env(env) or is_vector_env(env):
        return _adapted(env, cost_fn, terms)
    if num_envs < 1:
        raise CspoError(f"num_envs must be at least 1, not {num_envs}.")
    if isinstance(env, str) and (name := native_name(env)) is not None:
        if cost_fn is not None:
            wrap = f"wrap the Gymnasium id {NAMESPACE}{name}"
            raise CspoError(f"{name} has its own cost: leave cost_fn out, or {wrap}.")
        check_native(name, terms, options, spread.workers)
        return make_native(name, num_envs, threads, terms, **options)
    if is_environment(env):
        if num_envs != 1:
            copies = f"one environment cannot be stepped as {num_envs} copies"
            raise CspoError(f"{copies}: pass a factory that makes a new one, or num_envs=1.")
        return GymBatchEnv([env], 1, cost_fn, cost_terms=terms)
    if spread.workers:
        return WorkerBatchEnv(env, num_envs, spread, cost_fn, terms, options)
    factory, label = factory_of(env, options), env if isinstance(env, str) else None
    if sizes := sizes_left_open(factory, options):
        made = _call_once(factory, sizes, num_envs=num_envs, threads=threads)
        return _adapted(made, cost_fn, terms, label, made_here=True)
    return GymBatchEnv(factory, num_envs, cost_fn, label, cost_terms=terms)


def _adapted(
    env: Any,
    cost_fn: CostFunction | None,
    terms: tuple[str, ...],
    label: str | None = None,
    made_here: bool = False,
) -> BatchEnv:
    """Return an environment that steps all its copies itself as one of ours."""
    if is_vector_env(env):
        return VectorBatchEnv(env, cost_fn, label, terms, made_here)
    if terms not in ((), tuple(env.cost_names)):
        given = ", ".join(env.cost_names)
        raise CspoError(f"this BatchEnv gives the costs {given}, not {', '.join(terms)}.")
    return surrounded(env)


def _check_object(env: Any, options: Mapping[str, Any], workers: int) -> None:
    """Refuse options and workers for an environment that is there already, in this process."""
    if options and is_environment(env):
        made = "an environment that is made by name or by a factory"
        raise CspoError(f"env_options are for {made}, not for an object.")
    if workers and (is_environment(env) or is_batch_env(env)):
        needed = "pass a function that makes one, or its name, or set workers to 0"
        raise CspoError(f"an object cannot be stepped in other processes: {needed}.")


def is_environment(env: Any) -> bool:
    """Whether `env` is an environment itself, rather than a name or something that makes one."""
    return hasattr(env, "step") and hasattr(env, "reset") and not isinstance(env, type)


def is_batch_env(env: Any) -> bool:
    """Whether `env` is a `BatchEnv`, told by its attributes: no inheritance is needed."""
    return not isinstance(env, type) and all(hasattr(env, name) for name in _BATCH_ENV_NAMES)


def factory_of(env: Any, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return what makes `env` with `options`: a Gymnasium id, "module:factory" or a factory."""
    if isinstance(env, str):
        return _factory_called(env, options)
    if not callable(env):
        known = "a name, an object or a function that makes one"
        raise CspoError(f"an environment is {known}, not {type(env).__name__}.")
    return _with_options(env, getattr(env, "__name__", "the factory"), options)


def sizes_left_open(factory: Callable[..., Any], options: Mapping[str, Any]) -> set[str]:
    """Return which of `num_envs` and `threads` a factory takes that makes a whole `BatchEnv`.

    Such a factory has a parameter `num_envs` that the options leave open; of others it is none.
    """
    try:
        known = inspect.signature(factory).parameters.keys()
    except ValueError:  # some compiled functions do not tell
        return set()
    left_open = {"num_envs", "threads"} & known - options.keys()
    return left_open if "num_envs" in left_open else set()


def _call_once(factory: Callable[..., Any], sizes: set[str], **values: int) -> Any:
    with ForeignCall("the function that makes the environment", code=factory):
        made = factory(**{name: values[name] for name in sizes})
    if not is_batch_env(made) and not is_vector_env(made):
        needed = (
            "a function that takes num_envs makes all copies at once, as a BatchEnv or VectorEnv"
        )
        raise CspoError(f"{needed}; this one returned {type(made).__name__}.")
    return made


def _with_options(
    factory: Callable[..., Any], name: str, options: Mapping[str, Any]
) -> Callable[[], Any]:
    """Return `factory` with its keyword arguments filled in, or name a wrong or missing one."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some compiled functions do not tell
        return functools.partial(factory, **options)
    known = signature.parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        for option in options:
            if option not in known:
                hint = nearest(option, known) if known else "it has none."
                raise CspoError(f"{name} has no option {option!r}: {hint}")
    try:
        signature.bind(**options, **dict.fromkeys(sizes_left_open(factory, options), 1))
    except TypeError as fault:
        raise CspoError(f"{name} cannot be called with the env_options given: {fault}.") from None
    return functools.partial(factory, **options)


def _factory_called(name: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return what makes the environment of that name: a module's factory, or Gymnasium."""
    module_name, colon, rest = name.partition(":")
    if colon:
        module = import_of_user(module_name, name)
        if callable(factory := getattr(module, rest, None)):
            check_factory(factory, name)
            return _with_options(factory, name, options)
        # "module:Id-v0" is Gymnasium's own way to import a module that registers ids.
        if rest not in gymnasium.registry:
            callables = [key for key, value in vars(module).items() if callable(value)]
            public = [key for key in callables if not key.startswith("_")]
            raise CspoError(f"{module_name} has no function or id {rest!r}{_hint(rest, public)}")
        name = rest
    if name not in gymnasium.registry and _newest_version(name) is None:
        hint = _hint(name, [*gymnasium.registry, *FACTS]) or ": see `cspo tasks`."
        raise CspoError(f"there is no environment {name!r}{hint}")
    return functools.partial(_make_gymnasium, name, options)


def _make_gymnasium(name: str, options: Mapping[str, Any]) -> Any:
    try:
        return gymnasium.make(name, **options)
    except (gymnasium.error.Error, ImportError) as fault:
        if users_place(fault) is not None:  # told by the line of the environment it came from
            raise
        raise CspoError(f"Gymnasium cannot make {name}: {fault}") from fault
    except TypeError as fault:
        if not options or users_place(fault) is not None:
            raise
        given = f"{name} with the options {', '.join(options)}"
        raise CspoError(f"Gymnasium cannot make {given}: {fault}") from fault


def _hint(name: str, names: list[str]) -> str:
    """Return ": did you mean ...?", or the choices if they are few."""
    hint = nearest(name, names)
    return f": {hint}" if hint.startswith("did you mean") or len(names) <= 10 else ""


def _newest_version(name: str) -> int | None:
    """Return the version Gymnasium would take for an id without "-v0", or None if it knows none."""
    try:
        namespace, short, version = parse_env_id(name)
    except Exception:  # Gymnasium's own error for a malformed id
        return None
    return find_highest_version(namespace, short) if version is None else None
