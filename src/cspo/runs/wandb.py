"""Weights & Biases: the columns of progress.csv over environment steps, in one run there."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from cspo.config import TrainConfig, to_dict
from cspo.runs.files import write_text
from cspo.runs.plain import read_json_table
from cspo.runs.progress import as_row
from cspo.runs.sinks import in_words
from cspo.types import EpochReport

ADVICE = "WANDB_MODE=offline logs into the run folder alone, --log csv not at all"
FAULTS = ("wandb", "Weights & Biases", ADVICE)


class WeightsAndBiases:
    """The sink that logs to Weights & Biases; `wandb.json` in the run folder says which run it is.

    What its own variables say holds: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY ... Epochs that were
    logged before a kill and are trained again are not logged again: being exact, they are the same.
    """

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        """Open nothing yet: importing wandb takes a second."""
        self._folder, self._config = folder, config
        self._file = folder / "wandb.json"
        self._run: Any = None
        self._id, self._steps = "", 0  # of the run there, and of the newest epoch in it

    def write(self, report: EpochReport) -> None:
        """Log one epoch, unless it is there."""
        with in_words(*FAULTS):
            if self._run is None:
                self._run = self._open()
            if report.steps > self._steps:
                row = {name: float(value) for name, value in as_row(report).items()}
                self._run.log(row, step=report.steps)
                self._remember(report.steps)

    def _open(self) -> Any:
        import wandb

        kept = read_json_table(self._file)
        known = isinstance(kept.get("id"), str) and isinstance(kept.get("steps"), int)
        self._id, self._steps = (kept["id"], kept["steps"]) if known else (uuid.uuid4().hex, 0)
        self._remember(self._steps)
        settings = wandb.Settings(
            console="off",  # what is printed stays here
            silent=True,
            disable_git=True,
            disable_code=True,
            x_disable_meta=True,
            x_disable_stats=True,
        )
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", "cspo"),
            name=os.environ.get("WANDB_NAME", self._folder.name),
            id=self._id,
            resume="allow",
            reinit="create_new",  # beside one that the calling program may have
            dir=self._folder,
            config=to_dict(self._config),
            settings=settings,
        )

    def _remember(self, steps: int) -> None:
        self._steps = steps
        write_text(self._file, json.dumps({"id": self._id, "steps": steps}) + "\n")

    def close(self) -> None:
        """Finish the run there."""
        if self._run is not None:
            run, self._run = self._run, None
            with in_words(*FAULTS):
                run.finish()
