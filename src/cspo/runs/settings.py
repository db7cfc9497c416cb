"""Settings of the run folder."""

from __future__ import annotations

from dataclasses import dataclass

from cspo.settings import positive, setting


@dataclass(frozen=True)
class FileSettings:
    """What is kept in the run folder."""

    checkpoint_every: int = setting(1, positive, changes_results=False)
    """Epochs between checkpoints; the last epoch always gets one."""
    keep_checkpoints: int = setting(2, positive, changes_results=False)
    """Newest checkpoints kept."""
    tensorboard: bool = setting(True, changes_results=False)
    """Write TensorBoard events."""
