"""`cspo train`: every setting of a run as a flag, those of the chosen algorithm among them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import HELP, PluginOption, option_names, parse, typed
from cspo.config import GROUPS, TrainConfig, from_dict, make_config, read_settings, use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError
from cspo.settings import explanations

DESCRIPTION = """Train a policy that maximises return while keeping costs under limits.

Examples:
    cspo train SafetyHopperVelocity-v1 --cost-limit 25 --total-steps 1e6
    cspo train --resume runs/SafetyHopperVelocity-v1-cspo-seed0

Defaults shown are those of the chosen task and algorithm. Lists are written with commas: 25,5."""
ANY_TASK = "any"  # stands in for a task while only the options are asked for


@dataclass(frozen=True)
class ResumeOptions:
    """Continue a run exactly as if it had never stopped; all other settings stay as they were."""

    resume: Annotated[str, tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    total_steps: typed(int | None, "total_steps") = None  # type: ignore[valid-type]
    """New length of the whole run."""
    plugin: PluginOption = None
    """File or module with the run's algorithm, if it is not where it was."""
    threads: typed(int | None, "threads") = None  # type: ignore[valid-type]
    """Threads that step the simulators."""
    quiet: bool = False
    """Print no progress."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo train`."""
    if any(word.split("=", 1)[0] == "--resume" for word in arguments):
        return _resume(arguments)
    config, run_dir, quiet = read_arguments(arguments)
    from cspo.runs.session import run

    run(config, run_dir=run_dir, quiet=quiet)
    return 0


def _resume(arguments: Sequence[str]) -> int:
    kept = {name for algo in algorithm_names() for name in option_names(options_class(algo))}
    kept -= set(option_names(ResumeOptions))
    for word in arguments:
        if word.split("=", 1)[0] in kept:
            raise CspoError(
                f"A resumed run keeps its settings: leave out {word.split('=', 1)[0]}. Only "
                "--total-steps and --threads can change."
            )
    options = parse(ResumeOptions, "train", arguments)
    from cspo.runs.session import resume

    changes = {
        "total_steps": options.total_steps,
        "threads": options.threads,
        "plugin": options.plugin,
    }
    given = {key: value for key, value in changes.items() if value is not None}
    resume(options.resume, quiet=options.quiet, **given)
    return 0


def read_arguments(arguments: Sequence[str]) -> tuple[TrainConfig, str | None, bool]:
    """Return the settings, the run folder and whether to be quiet, from what was typed."""
    words = [word for word in arguments if word not in HELP]
    file = _value_of("--config", words)
    named = {} if file is None else read_settings(file)
    plugin = use_plugin({"plugin": _value_of("--plugin", words) or named.get("plugin")})
    algo = _value_of("--algo", words) or named.get("algo", "cspo")
    kind: Any = options_class(algo)
    # Twice: which defaults (presets) hold is known only once the task has been read.
    task = parse(kind, "train", words).task or named.get("task")
    base = make_config(task or ANY_TASK, algo, file)
    options: Any = parse(kind, "train", arguments, default=_filled(kind, base, task))
    if not task:
        raise CspoError(
            "Name a task to train on, as in `cspo train SafetyHopperVelocity-v1`. See `cspo tasks`."
        )
    grouped = (vars(getattr(options, group)) for group in GROUPS)
    values = {name: value for group in grouped for name, value in group.items()}
    own = dict(vars(options.algorithm)) if hasattr(options, "algorithm") else {}
    named_here = {"task": task, "algo": algo, "cost_limit": options.cost_limit, "algorithm": own}
    config = from_dict(values | named_here | plugin)
    check_task_name(config.task)  # before MuJoCo is loaded
    return config, options.run_dir, options.quiet


def _value_of(name: str, words: Sequence[str]) -> str | None:
    """Return what was typed after `name`, the last time."""
    found = None
    for position, word in enumerate(words):
        if word == name:
            if position + 1 == len(words):
                raise CspoError(f"{name} needs a value. See `cspo train --help`.")
            found = words[position + 1]
        elif word.startswith(name + "="):
            found = word.partition("=")[2]
    return found


def options_class(algo: str) -> type:
    """Return the dataclass of `cspo train` for an algorithm: the groups, then its own settings."""
    explained, hints = explanations(TrainConfig), typing.get_type_hints(TrainConfig)
    task = _text("TASK", explained["task"] + " See `cspo tasks`.")
    limit = typed(hints["cost_limit"], "cost_limit", explained["cost_limit"])
    folder = "New folder for the run; by default runs/TASK-ALGO-seedN."
    resume = "Continue the run in this folder instead of starting one."
    fields: list[Any] = [
        _field("task", Annotated[task, tyro.conf.Positional], None),
        _field("algo", typed(str, "algo", explained["algo"]), "cspo"),
        _field("plugin", _text("FILE", explained["plugin"]), None),
        _field("cost_limit", limit, (25.0,)),
        _field("run_dir", _text("DIR", folder), None),
        _field("config", _text("FILE", "TOML file with settings; flags win over it."), None),
        _field("resume", _text("RUN", resume), None),
        _field("quiet", Annotated[bool, tyro.conf.arg(help="Print no progress.")], False),
    ]
    fields += [_group(name, kind, kind.__doc__) for name, kind in GROUPS.items()]
    own = get_algorithm(algo).Config
    if dataclasses.fields(own):
        fields.append(_group("algorithm", own, f"Settings of {algo}; another --algo has others."))
    kind = dataclasses.make_dataclass("TrainOptions", fields, frozen=True)
    kind.__doc__ = DESCRIPTION
    return kind


def _field(name: str, hint: Any, default: Any) -> Any:
    return name, hint, dataclasses.field(default=default)


def _text(metavar: str, explanation: str) -> Any:
    argument = tyro.conf.arg(metavar=metavar, help=explanation, help_behavior_hint="")
    return Annotated[str | None, argument]


def _group(name: str, settings: type, title: str) -> Any:
    """Return the field for a group: its settings again, each read from one word."""
    explained, hints = explanations(settings), typing.get_type_hints(settings)
    members: list[Any] = []
    for item in dataclasses.fields(settings):
        default: Any = {"default": item.default, "default_factory": item.default_factory}
        annotation = typed(hints[item.name], item.name, explained[item.name])
        members.append((item.name, annotation, dataclasses.field(**default)))
    kind = dataclasses.make_dataclass(name, members, frozen=True)
    kind.__doc__ = title
    return name, kind, dataclasses.field(default_factory=kind)


def _filled(kind: Any, base: TrainConfig, task: str | None) -> Any:
    """Return the options with the settings of `base` as their values."""
    options = kind()
    names = [name for name in (*GROUPS, "algorithm") if hasattr(options, name)]
    groups = {name: type(getattr(options, name))(**vars(getattr(base, name))) for name in names}
    general = {"task": task, "algo": base.algo, "cost_limit": base.cost_limit}
    return dataclasses.replace(options, **general, **groups)
