"""Recovery metrics: series with known answers, every corner case, another transcription."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cspo.errors import CspoError
from cspo.lab.metrics import Series, read_series, recovery, sensitivity_split, summarise

OMNISAFE = Path(__file__).parents[2] / "shared" / "reference" / "omnisafe"
NAN = math.nan


def make(
    g: Sequence[float],
    returns: Sequence[float] | None = None,
    planned: int | None = None,
    **columns: Sequence[float],
) -> Series:
    """A run with limit 25 and cost 25 + g."""
    n = len(g)
    return Series(
        name="hand-made",
        steps=np.arange(1.0, n + 1),
        returns=np.ones(n) if returns is None else np.array(returns, dtype=float),
        cost=25.0 + np.array(g, dtype=float)[:, None],
        limit=np.full((n, 1), 25.0),
        columns={name: np.array(values, dtype=float) for name, values in columns.items()},
        planned_epochs=n if planned is None else planned,
    )


def test_two_violations_by_hand() -> None:
    #          0  1  2 |3  4  5  6  7   8  9
    g = [-1, 9, -1, -1, 2, 3, -1, 4, -1, -1]
    J = [0, 0, 0, 0, 10, 0, 12, 20, 15, 0]
    found = recovery(make(g, J))
    assert found.window == (3, 10)
    assert found.violating_epochs == 3
    assert found.vf == pytest.approx(3 / 7)
    assert [(v.start, v.end) for v in found.violations] == [(4, 6), (7, 8)]
    assert [v.tts for v in found.violations] == [2, 1]
    assert found.tts == pytest.approx(1.5)
    assert [v.rp for v in found.violations] == pytest.approx([1.2, 0.75])
    assert found.rp == pytest.approx(0.975)
    assert found.worst == pytest.approx(4.0)  # the 9 is before the window
    assert (found.open_at_start, found.open_at_end, found.rp_undefined, found.unknown_epochs) == (
        0,
        0,
        0,
        0,
    )


def test_a_cost_at_the_limit_is_safe() -> None:
    found = recovery(make([0.0, 1.0, 0.0, 0.0]), skip=0.0)
    assert found.violating_epochs == 1
    assert [(v.start, v.end) for v in found.violations] == [(1, 2)]


def test_the_paper_s_window() -> None:
    assert recovery(make([-1.0] * 500)).window == (150, 500)


def test_under_way_at_the_start_counts_in_vf_only() -> None:
    #    0   1  2 |3  4   5   6  7   8   9
    g = [-1, 1, 1, 1, 1, -1, -1, 1, -1, -1]
    found = recovery(make(g, [1, 1, 1, 1, 1, 5, 1, 2, 4, 1]))
    assert found.violating_epochs == 3
    assert found.open_at_start == 1
    assert [(v.start, v.end) for v in found.violations] == [(7, 8)]
    assert (found.tts, found.rp) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("g", "open_at_start", "violations"),
    [
        ([-1, -1, 1, -1, -1, -1, -1, -1, -1, -1], 0, 0),  # ends on the window's first epoch
        ([-1, -1, -1, 1, -1, -1, -1, -1, -1, -1], 0, 1),  # starts on it
        ([-1, -1, 1, 1, -1, -1, -1, -1, -1, -1], 1, 0),  # goes on over it
    ],
)
def test_the_edge_of_the_window(g: list[float], open_at_start: int, violations: int) -> None:
    found = recovery(make(g))
    assert (found.open_at_start, len(found.violations)) == (open_at_start, violations)


def test_a_violation_of_the_very_first_epoch_starts_there() -> None:
    found = recovery(make([1, 1, -1, -1]), skip=0.0)
    assert (found.open_at_start, found.tts) == (0, 2.0)


def test_open_at_the_end_is_left_out_and_counted() -> None:
    found = recovery(make([-1, -1, -1, 1, -1, -1, -1, -1, 1, 1], [1, 1, 1, 4, 2, 1, 1, 1, 9, 9]))
    assert found.open_at_end == 1
    assert found.violations[-1].end is None
    assert found.violations[-1].return_end is None
    assert math.isnan(found.violations[-1].tts)
    assert (found.tts, found.rp) == (1.0, 0.5)
    assert found.violating_epochs == 3


def test_a_violation_over_the_whole_window_is_open_at_both_ends() -> None:
    found = recovery(make([1.0] * 10))
    assert (found.open_at_start, found.open_at_end, found.vf) == (1, 1, 1.0)
    assert found.violations == ()
    assert math.isnan(found.tts)
    assert math.isnan(found.rp)


@pytest.mark.parametrize("first", [0.0, -3.0, NAN])
def test_a_return_that_is_not_positive_has_no_rp_but_a_tts(first: float) -> None:
    found = recovery(
        make([-1, -1, -1, 1, 1, -1, 1, -1, -1, -1], [1, 1, 1, first, 1, 7, 2, 3, 1, 1])
    )
    assert found.rp_undefined == 1
    assert found.tts == pytest.approx(1.5)
    assert found.rp == pytest.approx(1.5)


def test_a_negative_return_at_the_end_gives_a_negative_rp() -> None:
    assert recovery(make([-1, -1, -1, 1, -1], [1, 1, 1, 2, -1])).rp == pytest.approx(-0.5)


def test_no_violation_at_all() -> None:
    found = recovery(make([-1.0] * 10))
    assert (found.vf, found.violating_epochs, found.violations) == (0.0, 0, ())
    assert math.isnan(found.tts)
    assert math.isnan(found.rp)


def test_unknown_epochs_neither_start_nor_end_a_violation() -> None:
    #                     |3  4    5  6    7   8   9
    found = recovery(make([-1, -1, -1, 1, NAN, 1, NAN, -1, NAN, -1]))
    assert found.unknown_epochs == 3
    assert found.violating_epochs == 2
    assert found.vf == pytest.approx(2 / 4)
    assert [(v.start, v.end) for v in found.violations] == [(3, 7)]


def test_fewer_rows_than_planned_keep_the_planned_window() -> None:
    found = recovery(make([1, -1, -1, 1, -1, -1], planned=10))
    assert found.window == (3, 6)
    assert found.vf == pytest.approx(1 / 3)
    assert found.tts == 1.0


def test_an_empty_window_has_no_metrics() -> None:
    found = recovery(make([1.0, 1.0], planned=10))
    assert found.window == (3, 3)
    assert math.isnan(found.vf)
    assert (found.violating_epochs, found.open_at_start, found.open_at_end) == (0, 0, 0)
    assert summarise([found]).violating_epochs.count == 0


@pytest.mark.parametrize("skip", [-0.1, 1.0, NAN])
def test_a_skip_that_makes_no_sense_is_refused(skip: float) -> None:
    with pytest.raises(CspoError, match="--skip"):
        recovery(make([1.0, -1.0]), skip)


def test_gradient_norm_is_taken_where_the_violation_starts() -> None:
    found = recovery(make([-1, 1, 1, -1], gradient_norm=[9, 0.5, 8, 7]), skip=0.0)
    assert found.violations[0].gradient_norm == 0.5
    assert recovery(make([-1, 1, 1, -1]), skip=0.0).violations[0].gradient_norm is None
    assert (
        recovery(make([-1, 1, -1], gradient_norm=[1, NAN, 1]), skip=0.0).violations[0].gradient_norm
        is None
    )


def test_with_several_constraints_the_most_violated_one_counts() -> None:
    cost = np.array([[0.0, 0.0], [26.0, 9.0], [24.0, 6.0], [24.0, 4.0]])
    series = Series(
        name="two",
        steps=np.arange(4.0),
        returns=np.array([1.0, 2.0, 3.0, 5.0]),
        cost=cost,
        limit=np.tile([25.0, 5.0], (4, 1)),
        columns={"gradient_norm_0": np.full(4, 10.0), "gradient_norm_1": np.full(4, 20.0)},
        planned_epochs=4,
    )
    found = recovery(series, skip=0.0)
    assert [(v.start, v.end, v.gradient_norm) for v in found.violations] == [(1, 3, 20.0)]
    assert found.rp == 2.5


def brute_force(
    g: Sequence[float], J: Sequence[float], planned: int
) -> tuple[float, int, list[int], list[float]]:
    """VF, #V, all TTS and RP by asking every pair of epochs whether a violation starts and ends."""
    n, first = len(g), round(0.3 * planned)
    window = [k for k in range(n) if k >= first]
    bad = [k for k in window if g[k] > 0]
    lengths, ratios = [], []
    for s in window:
        for e in range(s + 1, n):
            begins = g[s] > 0 and (s == 0 or not g[s - 1] > 0)
            lasts = all(g[k] > 0 for k in range(s, e))
            if begins and lasts and g[e] <= 0:
                lengths.append(e - s)
                if J[s] > 0:
                    ratios.append(J[e] / J[s])
    return (len(bad) / len(window) if window else NAN), len(bad), lengths, ratios


def test_random_series_against_the_definition() -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        n = int(rng.integers(1, 60))
        planned = n + int(rng.integers(0, 3)) * int(rng.integers(0, 30))
        g = np.convolve(rng.normal(size=n + 4), np.ones(5) / 2, mode="valid").round(
            1
        )  # long and short stretches
        J = rng.normal(loc=1.0, size=n)
        found = recovery(make(g, J, planned))
        vf, count, lengths, ratios = brute_force(g.tolist(), J.tolist(), planned)
        np.testing.assert_equal(found.vf, vf)
        assert found.violating_epochs == count
        assert [v.tts for v in found.violations if v.end is not None] == lengths
        np.testing.assert_allclose(found.tts, np.mean(lengths) if lengths else NAN)
        np.testing.assert_allclose(found.rp, np.mean(ratios) if ratios else NAN)
        assert found.rp_undefined == len(lengths) - len(ratios)
        inside = sum(
            v.end - v.start if v.end is not None else n - v.start for v in found.violations
        )
        assert inside <= count
        assert (inside < count) == bool(
            found.open_at_start
        )  # the rest was under way when the window began
        assert found.open_at_end == int(n > found.window[0] and g[-1] > 0)


def test_summary_over_seeds_by_hand() -> None:
    one = recovery(make([-1, 1, -1, -1], [1, 2, 4, 1]), skip=0.0)  # VF 1/4, TTS 1, RP 2
    two = recovery(
        make([-1, 1, 1, 1, -1, -1, -1, 1], [1, 2, 0, 0, 2, 0, 0, 0]), skip=0.0
    )  # VF 1/2, TTS 3, RP 1
    none = recovery(make([-1, -1]), skip=0.0)
    found = summarise([one, two, none])
    assert found.seeds == 3
    assert (found.tts.mean, found.tts.count) == (2.0, 2)
    assert found.tts.std == pytest.approx(math.sqrt(2.0))
    assert (found.rp.mean, found.rp.count) == (1.5, 2)
    assert found.vf.mean == pytest.approx(0.25)
    assert found.violating_epochs.mean == pytest.approx(5 / 3)
    assert (found.violations, found.open_at_end, found.without_violation) == (3, 1, 1)
    assert (found.open_at_start, found.rp_undefined, found.unknown_epochs) == (0, 0, 0)


def split_run(norms: Sequence[float], lengths: Sequence[int]) -> Series:
    """Violations of given length, each with a gradient norm, one safe epoch between them."""
    g, columns = [-1.0], [0.0]
    for norm, length in zip(norms, lengths, strict=True):
        g += [1.0] * length + [-1.0]
        columns += [norm] + [99.0] * (length - 1) + [99.0]
    return make(g, np.arange(1.0, len(g) + 1).tolist(), gradient_norm=columns)


def test_sensitivity_split_by_hand() -> None:
    """Ten violations over two runs: the three with the lowest and the three with highest norm."""
    first = split_run([1, 10, 2, 9, 3], [1, 4, 2, 5, 3])
    second = split_run([5, 8, 6, 5.5, 7], [7, 6, 7, 7, 7])
    recoveries = [recovery(first, 0.0), recovery(second, 0.0)]
    parts = sensitivity_split(recoveries)
    assert (parts["flat"].violations, parts["flat"].tts) == (3, 2.0)  # norms 1, 2, 3 lasted 1, 2, 3
    assert (parts["steep"].violations, parts["steep"].tts) == (
        3,
        5.0,
    )  # norms 8, 9, 10 lasted 6, 5, 4
    chosen = [
        v for item in recoveries for v in item.violations if v.gradient_norm in (8.0, 9.0, 10.0)
    ]
    assert parts["steep"].rp == pytest.approx(np.mean([v.rp for v in chosen]))
    assert parts["flat"].rp_violations == 3


def test_a_violation_on_the_quantile_belongs_to_the_group() -> None:
    parts = sensitivity_split(
        [recovery(split_run([1, 2, 3, 4, 5], [1, 2, 3, 4, 6]), 0.0)], share=0.25
    )
    assert (parts["flat"].violations, parts["flat"].tts, parts["flat"].gradient_norm) == (
        2,
        1.5,
        2.0,
    )
    assert (parts["steep"].violations, parts["steep"].tts, parts["steep"].gradient_norm) == (
        2,
        5.0,
        4.0,
    )


def test_sensitivity_split_of_too_little() -> None:
    for norms, lengths in (([], []), ([1], [2]), ([2, 2, 2], [1, 1, 1])):
        parts = sensitivity_split([recovery(split_run(norms, lengths), 0.0)])
        assert [part.violations for part in parts.values()] == [0, 0]
        assert all(math.isnan(part.tts) for part in parts.values())
    parts = sensitivity_split([recovery(split_run([1, 2], [4, 6]), 0.0)])
    assert (parts["flat"].tts, parts["steep"].tts) == (4.0, 6.0)
    without = sensitivity_split([recovery(make([-1, 1, -1]), 0.0)])  # no such column
    assert without["flat"].violations == 0


@pytest.mark.skipif(not OMNISAFE.exists(), reason="the reference data are not here")
@pytest.mark.parametrize(
    "task", ["SafetyHopperVelocity-v1", "SafetyHalfCheetahVelocity-v1", "SafetyPointGoal1-v0"]
)
def test_omnisafe_files(task: str) -> None:
    """What a reader with a pencil would do: cross off the epochs, one run after another."""
    with open(OMNISAFE / f"{task}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    marks = "".join("x" if float(row["cost"]) > float(row["cost_limit"]) else "." for row in rows)
    first = round(0.3 * len(rows))
    lengths, ratios, position = [], [], first
    while (position := marks.find(".x", max(position - 1, 0))) >= 0:
        start = position + 1
        end = marks.find(".", start)
        if end < 0:
            break
        lengths.append(end - start)
        if float(rows[start]["return"]) > 0:
            ratios.append(float(rows[end]["return"]) / float(rows[start]["return"]))
        position = end + 1
    found = recovery(read_series(OMNISAFE / f"{task}.csv"))
    assert found.violating_epochs == marks[first:].count("x")
    assert found.vf == pytest.approx(marks[first:].count("x") / len(marks[first:]))
    assert [v.tts for v in found.violations if v.end is not None] == lengths
    np.testing.assert_allclose(found.tts, np.mean(lengths) if lengths else NAN)
    np.testing.assert_allclose(found.rp, np.mean(ratios) if ratios else NAN)
    assert found.open_at_end == int(marks.endswith("x"))
    assert found.open_at_start == int(marks[first - 1 : first + 1] == "xx")


@pytest.mark.skipif(not OMNISAFE.exists(), reason="the reference data are not here")
def test_omnisafe_raw_file_by_eye() -> None:
    found = recovery(read_series(OMNISAFE / "raw_progress_SafetyHopperVelocity-v1.csv", limit=25))
    assert found.window == (15, 50)
    assert found.violating_epochs == 15
    assert (found.tts, found.open_at_start, found.open_at_end) == (3.0, 1, 1)
