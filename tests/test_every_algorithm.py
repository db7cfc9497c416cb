"""What holds for every algorithm: one seed, one run; a killed one ends where it would have."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from run_helpers import SMALL, TASK, as_flags, assert_same_run, start, wait_for_epochs

import cspo
import cspo.runs.curves
from cspo.algorithms.registry import BUILT_IN, algorithm_names

SETTINGS = {
    **SMALL,
    "cost_limit": (0.5,),
}  # low enough to be violated, so that every part of an algorithm acts


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs."""
    monkeypatch.setattr(sys.modules["cspo.runs.curves"], "draw_curve", lambda run: run)


def test_the_paper_and_its_baselines_are_all_here() -> None:
    built_in = {name.replace("_", "-") for name in BUILT_IN}
    assert len(built_in) == 14 and built_in <= set(algorithm_names())


@pytest.mark.parametrize("algo", [name.replace("_", "-") for name in BUILT_IN])
def test_killed_and_resumed_it_ends_where_the_undisturbed_run_does(
    tmp_path: Path, algo: str
) -> None:
    reference, run = tmp_path / "reference", tmp_path / "run"
    summary = cspo.train(TASK, algo, run_dir=reference, quiet=True, **SETTINGS)
    assert summary.finished
    process = start(
        "train",
        TASK,
        "--algo",
        algo,
        "--quiet",
        "--run-dir",
        run,
        *as_flags(SETTINGS | {"threads": 2}),
    )
    wait_for_epochs(run, 2, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was still running"
    cspo.resume(run, quiet=True, threads=1)
    assert_same_run(run, reference)
