"""The settings of a run: groups of frozen dataclasses, the same for flags, TOML files and Python.

A group stands with what it configures and is handed to it whole. For users the names are flat:
`--passes 5`, `passes = 5` in a file, `make_config(..., passes=5)`.

Priority, lowest first: the defaults, the preset of the algorithm for the task's family, a TOML
file, what the caller names. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cspo.algorithms.presets import preset
from cspo.algorithms.registry import algorithm_names, get_algorithm
from cspo.envs.native import check_native
from cspo.envs.settings import EnvironmentSettings, WorkerSettings
from cspo.envs.tasks import native_name
from cspo.errors import CspoError, nearest
from cspo.experience.limits import Limit, check_limits, read_limits, written_limit
from cspo.experience.settings import AdvantageSettings, MarginSettings
from cspo.flat import AlgorithmConfig, FlatSettings, Settings
from cspo.optim.settings import UpdateSettings
from cspo.plugins import load_plugin
from cspo.policy.settings import PolicySettings
from cspo.runs.files import read_bytes
from cspo.runs.plain import parse_toml
from cspo.runs.settings import FileSettings, RunSettings
from cspo.settings import (
    UnknownSettings,
    build,
    check_fields,
    convert,
    setting,
    unknown_setting,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class TrainConfig(FlatSettings):
    """Every setting of a run. Those of a group can also be read here: `config.gamma`."""

    folder: ClassVar[Path | None] = None
    """The run folder they were read from: nothing that they name is imported then."""
    task: str
    """A native task, a Gymnasium id, or `module:factory` of your own environment.
    See `cspo tasks`."""
    algo: str = "cspo"
    """Algorithm, see `cspo algos`."""
    plugin: str | None = setting(None, changes_results=False)
    """File, or module, of yours that registers algorithms, see docs/own-algorithm.md."""
    cost_limit: tuple[Limit, ...] = setting((25.0,), check_limits, read=read_limits)
    """Limit d on the mean cost of an episode; one value, one per constraint as `25,5`, or a
    schedule over steps as `25@0, 15@2e6`."""
    limits: MarginSettings = field(default_factory=MarginSettings)
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    run: RunSettings = field(default_factory=RunSettings)
    parallel: WorkerSettings = field(default_factory=WorkerSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    advantages: AdvantageSettings = field(default_factory=AdvantageSettings)
    update: UpdateSettings = field(default_factory=UpdateSettings)
    files: FileSettings = field(default_factory=FileSettings)
    algorithm: AlgorithmConfig = field(default_factory=lambda: UnknownSettings({}))
    """The algorithm's own settings."""


GROUPS: dict[str, Any] = {
    name: kind
    for name, kind in typing.get_type_hints(TrainConfig).items()
    if dataclasses.is_dataclass(kind)
}


def general_fields() -> Iterator[tuple[str | None, dataclasses.Field[Any]]]:
    """Yield every setting but the algorithm's own, with the group it is in, if any."""
    for item in dataclasses.fields(TrainConfig):
        if item.name in GROUPS:
            for member in dataclasses.fields(GROUPS[item.name]):
                yield item.name, member
        elif item.name != "algorithm":
            yield None, item


_GROUP_OF = {item.name: group for group, item in general_fields()}
# Settings that change no result: two runs that differ in them alone are the same run.
FREE = tuple(i.name for _, i in general_fields() if not i.metadata.get("changes_results", True))


def make_config(
    task: str | None = None,
    algo: str | None = None,
    file: Path | str | None = None,
    **settings: Unpack[Settings],
) -> TrainConfig:
    """Return validated settings for a task and an algorithm.

    Examples:
        >>> config = cspo.make_config("SafetyHopperVelocity-v1", "ppo-lag", cost_limit=25, passes=5)
        >>> config.passes, config.update.passes, config.epochs
        (5, 5, 500)

    Args:
        task: A task's name, see `TrainConfig.task`; by default the one the file names.
        algo: An algorithm's name; by default the one the file names, else "cspo".
        file: TOML file with the same keys; a table `[algorithm]` holds the algorithm's own.
        **settings: Settings by their flat names, see `cspo.Settings`; those of the algorithm may
            stand beside them. Those of an algorithm of yours, which a type checker does not know,
            may be given as `algorithm={...}`.

    Raises:
        UnknownSetting: Nothing has that name; says which is nearest.
        CspoError: A value is wrong; says what it must be.
    """
    from_file, given = {} if file is None else read_settings(file), dict[str, Any](settings)
    use_plugin(from_file | given)
    task = task or from_file.get("task")
    algo = algo or from_file.get("algo", "cspo")
    if not isinstance(task, str) or not isinstance(algo, str):
        raise CspoError('The settings name no task. Add task = "..."; see `cspo tasks`.')
    merged: dict[str, Any] = {}
    named = _sort_settings(algo, given)
    form = (_algorithm_table(from_file) | _algorithm_table(named)).get("form")
    for layer in (preset(algo, task, form), from_file, named):
        merged |= layer | {"algorithm": _algorithm_table(merged) | _algorithm_table(layer)}
    return from_dict(merged | {"task": task, "algo": algo})


def _algorithm_table(layer: dict[str, Any]) -> dict[str, Any]:
    table = layer.get("algorithm") or {}
    if not isinstance(table, Mapping):
        raise CspoError(
            f'Setting algorithm = {table!r} is not a table. For the name, write algo = "cspo".'
        )
    return dict(table)


def _sort_settings(algo: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Put settings of the algorithm that stand beside the general ones under `algorithm`."""
    own_names = {item.name for item in dataclasses.fields(get_algorithm(algo).Config)}
    own = {k: v for k, v in settings.items() if k in own_names and k not in _GROUP_OF}
    rest = {k: v for k, v in settings.items() if k not in own}
    given = rest.pop("algorithm", None) or {}
    if dataclasses.is_dataclass(given):
        given = {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
    for name in sorted(rest.keys() - _GROUP_OF.keys()):
        raise unknown_setting(name, nearest(name, {*_GROUP_OF, *own_names}))
    return rest | {"algorithm": _algorithm_table({"algorithm": given}) | own}


def read_toml(path: Path | str) -> dict[str, Any]:
    """Return the contents of a settings file."""
    try:
        return parse_toml(read_bytes(Path(path)).decode("utf-8-sig"))  # editors may mark UTF-8
    except OSError as error:
        raise CspoError(f"Cannot read settings file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CspoError(f"{path} is not valid TOML: it is not a text in UTF-8.") from None
    except ValueError as error:
        raise CspoError(f"{path} is not valid TOML: {error}") from error


def read_settings(path: Path | str) -> dict[str, Any]:
    """Return the settings in a file; the config.toml of a run serves as well."""
    data = read_toml(path)
    data.pop("cspo_version", None)
    for name in ("task", "algo", "plugin"):
        if not isinstance(data.get(name, ""), str):
            raise CspoError(f"{path}: {name} = {data[name]!r:.60} is not a text in quotes.")
    return data


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Return the settings as plain flat data; unset ones are left out, since TOML has no null."""
    plain = {item.name: getattr(config, item.name) for _, item in general_fields()}
    own = config.algorithm
    values = own.values if isinstance(own, UnknownSettings) else dataclasses.asdict(own)
    return _without_none(plain | {"algorithm": _without_none(values)})


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(map(written_limit, value)) if isinstance(value, tuple) else value
        for key, value in values.items()
        if value is not None
    }


def from_dict(data: dict[str, Any], folder: Path | None = None) -> TrainConfig:
    """Return validated settings from plain flat data, such as a parsed TOML file.

    Args:
        data: The settings by their flat names.
        folder: The run folder they come from, if what they name must not be imported; an algorithm
            may be unknown then.
    """
    if "task" not in data:
        raise CspoError('The settings name no task. Add task = "..."; see `cspo tasks`.')
    data = data | (use_plugin(data) if folder is None else {})
    algo, table = convert(data.get("algo", "cspo"), str, "algo"), _algorithm_table(data)
    if folder is not None and algo not in algorithm_names():
        own: Any = UnknownSettings(table)
    else:
        own = build(get_algorithm(algo).Config, table, "algorithm.")
    grouped: dict[str | None, dict[str, Any]] = {group: {} for group in (None, *GROUPS)}
    for name, value in data.items():
        if name in _GROUP_OF:
            grouped[_GROUP_OF[name]][name] = value
        elif name != "algorithm":
            raise unknown_setting(name, nearest(name, _GROUP_OF))
    groups = {name: build(kind, grouped[name]) for name, kind in GROUPS.items()}
    config: TrainConfig = build(TrainConfig, grouped[None] | groups | {"algorithm": own})
    if folder is not None:
        object.__setattr__(config, "folder", folder)  # frozen, and no setting of its own
    validate(config)
    return config


def with_settings(config: TrainConfig, **changes: Any) -> TrainConfig:
    """Return settings with some of them, by their flat names, replaced."""
    return from_dict(to_dict(config) | changes, config.folder)


def use_plugin(settings: dict[str, Any]) -> dict[str, str]:
    """Load the plugin that the settings name, and return that setting as a run keeps it, if any."""
    if settings.get("plugin") is None:
        return {}
    return {"plugin": load_plugin(convert(settings["plugin"], str, "plugin"))}


def validate(config: TrainConfig) -> None:
    """Refuse settings that make no sense, with the reason."""
    for group in (config, *(getattr(config, name) for name in GROUPS), config.algorithm):
        check_fields(group)
    run, limits = config.run, len(config.cost_limit)
    if run.steps_per_epoch % run.num_envs:
        raise CspoError(
            f"--steps-per-epoch {run.steps_per_epoch} is not divisible by --num-envs "
            f"{run.num_envs}: each environment contributes the same number of steps."
        )
    if run.total_steps < run.steps_per_epoch:
        raise CspoError(
            f"--total-steps {run.total_steps} is less than one epoch of --steps-per-epoch "
            f"{run.steps_per_epoch}."
        )
    if (native := native_name(config.task)) is not None:
        chosen = config.environment
        check_native(native, chosen.cost_terms, chosen.env_options, config.parallel.workers)
    if isinstance(config.algorithm, UnknownSettings):
        return
    algorithm = get_algorithm(config.algo)
    traits = getattr(algorithm, "traits", None)
    if limits > 1 and traits is not None and not traits.several_limits:
        raise CspoError(
            f"{algorithm.title} is defined for one cost limit, not {limits}; cspo and trpo-pid "
            "take several."
        )
    if hasattr(config.algorithm, "validate"):
        config.algorithm.validate(limits)
