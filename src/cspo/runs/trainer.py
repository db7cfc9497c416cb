"""`cspo.Trainer`: the loop with a run folder around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cspo.config import TrainConfig, with_settings
from cspo.envs.given import CostFunction, Environment
from cspo.errors import CspoError
from cspo.flat import ResumeSettings
from cspo.policy.network import Network
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.folder import RunFolder
from cspo.runs.stopping import Stopping
from cspo.runs.warm_start import WarmStart, warm_start_of
from cspo.setup import copies_of
from cspo.train import Trainer as Loop
from cspo.types import EpochReport, FloatArray

if TYPE_CHECKING:
    from typing_extensions import Unpack

Callback = TypeVar("Callback", bound=Callable[[EpochReport], object])


class Trainer(Loop):
    """Trains one policy; iterate over it to get one `EpochReport` per epoch.

    Leaving the loop early is safe at any time: with a run folder, the state of every finished epoch
    that was due a checkpoint is on disk before its report is handed out. `close`, or a `with`
    around it, gives back what was opened: files, the folder's lock, threads, and environments that
    were made here. A run that reached its end is closed by itself, unless in a `with`; so is a
    trainer that nobody holds any more. A user's environment is never closed.

    Examples:
        >>> config = cspo.make_config("SafetyHopperVelocity-v1", cost_limit=25)
        >>> with cspo.Trainer(config, run_dir="runs/mine") as trainer:
        ...     for report in trainer:
        ...         print(report.epoch, report.episode_return, report.cost)
        ...         if report.episode_return > 1500 and not report.violated:
        ...             break

    Args:
        config: The settings, see `cspo.make_config`.
        env: An environment object or factory; by default the one that `config.task` names.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without a
            cost.
        policy: What makes your own networks, or its name `module:factory`, see docs/own-network.md.
        run_dir: Folder to keep the run in; by default nothing is written.
        init_from: What `cspo.from_sb3` returned, to start from; a run is named in the settings.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        env: Environment | None = None,
        cost_fn: CostFunction | None = None,
        policy: str | Network | None = None,
        run_dir: Path | str | None = None,
        init_from: WarmStart | None = None,
        _resumed: bool = False,
    ) -> None:
        # Before there is an environment, which may change the current directory.
        folder = None if run_dir is None else Path(run_dir).absolute()
        self.run: RunFolder | None = None
        self._callbacks: list[Callable[[EpochReport], object]] = []
        self._in_with, self._owns_env = False, copies_of(env) is None  # made here, no user's object
        try:
            if init_from is not None:
                config = with_settings(config, init_from=init_from.label)
            super().__init__(config, env=env, cost_fn=cost_fn, policy=policy)
            self.stopping = Stopping(self.config.run.stop_when)
            # A run that is continued has its own state, and needs what it started from no more.
            start = None if _resumed else warm_start_of(self.config, policy, init_from)
            note = "" if start is None else start.apply(self)
            self.run = None if folder is None else RunFolder.create(folder, self.config, run_dir)
            if self.run is not None and note:
                self.run.notes.append(note)
                self.save()
        except BaseException:
            self.close()
            raise

    @classmethod
    def resume(
        cls,
        run_dir: Path | str,
        *,
        env: Environment | None = None,
        cost_fn: CostFunction | None = None,
        policy: str | Network | None = None,
        trust: bool = False,
        **changes: Unpack[ResumeSettings],
    ) -> Trainer:
        """Continue a run from its newest readable checkpoint, exactly as if it had never stopped.

        Examples:
            >>> for report in cspo.Trainer.resume("runs/mine", total_steps=2e6):
            ...     print(report.epoch, report.cost)

        Args:
            run_dir: The run's folder.
            env: The environment object or factory, if the run used one; or its name, to say that
                this is what may be imported.
            cost_fn: The cost function, if the run used one.
            policy: What makes the networks, if the run used such an object; or its name, to say
                that this is what may be imported.
            trust: Import the code that the run names, its task, network or plugin, also if the run
                was not started by this user here. See SECURITY.md.
            **changes: Settings to change from here on: `total_steps`, what changes no result
                (`threads`, `workers` ...), or `plugin` if that file has moved.
        """
        run = RunFolder.reopen(run_dir, dict(changes), env=env, policy=policy, trusted=trust)
        with ExitStack() as opened:
            opened.callback(run.close)
            trainer = cls(run.config, env=env, cost_fn=cost_fn, policy=policy, _resumed=True)
            opened.callback(trainer.close)
            run.restore(trainer, policy)
            if run.config.init_from is not None and not list_checkpoints(run.path / "checkpoints"):
                said = f"{run_dir} stopped before it kept what it started from"
                raise CspoError(f"{said}: remove the folder, and start the run again.")
            opened.pop_all()
        trainer.run = run
        return trainer

    def __iter__(self) -> Iterator[EpochReport]:
        """Train until the steps are used up or `stop_when` holds; keep an epoch, then report it."""
        epochs = super().__iter__()
        while not self.stopping.is_due and (report := next(epochs, None)) is not None:
            for call in self._callbacks:
                call(report)
            self.stopping.see(report)
            if self.run is not None:
                self.run.keep(report, self, last=self.stopping.is_due)
            yield report
        if self.run is not None and not self._in_with:
            self.close()  # the run is complete: there is nothing left to write

    def __enter__(self) -> Trainer:
        self._in_with = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._in_with = False
        self.close()

    def __del__(self) -> None:
        """Close a trainer whose loop was abandoned."""
        with suppress(Exception):
            self.close()

    def close(self) -> None:
        """Close the files, release the folder, and close what else was opened; safe twice."""
        with ExitStack() as stack:  # which goes on where one of them fails
            if hasattr(self, "learner"):
                stack.callback(self.learner.close)
            if self._owns_env and hasattr(self, "env"):
                self._owns_env = False
                stack.callback(self.env.close)
            if self.run is not None:
                stack.callback(self.run.close)

    @property
    def finished(self) -> bool:
        """Whether the steps are used up, or `stop_when` has ended the run."""
        return self.epoch >= self.config.run.epochs or self.stopping.is_due

    def on_epoch(self, callback: Callback) -> Callback:
        """Have `callback(report)` called after every epoch, before the epoch is kept on disk.

        What it changes, such as the cost limit, is in the checkpoint of that epoch. If it raises,
        the epoch is not kept, and a resumed run trains it again. May be used as a decorator.
        """
        self._callbacks.append(callback)
        return callback

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on, as nested dicts of arrays and plain values."""
        return super().state_dict() | self.stopping.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        super().load_state_dict(saved)
        self.stopping.load_state_dict(saved)

    @property
    def cost_limit(self) -> FloatArray:
        """The limits (K,) of the epoch that was done last."""
        return self.limits.now

    def set_cost_limit(self, *cost_limit: float) -> None:
        """Change the limits from the next epoch on, for good: a schedule ends here.

        Checkpoints remember it.
        """
        self.limits.set(*cost_limit)

    def save(self) -> Path:
        """Write a checkpoint of the epochs done so far into the run folder."""
        if self.run is None:
            raise CspoError("This trainer has no run folder: pass run_dir= to keep checkpoints.")
        return self.run.save(self)
