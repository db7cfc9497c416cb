"""One run of a study, in whatever process an engine gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cspo.config import TrainConfig, from_dict
from cspo.errors import CspoError
from cspo.lab.study.repair import difference, prepare
from cspo.policy.network import is_named
from cspo.runs.folder import holds_run, load_config
from cspo.runs.session import train_to_end
from cspo.runs.trainer import Trainer


def work(settings: dict[str, Any], folder: str) -> None:
    """Train a run in `folder`, or continue the one that is there, quietly and to its end.

    Args:
        settings: `to_dict` of the run's settings.
        folder: The run's folder; what is damaged in it is repaired first.

    Raises:
        Interrupted: If the process was asked to stop; everything finished is on disk.
        CspoError: If something is wrong that trying again does not mend by itself.
    """
    config, path = from_dict(settings), Path(folder).absolute()
    prepare(config, path)
    trainer = _resumed(config, path) if holds_run(path) else Trainer(config, run_dir=path)
    train_to_end(trainer, quiet=True)


def _resumed(config: TrainConfig, path: Path) -> Trainer:
    """Continue a run; what may be imported is what the study names, whatever the folder says."""
    if (other := difference(config, path)) is not None:
        raise CspoError(f"{other}.")
    changes: dict[str, Any] = {}
    if config.threads != load_config(path).threads:
        changes["threads"] = config.threads
    if config.plugin is not None:
        changes["plugin"] = config.plugin
    named = config.network if is_named(config.network) else None
    return Trainer.resume(path, env=config.task, policy=named, **changes)
