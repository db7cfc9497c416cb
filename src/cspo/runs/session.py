"""`cspo.train` and `cspo.resume`: a run from start to end, what is shown of it, and Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from cspo.config import TrainConfig, make_config, with_settings
from cspo.envs.batch import BatchEnv
from cspo.envs.given import CostFunction, Environment
from cspo.errors import CspoError, EnvironmentFault
from cspo.flat import ResumeSettings, TrainSettings
from cspo.policy.network import Network
from cspo.runs.checkpoint import list_checkpoints
from cspo.runs.claim import free_folder
from cspo.runs.console import Console, make_console
from cspo.runs.curves import CurvePicture
from cspo.runs.folder import RunFolder, has_results
from cspo.runs.kernel_cache import announcement
from cspo.runs.sinks import Sink
from cspo.runs.summary import Summary, format_summary, summarise, write_summary
from cspo.runs.trainer import Trainer
from cspo.runs.warm_start import WarmStart
from cspo.setup import copies_of, object_label

if TYPE_CHECKING:
    from typing_extensions import Unpack

RUNS = Path("runs")  # where runs go that are not told where


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user; what is finished is on disk, and the run can be resumed."""


def train(
    env: Environment,
    algo: str | None = None,
    *,
    run_dir: Path | str | None = None,
    cost_fn: CostFunction | None = None,
    policy: str | Network | None = None,
    quiet: bool = False,
    sinks: Iterable[Sink] = (),
    file: Path | str | None = None,
    init_from: Path | str | WarmStart | None = None,
    **settings: Unpack[TrainSettings],
) -> Summary:
    """Train a policy and keep the run in a folder.

    Examples:
        >>> summary = cspo.train("SafetyHopperVelocity-v1", cost_limit=25, total_steps=1e6)
        >>> summary.episode_return, summary.cost, summary.run_dir

    Args:
        env: A task name, a Gymnasium id, "module:factory", a factory (called once per copy), one
            environment object (then there is one copy of it), or a `VectorEnv`. An object is never
            closed.
        algo: Algorithm, see `cspo algos`; by default the one `file` names, else "cspo".
        run_dir: A new folder for the run; by default runs/<task>-<algo>-seed<seed>.
        cost_fn: `cost_fn(observation, action, next_observation, info)` for an environment without a
            cost.
        policy: What makes your own networks, or its name `module:factory`, see docs/own-network.md.
        quiet: Print no progress.
        sinks: Further places for the numbers of every epoch: objects with `write(report)` and
            `close()`.
        file: TOML file with settings.
        init_from: Folder of a run, or what `cspo.from_sb3` returned, whose networks and normaliser
            to start from; see docs/warm-start.md.
        **settings: See `TrainConfig`; those of the algorithm may stand beside them.

    Raises:
        Interrupted: On Ctrl-C, after the epoch under way and a checkpoint; a second Ctrl-C stops at
            once.
        CspoError: If a setting or the environment is wrong.
    """
    given = None if isinstance(env, str) else env
    if given is not None and (copies := copies_of(given)) is not None:
        settings.setdefault("num_envs", copies)
    config = make_config(env if isinstance(env, str) else object_label(env), algo, file, **settings)
    start = init_from if isinstance(init_from, WarmStart) else None
    if init_from is not None and start is None:
        config = with_settings(config, init_from=str(init_from))
    own: Any = {"env": given, "cost_fn": cost_fn, "policy": policy}
    return run(config, **own, run_dir=run_dir, quiet=quiet, sinks=sinks, init_from=start)


def run(
    config: TrainConfig,
    *,
    env: Environment | None = None,
    cost_fn: CostFunction | None = None,
    policy: str | Network | None = None,
    run_dir: Path | str | None = None,
    quiet: bool = False,
    sinks: Iterable[Sink] = (),
    init_from: WarmStart | None = None,
) -> Summary:
    """Train with settings that are complete; the arguments are those of `train`."""
    task = config.task.strip("<>").replace("/", "-").replace(":", "-")
    name = f"{task}-{config.algo}-seed{config.seed}"
    folder = Path(run_dir) if run_dir else free_folder(RUNS, name)
    try:
        own: Any = {"env": env, "cost_fn": cost_fn, "policy": policy}
        trainer = Trainer(config, **own, run_dir=folder, init_from=init_from)
    except BaseException:
        if run_dir is None and not any(folder.iterdir()):
            folder.rmdir()
        raise
    return train_to_end(trainer, quiet=quiet, sinks=sinks)


def resume(
    run_dir: Path | str,
    *,
    env: Environment | None = None,
    cost_fn: CostFunction | None = None,
    policy: str | Network | None = None,
    trust: bool = False,
    quiet: bool = False,
    sinks: Iterable[Sink] = (),
    **changes: Unpack[ResumeSettings],
) -> Summary:
    """Continue a run from its newest readable checkpoint, as if it had never stopped.

    Examples:
        >>> cspo.resume("runs/mine", total_steps=2e6)

    Args:
        run_dir: The run's folder.
        env: The environment object or factory, if the run used one; or its name, to say that this
            is what may be imported.
        cost_fn: The cost function, if the run used one.
        policy: What makes the networks, if the run used such an object; or its name, to say that
            this is what may be imported.
        trust: Import the code that the run names, its task, network or plugin, also if the run was
            not started by this user here. See SECURITY.md.
        quiet: Print no progress.
        sinks: As in `train`.
        **changes: `total_steps`, or what changes no result, such as `threads` and `workers`;
            everything else stays as it was. `plugin` if that file has moved.
    """
    own: Any = {"env": env, "cost_fn": cost_fn, "policy": policy}
    trainer = Trainer.resume(run_dir, **own, trust=trust, **changes)
    return train_to_end(trainer, quiet=quiet, sinks=sinks)


def train_to_end(trainer: Trainer, *, quiet: bool, sinks: Iterable[Sink] = ()) -> Summary:
    """Train until the run is finished or stopped, write its summary and close the trainer.

    Args:
        trainer: One with a run folder.
        quiet: Print no progress.
        sinks: As in `train`.
    """
    assert trainer.run is not None
    with trainer:
        console = make_console(trainer.config, trainer.env.cost_names, trainer.epoch, quiet)
        trainer.run.sinks += [CurvePicture(trainer.run.path), *sinks, console]
        for note in trainer.run.notes:
            console.note(note)
        if not quiet and trainer.epoch < trainer.config.epochs and (first := announcement()):
            console.note(first)
        return _train(trainer, trainer.run, console, quiet)


def _train(trainer: Trainer, run: RunFolder, console: Console, quiet: bool) -> Summary:
    config, folder = trainer.config, run.shown
    if trainer.finished:
        done = f"{trainer.epoch} of {config.epochs} epochs are done"
        rule = "" if trainer.epoch >= config.epochs else f", and --stop-when {config.stop_when!r}"
        more = f"{rule} ended it: --stop-when none goes on" if rule else ""
        console.note(f"{folder} is complete: {done}{more}.")
        return _finish(trainer, run, console, quiet)
    if not quiet and (warning := episode_warning(config, trainer.env)):
        console.note(warning)
    verb = "training" if trainer.epoch == 0 else f"resuming after epoch {trainer.epoch}"
    console.start(f"{config.task}  {config.algo}  seed {config.seed}  {verb} in {folder}")
    with StopRequest() as stop:
        try:
            for _ in trainer:
                if stop.requested:
                    break
            if trainer.epoch % config.checkpoint_every and not trainer.finished:
                trainer.save()
            summary = _finish(trainer, run, console, quiet)
        except CspoError as fault:
            kind = EnvironmentFault if isinstance(fault, EnvironmentFault) else CspoError
            raise kind(_explain(trainer, run, fault)) from fault
        except KeyboardInterrupt:
            console.note(f"stopped; {how_to_resume(config, folder)}")
            raise Interrupted(f"Stopped in epoch {trainer.epoch + 1}.") from None
        except BaseException:  # of an algorithm, a sink, or of ours
            advice = _advice(trainer, run, "that", "The last checkpoint is intact. ")
            with contextlib.suppress(OSError):
                console.note(f"stopped in epoch {trainer.epoch + 1}. {advice}")
            raise
    if stop.requested and not summary.finished:
        console.note(f"stopped; {how_to_resume(config, folder)}")
        raise Interrupted(f"Stopped after epoch {trainer.epoch}.")
    return summary


def _finish(trainer: Trainer, run: RunFolder, console: Console, quiet: bool) -> Summary:
    """Write summary.json, and show it."""
    console.close()
    names, parameters = trainer.env.cost_names, trainer.parameter_hash()
    rule = trainer.config.stop_when if trainer.stopping.is_due else None
    summary = summarise(run.path, trainer.config, names, trainer.epoch, parameters, rule)
    write_summary(summary, trainer.config)
    summary = dataclasses.replace(summary, run_dir=run.shown)
    if not quiet:
        print(format_summary(summary), flush=True)
    return summary


def how_to_resume(config: TrainConfig, folder: Path) -> str:
    """Return the sentence that tells how to continue a run that stopped."""
    objects = {"env": config.task, "policy": config.network}
    if again := [f", {name}=..." for name, label in objects.items() if label.startswith("<")]:
        return f'continue with cspo.resume("{folder}"{"".join(again)})'
    return f"continue with: cspo train --resume {folder}"


def _explain(trainer: Trainer, run: RunFolder, fault: CspoError) -> str:
    """Return the fault with the epoch it happened in and what to do."""
    cause = "the environment" if isinstance(fault, EnvironmentFault) else "that"
    intact = "" if "checkpoint is intact" in str(fault) else "The last checkpoint is intact. "
    when = f"This was in epoch {trainer.epoch + 1} of {trainer.config.epochs}."
    return f"{fault} {when}\n{_advice(trainer, run, cause, intact)}"


def _advice(trainer: Trainer, run: RunFolder, cause: str, intact: str) -> str:
    if not has_results(run.path):
        return "No epoch was finished: once that is mended, start again."
    if not list_checkpoints(run.path / "checkpoints"):
        from_start = f"{how_to_resume(trainer.config, run.shown)}, which starts anew"
        return f"There is no checkpoint yet. Once {cause} is mended, {from_start}"
    return f"{intact}Once {cause} is mended, {how_to_resume(trainer.config, run.shown)}"


def episode_warning(config: TrainConfig, env: BatchEnv) -> str | None:
    """Return a sentence if an episode that runs to its time limit does not fit into an epoch."""
    steps = config.steps_per_epoch // env.num_envs
    if env.time_limit is None or env.time_limit <= steps:
        return None
    return (
        f"an episode lasts up to {env.time_limit} steps but an epoch gives each environment "
        f"{steps}: episodes that reach the time limit never finish, and until one ends early the "
        "cost is an estimate (cost_estimated). "
        f"Try --steps-per-epoch {env.time_limit * env.num_envs}, or fewer --num-envs."
    )


class StopRequest:
    """Turns the first SIGINT or SIGTERM into a request to stop, the second into an exception."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # handlers can be set only there
            for kind in (signal.SIGINT, signal.SIGTERM):
                self._previous[kind] = signal.signal(kind, self._handle)
        return self

    def _handle(self, kind: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        # Straight to the file: a handler may run in the middle of a print, and printing is not
        # re-entrant.
        line = "cspo: finishing the epoch under way; press Ctrl-C again to stop at once.\n"
        with contextlib.suppress(OSError):
            os.write(2, (("\n" if os.isatty(2) else "") + line).encode())

    def __exit__(self, *exception: object) -> None:
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
