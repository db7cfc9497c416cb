"""The table of a limit that is tightened counts what it says it counts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tomli_w
from report_helpers import HOPPER, STEPS, write_run

from cspo.config import read_settings
from cspo.errors import CspoError
from cspo.lab.metrics.series import read_series

ROOT = Path(__file__).parents[1]
STEP, EPOCHS = 20, 40
LIMIT = [25.0] * STEP + [10.0] * (EPOCHS - STEP)


@pytest.fixture
def tightening(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("make_tightening")


def tightened(root: Path, algo: str, seed: int, after: list[float]) -> Path:
    """Write a run whose cost is 20 until the step, then `after`, its last value to the end."""
    cost = [20.0] * STEP + after + [after[-1]] * (EPOCHS - STEP - len(after))
    returns = np.arange(float(EPOCHS))
    columns = {"cost_limit": LIMIT, "episode_length": [100.0] * EPOCHS}
    run = write_run(root, HOPPER, algo, seed, returns=returns, cost=cost, columns=columns)
    more = {**read_settings(run / "config.toml"), "episode_window": 100}
    (run / "config.toml").write_text(tomli_w.dumps(more))
    return run


def test_epochs_until_the_limit_is_kept_and_violations_afterwards(
    tightening: ModuleType, tmp_path: Path
) -> None:
    run = tightened(tmp_path, "cspo", 0, [20.0, 15.0, 11.0, 10.0, 12.0, 9.0, 13.0, 5.0])
    found = tightening.measure(read_series(run))
    assert (found.step, found.old, found.new, found.epochs) == (STEP, 25.0, 10.0, 3)
    assert found.above == pytest.approx(2 / 17)  # 12 and 13, of the epochs from the fourth on
    assert found.worst == 3.0
    assert found.return_before == np.mean(range(10, 20)) and found.cost_before == 20.0
    assert found.return_end == np.mean(range(30, 40))
    at_once = tightening.measure(read_series(tightened(tmp_path, "cspo", 1, [10.0])))
    assert (at_once.epochs, at_once.above) == (0, 0.0)
    never = tightening.measure(read_series(tightened(tmp_path, "cspo", 2, [11.0])))
    assert never.epochs is None and np.isnan(never.above)


def test_a_limit_that_does_not_step_down_is_refused(tightening: ModuleType, tmp_path: Path) -> None:
    run = write_run(tmp_path, returns=[1.0] * 3, cost=[1.0] * 3)
    with pytest.raises(CspoError, match="does not step down exactly once"):
        tightening.measure(read_series(run))


def test_the_page_gets_picture_and_table_and_the_same_again(
    tightening: ModuleType, tmp_path: Path
) -> None:
    for seed, after in ((0, [12.0, 8.0]), (5, [11.0, 11.0, 12.0, 9.0])):
        tightened(tmp_path / "study", "cspo", seed, after)
        tightened(tmp_path / "study", "ppo-lag", seed, [30.0])
        tightened(tmp_path / "study", "cppo-pid", seed, [30.0 if seed else 9.0])
    page = tmp_path / "docs" / "limits.md"
    page.parent.mkdir()
    page.write_text("Head.\n\n<!-- tightening -->\nSTALE\n<!-- end -->\n\nWords stay.\n")
    tightening.main(tmp_path / "study", tmp_path)
    text = page.read_text()
    assert "STALE" not in text and text.startswith("Head.") and text.endswith("Words stay.\n")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line[:2] == "| "}
    assert rows["CSPO"].split("|")[2:5] == [" 2.0 (1, 3) ", " 0 (0, 0) % ", " -1.0 "]
    assert rows["PPO-Lag"].split("|")[2:5] == [" (never, never) ", " (–, –) % ", " – "]
    assert rows["CPPO-PID"].split("|")[2] == " (0, never) "  # no mean of those that recovered
    assert "after 20 epochs the limit steps from 25 to 10" in text
    assert f"40 epochs of {STEPS:,} steps" in text and "an epoch ends about 10:" in text
    picture = (tmp_path / "docs" / "tightening.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    tightening.main(tmp_path / "study", tmp_path)
    assert page.read_text() == text
    assert (tmp_path / "docs" / "tightening.png").read_bytes() == picture


def test_the_committed_table_is_what_the_results_give(tightening: ModuleType) -> None:
    if not (tightening.STUDY / "runs").is_dir():
        pytest.skip("results/tightening holds no runs")
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    cells = tightening.collect([tightening.STUDY]).cells
    assert tightening.filled(text, cells) == text, "run python docs/make_tightening.py"
