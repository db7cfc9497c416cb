"""`cspo doctor`: what is installed, and whether it works."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from cspo.commands.options import parse, show
from cspo.config import available_cores, make_config
from cspo.runs.summary import versions

TASK = "SafetyHopperVelocity-v1"
MUJOCO_FROM, MUJOCO_BEFORE = (3, 2, 7), (3, 5)  # 3.5 changed the benchmark's physics


@dataclass(frozen=True)
class DoctorOptions:
    """Print the versions in use and run a self-test of a few seconds."""

    json: bool = False
    """Print one JSON object."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo doctor`."""
    options = parse(DoctorOptions, "doctor", arguments)
    findings = examine()
    show(options.json, findings, lambda: format_findings(findings))
    return 0 if findings["healthy"] else 1


def examine() -> dict[str, Any]:
    """Return versions, machine and the results of a short self-test, as JSON-compatible data."""
    found = versions()
    missing = [name for name, version in found.items() if version == "missing"]
    packages = f"missing: {', '.join(missing)}" if missing else "all installed"
    checks = [
        _result("packages", not missing, packages),
        _result("mujoco version", *_mujoco_version(found["mujoco"])),
    ]
    machine: dict[str, Any] = {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": available_cores(),
    }
    looks = {"torch": _torch, "stepper": _stepper, "drawing": _drawing}
    machine |= {name: None if missing else look() for name, look in looks.items()}
    if not missing:
        tested, machine["kernels"] = _test_everything()
        checks += tested
    healthy = all(check["ok"] for check in checks)
    return {"versions": found, "machine": machine, "checks": checks, "healthy": healthy}


def _result(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "detail": detail}


def _timed(name: str, test: Callable[[], str]) -> dict[str, Any]:
    started = perf_counter()
    try:
        detail = test()
    except Exception as error:  # whatever goes wrong here is a finding
        return _result(name, False, f"{type(error).__name__}: {error}")
    return _result(name, True, f"{detail} ({perf_counter() - started:.1f} s)")


def _mujoco_version(text: str) -> tuple[bool, str]:
    try:
        found = tuple(int(part) for part in text.split(".")[:3])
    except ValueError:
        return False, f"{text}: pip install 'mujoco>=3.2.7,<3.5'"
    if MUJOCO_FROM <= found < MUJOCO_BEFORE:
        return True, f"{text}, within 3.2.7 to 3.4, where the tasks match the benchmark"
    return False, f"{text}: the tasks match the benchmark only on >=3.2.7,<3.5"


def _torch() -> str:
    """Return the version of PyTorch, which only losses written in it need."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed; only losses written in it need it: pip install 'cspo[torch]'"


def _stepper() -> str:
    """Return which stepper native tasks use here: "compiled", or the slower "python"."""
    from cspo.envs.velocity.task import VelocityEnv

    try:
        with closing(VelocityEnv(TASK)) as env:
            return env.physics.stepper
    except Exception as error:
        return f"none ({type(error).__name__})"


def _drawing() -> str:
    """Return what draws pictures here and whether videos can be written; training needs neither."""
    from cspo.envs.tools.opengl import find_backend

    backend = find_backend()
    if backend.name is None:
        return f"not possible: {backend.fault.splitlines()[0]}"
    video = "" if importlib.util.find_spec("av") else "; no .mp4 videos: pip install 'cspo[video]'"
    return f"{backend.name}, without a screen{video}"


def _test_everything() -> tuple[list[dict[str, Any]], str]:
    """Return how a task and training work, and what is known of the compiled inner loops."""
    from numba.core.event import install_timer

    from cspo.runs.kernel_cache import announcement, describe

    if first := announcement():
        print(f"cspo: {first}", file=sys.stderr, flush=True)
    seconds = [0.0]
    tests = {"environment": _step_task, "training": _train_and_reload}
    with install_timer("numba:compile", seconds.append):
        checks = [_timed(name, test) for name, test in tests.items()]
    taken = f"compiled just now in {sum(seconds):.1f} s" if sum(seconds) else "nothing to compile"
    return checks, f"{taken}; {describe()}"


def _step_task() -> str:
    import numpy as np

    from cspo.envs import make_batch

    with closing(make_batch(TASK, 4, available_cores())) as env:
        first = env.reset(seed=0).copy()
        actions = np.zeros((env.num_envs, env.action_size))
        for _ in range(200):
            result = env.step(actions)
        if not (np.isfinite(first).all() and np.isfinite(result.observation).all()):
            raise ValueError("the simulator gave non-finite numbers")
        if not np.array_equal(env.reset(seed=0), first):
            raise ValueError("the same seed gave another initial state")
    return f"{TASK} resets and steps"


def _train_and_reload() -> str:
    from cspo.runs import checkpoint
    from cspo.train import Trainer

    small: Any = {"num_envs": 4, "steps_per_epoch": 800, "total_steps": 1600, "passes": 2}
    config = make_config(TASK, **small)
    trainer, again = Trainer(config), Trainer(config)
    with closing(trainer.env), closing(again.env):
        next(iter(trainer))
        with tempfile.TemporaryDirectory(prefix="cspo-doctor-") as folder:
            path = checkpoint.save(Path(folder), trainer.epoch, trainer.state_dict())
            again.load_state_dict(checkpoint.load(path))
        if again.parameter_hash() != trainer.parameter_hash():
            raise ValueError("a checkpoint did not give back the parameters it was written from")
    return "one epoch trains, and its checkpoint reads back exactly"


def format_findings(findings: dict[str, Any]) -> str:
    """Return the findings as text."""
    lines = [f"{name:<10}  {version}" for name, version in findings["versions"].items()]
    machine = findings["machine"]
    lines += [
        "",
        f"{'platform':<14}  {machine['platform']}",
        f"{'cores':<14}  {machine['cores']} available",
        f"{'PyTorch':<14}  {machine['torch']}",
        f"{'stepper':<14}  {machine['stepper']}",
        f"{'drawing':<14}  {machine['drawing']}",
        f"{'kernels':<14}  {machine.get('kernels')}",
        "",
    ]
    for check in findings["checks"]:
        lines.append(f"{'ok' if check['ok'] else 'FAILED':<6}  {check['name']}: {check['detail']}")
    wrong = "Something is wrong: see FAILED above."
    return "\n".join([*lines, "Everything works." if findings["healthy"] else wrong])
