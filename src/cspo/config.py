"""Settings: one frozen dataclass, the same from the command line, a TOML file and Python.

Priority, lowest first: the defaults below, the preset of the algorithm for the task's family, a
TOML file, what the caller names. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import types
import typing
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from cspo.algorithms.registry import get_algorithm
from cspo.envs.native import check_native
from cspo.envs.tasks import native_name, native_tasks
from cspo.errors import CspoError, flag, nearest, require_not_negative, require_positive
from cspo.plugins import load_plugin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class TrainConfig:
    """Every setting of a run except the algorithm's own, which are in `algorithm`."""

    task: str
    """A native task, a Gymnasium id, or `module:factory` of your own environment."""
    algo: str = "cspo"
    """Algorithm, see `cspo algos`."""
    plugin: str | None = None
    """File, or module, of yours that registers algorithms, see docs/own-algorithm.md."""
    cost_limit: tuple[float, ...] = (25.0,)
    """Limit d on the mean cost of an episode; one value, or one per constraint as `25,5`."""
    cost_terms: tuple[str, ...] = ()
    """Constrain these terms of the task's cost one by one instead of their sum, as
    `hazards,gremlins`."""
    env_options: dict[str, Any] = field(default_factory=dict, hash=False)
    """Keyword arguments the environment is made with, as `key=value,key=value`; text in quotes."""
    total_steps: int = 10_000_000
    """Environment steps of the whole run."""
    steps_per_epoch: int = 20_000
    """Environment steps between two updates, over all environments together."""
    num_envs: int = 20
    """Parallel environments; all are reset at the start of every epoch."""
    seed: int = 0
    """The run's only source of randomness."""
    threads: int = 0
    """Threads that step the simulators; 0 means one per available core. Does not change results."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the actor and of every critic."""
    log_std_init: float = 0.0
    """Initial log standard deviation of the policy."""
    normalise_observations: bool = True
    """Standardise observations with running statistics."""
    observation_clip: float = 5.0
    """Bound of a standardised observation."""
    observation_std_floor: float = 0.01
    """Smallest standard deviation an observation is divided by."""
    normalise_rewards: bool = False
    """Train on rewards standardised with running statistics and bounded by 5; what is logged stays
    raw."""
    normalise_costs: bool = False
    """The same for costs, each on its own; the limit refers to raw costs all the same."""
    episode_window: int = 100
    """Finished episodes over which return, cost J_c and length are averaged."""

    gamma: float = 0.99
    """Discount of rewards."""
    gae_lambda: float = 0.95
    """GAE's lambda for rewards."""
    cost_gamma: float | None = None
    """Discount of costs; by default that of rewards."""
    cost_gae_lambda: float | None = None
    """GAE's lambda for costs; by default that of rewards."""

    passes: int = 10
    """Passes over the epoch's samples per update."""
    minibatch_size: int = 512
    """Samples per gradient step; the last minibatch of a pass may be shorter."""
    target_kl: float = 0.02
    """Stop the update when KL(old || new), summed over action dimensions, exceeds this."""
    kl_check: Literal["pass", "minibatch"] = "pass"
    """Check the KL after every pass on all samples, or after every minibatch on its own."""
    actor_lr: float = 3e-4
    """Learning rate of the actor."""
    actor_lr_decay: bool = True
    """Decay the actor's learning rate linearly to zero over the run."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    max_grad_norm: float = 40.0
    """Gradient norm clip, separately for the actor and for each critic."""
    critic_l2: float = 0.001
    """Weight of the sum of squared parameters in each critic's loss."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy in the objective."""

    checkpoint_every: int = 1
    """Epochs between checkpoints; the last epoch always gets one."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    algorithm: Any = field(default=None)
    """The algorithm's own settings."""

    @property
    def epochs(self) -> int:
        """Number of epochs of the run."""
        return self.total_steps // self.steps_per_epoch

    @property
    def resolved_threads(self) -> int:
        """Number of threads that step the simulators."""
        return self.threads or available_cores()

    @property
    def resolved_cost_gamma(self) -> float:
        """Discount of the costs."""
        return self.gamma if self.cost_gamma is None else self.cost_gamma

    @property
    def resolved_cost_gae_lambda(self) -> float:
        """GAE's lambda of the costs."""
        return self.gae_lambda if self.cost_gae_lambda is None else self.cost_gae_lambda


def make_config(
    task: str | None = None,
    algo: str | None = None,
    file: Path | str | None = None,
    **settings: Any,
) -> TrainConfig:
    """Return validated settings for a task and an algorithm.

    Args:
        task: See `TrainConfig.task`; by default the one the file names.
        algo: See `TrainConfig.algo`; by default the one the file names, else "cspo".
        file: TOML file with the same keys; a table `[algorithm]` holds the algorithm's own.
        **settings: Fields of `TrainConfig`; fields of the algorithm's `Config` may stand beside
            them.
    """
    from_file = {} if file is None else read_settings(file)
    use_plugin(from_file | settings)
    task = task or from_file.get("task")
    algo = algo or from_file.get("algo", "cspo")
    if not isinstance(task, str) or not isinstance(algo, str):
        raise CspoError('The settings name no task. Add task = "..."; see `cspo tasks`.')
    merged: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for layer in (preset(algo, task), from_file, _sort_settings(algo, settings)):
        own |= _algorithm_table(layer)
        merged |= {key: value for key, value in layer.items() if key != "algorithm"}
    return from_dict(merged | {"task": task, "algo": algo, "algorithm": own})


def _algorithm_table(layer: dict[str, Any]) -> dict[str, Any]:
    table = layer.get("algorithm") or {}
    if not isinstance(table, dict):
        raise CspoError(
            f'Setting algorithm = {table!r} is not a table. For the name, write algo = "cspo".'
        )
    return table


def _sort_settings(algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Put settings of the algorithm that stand beside the general ones under `algorithm`."""
    general = {item.name for item in dataclasses.fields(TrainConfig)}
    own_names = {item.name for item in dataclasses.fields(get_algorithm(algo).Config)}
    own = {key: value for key, value in settings.items() if key in own_names - general}
    rest = {key: value for key, value in settings.items() if key not in own}
    given = rest.pop("algorithm", None) or {}
    if not isinstance(given, dict) and dataclasses.is_dataclass(given):
        given = {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
    unknown = set(rest) - general
    if unknown:
        name = min(unknown)
        raise CspoError(f"Unknown setting {name!r}: {nearest(name, general | own_names)}")
    return rest | {"algorithm": _algorithm_table({"algorithm": given}) | own}


def preset(algo: str, task: str) -> dict[str, Any]:
    """Return the shipped settings of an algorithm for the family of a task, or nothing."""
    file = resources.files("cspo.algorithms.presets") / f"{algo.replace('-', '_')}.toml"
    if not file.is_file():
        return {}
    return dict(tomllib.loads(file.read_text(encoding="utf-8")).get(task_family(task), {}))


def task_family(task: str) -> str:
    """Return "velocity", "navigation" or "other"."""
    name = native_name(task)
    return next((row.family for row in native_tasks() if row.name == name), "other")


def read_toml(path: Path | str) -> dict[str, Any]:
    """Return the contents of a settings file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CspoError(f"Cannot read settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CspoError(f"{path} is not valid TOML: {error}") from error


def read_settings(path: Path | str) -> dict[str, Any]:
    """Return the settings in a file; the config.toml of a run serves as well."""
    data = read_toml(path)
    data.pop("cspo_version", None)
    return data


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as plain data; unset ones are left out, since TOML has no null."""
    plain = dataclasses.asdict(config)
    plain["algorithm"] = _without_none(plain["algorithm"])
    return _without_none(plain)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    listed = {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }
    return {key: value for key, value in listed.items() if value is not None}


def from_dict(data: dict[str, Any]) -> TrainConfig:
    """Return validated settings from plain data, such as a parsed TOML file."""
    values = dict(data)
    if "task" not in values:
        raise CspoError('The settings name no task. Add task = "..."; see `cspo tasks`.')
    values |= use_plugin(values)
    algorithm = get_algorithm(values.get("algo", "cspo"))
    own = _build(algorithm.Config, _algorithm_table(values), "algorithm.")
    config: TrainConfig = _build(TrainConfig, values | {"algorithm": own}, "")
    validate(config)
    return config


def use_plugin(settings: dict[str, Any]) -> dict[str, str]:
    """Load the plugin that the settings name, and return that setting as a run keeps it; nothing if there is none."""
    if settings.get("plugin") is None:
        return {}
    return {"plugin": load_plugin(_convert(settings["plugin"], str, "plugin"))}


def _build(cls: Any, values: dict[str, Any], prefix: str) -> Any:
    fields = {item.name for item in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    for name in values:
        if name not in fields:
            raise CspoError(f"Unknown setting {prefix + name!r}: {nearest(name, fields)}")
    return cls(
        **{name: _convert(value, hints[name], prefix + name) for name, value in values.items()}
    )


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _convert(value: Any, hint: Any, name: str) -> Any:
    """Return `value` as the type `hint` asks for, or refuse it in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _convert(value, arguments[0], name)
    if origin is Literal:
        if value not in arguments:
            raise CspoError(
                f"Setting {name} = {value!r}: {nearest(str(value), map(str, arguments))}"
            )
        return value
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(item, arguments[0], name) for item in items)
    if origin is dict:
        return _convert_table(value, name)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise CspoError(f"Setting {name} = {value!r} is not {_WORDS[hint]}.")


def _convert_table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise CspoError(f"Setting {name} = {value!r} is not a table of names and values.")
    return {key: _convert_item(item, f"{name}.{key}") for key, item in value.items()}


def _convert_item(value: Any, name: str) -> Any:
    """Return a value as reading it back from a run's config.toml would give it."""
    if isinstance(value, dict):
        return _convert_table(value, name)
    if isinstance(value, list | tuple):
        return [_convert_item(item, name) for item in value]
    if isinstance(value, str | int | float):  # a bool is an int
        return value
    raise CspoError(
        f"Setting {name} = {value!r} cannot be kept in a run's config.toml: use numbers, text, true or false, lists "
        "and tables. For anything else, write a factory."
    )


def parse_text(text: str, hint: Any, name: str) -> Any:
    """Return the value that `text` on the command line means for a setting of type `hint`.

    A list is written with commas, `25,5`; a whole number may be written `1e6` or `1_000_000`; a
    table is a TOML inline table without its braces, `speed=2,mode="fast"`; an empty list or table
    is `none`.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, dict) and text.strip().lower() in ("", "none"):
        return origin()
    if origin in (typing.Union, types.UnionType):
        return None if text.lower() == "none" else parse_text(text, arguments[0], name)
    if origin is Literal:
        if text not in arguments:
            raise CspoError(f"{flag(name)} {text}: {nearest(text, arguments)}")
        return text
    if origin is tuple:
        return tuple(
            parse_text(item.strip(), arguments[0], name) for item in text.strip("()[]").split(",")
        )
    if origin is dict:
        return _parse_table(text, name)
    if hint is str:
        return text
    try:
        number = float(text)
        if hint is float:
            return number
        if number.is_integer():
            return int(text) if text.replace("_", "").lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        pass
    raise CspoError(f"{flag(name)} {text}: that is not {_WORDS[hint]}.")


def _parse_table(text: str, name: str) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(f"table = {{{text}}}")["table"]
        return table
    except tomllib.TOMLDecodeError:
        example = 'speed=2,mode="fast"'
        raise CspoError(
            f"{flag(name)} {text}: write key=value,key=value with text in quotes, as {flag(name)} '{example}'."
        ) from None


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def validate(config: TrainConfig) -> None:
    """Refuse settings that make no sense, with the reason."""
    require_positive(
        config,
        *(
            "total_steps",
            "steps_per_epoch",
            "num_envs",
            "passes",
            "minibatch_size",
            "episode_window",
        ),
        *("checkpoint_every", "keep_checkpoints", "actor_lr", "critic_lr", "max_grad_norm"),
        *("observation_clip", "observation_std_floor"),
    )
    if not config.target_kl > 0.0:  # infinity is allowed: no stop
        raise CspoError(f"--target-kl must be positive, not {config.target_kl}.")
    if not math.isfinite(config.log_std_init):
        raise CspoError(f"--log-std-init must be a finite number, not {config.log_std_init}.")
    require_not_negative(config, "seed", "threads", "critic_l2", "entropy_coefficient")
    if not config.cost_limit or not all(math.isfinite(d) and d >= 0 for d in config.cost_limit):
        listed = ",".join(f"{d:g}" for d in config.cost_limit)
        raise CspoError(f"--cost-limit must be zero or more and finite, not {listed}.")
    for name in ("gamma", "gae_lambda", "resolved_cost_gamma", "resolved_cost_gae_lambda"):
        if not 0.0 <= getattr(config, name) <= 1.0:
            raise CspoError(f"{flag(name.removeprefix('resolved_'))} must be between 0 and 1.")
    if not config.hidden_sizes or min(config.hidden_sizes) < 1:
        raise CspoError("--hidden-sizes needs at least one layer, each of at least one unit.")
    if config.steps_per_epoch % config.num_envs:
        raise CspoError(
            f"--steps-per-epoch {config.steps_per_epoch} is not divisible by --num-envs {config.num_envs}: "
            "each environment contributes the same number of steps."
        )
    if config.total_steps < config.steps_per_epoch:
        raise CspoError(
            f"--total-steps {config.total_steps} is less than one epoch of --steps-per-epoch {config.steps_per_epoch}."
        )
    if (native := native_name(config.task)) is not None:
        check_native(native, config.cost_terms, config.env_options)
    if hasattr(config.algorithm, "validate"):
        config.algorithm.validate(len(config.cost_limit))
