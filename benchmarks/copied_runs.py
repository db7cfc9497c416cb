"""Replaces the training of a run by copying one that is finished, for the load of the rest.

Imported where `study_load.py` starts a study, and in the processes of its runs: each run is still a
process of its own with everything around training as it is, and ends after some milliseconds.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import cspo.lab.study.engine
import cspo.lab.study.worker
from cspo.config import from_dict
from cspo.lab.study.repair import prepare
from cspo.runs.folder import write_config
from cspo.runs.progress import read_rows

MODEL = "CSPO_COPIED_RUN"  # environment variable: the folder of the finished run


def work(settings: dict[str, Any], folder: str) -> None:
    """Write the files of a finished run, with costs and returns of its own."""
    model, path, config = Path(os.environ[MODEL]), Path(folder), from_dict(settings)
    prepare(config, path)
    (path / "checkpoints").mkdir(parents=True)
    write_config(path, config)
    for checkpoint in (model / "checkpoints").iterdir():
        (path / "checkpoints" / checkpoint.name).write_bytes(checkpoint.read_bytes())
    chance = random.Random(f"{config.seed} {config.algo} {config.cost_limit}")
    (_, header), *rows = read_rows(model / "progress.csv")
    lines = [",".join(header)]
    for _, cells in rows:
        own = {"return": chance.gauss(3.0, 1.0), "cost": chance.gauss(3.0, 1.0)}
        own |= {"cost_limit": config.cost_limit[0]}
        pairs = zip(header, cells, strict=True)
        lines.append(",".join(repr(own[name]) if name in own else cell for name, cell in pairs))
    (path / "progress.csv").write_text("\n".join(lines) + "\n")
    (path / "summary.json").write_bytes((model / "summary.json").read_bytes())


cspo.lab.study.worker.work = work
cspo.lab.study.engine.PRELOADED.append(__name__)
