"""`cspo.Trainer`: the loop with a run folder around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cspo.config import TrainConfig
from cspo.errors import CspoError
from cspo.runs.folder import RunFolder
from cspo.train import Trainer as Loop
from cspo.types import EpochReport


class Trainer(Loop):
    """Trains one policy; iterate over it to get one `EpochReport` per epoch.

    Leaving the loop early is safe at any time: with a run folder, the state of every finished epoch
    that was due a checkpoint is on disk before its report is handed out. A user's environment is
    never closed.

    Args:
        config: The settings, see `cspo.make_config`.
        env: An environment object or factory; by default the one that `config.task` names.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without a
            cost.
        run_dir: Folder to keep the run in; by default nothing is written.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        env: Any = None,
        cost_fn: Any = None,
        run_dir: Path | str | None = None,
    ) -> None:
        super().__init__(config, env=env, cost_fn=cost_fn)
        self.run = None if run_dir is None else RunFolder.create(run_dir, config)

    @classmethod
    def resume(
        cls, run_dir: Path | str, *, env: Any = None, cost_fn: Any = None, **changes: Any
    ) -> Trainer:
        """Continue a run from its newest readable checkpoint, exactly as if it had never stopped.

        Args:
            run_dir: The run's folder.
            env: The environment object or factory, if the run used one.
            cost_fn: The cost function, if the run used one.
            **changes: Settings to change from here on: `total_steps`, `threads`, or `plugin` if
                that file has moved.
        """
        run, state = RunFolder.reopen(run_dir, changes)
        try:
            trainer = cls(run.config, env=env, cost_fn=cost_fn)
            if state is not None:  # else it stopped before its first checkpoint and starts anew
                trainer.load_state_dict(state)
        except BaseException:
            run.close()
            raise
        trainer.run = run
        return trainer

    def __iter__(self) -> Iterator[EpochReport]:
        """Train until the steps are used up, and keep every epoch before handing out its report."""
        for report in super().__iter__():
            if self.run is not None:
                self.run.keep(report, self)
            yield report

    def save(self) -> Path:
        """Write a checkpoint of the epochs done so far into the run folder."""
        if self.run is None:
            raise CspoError("This trainer has no run folder: pass run_dir= to keep checkpoints.")
        return self.run.save(self)
