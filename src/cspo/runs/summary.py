"""What a run came to: one screen of text and summary.json."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cspo import __version__
from cspo.config import FREE, TrainConfig, to_dict
from cspo.runs.files import write_text, writes_to
from cspo.runs.plain import without_nan
from cspo.runs.progress import constraint_columns, read_progress
from cspo.types import cost_labels

PACKAGES = ("mujoco", "gymnasium", "numpy", "numba", "scipy")


@dataclass(frozen=True)
class Summary:
    """The result of a run, over all its epochs, whichever process did them."""

    run_dir: Path
    task: str
    algo: str
    seed: int
    epochs: int  # done
    total_epochs: int
    steps: int
    episode_return: float  # mean over the last `episode_window` episodes
    cost_names: tuple[str, ...]  # K
    cost: tuple[float, ...]  # K values of J_c over the same episodes
    cost_limit: tuple[float, ...]  # K
    episode_length: float
    violation_share: float  # share of epochs in which some cost was above its limit
    steps_per_second: float  # mean over the run
    seconds: float  # spent in epochs
    parameter_hash: str
    stopped_by: str | None = None  # the rule that ended the run before all epochs were done

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or a rule has ended the run."""
        return self.ended_by != "interruption"

    @property
    def ended_by(self) -> str:
        """Why it ended: total_steps, stop_when or an interruption."""
        if self.epochs >= self.total_epochs:
            return "total_steps"
        return "interruption" if self.stopped_by is None else "stop_when"

    @property
    def violated(self) -> bool:
        """Whether the run ended with some cost above its limit."""
        return any(c > d for c, d in zip(self.cost, self.cost_limit, strict=True))


def summarise(
    run_dir: Path,
    config: TrainConfig,
    cost_names: Sequence[str],
    epochs: int,
    parameter_hash: str,
    rule: str | None = None,
) -> Summary:
    """Return the summary of a run folder after `epochs` epochs; `rule` is what ended it, if any."""
    columns = read_progress(run_dir / "progress.csv")
    costs = constraint_columns(columns, "cost")
    limits = constraint_columns(columns, "cost_limit")
    rows = len(columns.get("epoch", ()))
    violated = [any(c[i] > d[i] for c, d in zip(costs, limits, strict=True)) for i in range(rows)]
    speeds = [speed for speed in columns.get("steps_per_second", ()) if speed > 0]
    seconds = sum(config.steps_per_epoch / speed for speed in speeds)
    return Summary(
        run_dir=run_dir,
        task=config.task,
        algo=config.algo,
        seed=config.seed,
        epochs=epochs,
        total_epochs=config.epochs,
        steps=epochs * config.steps_per_epoch,
        episode_return=_last(columns.get("return")),
        cost_names=tuple(cost_names),
        cost=tuple(map(_last, costs)),
        cost_limit=tuple(map(_last, limits)),
        episode_length=_last(columns.get("episode_length")),
        violation_share=sum(violated) / rows if rows else math.nan,
        steps_per_second=rows * config.steps_per_epoch / seconds if seconds else math.nan,
        seconds=seconds,
        parameter_hash=parameter_hash,
        stopped_by=None if epochs >= config.epochs else rule,
    )


def _last(values: list[float] | None) -> float:
    return values[-1] if values else math.nan


def write_summary(summary: Summary, config: TrainConfig) -> None:
    """Write summary.json: the results, and what they were made with."""
    results = dataclasses.asdict(summary)
    del results["run_dir"]  # a run stays valid when its folder is moved
    data = {
        **without_nan(results),
        "finished": summary.finished,
        "ended_by": summary.ended_by,
        "config_digest": config_digest(config),
        "versions": versions(),
        "commit": commit(),
    }
    with writes_to(f"run folder {summary.run_dir}"):
        write_text(summary.run_dir / "summary.json", json.dumps(data, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Return the versions of everything that influences results."""
    found = {"python": platform.python_version(), "cspo": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def commit() -> str | None:
    """Return the commit of the checkout this runs from, "-dirty" if changed; None if installed."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    if not (root / ".git").exists() or package != root / "src" / "cspo":
        return None  # a user's own repository is not meant
    describe = "describe --always --dirty --abbrev=40 --exclude=*"
    words = ["git", "-C", str(root), *describe.split()]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def config_digest(config: TrainConfig) -> str:
    """Return a short digest of the settings that influence results."""
    data = {name: value for name, value in to_dict(config).items() if name not in FREE}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def format_summary(summary: Summary) -> str:
    """Return the summary as a few lines of text."""
    stopped = f"stopped after {summary.epochs} of {summary.total_epochs} epochs"
    state = "finished" if summary.ended_by == "total_steps" else stopped
    rows = [] if summary.stopped_by is None else [("stopped by", summary.stopped_by)]
    rows.append(("return", short_number(summary.episode_return)))
    labels = cost_labels(summary.cost_names)
    for name, cost, limit in zip(labels, summary.cost, summary.cost_limit, strict=True):
        verdict = "ABOVE its limit" if cost > limit else "within its limit"
        rows.append((name, f"{short_number(cost)}  {verdict} of {limit:g}"))
    span = f"{summary.steps:,} steps in {duration(summary.seconds)}"
    rows += [
        ("violated", f"in {100.0 * summary.violation_share:.0f} % of the epochs"),
        ("length", f"{short_number(summary.episode_length)} steps per episode"),
        ("speed", f"{summary.steps_per_second:,.0f} steps/s, {span}"),
        ("parameters", summary.parameter_hash),
        ("run folder", str(summary.run_dir)),
        ("picture", f"{summary.run_dir}/curve.png"),
    ]
    if summary.finished:
        rows.append(("next", f"cspo eval {summary.run_dir}"))
    width = max(len(name) for name, _ in rows)
    title = f"{summary.task}  {summary.algo}  seed {summary.seed}: {state}"
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in rows)])


def short_number(value: float) -> str:
    """Return a number for people: five significant digits, or "-" if there is none yet."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1.0 or value == 0.0 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time span such as 2:03 or 1:02:03."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
