"""`cspo train`: every setting of a run as a flag, those of the chosen algorithm among them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.commands.options import HELP, PluginOption, option_names, parse, typed
from cspo.config import TrainConfig, from_dict, make_config, read_settings, use_plugin
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError

# group: what it is about, and its settings
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "environment": ("What the environment is made with.", ("cost_terms", "env_options")),
    "run": (
        "How long to train, and with how much in parallel.",
        ("total_steps", "steps_per_epoch", "num_envs", "seed", "threads", "episode_window"),
    ),
    "policy": (
        "The networks and what they see.",
        (
            *("hidden_sizes", "log_std_init", "normalise_observations", "observation_clip"),
            *("observation_std_floor", "normalise_rewards", "normalise_costs"),
        ),
    ),
    "advantages": (
        "How rewards and costs are credited to actions.",
        ("gamma", "gae_lambda", "cost_gamma", "cost_gae_lambda"),
    ),
    "update": (
        "How the networks are fitted to an epoch.",
        (
            *(
                "passes",
                "minibatch_size",
                "target_kl",
                "kl_check",
                "actor_lr",
                "actor_lr_decay",
                "critic_lr",
            ),
            *("max_grad_norm", "critic_l2", "entropy_coefficient"),
        ),
    ),
    "files": (
        "What is kept in the run folder.",
        ("checkpoint_every", "keep_checkpoints", "tensorboard"),
    ),
}
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
                f"A resumed run keeps its settings: leave out {word.split('=', 1)[0]}. Only --total-steps and "
                "--threads can change."
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
    """Return the settings, the run folder and whether to be quiet, from what was typed after `cspo train`."""
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
    values = {
        name: value for group in GROUPS for name, value in vars(getattr(options, group)).items()
    }
    own = {} if not hasattr(options, "algorithm") else vars(options.algorithm)
    named_here = {
        "task": task,
        "algo": algo,
        "cost_limit": options.cost_limit,
        "algorithm": dict(own),
        **plugin,
    }
    config = from_dict(values | named_here)
    check_task_name(config.task)  # before PyTorch is loaded
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
    """Return the dataclass of `cspo train` for an algorithm: general settings in groups, then its own."""
    own = get_algorithm(algo).Config
    explained = _explanations(TrainConfig)
    hints = typing.get_type_hints(TrainConfig)

    def setting(name: str) -> Any:
        return typed(hints[name], name, explained[name])

    task = _text("TASK", explained["task"] + " See `cspo tasks`.")
    fields: list[Any] = [
        _field("task", Annotated[task, tyro.conf.Positional], None),
        _field("algo", typed(str, "algo", explained["algo"]), "cspo"),
        _field("plugin", _text("FILE", explained["plugin"]), None),
        _field("cost_limit", setting("cost_limit"), (25.0,)),
        _field(
            "run_dir",
            _text("DIR", "New folder for the run; by default runs/TASK-ALGO-seedN."),
            None,
        ),
        _field("config", _text("FILE", "TOML file with settings; flags win over it."), None),
        _field(
            "resume", _text("RUN", "Continue the run in this folder instead of starting one."), None
        ),
        _field("quiet", Annotated[bool, tyro.conf.arg(help="Print no progress.")], False),
    ]
    declared = {item.name: item for item in dataclasses.fields(TrainConfig)}
    for group, (title, names) in GROUPS.items():
        fields.append(
            _group(group, title, [_copied(declared[name], setting(name)) for name in names])
        )
    own_hints, own_explained = typing.get_type_hints(own), _explanations(own)
    members = [
        _copied(item, typed(own_hints[item.name], item.name, own_explained[item.name]))
        for item in dataclasses.fields(own)
    ]
    if members:
        fields.append(
            _group("algorithm", f"Settings of {algo}; another --algo has others.", members)
        )
    kind = dataclasses.make_dataclass("TrainOptions", fields, frozen=True)
    kind.__doc__ = DESCRIPTION
    return kind


def _field(name: str, hint: Any, default: Any) -> Any:
    return name, hint, dataclasses.field(default=default)


def _copied(item: dataclasses.Field[Any], hint: Any) -> Any:
    """Return a field with the name and the default of `item`."""
    return (
        item.name,
        hint,
        dataclasses.field(default=item.default, default_factory=item.default_factory),
    )  # type: ignore[call-overload]


def _text(metavar: str, explanation: str) -> Any:
    return Annotated[
        str | None, tyro.conf.arg(metavar=metavar, help=explanation, help_behavior_hint="")
    ]


def _group(name: str, title: str, members: list[Any]) -> Any:
    kind = dataclasses.make_dataclass(name, members, frozen=True)
    kind.__doc__ = title
    return name, kind, dataclasses.field(default_factory=kind)


def _filled(kind: type, base: TrainConfig, task: str | None) -> Any:
    """Return the options with the settings of `base` as their values."""
    general = {
        item.name: dataclasses.replace(
            getattr(kind(), item.name), **_members(getattr(kind(), item.name), base)
        )
        for item in dataclasses.fields(kind)
        if item.name in GROUPS
    }
    if hasattr(kind(), "algorithm"):
        own = kind().algorithm
        general["algorithm"] = dataclasses.replace(own, **_members(own, base.algorithm))
    return dataclasses.replace(
        kind(), task=task, algo=base.algo, cost_limit=base.cost_limit, **general
    )


def _members(group: Any, source: Any) -> dict[str, Any]:
    return {item.name: getattr(source, item.name) for item in dataclasses.fields(group)}


def _explanations(cls: type) -> dict[str, str]:
    """Return the string under each field of a dataclass, its own or inherited."""
    found = {item.name: "" for item in dataclasses.fields(cls)}
    for part in reversed(cls.__mro__[:-1]):
        found.update(_own_explanations(part))
    return found


def _own_explanations(cls: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):  # a class typed into a prompt has no source to read
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[field.target.id] = " ".join(str(following.value.value).split())
    return found
