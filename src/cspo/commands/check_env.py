"""`cspo check-env`: what an environment is like, what is wrong with it, how to train on it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cspo.commands.layout import distributions, marked, terminal, write
from cspo.commands.options import TaskArgument, parse
from cspo.envs.settings import EnvironmentSettings
from cspo.envs.tasks import check_task_name, native_name, task_row
from cspo.lab.distribution import Distribution
from cspo.lab.suggest import Workers, command, first_limits, suggest_sizes, suggest_workers
from cspo.runs.plain import without_nan
from cspo.runs.settings import available_cores
from cspo.runs.summary import short_number
from cspo.settings import positive, setting
from cspo.types import cost_labels

if TYPE_CHECKING:
    from cspo.envs.examination import Examination

MOST_STEPS = 20_000
FIRST_TRAINING = 1_000_000  # steps
Rows = Iterator[tuple[str, str, str]]  # mark, subject, sentence
SEEDS = (
    "reset(seed=...) and the same actions give the same episode again",
    "reset(seed=...) does not give the same episode again",
)
RESUME = (
    "what is random in it can be saved: a resumed run is exact",
    "draws random numbers that cannot be saved: a resumed run will not be exact",
)
NO_COST = "Name a function that adds one: see `Give it a cost` in docs/own-environment.md."


@dataclass(frozen=True)
class CheckEnvOptions:
    """Try an environment with random actions; say what is good, what is wrong, how to train on it.

    Exit code 0: it can be trained on. 1: it cannot, for the reasons printed.
    """

    task: TaskArgument
    """A native task, a Gymnasium id, or `module:factory` of your own environment."""
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    seconds: float = setting(5.0, positive)
    """How long to try it, at most."""
    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo check-env`; the exit code is 1 if training would stop at something."""
    options = parse(CheckEnvOptions, "check-env", arguments)
    check_task_name(options.task)
    from cspo.envs.check import examine
    from cspo.envs.make import factory_of
    from cspo.envs.native import check_native

    terms, env_options = options.environment.cost_terms, options.environment.env_options
    # What is printed there is not what was asked for, and would not be JSON.
    with contextlib.redirect_stdout(sys.stderr):
        if (native := native_name(options.task)) is not None:
            check_native(native, terms, env_options)
        else:
            factory_of(options.task, env_options)  # wrong names and options are the user's
        most: Any = {"steps": MOST_STEPS, "seconds": options.seconds}
        found = examine(options.task, None, terms, env_options, **most)
    report = as_data(found, options)
    if options.json:
        print(json.dumps(without_nan(report), allow_nan=False), flush=True)
    else:
        _print_report(report)
    return 0 if found.trainable else 1


def as_data(found: Examination, options: CheckEnvOptions) -> dict[str, Any]:
    """Return what was found, and what follows from it, as JSON-compatible data."""
    facts = dataclasses.asdict(dataclasses.replace(found, tally=None))  # type: ignore[arg-type]
    del facts["tally"]
    tally, labels = found.tally, cost_labels(found.cost_names or ("cost",))
    seconds = tally.step_seconds
    data = {
        "task": options.task,
        "trainable": found.trainable,
        **facts,
        "cost_names": list(found.cost_names),
        "steps_tried": tally.steps,
        "step_microseconds": None if seconds is None else 1e6 * seconds,
        "waits": tally.waits if tally.steps else None,
        "random_actions": None,
        "suggestion": suggestion(found, options) if found.trainable else None,
    }
    if tally.lengths:
        columns = dict(zip(labels, np.array(tally.costs).T, strict=True))
        rows = {"length": tally.lengths, "return": tally.returns, **columns}
        spread = {name: dataclasses.asdict(Distribution.of(v)) for name, v in rows.items()}
        data["random_actions"] = spread
    return data


def suggestion(found: Examination, options: CheckEnvOptions) -> dict[str, Any]:
    """Return settings to begin with, and the commands that have them."""
    native = native_name(options.task)
    longest = max(found.tally.lengths, default=None)
    sizes = suggest_sizes(found.time_limit, longest)
    workers = suggest_workers(found.tally, sizes.num_envs, available_cores())
    if native:
        workers = Workers(0, "native tasks are stepped by threads of this process")
    whole_cost = native is not None and not options.environment.cost_terms
    limits = (task_row(options.task).cost_limit,) if whole_cost else first_limits(found)
    settings: dict[str, Any] = {"num_envs": sizes.num_envs}
    settings |= {"workers": workers.count} if workers.count else {}
    settings |= {"steps_per_epoch": sizes.steps_per_epoch, "total_steps": FIRST_TRAINING}
    settings["cost_limit"] = limits
    own = options.task, options.environment.env_options, options.environment.cost_terms
    return {
        "num_envs": sizes.num_envs,
        "workers": workers.count,
        "workers_reason": workers.reason,
        "steps_per_epoch": sizes.steps_per_epoch,
        "steps_per_env": sizes.steps_per_env,
        "cost_limit": list(limits),
        "benchmark_limit": whole_cost,
        "probe": command("probe", *own),
        "train": command("train", *own, **settings),
    }


def _print_report(report: dict[str, Any]) -> None:
    console = terminal()
    console.print(report["task"], style="bold")
    write(console, marked(_rows(report)))
    if (spread := report["random_actions"]) is not None:
        console.print(f"\nRandom actions, {spread['length']['episodes']} episodes:")
        write(console, distributions(spread))
    if not report["trainable"]:
        console.print("\nIt cannot be trained on yet: mend what is WRONG above.")
        return
    advice, notes = report["suggestion"], len(report["problems"])
    console.print("\nIt can be trained on." + (" Read the notes above first." if notes else ""))
    rows = (
        ("--num-envs", f"{advice['num_envs']}"),
        ("--workers", f"{advice['workers']}: {advice['workers_reason']}"),
        ("--steps-per-epoch", f"{advice['steps_per_epoch']}: {_epoch_in_words(report)}"),
        ("--cost-limit", _limit_in_words(report)),
    )
    write(console, marked(("", name, text) for name, text in rows))
    console.print("\nWhich limits make sense, and a first training:")
    for line in (advice["probe"], advice["train"]):
        console.print(f"  {line}", soft_wrap=True)


def _rows(report: dict[str, Any]) -> Rows:
    """Yield a mark, a subject and a sentence for each thing that is known."""
    yield from (("ok", f"{n}", report[n]) for n in ("observations", "actions") if report[n])
    if report["cost_source"]:
        names = report["cost_names"]
        count = "one" if len(names) == 1 else f"{len(names)} ({', '.join(names)})"
        yield "ok", "cost", f"{count}, found in {report['cost_source']}"
    if report["time_limit"] is not None:
        yield "ok", "time limit", f"{report['time_limit']} steps"
    elif report["random_actions"]:
        longest = report["random_actions"]["length"]["highest"]
        yield "note", "time limit", f"none declared; the longest episode had {longest:.0f} steps"
    yield from _yes_or_no(report["seeds_repeat"], "seeds", SEEDS)
    yield from _yes_or_no(report["exact_resume"], "resume", RESUME)
    if (speed := report["step_microseconds"]) is not None:
        waits = ", most of it waiting" if report["waits"] else ""
        tried = f"in {report['steps_tried']:,} steps"
        yield "ok", "speed", f"{short_number(speed)} microseconds per step{waits} ({tried})"
    for problem in report["problems"]:
        yield ("WRONG" if problem in report["faults"] else "note"), "", problem
    if any("gives no cost" in fault for fault in report["faults"]):
        yield "", "", NO_COST


def _yes_or_no(fact: bool | None, subject: str, words: tuple[str, str]) -> Rows:
    if fact is not None:
        yield ("ok" if fact else "note"), subject, words[0] if fact else words[1]


def _epoch_in_words(report: dict[str, Any]) -> str:
    each = f"{report['suggestion']['steps_per_env']} steps of each copy"
    if report["time_limit"] is None:
        return each
    whole = report["suggestion"]["steps_per_env"] // report["time_limit"]
    return f"{each}, {whole} whole episode{'s' * (whole > 1)}"


def _limit_in_words(report: dict[str, Any]) -> str:
    limits = ",".join(f"{limit:g}" for limit in report["suggestion"]["cost_limit"])
    if report["suggestion"]["benchmark_limit"]:
        return f"{limits}: that of the benchmark"
    return f"{limits}: a guess, half of what random actions pay (1 where they pay nothing)"
