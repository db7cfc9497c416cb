"""`cspo bench` and `cspo parity`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from cspo.commands.options import HELP, FileOption, TaskArgument, parse, show
from cspo.errors import CspoError, nearest
from cspo.settings import positive, setting


@dataclass(frozen=True)
class BenchEnvOptions:
    """Measure the steps per second of a native task, next to bare MuJoCo on the same motion."""

    task: TaskArgument
    """Native task, see `cspo tasks`."""
    num_envs: int = setting(20, positive)
    """Parallel environments."""
    threads: int = 0
    """Threads; 0 means one per core."""
    seconds: float = setting(5.0, positive)
    """How long to measure."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class BenchTrainOptions:
    """Measure training with the paper's settings, without the KL stop; medians over epochs."""

    task: TaskArgument
    """Task to train on."""
    algo: str = "cspo"
    """Algorithm."""
    plugin: FileOption = None
    """Python file, or module, that registers it."""
    epochs: int = setting(5, positive)
    """Epochs to measure, after one to warm up."""
    threads: int = 0
    """Threads of the simulators; 0 means one per core. With several runs each has one."""
    runs: int = setting(1, positive)
    """Runs side by side, each in its own process."""
    cost_limit: tuple[float, ...] = (25.0,)
    """Limits, one per constraint."""
    cost_terms: tuple[str, ...] = ()
    """Terms of the cost to constrain one by one."""
    env_options: dict[str, Any] = setting({})
    """Keyword arguments the environment is made with."""
    json: bool = False
    """Print one JSON object."""


BENCHES = {"env": "steps per second of a task", "train": "seconds per epoch of training"}


def bench(arguments: Sequence[str]) -> int:
    """Run `cspo bench env` or `cspo bench train`."""
    if not arguments or arguments[0] in HELP:
        rows = "\n".join(f"  {name:<6} {summary}" for name, summary in BENCHES.items())
        print(f"usage: cspo bench {{env,train}} TASK ...\n\n{rows}")
        return 0
    what, rest = arguments[0], arguments[1:]
    if what not in BENCHES:
        raise CspoError(
            f"cspo bench measures `env` or `train`, not {what!r}: {nearest(what, BENCHES)}"
        )
    return _bench_env(rest) if what == "env" else _bench_train(rest)


def _bench_env(arguments: Sequence[str]) -> int:
    options = parse(BenchEnvOptions, "bench env", arguments)
    from cspo.envs.tools.bench import bench_env
    from cspo.runs.settings import available_cores

    threads = options.threads or available_cores()
    result = bench_env(options.task, options.num_envs, threads, options.seconds)
    show(options.json, result, lambda: _numbers(result))
    return 0


def _bench_train(arguments: Sequence[str]) -> int:
    options = parse(BenchTrainOptions, "bench train", arguments)
    from cspo.lab.bench import bench_train

    result = bench_train(**{name: value for name, value in vars(options).items() if name != "json"})
    show(options.json, result, lambda: _numbers(result))
    return 0


def _numbers(result: dict[str, Any]) -> str:
    """Return names and values, one per line; large numbers without digits after the point."""
    texts = {
        name: f"{value:,.{'4g' if value < 1000 else '0f'}}" if isinstance(value, float) else value
        for name, value in result.items()
    }
    return "\n".join(f"{name:<16} {text}" for name, text in texts.items())


@dataclass(frozen=True)
class ParityOptions:
    """Replay recorded transitions in the native tasks and report how far the results differ."""

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Recordings, as .npz files."""
    json: bool = False
    """Print JSON."""


def parity(arguments: Sequence[str]) -> int:
    """Run `cspo parity`; the exit code is 1 if a tolerance is exceeded."""
    options = parse(ParityOptions, "parity", arguments)
    if not options.files:
        raise CspoError(
            "Name the recordings to replay, as in `cspo parity SafetyHopperVelocity-v1.npz`."
        )
    from cspo.envs.tools.parity import format_report, replay

    reports = [replay(file) for file in options.files]
    data = [report.to_dict() for report in reports]
    show(options.json, data, lambda: "\n\n".join(map(format_report, reports)))
    return 0 if all(report.ok for report in reports) else 1
