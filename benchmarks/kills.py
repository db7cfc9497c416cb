"""Kill real trainings and real studies at random moments, continue them, and compare bit for bit.

    python benchmarks/kills.py [--trainings 100] [--studies 20] [--engine local ray] [--seed 0]

A training is `cspo train` on an environment of its own, with one of five algorithms. It is killed
(SIGKILL) after a random number of epochs and a random part of the next one, or while it starts; one
in four is killed again while it resumes. A study is `cspo study run` with two runs at a time; its
parent is killed, or the process of one of its runs. On Ray, a cluster of two nodes on this machine,
every other study is in storage (an address) rather than in a shared folder. What was killed is
continued by the command a user would type, and compared with the same run undisturbed: every
column of progress.csv but the speed, every array and value of the last checkpoint, every entry of
summary.json but the time. The exit code is 1 if any differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from small_cluster import SmallCluster, small_cluster
from small_studies import (
    ALGORITHMS,
    EPOCHS,
    SETTINGS,
    STEPS,
    TASK,
    all_differences,
    as_flags,
    differences,
    kill,
    output_of,
    print_table,
    rows,
    start,
    trainers_below,
    wait_until,
    write_study,
)

from cspo.runs.checkpoint import list_checkpoints

AGAIN = 0.25  # share of resumed trainings that are killed once more
EPOCH = 0.05  # seconds: the random part of an epoch that is waited before a kill
START = 2.5  # seconds that a process takes to start: some are killed then
VICTIMS = ("parent", "worker")


@dataclass
class Trial:
    """What was disturbed, and what it came to."""

    kind: str
    kills: int = 0
    hit: list[str] = field(default_factory=list)  # what the kills left behind
    different: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def identical(self) -> bool:
        """Whether everything is as if nothing had happened."""
        return not (self.different or self.error)


def left_behind(run: Path) -> str:
    """Return in words what a kill left of a run."""
    if not (run / "config.toml").exists():
        return "nothing yet"
    if list(run.rglob(".*.partial")):
        return "a file half written"
    progress, done = run / "progress.csv", list_checkpoints(run / "checkpoints")
    if progress.exists() and not progress.read_bytes().endswith(b"\n"):
        return "a row half written"
    saved = int(done[-1].stem.removeprefix("epoch-")) if done else 0
    if rows(run) > saved:
        return "a row without its checkpoint"
    if saved == EPOCHS:
        return "all epochs, no summary"
    return "between two epochs" if saved else "before the first epoch"


def training_command(algo: str, run: Path) -> list[Any]:
    """Return the command that trains."""
    settings = {"total_steps": STEPS * EPOCHS, "checkpoint_every": 2, **SETTINGS}
    return ["train", TASK, "--algo", algo, "--run-dir", run, "--quiet", *as_flags(settings)]


def killed(process: Any, run: Path, chance: random.Random) -> bool:
    """Kill a training at a random moment; return whether it was still going on."""
    done = rows(run)
    if chance.random() < 0.1:
        time.sleep(chance.uniform(0.0, START))
    else:
        wanted = chance.randint(done, EPOCHS)
        wait_until(
            lambda: process.poll() is not None or rows(run) >= wanted, f"{wanted} epochs are done"
        )
        time.sleep(chance.uniform(0.0, EPOCH))
    kill(process.pid)
    process.communicate()
    return bool(process.returncode < 0)


def disturb_training(algo: str, folder: Path, reference: Path, chance: random.Random) -> Trial:
    """Kill a training once or more, let it finish, and compare."""
    trial = Trial(f"training: {algo}")
    try:
        while not trial.kills:  # a kill that came too late is none
            shutil.rmtree(folder, ignore_errors=True)
            trial.kills += killed(start(*training_command(algo, folder)), folder, chance)
        trial.hit.append(left_behind(folder))
        while True:
            resumable = (folder / "config.toml").exists()
            words = ["train", "--resume", folder, "--quiet"]
            process = start(*(words if resumable else training_command(algo, folder)))
            if chance.random() >= AGAIN:
                output_of(process)
                break
            if killed(process, folder, chance):
                trial.kills += 1
                trial.hit.append(left_behind(folder))
        trial.different = differences(folder, reference)
    except (RuntimeError, OSError, ValueError) as error:
        trial.error = " ".join(str(error).split())
    return trial


def trainings(kills: int, seed: int, folder: Path) -> list[Trial]:
    """Disturb trainings until there were so many kills."""
    for algo in ALGORITHMS:
        output_of(start(*training_command(algo, folder / f"reference-{algo}")))
    done: list[Trial] = []

    def disturb(i: int) -> None:
        if sum(trial.kills for trial in done) < kills:
            algo, run = ALGORITHMS[i % len(ALGORITHMS)], folder / f"training-{i}"
            chance = random.Random(f"training {seed} {i}")
            done.append(disturb_training(algo, run, folder / f"reference-{algo}", chance))
            if done[-1].identical:
                shutil.rmtree(run)
            report(done[-1])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(disturb, range(kills)))
    return done


def report(trial: Trial) -> None:
    """Say what happened, while the rest goes on."""
    came_to = "identical" if trial.identical else f"DIFFERENT {trial.different} {trial.error}"
    print(f"{trial.kind}: {trial.hit}: {came_to}", file=sys.stderr, flush=True)


@dataclass
class Place:
    """Where a study is, and what it is started with."""

    at: Path  # a folder for everything
    file: Path
    cluster: SmallCluster | None
    stored: bool = False  # in storage, by an address, rather than in a folder
    also: str = ""  # a further place for modules

    def start(self, *options: Any) -> Any:
        """Start the study, or continue it."""
        out = self.at / "out"
        words: list[Any] = [self.file, "--out", f"file://{out}" if self.stored else out]
        if self.cluster is not None:
            words += ["--engine", "ray", "--address", self.cluster.address]
        cache = str(self.at / "cache")
        return start("study", "run", *words, *options, also=self.also, XDG_CACHE_HOME=cache)

    def trainers(self) -> list[tuple[int, str]]:
        """Return the processes that train: those of runs in storage work in a folder of Ray's."""
        stored = self.stored and self.cluster is not None
        return trainers_below(self.cluster.folder if stored else self.at / "out")

    def result(self) -> Path:
        """Return the folder with the runs at the end."""
        copies = self.at / "cache" / "cspo" / "studies"
        return next(copies.iterdir()) if self.stored else self.at / "out"


def disturb_study(trial: Trial, place: Place, victim: str, chance: random.Random) -> str:
    """Kill the parent of a study, or one of its runs, and let it come to its end."""
    wanted, out = chance.randint(1, 4 * EPOCHS - 10), place.at / "out"
    process = place.start()
    wait_until(lambda: process.poll() is not None or rows(out) >= wanted, "epochs are done")
    time.sleep(chance.uniform(0.0, 2 * EPOCH))
    going = wait_until(lambda: place.trainers() or process.poll() is not None, "a run goes on")
    if process.poll() is None:
        trial.kills = 1
        kill(chance.choice(going)[0] if victim == "worker" else process.pid)
    if victim == "parent":
        process.communicate()
        process = place.start()  # at once: its workers may not be gone yet
    output = output_of(process)
    if victim == "worker" and ": its process " not in output:
        trial.kills = 0  # the run had just ended
    return output


def studies(
    kills: int, engine: str, cluster: SmallCluster | None, seed: int, folder: Path
) -> list[Trial]:
    """Disturb studies on an engine until there were so many kills."""
    settings = SETTINGS | {"env_options": {"pause": 0.001}}
    file = write_study(folder / "study.toml", settings=settings)
    reference, done, i = folder / "reference", list[Trial](), 0
    if not reference.exists():
        output_of(start("study", "run", file, "--out", reference))
    while sum(trial.kills for trial in done) < kills:
        victim, stored = VICTIMS[i % 2], cluster is not None and i // 2 % 2 == 1
        chance, place = random.Random(f"{engine} {seed} {i}"), folder / f"{engine}-{i}"
        where = f"{engine}, in storage" if stored else engine
        trial, study = (
            Trial(f"study, {where}: {victim} killed"),
            Place(place, file, cluster, stored),
        )
        try:
            output = disturb_study(trial, study, victim, chance)
            if "4 of 4 runs are finished" not in output:
                trial.error = output
            trial.different = all_differences(study.result(), reference)
        except (RuntimeError, OSError, ValueError) as error:
            trial.error = " ".join(str(error).split())
        report(trial)
        if trial.identical:
            shutil.rmtree(place)
        done.append(trial)
        i += 1
    return done


def summary(trials: list[Trial]) -> list[list[Any]]:
    """Return a line for every kind of disturbance."""
    lines = []
    for kind in dict.fromkeys(trial.kind for trial in trials):
        of_kind = [trial for trial in trials if trial.kind == kind]
        hit = Counter(text for trial in of_kind for text in trial.hit)
        same = sum(trial.identical for trial in of_kind)
        kills = sum(trial.kills for trial in of_kind)
        where = ", ".join(f"{text} {count}" for text, count in hit.most_common())
        lines.append([kind, kills, len(of_kind), same, where])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills at random moments, and what they change.")
    parser.add_argument("--trainings", type=int, default=100, help="kills of trainings")
    parser.add_argument("--studies", type=int, default=20, help="kills in studies, on each engine")
    parser.add_argument("--engine", nargs="+", default=["local", "ray"], choices=["local", "ray"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cspo-kills-"))
    trials: list[Trial] = []
    if options.trainings:
        trials += trainings(options.trainings, options.seed, folder)
    for engine in options.engine if options.studies else ():
        with small_cluster() if engine == "ray" else contextlib.nullcontext() as cluster:
            trials += studies(options.studies, engine, cluster, options.seed, folder)
    if options.json:
        print(json.dumps([asdict(trial) | {"identical": trial.identical} for trial in trials]))
    else:
        header = [
            "what was killed",
            "kills",
            "continued to the end",
            "bit-identical",
            "what was hit",
        ]
        print_table(header, summary(trials))
    if all(trial.identical for trial in trials):
        shutil.rmtree(folder)
        return 0
    print(f"What differs is kept in {folder}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
