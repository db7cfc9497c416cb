"""`cspo train`: every setting of a run as a flag, those of the chosen algorithm among them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import (
    HELP,
    FileOption,
    NetworkOption,
    TaskArgument,
    TaskOption,
    option_names,
    parse,
    refuse_empty,
    same_task,
)
from cspo.config import TrainConfig, from_dict, make_config, read_settings, to_dict, use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError, flag
from cspo.runs.settings import FileSettings
from cspo.settings import parse_text

ANY_TASK = "any"  # stands in for a task while only the options are asked for
# What a resumed run is told on the command line; the last is for a file that has moved.
CHANGES = (
    *("total_steps", "stop_when", "log"),
    *("threads", "workers", "worker_timeout", "restart_workers"),
    "plugin",
)
SIZES = ("total_steps", "steps_per_epoch", "num_envs")


@dataclass(frozen=True)
class TrainOptions(TrainConfig):
    """Train a policy that maximises return while keeping costs under limits.

    Examples:
        cspo train SafetyHopperVelocity-v1 --cost-limit 25 --total-steps 1e6
        cspo train --resume runs/SafetyHopperVelocity-v1-cspo-seed0

    Defaults shown are those of the chosen task and algorithm. Lists are written with commas: 25,5.
    """

    task: Annotated[TaskArgument, tyro.conf.arg(help_behavior_hint="")] = ""
    plugin: FileOption = None
    run_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """New folder for the run; by default runs/TASK-ALGO-seedN."""
    config: FileOption = None
    """TOML file with settings; flags win over it."""
    resume: Annotated[str | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """Continue the run in this folder instead of starting one."""
    quiet: bool = False
    """Print no progress."""


@dataclass(frozen=True)
class ResumeOptions:
    """Continue a run exactly as if it had never stopped; all other settings stay as they were."""

    resume: Annotated[str, tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    total_steps: int | None = None
    """New length of the whole run."""
    stop_when: Annotated[str | None, tyro.conf.arg(metavar="RULE", help_behavior_hint="")] = None
    """Another rule that ends the run early, counted from here on; none for no rule."""
    log: Annotated[str | None, tyro.conf.arg(metavar="LOG[,...]", help_behavior_hint="")] = None
    """Where the numbers of every epoch go from here on."""
    task: TaskOption = None
    """The run's task, typed again: says that its code may be imported (see SECURITY.md)."""
    network: NetworkOption = None
    """The run's network, typed again: says that its code may be imported."""
    trust: bool = False
    """Import the code that the run names (task, network, plugin), also if you did not start it."""
    plugin: FileOption = None
    """File or module with the run's algorithm, if it is not where it was."""
    threads: int | None = None
    """Threads that step the simulators."""
    workers: int | None = None
    """Processes over which the copies of a slow environment are spread; 0 is this one."""
    worker_timeout: float | None = None
    """Seconds a worker may take for one call."""
    restart_workers: int | None = None
    """How often a worker that fails is started again, from here on."""
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
                f"{', '.join(map(flag, CHANGES[:-1]))} can change."
            )
    options = parse(ResumeOptions, "train", arguments)
    from cspo.runs.folder import load_config
    from cspo.runs.session import resume

    if options.task is not None:
        same_task(options.resume, load_config(options.resume), options.task)

    changes = {name: getattr(options, name) for name in CHANGES}
    given = {name: value for name, value in changes.items() if value is not None}
    if "log" in given:
        given["log"] = parse_text(given["log"], typing.get_type_hints(FileSettings)["log"], "log")
    own: Any = {"env": options.task, "policy": options.network, "trust": options.trust}
    resume(options.resume, quiet=options.quiet, **own, **given)
    return 0


def read_arguments(arguments: Sequence[str]) -> tuple[TrainConfig, str | None, bool]:
    """Return the settings, the run folder and whether to be quiet, from what was typed."""
    refuse_empty(arguments)
    words = [word for word in arguments if word not in HELP]
    file = _value_of("--config", words)
    named = {} if file is None else read_settings(file)
    use_plugin({"plugin": _value_of("--plugin", words) or named.get("plugin")})
    algo = _value_of("--algo", words) or named.get("algo", "cspo")
    kind = options_class(algo)
    # Twice: which defaults (presets) hold is known only once task and form have been read.
    typed = parse(kind, "train", words)
    task = typed.task or named.get("task") or ""
    own: Any = typed.algorithm
    form = {} if _value_of("--form", words) is None else {"form": own.form}
    sizes = {  # those that are compared with each other: one may be typed, the other in the file
        name: getattr(typed, name) for name in SIZES if _value_of(flag(name), words) is not None
    }
    base = vars(make_config(task or ANY_TASK, algo, file, **form, **sizes)) | {"task": task}
    options = parse(kind, "train", arguments, kind(**base))
    if not task:
        raise CspoError(
            "Name a task to train on, as in `cspo train SafetyHopperVelocity-v1`. See `cspo tasks`."
        )
    config = from_dict(to_dict(options))
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


def options_class(algo: str) -> type[TrainOptions]:
    """Return the options of `cspo train` for an algorithm: its own settings are among them."""
    config = get_algorithm(algo).Config
    title = f"Settings of {algo}; another --algo has others."
    own = type(config.__name__, (config,), {"__doc__": title})
    member = ("algorithm", own, dataclasses.field(default_factory=own))
    words = {"__doc__": TrainOptions.__doc__}
    return dataclasses.make_dataclass(
        "Options", [member], bases=(TrainOptions,), frozen=True, namespace=words
    )
