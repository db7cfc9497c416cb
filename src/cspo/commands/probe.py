"""`cspo probe`: train briefly without a limit, show what is paid, propose limits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from cspo.commands.layout import distributions, marked, terminal, write
from cspo.commands.options import FileOption, TaskArgument, parse
from cspo.config import read_settings
from cspo.envs.settings import EnvironmentSettings, WorkerSettings
from cspo.envs.tasks import check_task_name
from cspo.errors import CspoError
from cspo.lab.suggest import command, suggest_sizes
from cspo.runs.plain import without_nan
from cspo.runs.summary import duration, short_number
from cspo.settings import not_negative, positive, setting
from cspo.types import EpochReport, cost_labels

if TYPE_CHECKING:
    from cspo.lab.probe import ProbeResult, Stage

FIRST_TRAINING = 1_000_000  # steps
# Settings of a file that are not those of a training without a limit.
LEFT_OUT = ("task", "algo", "algorithm", "cost_limit", "margin", "violation_rate", "total_steps")


@dataclass(frozen=True)
class ProbeOptions:
    """Train briefly without a limit, show what episodes cost before and after, propose limits.

    Nothing is written unless --run-dir asks for it.
    """

    task: Annotated[TaskArgument, tyro.conf.arg(help_behavior_hint="")] = ""
    """A native task, a Gymnasium id, or `module:factory` of your own environment."""
    total_steps: int = setting(100_000, positive)
    """How long to train, in environment steps."""
    num_envs: int | None = setting(None, positive)
    """Parallel environments; by default 8, or fewer where episodes are long."""
    steps_per_epoch: int | None = setting(None, positive)
    """Steps between two updates; by default whole episodes, about 500 steps of each copy."""
    seed: int = setting(0, not_negative)
    """Of the training."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    parallel: WorkerSettings = field(default_factory=WorkerSettings)
    config: FileOption = None
    """TOML file with other settings, as of `cspo train`; its algorithm and limits are left out."""
    run_dir: Annotated[str | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """Keep the training in this new folder."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo probe`."""
    options = parse(ProbeOptions, "probe", arguments)
    settings = {} if options.config is None else read_settings(options.config)
    task = options.task or settings.get("task")
    if not task:
        raise CspoError("Name an environment to probe, as in `cspo probe my_module:make_env`.")
    check_task_name(task)
    from cspo.lab.probe import probe

    settings = {name: value for name, value in settings.items() if name not in LEFT_OUT}
    settings |= _typed(options)
    # What the environment prints is not what was asked for, and would not be JSON.
    with contextlib.redirect_stdout(sys.stderr), _progress() as watch:
        result = probe(task, run_dir=options.run_dir, watch=watch, **settings)
    data = dataclasses.asdict(result) | {"cost_limit": result.cost_limit}
    own = task, settings.get("env_options", {}), settings.get("cost_terms", ())
    workers = {"workers": settings["workers"]} if settings.get("workers") else {}
    data["commands"] = _commands(result, own, workers)
    if options.json:
        print(json.dumps(without_nan(data), allow_nan=False), flush=True)
    else:
        _print_result(result, data["commands"])
    return 0


def _typed(options: ProbeOptions) -> dict[str, Any]:
    """Return the settings of the training that were typed, or have a default of the probe's."""
    names = ("total_steps", "num_envs", "steps_per_epoch", "seed")
    values = {name: getattr(options, name) for name in names}
    chosen = {name: value for name, value in values.items() if value is not None}
    for group in (options.environment, options.parallel):
        unset = type(group)()
        for item in dataclasses.fields(group):
            value = getattr(group, item.name)
            if value != getattr(unset, item.name):
                chosen[item.name] = value
    return chosen


def _commands(result: ProbeResult, own: Any, workers: dict[str, Any]) -> dict[str, str]:
    """Return a training with each kind of limit, or a longer probe if there is no limit."""
    if result.cost_limit is None:
        return {"probe": command("probe", *own, total_steps=10 * result.steps, **workers)}
    sizes = suggest_sizes(result.time_limit, round(result.trained.length.highest))
    fixed = dataclasses.asdict(sizes) | workers | {"total_steps": FIRST_TRAINING}
    kinds = ["tight", "moderate", "loose"]
    limits = {
        kind: tuple(one.limits.get(kind, one.first) for one in result.proposals) for kind in kinds
    }
    lines = {kind: command("train", *own, **fixed, cost_limit=limits[kind]) for kind in kinds}
    return lines | {"first": command("train", *own, **fixed, cost_limit=result.cost_limit)}


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Show how far it is, on a terminal only and on the error stream."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("probing ...") as status:

        def watch(report: EpochReport, epochs: int) -> None:
            costs = " ".join(map(short_number, report.cost))
            numbers = f"return {short_number(report.episode_return)}, cost {costs}"
            status.update(f"probing: epoch {report.epoch + 1} of {epochs}, {numbers}")

        yield watch


def _print_result(result: ProbeResult, commands: dict[str, str]) -> None:
    console = terminal()
    how = f"{result.steps:,} steps of PPO, which ignores costs, in {duration(result.seconds)}"
    console.print(f"{result.task}  {how}", style="bold")
    for title, stage in (("At first", result.untrained), ("In the end", result.trained)):
        console.print(f"\n{title}, {stage.length.episodes} episodes:")
        write(console, distributions(_table(result, stage)))
    if result.still_improving:
        console.print("\nThe return was still rising: more --total-steps may change these numbers.")
    console.print("\nLimits:")
    write(console, marked(_proposals(result)))
    if result.cost_limit is None:
        console.print("\nNo limit would matter in what was seen. Look for longer:")
    else:
        console.print("\nTrain with a limit:")
    line = commands["probe" if result.cost_limit is None else "first"]
    console.print(f"  {line}", soft_wrap=True)


def _table(result: ProbeResult, stage: Stage) -> dict[str, Any]:
    labels = cost_labels(result.cost_names)
    rows = {"length": stage.length, "return": stage.episode_return}
    rows |= dict(zip(labels, stage.cost, strict=True))
    return {name: dataclasses.asdict(row) for name, row in rows.items()}


def _proposals(result: ProbeResult) -> Iterator[tuple[str, str, str]]:
    for label, one in zip(cost_labels(result.cost_names), result.proposals, strict=True):
        limits = ", ".join(f"{word} {limit:g}" for word, limit in one.limits.items())
        yield "", label, limits or "none"
        yield "", "", one.reason
