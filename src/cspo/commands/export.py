"""`cspo export`: a policy as one file, to take away."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from cspo.commands.options import (
    FileOption,
    NetworkOption,
    RunArgument,
    TaskOption,
    parse,
    same_task,
    show,
)
from cspo.errors import CspoError

if TYPE_CHECKING:
    from cspo.use.export.write import Export


@dataclass(frozen=True)
class ExportOptions:
    """Write a run's policy as one file that needs no cspo, with a model card beside it.

    Normaliser, flattening of spaces, action bounds and sampling are in the file. It is compared
    with the policy on recorded observations; the exit code is 1 if they differ.

    Examples:
        cspo export runs/SafetyHopperVelocity-v1-cspo-seed0 --to onnx
        cspo export runs/mine --to numpy --stochastic --out on-the-robot
    """

    run: RunArgument
    """The run's folder."""
    to: Literal["onnx", "torchscript", "numpy"] = "onnx"
    """For onnxruntime, for PyTorch, or a Python file that needs NumPy alone."""
    deterministic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Take means and most probable options; this is what happens without --stochastic."""
    stochastic: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Draw actions, as training did."""
    clip: bool | None = None
    """Cut actions off at their bounds; by default as in training: those of Gymnasium environments
    are, those of native tasks, whose physics clamps them, are not."""
    out: Annotated[str | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Folder to write to; by default export-FORMAT in the run's folder."""
    episodes: int = 10
    """Episodes that the policy is measured on for its card, and compared on; 0 makes no
    environment, and takes the run's summary and observations drawn from its statistics."""
    seed: int | None = None
    """Seed of the episodes; by default the run's, in a stream that training did not use."""
    checkpoint: int | None = None
    """Export the checkpoint after this epoch; by default the newest."""
    task: TaskOption = None
    """The run's task, typed again: says that its code may be imported (see SECURITY.md)."""
    network: NetworkOption = None
    """The run's network, typed again: says that its code may be imported."""
    trust: bool = False
    """Import the code that the run names, also if you did not train it here."""
    plugin: FileOption = None
    """Python file, or module, with the run's algorithm; exporting does not need it."""
    json: bool = False
    """Print a JSON object."""


def main(arguments: Sequence[str]) -> int:
    """Run `cspo export`."""
    options = parse(ExportOptions, "export", arguments)
    if options.deterministic and options.stochastic:
        raise CspoError("Choose one of --deterministic and --stochastic.")
    if options.episodes < 0:
        raise CspoError(f"--episodes must be zero or more, not {options.episodes}.")
    from cspo.runs.folder import load_config
    from cspo.use.export.write import export

    same_task(options.run, load_config(options.run, options.plugin), options.task)
    agreed: Any = {"env": options.task, "policy": options.network, "trust": options.trust}
    done = export(
        options.run,
        options.to,
        deterministic=not options.stochastic,
        clip=options.clip,
        out=options.out,
        episodes=options.episodes,
        seed=options.seed,
        checkpoint=options.checkpoint,
        **agreed,
    )
    same = dataclasses.asdict(done.comparison) | {"same": done.comparison.same}
    data = {"path": str(done.path), "comparison": same, "results": done.results}
    show(options.json, data, lambda: _told(done))
    return 0 if done.comparison.same else 1


def _told(done: Export) -> str:
    from cspo.use.export.card import fidelity

    size = done.path.stat().st_size / 1000
    return "\n".join(
        [
            f"wrote {done.path} ({size:.0f} kB), with README.md and config.json beside it",
            fidelity(done.comparison),
            f"Next: cspo eval {done.path}",
        ]
    )
