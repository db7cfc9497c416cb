"""How long one action takes: `policy.predict`, the NumPy file and the ONNX file, batch of one.

    python benchmarks/predict.py [RUN] [--repeats 15]

Without a run it trains one for a moment. The three are timed in turn, again and again, and the best
of each is told: a busy machine can only make them slower. Observations differ from call to call.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import cspo

TASK = "SafetyHalfCheetahVelocity-v1"
CALLS = 1000  # per timing
BOUNDS = {"policy.predict": 30.0, "NumPy file": 60.0, "ONNX file": 60.0}  # microseconds


def microseconds(act: Callable[[Any], Any], observations: Any) -> float:
    """Return the mean time of one call."""
    started = perf_counter()
    for observation in observations:
        act(observation)
    return 1e6 * (perf_counter() - started) / len(observations)


def numpy_policy(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("policy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy(seed=0)


def onnx_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def measure(run: Path, folder: Path, deterministic: bool, repeats: int) -> dict[str, float]:
    policy = cspo.load(run)
    files = {
        to: cspo.export(
            run, to, deterministic=deterministic, episodes=0, out=folder / f"{to}-{deterministic}"
        ).path
        for to in ("numpy", "onnx")
    }
    plain, session = numpy_policy(files["numpy"]), onnx_session(files["onnx"])
    observations = np.random.default_rng(0).normal(size=(CALLS, policy.observation_size))
    acting: dict[str, Callable[[Any], Any]] = {
        "policy.predict": lambda x: policy.predict(x, deterministic=deterministic),
        "NumPy file": lambda x: plain.predict(x, deterministic=deterministic),
        "ONNX file": lambda x: session.run(["action"], {"observation": x[None]}),
    }
    best = dict.fromkeys(acting, np.inf)
    for _ in range(repeats):
        for name, act in acting.items():
            best[name] = min(best[name], microseconds(act, observations))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.run is None:
            options.run = folder / "run"
            cspo.train(TASK, total_steps=20_000, run_dir=options.run, quiet=True)
        modes = {"deterministic": True, "stochastic": False}
        times = {
            name: measure(options.run, folder, mode, options.repeats)
            for name, mode in modes.items()
        }
    if options.json:
        print(json.dumps(times))
    else:
        print(
            f"{'microseconds, batch of one':<28}{'deterministic':>14}{'stochastic':>12}{'bound':>8}"
        )
        for name, bound in BOUNDS.items():
            row = [times[mode][name] for mode in modes]
            print(f"{name:<28}{row[0]:>14.1f}{row[1]:>12.1f}{bound:>8.0f}")
    return int(any(times[mode][name] > bound for mode in modes for name, bound in BOUNDS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
