"""The table of speeds is measured task by task, and goes on where it was interrupted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def speeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = __import__("env_speeds")
    page = f"before\n{module.START}old\n{module.END}after\n"
    (tmp_path / "README.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(module, "NUMBERS", tmp_path / "env_speeds.jsonl")
    monkeypatch.setattr(module, "ORIGINAL", tmp_path / "env_speeds_original.json")
    monkeypatch.setattr(module, "PAGE", tmp_path / "README.md")
    yield module
    del sys.modules["env_speeds"]


def run(speeds: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["env_speeds.py", *words])
    speeds.main()
    text: str = speeds.PAGE.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    return text


def test_an_interrupted_measurement_goes_on(speeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measured(name: str, size: list[str]) -> dict[str, Any]:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(name)
        row = {"task": name, "num_envs": 20, "threads": 2, "steps_per_s": 12345.6}
        return row | {"raw_steps_per_s": 10000.0, "ratio": 0.8, "reset_ms": 0.5, "peak_mb": 300.0}

    monkeypatch.setattr(speeds, "measured", measured)
    with pytest.raises(KeyboardInterrupt):
        run(speeds, monkeypatch)
    assert list(speeds.read_numbers(speeds.NUMBERS)) == asked
    assert speeds.chosen([], set(asked))[0] not in asked
    text = run(speeds, monkeypatch, "--table")
    for name in asked:
        assert f"| {name} | 12 300 | 10 000 | 0.80 | 0.50 ms | 300 MB |  |" in text
    assert f"3 of 77 tasks, 20 environments, 2 threads. Share below 0.85: {asked[0]}, " in text
    speeds.ORIGINAL.write_text(f'{{"{asked[1]}": 1234.5}}', encoding="utf-8")
    text = run(speeds, monkeypatch, "--table")
    assert f"| {asked[1]} | 12 300 | 10 000 | 0.80 | 0.50 ms | 300 MB | 1 230 |" in text
    asked.clear()
    run(speeds, monkeypatch, "racecar", "goal")
    assert asked == [f"SafetyRacecarGoal{level}-v0" for level in range(3)]


def test_a_task_is_measured_in_a_process_of_its_own(speeds: Any) -> None:
    size = ["--num-envs", "2", "--threads", "1", "--seconds", "0.05"]
    row = speeds.measured("SafetyPointRun0-v0", size)
    assert row["task"] == "SafetyPointRun0-v0" and row["num_envs"] == 2
    assert row["steps_per_s"] > 0 and 10 < row["peak_mb"] < 1000
    with pytest.raises(SystemExit, match="SafetyNothing: "):
        speeds.measured("SafetyNothing", size)
