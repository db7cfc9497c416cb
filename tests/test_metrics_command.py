"""`cspo metrics` on run folders and on files of others; what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cspo import cli

OMNISAFE = Path(__file__).parents[2] / "shared" / "reference" / "omnisafe"
SAFE, HOT = 20.0, 30.0
QUICK = [SAFE, SAFE, SAFE, HOT, SAFE, SAFE, HOT, HOT, SAFE, SAFE]  # TTS 1 and 2


def write_run(
    folder: Path, cost: list[float], seed: int = 0, returns: float = 2.0, **settings: Any
) -> Path:
    folder.mkdir(parents=True)
    rows = [f"{k},{returns},{value},25.0" for k, value in enumerate(cost)]
    (folder / "progress.csv").write_text(
        "\n".join(["epoch,return,cost,cost_limit", *rows]) + "\n", encoding="utf-8"
    )
    plain = {
        "task": "Task-v0",
        "algo": "cspo",
        "seed": seed,
        "total_steps": 100,
        "steps_per_epoch": 10,
        **settings,
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return folder


def run(*words: Any) -> int:
    return cli.main(["metrics", *map(str, words)])


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return found


def test_one_row_per_run_and_the_summary_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_run(tmp_path / "one", QUICK)
    two = write_run(tmp_path / "two", [SAFE] * 10, seed=1)
    assert run(one, two) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "run",
        "VF",
        "#V",
        "TTS",
        "RP",
        "worst",
        "violations",
        "open",
        "RP?",
    ]
    assert lines[1].split()[1:] == [
        "0.429",
        "3",
        "of",
        "7",
        "1.50",
        "1.000",
        "5.0",
        "2",
        "0",
        "+",
        "0",
        "0",
    ]
    assert lines[2].split()[1:] == [
        "0.000",
        "0",
        "of",
        "7",
        "-",
        "-",
        "-5.0",
        "0",
        "0",
        "+",
        "0",
        "0",
    ]
    (summary,) = [line for line in lines if line.startswith("Task-v0 cspo, 2 runs")]
    assert "0.214 ± 0.303" in summary
    assert "1.50 (1/2)" in summary  # one of two seeds has a TTS
    assert any(line.startswith("TTS  ") for line in lines)  # the notes


def test_json_is_complete_and_has_null_for_undefined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_run(tmp_path / "one", QUICK)
    two = write_run(tmp_path / "two", [HOT] * 10, seed=1, returns=-1.0)
    assert run(one, two, "--json") == 0
    found = as_json(capsys)
    first, second = found["runs"]
    assert first["run"] == str(one)
    assert (first["task"], first["algo"], first["seed"], first["window"]) == (
        "Task-v0",
        "cspo",
        0,
        [3, 10],
    )
    assert (first["tts"], first["rp"], first["violating_epochs"]) == (1.5, 1.0, 3)
    assert [(v["start"], v["end"], v["tts"], v["rp"]) for v in first["violations"]] == [
        (3, 4, 1, 1),
        (6, 8, 2, 1),
    ]
    assert (second["tts"], second["rp"], second["vf"]) == (None, None, 1.0)
    assert (second["open_at_start"], second["open_at_end"]) == (1, 1)
    (summary,) = found["summaries"]
    assert summary["runs"] == [str(one), str(two)]
    assert summary["tts"] == {"mean": 1.5, "std": None, "count": 1}
    assert summary["sensitivity_split"]["flat"]["tts"] is None


def test_runs_with_other_settings_are_not_summarised_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run(tmp_path / "a", QUICK), write_run(tmp_path / "b", QUICK, seed=1, gamma=0.9)]
    assert run(*runs, "--json") == 0
    assert as_json(capsys)["summaries"] == []


def test_files_named_after_their_run_are_summarised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for seed in (0, 1):
        folder = write_run(tmp_path / f"run{seed}", QUICK, seed)
        files.append(
            (folder / "progress.csv").rename(tmp_path / f"Thing-v3-ppo-lag-wide-seed{seed}.csv")
        )
    assert run(*files, "--json") == 0
    (summary,) = as_json(capsys)["summaries"]
    assert (summary["task"], summary["algo"], summary["variant"], summary["seeds"]) == (
        "Thing-v3",
        "ppo-lag",
        "wide",
        2,
    )


def test_the_sensitivity_split_is_shown_where_the_norm_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.csv"
    norms = [0, 0, 0, 2.0, 0, 0, 1.0, 0, 0, 0]  # the violation of one epoch is the steeper one
    rows = [f"2,{cost},25,{norm}" for cost, norm in zip(QUICK, norms, strict=True)]
    file.write_text(
        "\n".join(["return,cost,cost_limit,gradient_norm", *rows]) + "\n", encoding="utf-8"
    )
    assert run(file) == 0
    shown = capsys.readouterr().out
    assert (
        "flat TTS 2.00, RP 1.000 (1 violations); steep TTS 1.00, RP 1.000 (1 violations)" in shown
    )
    assert run(file, "--json") == 0
    parts = as_json(capsys)["runs"][0]["sensitivity_split"]
    assert (parts["flat"]["tts"], parts["steep"]["tts"]) == (2.0, 1.0)


def test_skip_limit_and_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.csv"
    file.write_text("J,Jc\n" + "".join(f"2,{value}\n" for value in QUICK), encoding="utf-8")
    words = [
        "--return-column",
        "J",
        "--cost-column",
        "Jc",
        "--limit",
        "10",
        "--skip",
        "0",
        "--json",
    ]
    assert run(file, *words) == 0
    (found,) = as_json(capsys)["runs"]
    assert (found["window"], found["vf"], found["task"]) == ([0, 10], 1.0, None)


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (None, [], "Cannot read"),
        ("", [], "it is empty"),
        ("return,cost,cost_limit\n", [], "nothing below its header"),
        ("return,cost,cost_limit\n1,x,25\n", [], "column 'cost', line 2: 'x' is not a number"),
        ("return,price,cost_limit\n1,2,25\n", [], "Name it with --cost-column"),
        ("return,cost\n1,2\n", [], "--limit 25"),
        ("return,cost,cost_limit\n1,2,25\n", ["--cost-column", "costt"], "did you mean 'cost'?"),
        ("return,cost,cost_limit\n1,2,25\n", ["--skip", "1"], "--skip must be"),
        (
            "return,cost,cost_limit\n1,2,25\n",
            ["--limit", "lots"],
            "--limit lots: that is not a number",
        ),
        ("return,cost,cost_limit\n1,2,25\n", ["--limits", "3"], "has no option --limits"),
    ],
)
def test_mistakes_are_one_clear_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    words: list[str],
    message: str,
) -> None:
    file = tmp_path / "log.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert run(file, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("cspo: error: ")
    assert err.count("\n") == 1


def test_no_run_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "Name the runs" in capsys.readouterr().err


@pytest.mark.skipif(not OMNISAFE.exists(), reason="the reference data are not here")
def test_omnisafe_s_own_file(capsys: pytest.CaptureFixture[str]) -> None:
    raw = OMNISAFE / "raw_progress_SafetyHopperVelocity-v1.csv"
    assert run(raw) == 2
    assert "--limit 25" in capsys.readouterr().err
    assert run(raw, "--limit", "25", "--json") == 0
    (found,) = as_json(capsys)["runs"]
    assert (
        found["violating_epochs"],
        found["tts"],
        found["open_at_start"],
        found["open_at_end"],
    ) == (15, 3.0, 1, 1)


def test_the_command_does_not_load_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", QUICK)
    code = (
        "import sys; from cspo.commands.metrics import metrics; metrics(sys.argv[1:]);"
        "print(sorted({'torch', 'mujoco', 'numba', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_code_of_the_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    (code,) = re.findall(
        r"```python\n(.*?)```", (root / "docs/recovery-metrics.md").read_text("utf-8"), re.DOTALL
    )
    exec(compile(code, "docs/recovery-metrics.md", "exec"), {})
    assert capsys.readouterr().out.startswith("Spread(mean=2.41")
