"""What a run is made of, from its settings: environment, limits, policy, learner, algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.algorithms import get_algorithm
from cspo.algorithms.learner import Learner
from cspo.config import TrainConfig, with_settings
from cspo.envs import BatchEnv, make_batch
from cspo.envs.batch import Extras, extras_of
from cspo.envs.layout import ObservationLayout
from cspo.envs.make import is_batch_env
from cspo.envs.modules import names_code
from cspo.envs.vector_facts import is_vector_env
from cspo.errors import CspoError
from cspo.experience.episodes import cost_without_episodes
from cspo.experience.limits import Limits
from cspo.optim.minibatch import MinibatchLearner
from cspo.policy.distribution import Distribution
from cspo.policy.network import Network, is_named, is_object, network_of
from cspo.policy.networks import parameter_count
from cspo.policy.policy import Policy
from cspo.settings import check_memory
from cspo.streams import stream
from cspo.types import ExtraStreamRule, FloatArray, Rollout


def object_label(env: Any) -> str:
    """Return what stands for an environment, or a network, in the settings: `<ClassName>`."""
    return f"<{getattr(env, '__name__', type(env).__name__).strip('<>')}>"


def copies_of(env: Any) -> int | None:
    """Return how many copies an environment object stands for, or None for a factory."""
    if is_batch_env(env) or is_vector_env(env):
        return int(env.num_envs)
    return 1 if hasattr(env, "step") and not isinstance(env, type) else None


def environment_for(config: TrainConfig, env: Any) -> Any:
    """Return what to make the environment from: `env`, or what the settings name."""
    if env is None and config.task.startswith("<"):
        raise CspoError(
            f"This run was trained on the Python object {config.task}, which a run folder cannot "
            "hold: pass it again as env=, from Python."
        )
    if env is not None:
        return env
    if config.folder is not None and names_code(config.task, config.environment.env_options):
        raise CspoError(
            f"The settings read from {config.folder} import nothing by themselves: pass env=, or "
            "trust=True to cspo.evaluate, cspo.record or cspo.resume (see SECURITY.md)."
        )
    return config.task


def make_environment(
    config: TrainConfig,
    env: Any,
    cost_fn: Any,
    num_envs: int | None = None,
    env_options: dict[str, Any] | None = None,
    workers: int = 0,
) -> BatchEnv:
    """Return copies of a run's environment; as many as it trains on, or `num_envs`.

    `env_options` take the place of those in the settings. What is not for training is spread over
    `workers`, and a worker that fails there is not started again.
    """
    named = environment_for(config, env)
    if num_envs is None:  # for training, of which the sizes are not known yet: the smallest
        check_training_memory(config)
    return make_batch(
        named,
        config.run.num_envs if num_envs is None else num_envs,
        config.run.resolved_threads,
        cost_fn,
        config.environment.cost_terms,
        config.environment.env_options if env_options is None else env_options,
        config.parallel if num_envs is None else workers,
    )


def check_training_memory(config: TrainConfig) -> None:
    """Refuse settings that cannot fit into memory whatever the sizes of the environment are."""
    check_memory("Training with these settings", training_bytes(config, 1, Distribution(1)))


def training_bytes(
    config: TrainConfig, observation_size: int, distribution: Distribution
) -> dict[str, int]:
    """Return the bytes that training takes at least, by the setting that decides them.

    The networks are the compiled ones.
    """
    num_costs, hidden = len(config.cost_limit), config.policy.hidden_sizes
    outputs = (distribution.output_size, *[1] * (1 + num_costs))
    layers = [(observation_size, *hidden, size) for size in outputs]
    parameters = sum(map(parameter_count, layers))
    row = sum(sizes[0] + sum(sizes[1:]) + 2 * max(sizes[1:]) for sizes in layers)
    return {
        "--hidden-sizes": 16 * parameters,  # with their gradient and Adam's two moments
        "--steps-per-epoch": _epoch_bytes(config, 4 * observation_size, distribution),
        "--minibatch-size": config.update.minibatch_size * 4 * row,
    }


def _epoch_bytes(config: TrainConfig, observation: int, distribution: Distribution) -> int:
    """Return what the samples of an epoch take, given the bytes of an observation."""
    # Noise, action and outputs in float32; reward and costs in float64, advantages and targets in
    # float32; two flags.
    acting = 8 * distribution.action_size + 4 * distribution.output_size
    sample = observation + acting + 20 + 16 * len(config.cost_limit)
    return config.run.steps_per_epoch * sample


def limits_for(config: TrainConfig, cost_names: tuple[str, ...]) -> Limits:
    """Return the limits of a run or say how many are needed."""
    if len(config.cost_limit) != len(cost_names):
        raise CspoError(
            f"{config.task} has {len(cost_names)} cost(s) ({', '.join(cost_names)}), but "
            f"--cost-limit gives {len(config.cost_limit)} value(s). Give one limit per cost, "
            "separated by commas; schedules by semicolons."
        )
    return Limits(config.cost_limit)


def environment_facts(env: Any, cost_fn: Any) -> dict[str, Any]:
    """Return what a checkpoint keeps of the environment: to act without it, and to recognise it."""
    return {
        "observation_size": int(env.observation_size),
        "action_size": int(env.action_size),
        "action_low": np.array(env.action_low, dtype=np.float64),
        "action_high": np.array(env.action_high, dtype=np.float64),
        "cost_names": list(env.cost_names),
        "cost_fn": cost_fn is not None,
        "time_limit": env.time_limit,
        "clip_actions": bool(getattr(env, "clip_actions", False)),
        **_space_facts(extras_of(env)),
    }


def _space_facts(extras: Extras) -> dict[str, Any]:
    seen, done, mask = extras.observation_layout, extras.action_layout, extras.observation_as_is
    return {
        "action_choices": list(extras.action_choices),
        "observation_as_is": None if mask is None else np.array(mask),
        "observation_space": None if seen is None else seen.description,
        "action_space": None if done is None else done.description,
    }


# Of checkpoints that were written before there were other spaces than boxes.
EARLIER_FACTS = _space_facts(Extras())


def check_facts(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue a run on an environment that differs from the one it started on."""
    if saved["cost_fn"] and not now["cost_fn"]:
        raise CspoError("This run used a cost_fn: pass the same one again.")
    if now["cost_fn"] and not saved["cost_fn"]:
        raise CspoError("This run used no cost_fn: leave it out.")
    for name, value in now.items():
        if name not in saved and name in EARLIER_FACTS:
            continue
        before = np.asarray(saved[name])
        if not np.array_equal(before, np.asarray(value)):
            raise CspoError(
                "The environment has changed since the run started: "
                f"{name.replace('_', ' ')} is {value}, and was {before.tolist()}."
            )


def with_network(config: TrainConfig, policy: str | Network | None) -> TrainConfig:
    """Return settings that tell of the network given: its name, or what stands for an object."""
    if policy is None or is_object(config.policy.network) or is_named(config.policy.network):
        return config
    name = policy if isinstance(policy, str) else object_label(policy)
    return with_settings(config, network=name)


def observation_layout(env: Any) -> ObservationLayout | None:
    """Return the layout of the observations of an environment, or of its facts, if it has one."""
    described = getattr(env, "observation_space", None)
    if isinstance(described, dict):  # facts
        return ObservationLayout(described)
    return extras_of(env).observation_layout


def network_for(config: TrainConfig, policy: str | Network | None, env: Any) -> Network | None:
    """Return what makes the networks of a run, or None for the compiled ones.

    Args:
        config: The settings.
        policy: What the user gave for it: an object, or a name, which is then imported.
        env: The environment, or its facts.
    """
    name = config.policy.network
    if policy is None and is_object(name):
        raise CspoError(
            f"This run was trained with the Python object {name} for a network, which a run folder "
            "cannot hold: pass it again as policy=, from Python."
        )
    if policy is None and config.folder is not None and is_named(name):
        raise CspoError(
            f"The settings read from {config.folder} import nothing by themselves: pass policy=, "
            "or trust=True (see SECURITY.md)."
        )
    given = name if policy is None else policy
    return network_of(given, observation_layout(env), config.policy.hidden_sizes)


def build_policy(
    config: TrainConfig,
    env: Any,
    extra_critics: int | None = None,
    policy: str | Network | None = None,
) -> Policy:
    """Return the untrained policy of a run; `env` has the sizes, an environment or its facts.

    How many extra critics there are is asked of the algorithm, unless it is told. `policy` is the
    network that the user gave.
    """
    num_costs, rng = len(env.cost_names), stream(config.run.seed, "networks")
    if extra_critics is None:
        extra_critics = num_costs if hasattr(get_algorithm(config.algo), "extra_stream") else 0
    choices, as_is = extras_of(env)[:2]
    network, layout = network_for(config, policy, env), observation_layout(env)
    if network is None:
        distribution = Distribution.of(env.action_size, choices)
        needed = training_bytes(config, env.observation_size, distribution)
        networks = needed["--hidden-sizes"] // 2  # without the moments
        check_memory("The networks", {"--hidden-sizes": networks})
    return Policy(
        *(env.observation_size, env.action_size, num_costs, config.policy, rng),
        choices=choices,
        as_is=as_is,
        extra_critics=extra_critics,
        network=network,
        shape=None if layout is None else layout.shape,
        image=network is not None and layout is not None and layout.is_image,
    )


def build_learner(
    config: TrainConfig, policy: Policy, rng: np.random.Generator
) -> MinibatchLearner:
    """Return what fits the networks of `policy`, on minibatches drawn from `rng`."""
    size, distribution = policy.observation_size, policy.actor.distribution
    needed = training_bytes(config, size, distribution)
    if policy.signature is not None:
        bytes_of_one = size * policy.normaliser.dtype().itemsize
        needed = {
            "the network": 16 * (policy.actor.parameters.size + policy.critics.parameters.size),
            "--steps-per-epoch": _epoch_bytes(config, bytes_of_one, distribution),
            "--minibatch-size": config.update.minibatch_size * 4 * size,
        }
    check_memory("Training with these settings", needed)
    return MinibatchLearner(policy, config.update, rng, config.run.resolved_threads)


def build_algorithm(config: TrainConfig, learner: Learner, num_costs: int) -> Any:
    """Return the algorithm of a run, at its beginning."""
    kind, discount = get_algorithm(config.algo), config.advantages.of_costs
    form = getattr(kind, "forms", {}).get(getattr(config.algorithm, "form", None), kind)
    return form(config.algorithm, learner, num_costs, discount)


def violation_rate(config: TrainConfig) -> float | None:
    """Return the share of epochs that may violate, or None where a run keeps no margin."""
    by_default = "on" if getattr(config.algorithm, "keeps_margin", False) else "off"
    wanted = by_default if config.limits.margin == "auto" else config.limits.margin
    return config.limits.violation_rate if wanted == "on" else None


def asked_of_credit(
    algorithm: Any, rollout: Rollout, epoch_cost: FloatArray, limit: FloatArray
) -> tuple[ExtraStreamRule | None, FloatArray | float]:
    """Return the extra stream and the unit of cost that an algorithm asks for, if any."""
    extra_stream, unit = getattr(algorithm, "extra_stream", None), 1.0
    if hasattr(algorithm, "cost_unit"):
        # Costs may have occurred in episodes that are still going on, and in no others.
        seen = np.where(epoch_cost > 0.0, epoch_cost, cost_without_episodes(rollout, None))
        unit = algorithm.cost_unit(seen, limit)
    return extra_stream, unit
