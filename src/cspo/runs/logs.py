"""Where the numbers of every epoch go besides progress.csv: what `--log` names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cspo.config import TrainConfig
from cspo.errors import CspoError
from cspo.runs.jsonl import JsonLines
from cspo.runs.mlflow import MLflow
from cspo.runs.progress import ProgressFile
from cspo.runs.sinks import Sink
from cspo.runs.tensorboard import TensorBoard
from cspo.runs.wandb import WeightsAndBiases

EXTRAS = ("wandb", "mlflow")  # packages, and extras, of the same names


def check_logs(config: TrainConfig) -> None:
    """Refuse a log whose package is not installed, before anything is trained."""
    for name in EXTRAS:
        if name in config.log and find_spec(name) is None:
            raise CspoError(f"--log {name} needs the extra: pip install 'cspo[{name}]'.")


def open_logs(path: Path, config: TrainConfig, progress: ProgressFile) -> list[Sink]:
    """Return the sinks of a run folder; progress.csv is always one, and the last."""
    sinks: list[Sink] = []
    if "tensorboard" in config.log and config.tensorboard:
        sinks.append(TensorBoard(path / "tensorboard"))
    if "jsonl" in config.log:
        sinks.append(JsonLines(path / "progress.jsonl", progress.path))
    if "wandb" in config.log:
        sinks.append(WeightsAndBiases(path, config))
    if "mlflow" in config.log:
        sinks.append(MLflow(path, config))
    return [*sinks, progress]
