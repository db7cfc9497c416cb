"""Runs on disk for the tests of reports: the files a run leaves, without training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from cspo.types import per_constraint

HOPPER, GOAL = "SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"
STEPS = 1000  # per epoch


def write_run(
    root: Path,
    task: str = HOPPER,
    algo: str = "cspo",
    seed: int = 0,
    *,
    returns: Sequence[float],
    cost: Sequence[Any],
    variant: str = "",
    limit: Sequence[float] = (25.0,),
    planned: int | None = None,
    columns: Mapping[str, Sequence[float]] | None = None,
    name: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Path:
    """Write a run folder; `cost` has one number per epoch, or one list of K numbers."""
    parts = [task.replace("/", "-").replace(":", "-"), algo, variant, f"seed{seed}"]
    folder = root / (name or "-".join(part for part in parts if part))
    folder.mkdir(parents=True)
    epochs = len(returns)
    settings = {
        "cspo_version": "0.1.0",
        "task": task,
        "algo": algo,
        "seed": seed,
        "cost_limit": list(limit),
        "steps_per_epoch": STEPS,
        "total_steps": STEPS * (planned or epochs),
        "num_envs": 4,
    }
    (folder / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    rows = []
    for k in range(epochs):
        row: dict[str, Any] = {"epoch": k, "steps": STEPS * (k + 1), "return": float(returns[k])}
        row |= per_constraint("cost", np.atleast_1d(cost[k])) | per_constraint("cost_limit", limit)
        row |= {column: float(values[k]) for column, values in (columns or {}).items()}
        rows.append(row)
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "progress.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if planned is None or planned == epochs:
        summary = {
            "parameter_hash": f"{abs(hash(seed)):016x}",
            "versions": dict(versions or {"torch": "2.9.0"}),
        }
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def small_study(root: Path, seeds: int = 3, epochs: int = 20) -> Path:
    """Write two tasks, three algorithms and some seeds with curves that differ from each other."""
    time = np.arange(epochs)
    for t, task in enumerate((HOPPER, GOAL)):
        for a, algo in enumerate(("cspo", "ppo-lag", "cpo")):
            for seed in range(seeds):
                random = np.random.default_rng([t, a, seed])
                cost = 25 + 12 * np.sin(0.9 * time + a) + random.normal(size=epochs)
                logged = {"multiplier": 0.05 * time + 0.1 * seed}
                if algo == "cspo":
                    logged |= {
                        "weight": np.exp(-0.1 * time),
                        "gradient_norm": random.uniform(0.1, 1.0, epochs),
                    }
                returns = 100 * (a + 1) + 10 * time + 5 * random.normal(size=epochs)
                write_run(
                    root, task, algo, seed, returns=returns, cost=np.abs(cost), columns=logged
                )
    return root
