"""`cspo bench`, `cspo parity` and `cspo doctor`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from cspo.commands.options import HELP, PluginOption, parse, typed
from cspo.errors import CspoError, nearest


@dataclass(frozen=True)
class BenchEnvOptions:
    """Measure the steps per second of a native task, next to bare MuJoCo on the same motion."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Native task, see `cspo tasks`."""
    num_envs: typed(int, "num_envs") = 20  # type: ignore[valid-type]
    """Parallel environments."""
    threads: typed(int, "threads") = 0  # type: ignore[valid-type]
    """Threads; 0 means one per core."""
    seconds: typed(float, "seconds") = 5.0  # type: ignore[valid-type]
    """How long to measure."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class BenchTrainOptions:
    """Measure training with the paper's settings, without the KL stop; medians over epochs."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Task to train on."""
    algo: str = "cspo"
    """Algorithm."""
    plugin: PluginOption = None
    """Python file, or module, that registers it."""
    epochs: typed(int, "epochs") = 5  # type: ignore[valid-type]
    """Epochs to measure, after one to warm up."""
    threads: typed(int, "threads") = 0  # type: ignore[valid-type]
    """Threads of the simulators; 0 means one per core. With several runs each has one."""
    runs: typed(int, "runs") = 1  # type: ignore[valid-type]
    """Runs side by side, each in its own process."""
    cost_limit: typed(tuple[float, ...], "cost_limit") = (25.0,)  # type: ignore[valid-type]
    """Limits, one per constraint."""
    cost_terms: typed(tuple[str, ...], "cost_terms") = ()  # type: ignore[valid-type]
    """Terms of the cost to constrain one by one."""
    env_options: typed(dict[str, Any], "env_options") = field(default_factory=dict)  # type: ignore[valid-type]
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
    if what == "env":
        env_options = parse(BenchEnvOptions, "bench env", rest)
        _check_positive(num_envs=env_options.num_envs, seconds=env_options.seconds)
        from cspo.config import available_cores
        from cspo.envs.tools.bench import bench_env

        threads = env_options.threads or available_cores()
        result = bench_env(env_options.task, env_options.num_envs, threads, env_options.seconds)
        _show(result, env_options.json)
        return 0
    options = parse(BenchTrainOptions, "bench train", rest)
    _check_positive(epochs=options.epochs, runs=options.runs)
    from cspo.lab.bench import bench_train

    settings = {key: value for key, value in vars(options).items() if key != "json"}
    result = bench_train(**settings)
    _show(result, options.json)
    return 0


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise CspoError(f"--{name.replace('_', '-')} must be positive, not {value:g}.")


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        small = isinstance(value, float) and value < 1000
        print(f"{name:<16} {f'{value:,.4g}' if small else _rounded(value)}")


def _rounded(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)


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
    if options.json:
        print(json.dumps([report.to_dict() for report in reports]))
    else:
        print("\n\n".join(format_report(report) for report in reports))
    return 0 if all(report.ok for report in reports) else 1


@dataclass(frozen=True)
class DoctorOptions:
    """Print the versions in use and run a self-test of a few seconds."""

    json: bool = False
    """Print one JSON object."""


def doctor(arguments: Sequence[str]) -> int:
    """Run `cspo doctor`."""
    options = parse(DoctorOptions, "doctor", arguments)
    from cspo.commands.doctor import examine, format_findings

    findings = examine()
    print(json.dumps(findings) if options.json else format_findings(findings))
    return 0 if findings["healthy"] else 1
