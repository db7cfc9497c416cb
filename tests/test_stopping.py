"""Rules that end a run: what they mean, that they count over a resume, and that a run says so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from run_helpers import SMALL, TASK, assert_same_run

import cspo
from cspo.errors import CspoError
from cspo.lab.metrics import read_series
from cspo.lab.study.repair import is_finished
from cspo.runs.progress import read_progress
from cspo.runs.stopping import Condition, Stopping, parse_rule


def report(*cost: float, **values: Any) -> cspo.EpochReport:
    limits = values.pop("cost_limit", (25.0,) * len(cost))
    known = {"epoch": 0, "steps": 400, "episode_return": 1.0, "episode_length": 9.0, "kl": 0.1}
    known |= {"steps_per_second": 1.0, "seconds_rollout": 1.0, "seconds_update": 1.0}
    multiplier = (0.0,) * len(cost)
    return cspo.EpochReport(cost=cost, cost_limit=limits, multiplier=multiplier, **known | values)


def test_a_rule_is_conditions_and_a_number_of_epochs() -> None:
    rule = parse_rule(" cost<25 and  return >= -2e3 for 20 ")
    assert rule.conditions == (Condition("cost", "<", 25.0), Condition("return", ">=", -2000.0))
    assert rule.epochs == 20 and rule.text == "cost<25 and return >= -2e3 for 20"
    assert parse_rule("cost<=limit").conditions == (Condition("cost", "<=", "limit"),)


def test_conditions_hold_for_every_constraint_and_never_for_an_unknown_number() -> None:
    rule = parse_rule("cost<limit")
    assert rule.holds(report(24.0, 3.0)) and not rule.holds(report(24.0, 25.0))
    assert not rule.holds(report(24.0, 3.0, cost_limit=(25.0, 2.0)))
    assert parse_rule("cost_1<5").holds(report(99.0, 3.0))
    for sign in ("<", "<=", ">", ">="):
        assert not parse_rule(f"cost{sign}1").holds(report(math.nan))
    with pytest.raises(CspoError, match="no column 'retrun': did you mean 'return'"):
        parse_rule("cost<1 and retrun>3").holds(report(9.0))


def test_the_epochs_must_follow_one_another() -> None:
    stopping, due = Stopping("cost<10 for 3"), []
    for cost in (9.0, 9.0, 11.0, 9.0, 9.0, 9.0):
        stopping.see(report(cost))
        due.append(stopping.is_due)
    assert due == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cost", "after 'cost' comes < <= > or >=, not the end"),
        ("cost<", "after 'cost<' comes a number or a column"),
        ("cost<25 and", "a condition begins with the name of a column, not the end"),
        ("25>cost", "a condition begins with the name of a column, not 25"),
        ("cost<25 for", "after 'for' comes a whole number of epochs"),
        ("cost<25 for 0", "after 'for' comes a whole number of epochs"),
        ("cost<25 for 2.5", "after 'for' comes a whole number of epochs"),
        ("cost<25 or kl>3", "'or' does not belong there"),
        ("cost==25", "'==25' is neither name, number nor"),
        ("__import__('os')", "is neither name, number nor"),
        ("steps_per_second>9", "differs from one machine to the next"),
    ],
)
def test_what_is_no_rule_is_told(text: str, said: str) -> None:
    with pytest.raises(CspoError, match="--stop-when") as fault:
        cspo.make_config(TASK, stop_when=text)
    assert said in str(fault.value)


def test_the_count_survives_a_resume_and_the_run_says_why_it_ended(tmp_path: Path) -> None:
    settings = SMALL | {"stop_when": "steps>=1200 for 3", "checkpoint_every": 2}
    whole = cspo.train(TASK, run_dir=tmp_path / "whole", quiet=True, **settings)
    assert whole.epochs == 5 and whole.finished and whole.ended_by == "stop_when"
    config = cspo.make_config(TASK, **settings)
    with cspo.Trainer(config, run_dir=tmp_path / "parts") as trainer:
        for report in trainer:
            if report.epoch == 3:  # it has held twice
                break
    cspo.resume(tmp_path / "parts", quiet=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    summary = json.loads((tmp_path / "parts" / "summary.json").read_text())
    assert summary["ended_by"] == "stop_when" and summary["stopped_by"] == settings["stop_when"]
    assert is_finished(config.epochs, tmp_path / "parts")
    assert read_series(tmp_path / "parts").planned_epochs == 5


def test_an_ended_run_goes_on_only_without_its_rule(tmp_path: Path) -> None:
    run, plain = tmp_path / "run", tmp_path / "plain"
    cspo.train(TASK, run_dir=run, quiet=True, **SMALL, stop_when="steps>0 for 2")
    assert cspo.resume(run, quiet=True).epochs == 2
    assert cspo.resume(run, quiet=True, stop_when=None).ended_by == "total_steps"
    cspo.train(TASK, run_dir=plain, quiet=True, **SMALL)
    columns = [read_progress(folder / "progress.csv")["return"] for folder in (run, plain)]
    assert columns[0] == columns[1] and len(columns[0]) == 6
