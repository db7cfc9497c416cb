"""MLflow: the columns of progress.csv over environment steps, in one run of an experiment there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import time
from typing import Any

from cspo.config import TrainConfig, to_dict
from cspo.runs.files import write_text
from cspo.runs.plain import read_json_table
from cspo.runs.progress import as_row
from cspo.runs.sinks import in_words
from cspo.types import EpochReport

MOST_PARAMETERS = 100  # in one call
LONGEST = 500  # characters of one
FAULTS = ("mlflow", "MLflow", "MLFLOW_TRACKING_URI says where it logs")


class MLflow:
    """The sink that logs to MLflow; `mlflow.json` in the run folder says where, and which run.

    MLFLOW_TRACKING_URI says where (by default the folder mlruns), MLFLOW_EXPERIMENT_NAME in which
    experiment (by default cspo). What is there of an epoch, by the store's own account, is never
    written again.
    """

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        """Open nothing yet: importing MLflow takes two seconds."""
        self._folder, self._config = folder, config
        self._store = os.environ.get("MLFLOW_TRACKING_URI") or (Path.cwd() / "mlruns").as_uri()
        self._client: Any = None
        self._id, self._resumed = "", False
        self._there: dict[str, int] = {}  # newest steps in the store, by column

    def write(self, report: EpochReport) -> None:
        """Log what is not there of one epoch."""
        with in_words(*FAULTS):
            if self._client is None:
                self._open()
            from mlflow.entities import Metric

            now, metrics = int(1000 * time()), []
            for name, value in as_row(report).items():
                if report.steps > self._newest(name):
                    metrics.append(Metric(name, float(value), now, report.steps))
                    self._there[name] = report.steps
            self._client.log_batch(self._id, metrics=metrics)

    def _newest(self, name: str) -> int:
        """Return the steps up to which a column is in the store."""
        if name not in self._there:
            there = self._client.get_metric_history(self._id, name) if self._resumed else ()
            self._there[name] = max((metric.step for metric in there), default=-1)
        return self._there[name]

    def _open(self) -> None:
        file = self._folder / "mlflow.json"
        kept = read_json_table(file)
        self._resumed = all(isinstance(kept.get(name), str) for name in ("store", "run"))
        if self._resumed:
            self._store, self._id = kept["store"], kept["run"]
        if self._store.startswith("file:") or "://" not in self._store:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # asked for since MLflow 3
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self._store)
        if self._resumed:
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(
            self._experiment(), run_name=self._folder.name
        ).info.run_id
        write_text(file, json.dumps({"store": self._store, "run": self._id}) + "\n")
        self._log_settings()

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cspo")
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _log_settings(self) -> None:
        from mlflow.entities import Param

        settings = to_dict(self._config)
        own = settings.pop("algorithm")
        settings |= {f"algorithm.{name}": value for name, value in own.items()}
        params = [Param(name, str(value)[:LONGEST]) for name, value in settings.items()]
        for first in range(0, len(params), MOST_PARAMETERS):
            self._client.log_batch(self._id, params=params[first : first + MOST_PARAMETERS])

    def close(self) -> None:
        """Say that nobody writes any more; a resumed run goes on all the same."""
        if self._client is not None:
            client, self._client = self._client, None
            with in_words(*FAULTS):
                client.set_terminated(self._id)
