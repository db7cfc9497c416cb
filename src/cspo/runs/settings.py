"""Settings of the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cspo.settings import positive, setting


@dataclass(frozen=True)
class FileSettings:
    """What is kept in the run folder."""

    checkpoint_every: int = setting(1, positive, changes_results=False)
    """Epochs between checkpoints; the last epoch always gets one."""
    keep_checkpoints: int = setting(2, positive, changes_results=False)
    """Newest checkpoints kept."""
    log: tuple[Literal["csv", "tensorboard", "jsonl", "wandb", "mlflow"], ...] = setting(
        ("csv", "tensorboard"), changes_results=False
    )
    """Where the numbers of every epoch go; progress.csv, which resuming and reports read, is
    written whether csv is named or not. See docs/logging.md."""
    tensorboard: bool = setting(True, changes_results=False)
    """Write TensorBoard events, if --log names them."""
