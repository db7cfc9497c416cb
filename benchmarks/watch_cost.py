"""What `cspo watch` costs a training: stretches with and without a page that follows it, by turns.

python benchmarks/watch_cost.py [--stretches 40]

One training, and one server of `cspo watch` beside it. In every second stretch of epochs a loop
asks the server as the page does: the page and its scripts once, then what is new every two seconds.
Stretches are neighbours in time, so that what else the machine does falls on both kinds alike; the
interval resamples pairs of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np

from cspo.runs.progress import read_progress

TASK = "SafetyHalfCheetahVelocity-v1"
COMMAND = [sys.executable, "-m", "cspo.cli"]
SCRIPTS = ("", "run.js", "plot.js", "words.js", "watch.css", "icon.svg")
EVERY = 2.0  # seconds between two questions of a page
STRETCH = 12.0  # seconds
EPOCH = 4_000  # steps: shorter than usual, so that there is more to follow


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stretches", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["--total-steps", "1e9", "--steps-per-epoch", str(EPOCH), "--num-envs", "20"]
        with subprocess.Popen(
            [*COMMAND, "train", TASK, *words, "--run-dir", run, "--quiet"]
        ) as one:
            try:
                alone, watched, shares = _by_turns(run, options.stretches)
            finally:
                one.kill()
    pairs = list(zip(alone, watched, strict=True))
    ratios = [median(with_page) / median(without) for without, with_page in pairs]
    for name, found in (("alone", alone), ("watched", watched)):
        speeds = list(chain.from_iterable(found))
        print(f"{len(speeds)} epochs {name}, median {median(speeds):,.0f} steps/s")
    draws = np.random.default_rng(0).integers(len(ratios), size=(10_000, len(ratios)))
    low, high = np.percentile(np.median(np.array(ratios)[draws], axis=1), [2.5, 97.5])
    print(f"watched against alone: {median(ratios):.3f}, 95 % interval {low:.3f} to {high:.3f}")
    print(f"the server takes {100 * median(shares):.2f} % of a core while a page is open")


def _by_turns(
    run: Path, stretches: int
) -> tuple[list[list[float]], list[list[float]], list[float]]:
    """Return speeds by stretch, alone and watched, and the server's shares of a core."""
    while not (run / "progress.csv").exists():
        time.sleep(0.2)
    time.sleep(2 * STRETCH)  # programs start, and compile
    words = [*COMMAND, "watch", str(run), "--port", "0"]
    speeds: tuple[list[list[float]], list[list[float]]] = ([], [])
    shares = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = re.search(r":(\d+)/", server.stdout.readline())
            assert port is not None
            page = Page(int(port[1]))
            page.open()
            for stretch in range(stretches):
                watched = stretch % 4 in (1, 2)  # alone, watched, watched, alone
                first, spent = _epochs(run), _processor_seconds(server.pid)
                begun = time.monotonic()
                while (now := time.monotonic()) < begun + STRETCH:
                    time.sleep(max(0.0, page.ask() if watched else begun + STRETCH - now))
                seconds = time.monotonic() - begun
                if watched:
                    shares.append((_processor_seconds(server.pid) - spent) / seconds)
                # The first one began in the stretch before.
                found = read_progress(run / "progress.csv")["steps_per_second"][first + 1 :]
                speeds[watched].append(found)
        finally:
            server.kill()
    return *speeds, shares


class Page:
    """Asks as the page in a browser does."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port)
        self._version, self._rows = "", 0

    def open(self) -> None:
        """Load the page and what belongs to it."""
        for name in SCRIPTS:
            self._get(f"/{name}")

    def ask(self) -> float:
        """Ask for what is new; returns the seconds until the next question."""
        told = json.loads(self._get(f"/data?version={self._version}&since={self._rows}"))
        self._version, self._rows = told["version"], told["since"] + len(told["rows"])
        return 0.05 if told["more"] else EVERY

    def _get(self, path: str) -> bytes:
        self._line.request("GET", path)
        return self._line.getresponse().read()


def _epochs(run: Path) -> int:
    return (run / "progress.csv").read_bytes().count(b"\n") - 1


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    main()
