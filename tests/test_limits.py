"""Limits that move: how they are written, what they give, and that they are resumed exactly."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from price_helpers import Scaled
from run_helpers import SMALL, TASK, TwoCosts, as_flags, assert_same_run, start, wait_for_epochs

import cspo
from cspo.config import from_dict, to_dict
from cspo.errors import CspoError
from cspo.experience.limits import Limits, Point, Schedule, read_limits
from cspo.lab.metrics import read_series, recovery
from cspo.lab.report.curves import limits, moving_limits
from cspo.lab.report.results import collect
from cspo.runs.progress import read_progress

STEPS = "2@0, 1@800 ~ 0.5@1600"
ROWS = [2.0, 2.0, 1.0, 0.75, 0.5, 0.5]  # of 400 steps each


def test_steps_and_lines_between_points() -> None:
    schedule = Schedule.parse("25@0, 15@2e6 ~ 5@4e6")
    assert [schedule.at(s) for s in (0, 1_999_999, 2_000_000)] == [25.0, 25.0, 15.0]
    assert [schedule.at(s) for s in (3_000_000, 3_500_000, 4_000_000, 10**9)] == [10, 7.5, 5, 5]
    assert schedule == Schedule([(25, 0), (15, 2e6), (5, 4e6, True)])  # type: ignore[arg-type]


numbers = st.floats(0.0, 1e6, allow_nan=False)


@given(st.lists(st.tuples(numbers, st.integers(1, 2**40), st.booleans()), max_size=5), numbers)
def test_what_is_written_is_read_again(parts: list[Any], first: float) -> None:
    points, steps = [Point(first, 0)], 0
    for limit, gap, linear in parts:
        steps += gap
        points.append(Point(limit, steps, linear))
    schedule = Schedule(tuple(points))
    assert Schedule.parse(str(schedule)) == schedule
    ends = [point.limit for point in points]
    for at in {0, *(p.steps for p in points), *(p.steps // 2 for p in points)}:
        slack = 1e-9 * max(ends)
        assert min(ends) - slack <= schedule.at(at) <= max(ends) + slack
    assert all(schedule.at(point.steps) == point.limit for point in points)


@pytest.mark.parametrize(
    ("given_as", "meant"),
    [
        (25, (25.0,)),
        ("25, 5", (25.0, 5.0)),
        ("25; 5", (25.0, 5.0)),
        ([25, 5], (25.0, 5.0)),
        ("25@0, 15@2e6; 5", (Schedule.parse("25@0, 15@2e6"), 5.0)),
        (["25@0 ~ 15@2e6", 5], (Schedule.parse("25@0 ~ 15@2e6"), 5.0)),
        (Schedule.parse("3@0"), (Schedule.parse("3@0"),)),
    ],
)
def test_one_reader_for_flags_files_and_python(given_as: Any, meant: Any, tmp_path: Path) -> None:
    assert read_limits(given_as) == meant
    config = cspo.make_config(TASK, cost_limit=given_as)
    assert config.cost_limit == meant and from_dict(to_dict(config)) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("25@0, 10", "'10' is no point of a schedule"),
        ("25@5", "its first point is at 5 steps, and must be at 0"),
        ("25@0, 5@2.5", "2.5 must be a whole number of steps"),
        ("-1@0", "the limit -1 must be zero or more and finite"),
        ("nan@0", "must be zero or more and finite"),
        ("25@0, 1@inf", "must be a whole number of steps"),
        ("25@0, 5@9, 3@9", "9 steps follow 9: steps must rise"),
        ("25@0, x@3", "'x' in 'x@3' is no limit"),
        ("25@0 ~", "'' is no point of a schedule"),
        ("25,5;3", "separate limits by commas or by semicolons"),
        ("25@0;", "that is not a number"),
        (True, "that is not a number"),
        (None, "that is not a number"),
    ],
)
def test_what_is_no_limit_is_told(text: Any, said: str) -> None:
    with pytest.raises(CspoError, match="--cost-limit") as fault:
        cspo.make_config(TASK, cost_limit=text)
    assert said in str(fault.value)


@pytest.mark.parametrize("algo", ["cspo", "cppo-pid", "cpo", "ipo"])
def test_a_schedule_that_stays_gives_the_bits_of_a_number(algo: str, tmp_path: Path) -> None:
    for name, limit in (("number", 2.0), ("schedule", "2@0 ~ 2@800, 2@1200")):
        cspo.train(TASK, algo, run_dir=tmp_path / name, quiet=True, cost_limit=limit, **SMALL)
    assert_same_run(tmp_path / "number", tmp_path / "schedule")


@pytest.mark.parametrize("algo", ["cspo", "ppo-lag"])
def test_a_schedule_is_logged_and_resumed_to_the_bit_after_a_kill(
    algo: str, tmp_path: Path
) -> None:
    settings = SMALL | {"cost_limit": STEPS}
    cspo.train(TASK, algo, run_dir=tmp_path / "whole", quiet=True, **settings)
    assert read_progress(tmp_path / "whole" / "progress.csv")["cost_limit"] == ROWS
    words = ["train", TASK, "--algo", algo, "--run-dir", tmp_path / "killed"]
    process = start(*words, *as_flags(settings))
    wait_for_epochs(tmp_path / "killed", 2, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it was still running"
    cspo.resume(tmp_path / "killed", quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    assert cspo.load(tmp_path / "whole").cost_limit.tolist() == [0.5]


def test_a_limit_set_by_hand_ends_the_schedule_also_after_resuming(tmp_path: Path) -> None:
    config = cspo.make_config(TASK, **SMALL, cost_limit=STEPS)
    with cspo.Trainer(config, run_dir=tmp_path / "run") as trainer:
        seen = [next(iter(trainer)).cost_limit]
        trainer.set_cost_limit(1.0)  # what the schedule would say as well, for a while
        trainer.save()
    with cspo.Trainer.resume(tmp_path / "run") as trainer:
        seen += [report.cost_limit for report in trainer]
    assert [limit for (limit,) in seen] == [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_several_constraints_have_schedules_of_their_own() -> None:
    sizes = {"num_envs": 2, "steps_per_epoch": 80, "total_steps": 320}
    config = cspo.make_config("two", cost_limit="9@0, 3@160; 5", **sizes)
    found = [report.cost_limit for report in cspo.Trainer(config, env=TwoCosts)]
    assert found == [(9.0, 5.0), (9.0, 5.0), (3.0, 5.0), (3.0, 5.0)]


@pytest.mark.parametrize("factor", [2.0**-10, 2.0**12])
def test_unit_of_cost_changes_no_bit_under_a_schedule(factor: float) -> None:
    """A loose start, too: the unit is of the tightest limit, and not of the first."""
    hashes = set()
    for unit in (1.0, factor):
        points = ((1e6 * unit, 0), (40.0 * unit, 1200), (20.0 * unit, 2400, True))
        config = cspo.make_config(
            "scaled", cost_limit=Schedule(points), seed=2, num_envs=4, steps_per_epoch=400,
            total_steps=2400, passes=2, minibatch_size=128, hidden_sizes=(16, 16),
        )  # fmt: skip
        trainer = cspo.Trainer(config, env=lambda unit=unit: Scaled(unit))
        list(trainer)
        hashes.add(trainer.parameter_hash())
        assert trainer.algorithm.forecast.unit[0] == 20.0 * unit / 25.0
    assert len(hashes) == 1


def test_the_size_of_costs_is_that_of_the_tightest_limit_of_a_schedule() -> None:
    target = np.array([24.0, 4.0, 0.0])
    planned = Limits(read_limits("1e6@0, 25@9; 5; 0@0 ~ 8@10"))
    assert planned.typical(target).tolist() == [25.0, 4.0, 8.0]
    planned.set(1.0, 2.0, 3.0)
    assert planned.typical(target).tolist() == target.tolist()


def test_metrics_and_reports_use_the_limit_of_each_epoch(tmp_path: Path) -> None:
    run = tmp_path / "T-v1-cspo-seed0.csv"
    rows = ["epoch,steps,return,cost,cost_limit"]
    costs, ds = [20, 20, 20, 8, 20, 8], [25, 25, 10, 10, 10, 10]
    rows += [
        f"{e},{100 * (e + 1)},5,{c},{d}" for e, (c, d) in enumerate(zip(costs, ds, strict=True))
    ]
    run.write_text("\n".join(rows) + "\n")
    found = recovery(read_series(run), skip=0.0)
    assert found.vf == 2 / 6 and found.tts == 1.0 and found.worst == 10.0
    assert [(item.start, item.end) for item in found.violations] == [(2, 3), (4, 5)]
    results = collect([tmp_path])
    assert limits(results.cells, 0) == [] and results.cells[0].limit == 10.0
    ((steps, values),) = moving_limits(results.cells, 0)
    assert steps.tolist() == [0, 100, 200, 300, 400, 500, 600]
    assert values.tolist() == [25, 25, 25, 10, 10, 10, 10]
    assert any("limit that moved" in note for note in results.notes)
