"""From folders of runs to tables: what is collected, bold, and beside the paper's numbers."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cspo.errors import CspoError
from cspo.lab.report import Results, collect, paper
from cspo.lab.report.comparison import main_comparison, recovery_comparison, split_comparison
from cspo.lab.report.formats import Bold, Table, latex, to_csv, to_latex, to_markdown, write_table
from cspo.lab.report.looks import name_of
from cspo.lab.report.results import last_epochs
from cspo.lab.report.runs import parts_of
from cspo.lab.report.seeds import seeds_table
from cspo.lab.report.tables import main_table, recovery_table, split_table, variants_table
from cspo.lab.report.versus import improvement_table, versus_table
from cspo.lab.report.write import all_tables

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "reference" / "paper"
HOPPER, GOAL = "SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"


def write_csv(
    folder: Path,
    name: str,
    returns: Any,
    cost: Any,
    limit: float = 25.0,
    steps: int = 20_000,
    **more: Any,
) -> None:
    """One run as a CSV file."""
    folder.mkdir(parents=True, exist_ok=True)
    n = max(np.size(returns), np.size(cost))
    columns = {
        "steps": steps * np.arange(1, n + 1),
        "return": np.broadcast_to(returns, n),
        "cost": np.broadcast_to(cost, n),
        "cost_limit": np.full(n, limit),
        **more,
    }
    rows = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_run(
    folder: Path, rows: int, planned: int, seed: int = 0, algo: str = "cspo", **more: Any
) -> None:
    """One run as a run folder."""
    write_csv(folder, "progress", np.arange(1.0, rows + 1), 20.0)
    settings = {"task": HOPPER, "algo": algo, "seed": seed, "total_steps": 20_000 * planned, **more}
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in settings.items()]
    (folder / "config.toml").write_text(
        "\n".join(['cspo_version = "9.9"', "steps_per_epoch = 20_000", *lines]) + "\n"
    )


@pytest.fixture
def small(tmp_path: Path) -> Results:
    """Two tasks, three algorithms, two seeds, 8 epochs of constant returns and costs."""
    folder = tmp_path / "small"
    for seed, shift in ((0, -1.0), (1, 1.0)):
        for algo, value, cost in (
            ("cspo", 100.0, 20.0),
            ("ppo-lag", 200.0, 30.0),
            ("zeta", 90.0, 25.0),
        ):
            write_csv(folder, f"{HOPPER}-{algo}-seed{seed}", value + shift, np.full(8, cost))
        write_csv(folder, f"{GOAL}-cspo-seed{seed}", 5.0 + shift, np.full(8, 26.0))
    return collect([folder])


def test_cells_hold_all_seeds_in_the_paper_s_order(small: Results) -> None:
    assert small.name == "small"
    assert small.tasks == (HOPPER, GOAL)
    assert small.labels == ("cspo", "ppo-lag", "zeta")
    cell = small.cell(HOPPER, "cspo")
    assert cell is not None
    assert (cell.seeds, cell.steps, cell.epochs, cell.limit) == (2, 160_000, 2, 25.0)
    assert (cell.returns.value, cell.returns.low, cell.returns.high) == (100.0, 99.0, 101.0)
    np.testing.assert_array_equal(cell.of_seeds("return"), [99.0, 101.0])
    assert cell.feasible
    assert small.cell(HOPPER, "zeta").feasible  # type: ignore[union-attr]  # a cost at the limit keeps it
    assert not small.cell(HOPPER, "ppo-lag").feasible  # type: ignore[union-attr]
    assert small.cell(GOAL, "zeta") is None


@pytest.mark.parametrize(("epochs", "last"), [(500, 100), (1000, 100), (50, 10), (8, 2), (1, 1)])
def test_results_are_over_the_last_fifth_of_a_run_and_at_most_the_paper_s_100_epochs(
    epochs: int, last: int
) -> None:
    assert last_epochs(epochs) == last


def test_main_table_has_the_paper_s_layout(small: Results) -> None:
    table = main_table(small)
    assert table.header == ("Task", "CSPO", "PPO-Lag", "zeta")
    texts = [list(row) for row in table.rows]
    assert texts == [
        ["Hopper", "100.00 ± 1.00", "200.00 ± 1.00", "90.00 ± 1.00"],
        ["C (25)", "20.0 ± 0.0", "30.0 ± 0.0", "25.0 ± 0.0"],
        ["PointGoal", "5.00 ± 1.00", "–", "–"],
        ["C (25)", "26.0 ± 0.0", "–", "–"],
    ]
    bold = [text for row in table.rows for text in row if isinstance(text, Bold)]
    assert bold == [
        "100.00 ± 1.00"
    ]  # PPO-Lag's is higher, but above the limit; PointGoal has no feasible one


def write_seeds(folder: Path, returns: Any, cost: Any, algo: str = "cspo") -> Results:
    """Runs of 20 epochs, of which the last four count: per seed one number, or four."""
    for seed, ends in enumerate(zip(returns, cost, strict=True)):
        values = np.zeros((2, 20))
        for row, end in zip(values, ends, strict=True):
            row[16:] = end
        write_csv(folder, f"{HOPPER}-{algo}-seed{seed}", *values)
    return collect([folder])


def apart(table: Table) -> list[str]:
    return [note for note in table.notes if "mean of seeds" in note]


def test_seeds_of_two_kinds_outside_the_interval_are_shown_as_their_mean_too(
    tmp_path: Path,
) -> None:
    """Eleven seeds at 100, one at 1300: a quarter of the values is cut at each end: pooled 100.

    A resample has the odd seed more than three times with probability 1.4 %, and only then is its
    interquartile mean another: the interval is [100, 100]. Mean of seeds (1100 + 1300) / 12 = 200.
    """
    results = write_seeds(tmp_path, [*[100.0] * 11, 1300.0], [20.0] * 12)
    (cell,) = results.cells
    assert (cell.returns.value, cell.returns.low, cell.returns.high) == (100.0, 100.0, 100.0)
    assert cell.mean_return.mean == 200.0
    note = "Hopper, CSPO: mean of seeds return 200.00, outside the interval of the pooled 100.00."
    assert apart(main_table(results)) == apart(main_comparison(results)) == [note]
    assert note in to_markdown(main_table(results))
    assert not apart(recovery_table(results))  # it has means of seeds already


def test_return_and_cost_of_a_cell_share_a_note_and_variants_have_it_too(tmp_path: Path) -> None:
    """Each seed has one stray epoch of four, which every resample cuts: 10 and 5 without it."""
    returns, cost = [[10.0, 10.0, 60.0, 10.0]] * 2, [[5.0, 5.0, 5.0, 45.0]] * 2
    write_seeds(tmp_path, returns, cost, "cspo-wide")
    results = write_seeds(tmp_path, [10.0, 10.0], [5.0, 5.0])
    note = (
        "Hopper, CSPO wide: mean of seeds return 22.50, outside the interval of the pooled 10.00; "
        "cost 15.0, outside the interval of the pooled 5.0."
    )
    assert apart(main_table(results)) == apart(variants_table(results)) == [note]
    assert not apart(main_comparison(results))  # it leaves variants out


def test_few_seeds_that_disagree_are_shown_as_their_mean_though_the_interval_holds_it(
    tmp_path: Path,
) -> None:
    """400, 420 and 1600, four times each, without three at each end: (400 + 4 * 420 + 1600) / 6.

    The interval is [400, 1600], since 1 / 27 of the resamples is one seed three times. The mean of
    seeds, 2420 / 3, is inside, but a third above. Costs of 20, 20 and 2 are (2 + 5 * 20) / 6 = 17
    together and 14 by seeds.
    """
    results = write_seeds(tmp_path, [400.0, 420.0, 1600.0], [20.0, 20.0, 2.0])
    (cell,) = results.cells
    assert (cell.returns.low, cell.returns.high) == (400.0, 1600.0)
    assert not cell.returns.leaves_out(806.67) and not cell.cost.leaves_out(14.0)
    note = (
        "Hopper, CSPO: mean of seeds return 806.67, more than 10 % above the pooled 613.33; "
        "cost 14.0, more than 10 % below the pooled 17.0."
    )
    assert apart(main_table(results)) == [note]
    (row,) = csv.DictReader(io.StringIO(to_csv(main_table(results))))
    means = float(row["return"]), float(row["return_mean"])
    assert means == (pytest.approx(3680 / 6), pytest.approx(2420 / 3))
    beside = list(csv.DictReader(io.StringIO(to_csv(main_comparison(results)))))
    assert [float(row["ours_mean"]) for row in beside] == [pytest.approx(2420 / 3), 14.0]


@pytest.mark.parametrize(("odd", "pooled", "mean"), [(160.0, 110.0, 120.0), (172.0, 112.0, 124.0)])
def test_a_tenth_of_the_pooled_value_is_what_makes_a_mean_inside_the_interval_another_number(
    tmp_path: Path, odd: float, pooled: float, mean: float
) -> None:
    """Two seeds at 100 and an odd one: (5 * 100 + odd) / 6 pooled, 9 % and 11 % below the mean."""
    results = write_seeds(tmp_path, [100.0, 100.0, odd], [20.0] * 3)
    (cell,) = results.cells
    assert (cell.returns.value, cell.mean_return.mean) == (pytest.approx(pooled), mean)
    assert not cell.returns.leaves_out(mean)
    assert len(apart(main_table(results))) == (mean > 1.1 * pooled)


def test_a_mean_of_seeds_that_agrees_has_no_note(tmp_path: Path) -> None:
    """Rounding, an interval narrower than the last digit, and one seed make none."""
    equal = write_seeds(tmp_path / "equal", [0.1, 0.1, 0.1], [0.7, 0.7, 0.7])
    narrow = write_seeds(tmp_path / "narrow", [*[10.0] * 11, 10.012], [*[20.0] * 11, 20.12])
    one = write_seeds(tmp_path / "one", [[0.0, 0.0, 0.0, 100.0]], [20.0])
    (cell,) = narrow.cells
    assert cell.returns.leaves_out(cell.mean_return.mean)  # 10.001
    assert cell.cost.leaves_out(cell.mean_cost.mean)  # 20.01
    tables = [table for results in (equal, narrow, one) for table in all_tables(results)]
    assert len(tables) >= 6 and not [note for table in tables for note in apart(table)]


def test_a_short_study_says_that_it_is_not_the_paper_s(small: Results) -> None:
    for table in all_tables(small):
        text = " ".join(table.notes)
        assert "160,000 steps" in text, table.name
        assert "do not reproduce" in text
        assert "Seeds: 2, where the paper has 5" in text
    assert "last 2 epochs" in main_table(small).notes[0]
    assert main_comparison(small).title.endswith(
        "(runs of 160,000 steps beside the paper's 10,000,000)"
    )


def test_a_study_of_the_paper_s_size_has_no_such_note(tmp_path: Path) -> None:
    for seed in range(5):
        returns = np.r_[np.zeros(400), np.full(100, 1700.0 + seed)]
        write_csv(tmp_path, f"{HOPPER}-cspo-seed{seed}", returns, 10.0 + seed)
    results = collect([tmp_path])
    table = main_table(results)
    assert not [note for note in table.notes if "paper" in note]
    assert results.cells[0].returns.value == pytest.approx(1702.0)  # only the last 100 epochs
    assert main_comparison(results).title == "Return and cost beside the paper's"
    rows = {row[2]: row for row in main_comparison(results).rows}
    assert list(rows["return"][4:]) == [
        "1691.92 ± 70.00",
        "+10.08",
        "inside",
        "yes",
    ]
    assert list(rows["cost"][4:]) == ["7.1 ± 6.1", "+4.9", "inside", "yes"]


def test_beside_the_paper(small: Results) -> None:
    table = main_comparison(small)
    texts = [list(row) for row in table.rows]
    assert texts == [
        [
            "Hopper",
            "CSPO",
            "return",
            "100.00 [99.00, 101.00]",
            "1691.92 ± 70.00",
            "-1591.92",
            "worse",
            "no",
        ],
        ["Hopper", "CSPO", "cost", "20.0 [20.0, 20.0]", "7.1 ± 6.1", "+12.9", "higher", "no"],
        [
            "Hopper",
            "PPO-Lag",
            "return",
            "200.00 [199.00, 201.00]",
            "607.20 ± 475.25",
            "-407.20",
            "inside",
            "yes",
        ],
        ["Hopper", "PPO-Lag", "cost", "30.0 [30.0, 30.0]", "22.6 ± 7.1", "+7.4", "higher", "no"],
        [
            "PointGoal",
            "CSPO",
            "return",
            "5.00 [4.00, 6.00]",
            "23.79 ± 0.75",
            "-18.79",
            "worse",
            "no",
        ],
        ["PointGoal", "CSPO", "cost", "26.0 [26.0, 26.0]", "23.7 ± 0.4", "+2.3", "higher", "no"],
    ]  # zeta is not in the paper


def test_one_seed_has_no_interval_to_compare(tmp_path: Path) -> None:
    write_csv(tmp_path, f"{HOPPER}-cspo-seed0", 1700.0, np.full(10, 7.0))
    results = collect([tmp_path])
    assert main_table(results).rows[0][1] == "1700.00"
    assert {row[-1] for row in main_comparison(results).rows} == {"one seed: no interval"}
    assert "One seed has no interval" in " ".join(main_table(results).notes)


def test_another_limit_is_not_compared_with_the_paper(tmp_path: Path) -> None:
    write_csv(tmp_path, f"{HOPPER}-cspo-seed0", 1700.0, np.full(10, 7.0), limit=10.0)
    write_csv(tmp_path, f"{HOPPER}-ppo-lag-seed0", 1700.0, np.full(10, 7.0))
    results = collect([tmp_path])
    assert {row[1] for row in main_comparison(results).rows} == {"PPO-Lag"}
    assert list(main_table(results).rows[1]) == [
        "C (limit)",
        "7.0 (10)",
        "7.0 (25)",
    ]


def test_recovery_table_counts_and_bold(tmp_path: Path) -> None:
    safe, hot = 20.0, 30.0
    quick = [safe] * 3 + [hot, safe, safe, hot, safe, safe, safe]  # TTS 1
    slow = [safe] * 3 + [hot, hot, hot, safe, safe, safe, hot]  # TTS 3, and one open at the end
    write_csv(tmp_path, f"{HOPPER}-cspo-seed0", 2.0, quick)
    write_csv(tmp_path, f"{HOPPER}-cspo-seed1", 2.0, [safe] * 10)
    write_csv(tmp_path, f"{HOPPER}-ppo-lag-seed0", -2.0, slow)
    results = collect([tmp_path])
    table = recovery_table(results)
    texts = [list(row) for row in table.rows]
    assert texts == [
        ["Hopper", "TTS", "1.00 (1/2)", "3.00"],
        ["", "RP", "1.000 (1/2)", "–"],
        ["", "#V", "1.0 ± 1.4", "4.0"],
        ["", "VF", "0.143 ± 0.202", "0.571"],
    ]
    assert [text for row in table.rows for text in row if isinstance(text, Bold)] == ["1.00 (1/2)"]
    assert "of the 7 after the first 30 %" in table.notes[0]
    assert "Violations: 4." in table.notes[1]
    assert "0 under way when the window began, 1 still open at the end" in table.notes[1]
    assert "1 that began at a return of zero or less" in table.notes[1]
    assert "Runs without a violation that ended: 1" in table.notes[1]
    beside = {row[2]: list(row) for row in recovery_comparison(results).rows if row[1] == "CSPO"}
    assert beside["#V"][5:] == [
        "–",
        "–",
        "not comparable: of 7 epochs",
    ]  # the paper counts over 350
    assert beside["TTS"][3:] == [
        "1.00 (1/2)",
        "2.33 ± 1.04",
        "-1.33",
        "better",
        "one seed: no interval",
    ]
    count = paper.recovery_metrics()["Hopper", "CSPO"]["#V"]
    assert count.spread is not None
    assert beside["VF"][4] == f"{count.value / 350:.3f} ± {count.spread / 350:.3f}"


def test_split_table_and_its_comparison(tmp_path: Path) -> None:
    task = "SafetyAntVelocity-v1"
    g = [20.0, 20.0, 20.0, 30.0, 20.0, 30.0, 30.0, 20.0, 20.0, 20.0]
    norms = [0, 0, 0, 1.0, 0, 2.0, 0, 0, 0, 0]
    write_csv(tmp_path, f"{task}-cspo-seed0", 4.0, g, gradient_norm=norms)
    write_csv(tmp_path, f"{task}-ppo-lag-seed0", 4.0, g)  # logs no norm
    results = collect([tmp_path])
    texts = [list(row) for row in split_table(results).rows]
    assert texts == [
        ["Ant", "CSPO", "Flat", "1.00", "1.000", "1"],
        ["Ant", "CSPO", "Steep", "2.00", "1.000", "1"],
    ]
    beside = [list(row[2:]) for row in split_comparison(results).rows]
    assert beside[0] == ["flat TTS", "1.00 (1)", "3.63", "-2.63", "–", "the paper prints none"]
    assert beside[2] == ["steep TTS", "2.00 (1)", "5.25", "-3.25", "–", "the paper prints none"]


def test_variants_have_their_own_table_and_are_not_compared(tmp_path: Path) -> None:
    for variant in ("alpha-0.5", "alpha-0.05", "alpha-10"):
        write_csv(tmp_path, f"{HOPPER}-cspo-{variant}-seed0", 7.0, np.full(10, 5.0))
    results = collect([tmp_path])
    assert results.labels == ("cspo alpha-0.05", "cspo alpha-0.5", "cspo alpha-10")  # by number
    table = variants_table(results)
    assert [row[2] for row in table.rows] == ["alpha-0.05", "alpha-0.5", "alpha-10"]
    assert list(table.rows[0][3:]) == [
        "7.00",
        "5.0",
        "25",
        "yes",
        "–",
        "–",
        "0.0",
        "0.000",
        "5.0",
    ]
    assert {table.name for table in all_tables(results)} == {
        *("main", "recovery", "variants", "seeds")
    }
    for algorithm in ("cspo", "ppo-lag"):
        write_csv(tmp_path, f"{HOPPER}-{algorithm}-seed0", 8.0, np.full(10, 5.0))
    rows = [list(row[1:4]) for row in variants_table(collect([tmp_path])).rows]
    assert rows[0] == ["CSPO", "default", "8.00"], "an algorithm stands beside its variants"
    assert len(rows) == 4, "one without variants does not"


def test_every_run_has_a_row_and_seeds_their_mean(tmp_path: Path) -> None:
    """Two seeds of ten epochs: the last two count for return and cost, the last seven for VF."""
    cost = np.array([90.0, 0.0, 0.0, 30.0, 26.0, 20.0, 20.0, 20.0, 24.0, 20.0])
    write_csv(tmp_path, f"{HOPPER}-cspo-seed3", np.arange(10.0), cost)
    write_csv(tmp_path, f"{HOPPER}-cspo-seed7", 20.0, np.full(10, 27.0))
    write_csv(tmp_path, f"{HOPPER}-ppo-lag-seed3", 1.0, np.full(10, 25.0))
    table = seeds_table(collect([tmp_path]))
    assert [list(map(str, row[1:])) for row in table.rows] == [
        ["CSPO", "3", "8.50", "22.0", "25", "yes", "2", "0.286", "30.0"],
        ["CSPO", "7", "20.00", "27.0", "25", "no", "7", "1.000", "27.0"],
        ["CSPO", "mean", "14.25", "24.5", "25", "yes", "4.5", "0.643", "28.5"],
        ["PPO-Lag", "3", "1.00", "25.0", "25", "yes", "0", "0.000", "25.0"],
    ]
    assert [(record["seed"], record["return"]) for record in table.records] == [
        (3, 8.5),
        (7, 20.0),
        (3, 1.0),
    ]


def test_probability_of_improvement_table(small: Results) -> None:
    table = improvement_table(small)
    assert table.header == ("Task", "CSPO > PPO-Lag", "CSPO > zeta")
    assert list(table.rows[0]) == [
        "Hopper",
        "0.00 [0.00, 0.00]",
        "1.00 [1.00, 1.00]",
    ]
    assert list(table.rows[1]) == ["PointGoal", "–", "–"]
    assert not improvement_table(small, "nobody").rows


def test_versus_tells_better_and_worse_only_where_the_seeds_do(tmp_path: Path) -> None:
    """Seed by seed violations differ by -4, -4 and -5 of 7 epochs, returns by -5, 7 and 19.

    t(0.975, 2) = 4.303.
    """
    for seed, mine, others in ((0, 1, 5), (1, 2, 6), (2, 1, 6)):
        for algo, value, bad in (
            ("cspo", 100.0 + 10 * seed, mine),
            ("ppo-lag", 105.0 - 2 * seed, others),
        ):
            cost = np.full(10, 20.0)
            cost[3 : 3 + bad] = 25.0 + bad
            write_csv(tmp_path, f"{HOPPER}-{algo}-seed{seed}", value, cost)
    write_csv(tmp_path, f"{HOPPER}-appo-seed0", 90.0, np.full(10, 26.0))
    write_csv(tmp_path, f"{HOPPER}-focops-seed7", 90.0, np.full(10, 26.0))
    write_csv(tmp_path, f"{GOAL}-ppo-lag-seed0", 90.0, np.full(10, 26.0))  # without ours: no row
    table = versus_table(collect([tmp_path]))
    assert table.header[3:] == ("return", "VF", "TTS", "worst cost")
    assert [list(row) for row in table.rows] == [
        # The seed both have; no interval, no word.
        ["Hopper", "APPO", "yes / no", "+10.00", "-0.857", "–", "+0.0"],
        [
            *("Hopper", "PPO-Lag", "yes / yes", "+7.00 [-22.81, +36.81]"),
            *("-0.619 [-0.824, -0.414] better", "-4.33 [-5.77, -2.90] better"),
            "-4.3 [-5.8, -2.9] better",
        ],
        # No seed in common: all of both.
        ["Hopper", "FOCOPS", "yes / no", "+20.00", "-0.810", "–", "+0.3"],
    ]
    worse = versus_table(collect([tmp_path]), "ppo-lag")
    assert worse.rows[0][4] == "+0.619 [+0.414, +0.824] worse"


def test_csv_has_every_number_in_full(small: Results) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(main_table(small)))))
    assert len(rows) == 4
    first = rows[0]
    assert (first["task"], first["algorithm"], first["seeds"], first["feasible"]) == (
        HOPPER,
        "cspo",
        "2",
        "yes",
    )
    assert [float(first[name]) for name in ("return", "return_low", "return_high")] == [
        100.0,
        99.0,
        101.0,
    ]
    assert [float(first[name]) for name in ("return_mean", "cost_mean", "cost_std")] == [
        100.0,
        20.0,
        0.0,
    ]
    assert float(first["return_std"]) == pytest.approx(math.sqrt(2.0))  # of 99 and 101
    recovered = list(csv.DictReader(io.StringIO(to_csv(recovery_table(small)))))
    assert recovered[0]["tts"] == ""  # undefined, not "nan"


HOSTILE = Table(
    name="hostile",
    title="50 % of #1 & more_",
    header=("a_b", "x|y"),
    rows=(("{\\x} ~ ^ $1", Bold("-3.5 ± 0.5")), ("<b>", "–")),
    records=({"a": 'say "1,2"', "b": math.nan},),
    notes=("5 [6] _*_ `c`",),
)


def test_latex_is_escaped_and_balanced(small: Results) -> None:
    for table in (*all_tables(small), HOSTILE):
        text = to_latex(table)
        assert text.count("\\begin{") == text.count("\\end{")
        assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))
        assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
        body = text.split("\\toprule\n")[1].split("\\bottomrule")[0]
        for line in body.splitlines():
            if line not in ("\\midrule", "\\addlinespace"):
                assert len(re.findall(r"(?<!\\)&", line)) == len(table.header) - 1
                assert line.endswith(" \\\\")
        assert not re.search(r"(?<!\\)#|[±–≤]", text)
        assert (
            text.count("%") - text.count("\\%") == 3
        )  # the comment, and two line ends without a space
    assert latex("-3.5 ± 0.5") == "$-$3.5 $\\pm$ 0.5"
    assert latex("alpha-0.5 a_b") == "alpha-0.5 a\\_b"
    assert latex("{\\x}") == "\\{\\textbackslash{}x\\}"
    assert "\\textbf{$-$3.5 $\\pm$ 0.5}" in to_latex(HOSTILE)


def test_markdown_is_escaped() -> None:
    lines = to_markdown(HOSTILE).splitlines()
    assert lines[2] == "| a\\_b | x\\|y |"
    assert lines[4].endswith("| **-3.5 ± 0.5** |")
    assert lines[5].startswith("| \\<b> |")
    assert lines[-1] == "- 5 [6] \\_\\*\\_ \\`c\\`"
    assert to_csv(HOSTILE) == 'a,b\n"say ""1,2""",\n'


def test_tables_are_written_in_three_formats(small: Results, tmp_path: Path) -> None:
    paths = write_table(main_table(small), tmp_path)
    assert [path.name for path in paths] == ["main.csv", "main.md", "main.tex"]
    assert paths[1].read_text(encoding="utf-8") == to_markdown(main_table(small))


def test_run_folders_unfinished_ones_and_plugins(tmp_path: Path) -> None:
    write_run(tmp_path / f"{HOPPER}-cspo-seed0", 4, planned=4)
    write_run(tmp_path / f"{HOPPER}-cspo-seed1", 3, planned=4, seed=1)
    write_run(
        tmp_path / f"{HOPPER}-mine-seed0", 4, planned=4, algo="mine", plugin="/nowhere/mine.py"
    )
    (tmp_path / f"{HOPPER}-cspo-seed2").mkdir()
    (tmp_path / f"{HOPPER}-cspo-seed2" / "config.toml").write_text(
        f'task = "{HOPPER}"\nalgo = "cspo"\nseed = 2\n'
    )
    results = collect([tmp_path])
    assert [run.id for run in results.runs] == [
        f"{HOPPER}-cspo-seed0",
        f"{HOPPER}-cspo-seed1",
        f"{HOPPER}-mine-seed0",
    ]
    assert [run.finished for run in results.runs] == [True, False, True]
    cell = results.cell(HOPPER, "cspo")
    assert cell is not None
    assert [run.seed for run in cell.runs] == [0]  # the unfinished one does not spoil the mean
    assert cell.returns.value == 4.0  # the last of four epochs
    notes = " ".join(results.notes)
    assert "seed1 (3 of 4 epochs)" in notes
    assert "Without a finished epoch, left out: " in notes
    assert results.runs[0].settings["total_steps"] == 80_000
    assert results.runs[2].settings["plugin"] == "/nowhere/mine.py", "not loaded, and not needed"
    assert results.runs[0].facts["cspo"] == "9.9"
    alone = collect([tmp_path / f"{HOPPER}-cspo-seed1"])
    assert alone.cells[0].seeds == 1
    assert "Not finished, but shown" in " ".join(alone.notes)


def test_a_damaged_run_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path / "good", 4, planned=4)
    write_run(tmp_path / "bad", 4, planned=4, seed=1)
    (tmp_path / "bad" / "progress.csv").write_text(
        "steps,return,cost,cost_limit\n1,2,3,25\n1,?,3,25\n"
    )
    write_run(tmp_path / "worse", 4, planned=4, seed=2)
    (tmp_path / "worse" / "config.toml").write_text("total_steps = ")
    results = collect([tmp_path])
    assert [run.id for run in results.runs] == ["good"]
    assert any("bad" in note and "'?' is not a number" in note for note in results.notes)
    assert any("worse" in note and "not valid TOML" in note for note in results.notes)
    (tmp_path / "good" / "config.toml").write_text("")
    with pytest.raises(CspoError, match=r"nothing to report.*does not name task, algo and seed"):
        collect([tmp_path])


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        (f"{GOAL}-ppo-lag-seed12", (GOAL, "ppo-lag", "", 12)),
        (f"{GOAL}-cspo-alpha-0.5-seed0", (GOAL, "cspo", "alpha-0.5", 0)),
        ("my-cup-task-v0-cspo-seed0", ("my-cup-task-v0", "cspo", "", 0)),
        ("module-make-cpo-seed3", ("module-make", "cpo", "", 3)),
        ("Thing-v2-sac-lag-seed1", ("Thing-v2", "sac-lag", "", 1)),
        ("omnisafe-progress", None),
        ("progress-seed0", None),
    ],
)
def test_names_of_files(stem: str, expected: tuple[str, str, str, int] | None) -> None:
    assert parts_of(stem) == expected


def test_runs_that_differ_in_more_than_their_seed_are_noted(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 4, planned=4)
    write_run(tmp_path / "b", 4, planned=4, seed=1, gamma=0.9)
    assert "differ in more than their seed" in " ".join(collect([tmp_path]).notes)


def test_a_study_folder(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        f'name = "two-alphas"\ntasks = ["{HOPPER}"]\nalgorithms = ["cspo"]\n'
        "seeds = [0, 1]\ntotal_steps = 80_000\n"
        '[[variants]]\nname = "low"\nsettings = { alpha = [0.1] }\n'
        '[[variants]]\nname = "high"\nsettings = { alpha = [0.9] }\n'
    )
    for name, seed in (("low", 0), ("low", 1), ("high", 0)):
        write_run(tmp_path / "runs" / f"{HOPPER}-cspo-{name}-seed{seed}", 4, planned=4, seed=seed)
    results = collect([tmp_path])
    assert results.name == "two-alphas"
    assert [(cell.label, cell.seeds) for cell in results.cells] == [
        ("cspo high", 1),
        ("cspo low", 2),
    ]
    assert f"1 of 4 runs have not started: {HOPPER}-cspo-high-seed1" in " ".join(results.notes)


def test_a_run_is_what_its_settings_and_its_study_say_not_what_its_folder_is_called(
    tmp_path: Path,
) -> None:
    name = f"{HOPPER}-cspo-high-seed0"
    write_run(tmp_path / "alone" / name, 4, planned=4, seed=7, algo="ppo-lag")
    (run,) = collect([tmp_path / "alone"]).runs
    assert (run.algo, run.variant, run.seed) == ("ppo-lag", "", 7)
    write_run(tmp_path / "study" / "runs" / name, 4, planned=4)
    study = f'tasks = ["{HOPPER}"]\nalgorithms = ["cspo"]\nplugin = "gone.py"\n'
    variants = "".join(f'[[variants]]\nname = "{one}"\n' for one in ("low", "high"))
    (tmp_path / "study" / "study.toml").write_text(study + variants)  # its plugin is not at hand
    for folder in ("study", "study/runs", f"study/runs/{name}"):
        (run,) = collect([tmp_path / folder]).runs
        assert (run.label, run.seed) == ("cspo high", 0), folder


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    with pytest.raises(CspoError, match="There is no folder"):
        collect([tmp_path / "nothing"])
    with pytest.raises(CspoError, match="neither a study, nor runs, nor files named"):
        collect([tmp_path])
    with pytest.raises(CspoError, match="nothing to report"):
        collect([])
    write_csv(tmp_path / "a", f"{HOPPER}-cspo-seed0", 1.0, np.full(3, 1.0))
    write_csv(tmp_path / "b", f"{HOPPER}-cspo-seed0", 1.0, np.full(3, 1.0))
    with pytest.raises(CspoError, match="are both SafetyHopperVelocity-v1, cspo, seed 0"):
        collect([tmp_path / "a", tmp_path / "b"])


def test_several_constraints_show_the_most_violated(tmp_path: Path) -> None:
    header = "steps,return,cost_0,cost_1,cost_limit_0,cost_limit_1\n"
    rows = "".join(f"{20_000 * k},1,20,7,25,5\n" for k in range(1, 5))
    (tmp_path / f"{HOPPER}-cspo-seed0.csv").write_text(header + rows)
    results = collect([tmp_path])
    (cell,) = results.cells
    assert (cell.cost.value, cell.limit, cell.feasible) == (7.0, 5.0, False)
    assert not main_comparison(results).rows


def test_the_first_runs_of_this_repository() -> None:
    results = collect([ROOT / "results" / "first-runs"])
    assert (len(results.runs), len(results.cells)) == (24, 8)
    assert {table.name for table in all_tables(results)} >= {
        "main",
        "main-comparison",
        "recovery",
        "split",
    }


def test_the_paper_s_numbers() -> None:
    assert len(paper.main_results()) == 9 * 12
    assert len(paper.recovery_metrics()) == 9 * 6
    assert len(paper.sensitivity_split()) == 6
    entry = paper.main_results()["Ant", "CSPO"]
    returns, cost = entry["return"], entry["cost"]
    assert (returns.value, returns.spread, cost.value, cost.spread) == (3231.6, 84.8, 24.5, 0.3)
    assert {task for task, _ in paper.main_results()} == set(paper.TASKS.values())
    names = [name_of(algo) for algo in paper.ALGORITHMS]
    assert {algo for _, algo in paper.main_results()} == set(names[:12])
    assert {algo for _, algo in paper.recovery_metrics()} <= set(names)


@pytest.mark.skipif(not SHARED.exists(), reason="the reference data are not here")
@pytest.mark.parametrize(
    "name", ["results_main", "recovery_metrics", "sensitivity_split", "hyperparameters"]
)
def test_the_shipped_numbers_are_the_paper_s(name: str) -> None:
    shipped = Path(paper.__file__).with_name("paper") / f"{name}.csv"
    assert shipped.read_bytes() == (SHARED / f"{name}.csv").read_bytes()


def test_every_algorithm_and_task_has_a_name() -> None:
    from cspo.algorithms import algorithm_names
    from cspo.algorithms.registry import get_algorithm, is_built_in
    from cspo.envs.tasks import native_tasks

    assert {row.name for row in native_tasks()} >= set(paper.TASKS)
    built_in = {name for name in algorithm_names() if is_built_in(get_algorithm(name))}
    assert built_in == set(paper.ALGORITHMS)
    assert paper.task_name(f"cspo/{HOPPER}") == paper.task_name(HOPPER) == "Hopper"
    assert paper.task_name("mine:make") == "mine:make"
