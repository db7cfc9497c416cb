"""Reading runs and foreign CSV files: what is recognised, and what is refused in words."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from cspo.errors import CspoError
from cspo.lab.metrics import read_series

OMNISAFE = Path(__file__).parents[2] / "shared" / "reference" / "omnisafe"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_with_our_columns(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.csv",
        "epoch,steps,return,cost,cost_limit,extra\n0,10,1.5,30,25,7\n1,20,-2,20,25,8\n",
    )
    series = read_series(file)
    assert (series.name, len(series), series.planned_epochs) == ("a", 2, 2)
    np.testing.assert_array_equal(series.steps, [10, 20])
    np.testing.assert_array_equal(series.returns, [1.5, -2])
    assert series.cost.shape == series.limit.shape == (2, 1)
    np.testing.assert_array_equal(series.violation, [5, -5])
    np.testing.assert_array_equal(series.columns["extra"], [7, 8])


def test_several_constraints_and_the_greatest_violation(tmp_path: Path) -> None:
    header = "steps,return,cost_0,cost_1,cost_limit_0,cost_limit_1\n"
    series = read_series(
        write(tmp_path / "a.csv", header + "1,0,10,3,25,5\n2,0,26,9,25,5\n3,0,28,,25,5\n")
    )
    assert series.cost.shape == (3, 2)
    np.testing.assert_array_equal(series.violation, [-2, 4, math.nan])


def test_one_limit_serves_all_constraints(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "return,cost_0,cost_1\n0,1,2\n")
    np.testing.assert_array_equal(read_series(file, limit=1.5).violation, [0.5])
    assert np.isnan(read_series(file, limit=1.5).steps).all()


def test_names_of_columns_can_be_given(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "J,Jc,d\n4,6,5\n")
    series = read_series(file, names={"return": "J", "cost": "Jc", "limit": "d"})
    assert (series.returns[0], series.violation[0]) == (4, 1)


def test_a_limit_replaces_the_column(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "return,cost,cost_limit\n0,10,25\n")
    assert read_series(file, limit=4).violation[0] == 6


@pytest.mark.parametrize("path", ["run", "run/progress.csv"])
def test_a_run_folder_knows_its_planned_length_and_drops_a_row_cut_short(
    tmp_path: Path, path: str
) -> None:
    write(tmp_path / "run/config.toml", 'task = "x"\ntotal_steps = 1050\nsteps_per_epoch = 100\n')
    write(
        tmp_path / "run/progress.csv", "steps,return,cost,cost_limit\n100,1,2,25\n200,1,2,2"
    )  # "25" cut to "2"
    series = read_series(tmp_path / path)
    assert (len(series), series.planned_epochs) == (1, 10)


def test_a_foreign_file_may_end_without_a_line_end(tmp_path: Path) -> None:
    assert (
        len(read_series(write(tmp_path / "progress.csv", "return,cost,limit\n1,2,25\n1,2,25"))) == 2
    )


def test_text_columns_empty_cells_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(
        '\ufeffreturn,cost,cost_limit,note\r\n1,,25,"a, b"\r\n\r\nnan,3,25,c\r\n'.encode()
    )
    series = read_series(file)
    assert "note" not in series.columns
    np.testing.assert_array_equal(series.cost[:, 0], [math.nan, 3])
    np.testing.assert_array_equal(series.returns, [1, math.nan])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("return,cost,cost_limit\n", "nothing below its header"),
        (
            "return,cost,cost_limit\n1,2,25\n1,abc,25\n",
            "column 'cost', line 3: 'abc' is not a number",
        ),
        ("return,cost,cost_limit\n\n1,2,25\n\n1,x,25\n", "line 5: 'x' is not a number"),
        ("return,cost_0,cost_limit\n1,abc,25\n", "column 'cost_0', line 2: 'abc' is not a number"),
        ("return,cost,cost_limit\n1,2\n1,2,25\n", "line 2: 2 cells under 3 column name"),
        ("return,return,cost\n1,2,3\n", "two columns named 'return'"),
        (
            "cost,cost_limit\n2,25\n",
            "no column 'return' or 'Metrics/EpRet'. Name it with --return-column",
        ),
        (
            "return,cost_limit\n2,25\n",
            "no column 'cost' or 'Metrics/EpCost'. Name it with --cost-column",
        ),
        ("return,cost\n1,2\n", "Give the limit with --limit"),
        (
            "return,cost_0,cost_1,cost_2,cost_limit_0,cost_limit_1\n1,2,3,4,5,6\n",
            "3 cost columns, but 2 limits",
        ),
        ("name\nbob\n", "no column of numbers"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CspoError) as refused:
        read_series(write(tmp_path / "a.csv", text))
    assert message in str(refused.value)
    assert str(tmp_path / "a.csv") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_bad_paths_and_names(tmp_path: Path) -> None:
    with pytest.raises(CspoError, match=r"Cannot read .*nothing\.csv: No such file"):
        read_series(tmp_path / "nothing.csv")
    with pytest.raises(CspoError, match="holds no run"):
        read_series(tmp_path)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(CspoError, match="not a text file"):
        read_series(tmp_path / "b.csv")
    file = write(tmp_path / "a.csv", "return,cost,cost_limit\n1,2,25\n")
    with pytest.raises(CspoError, match="no column 'costs': did you mean 'cost'"):
        read_series(file, names={"cost": "costs"})
    with pytest.raises(CspoError, match="no role 'reward'"):
        read_series(file, names={"reward": "return"})
    with pytest.raises(CspoError, match="finite"):
        read_series(file, limit=math.nan)


def test_text_in_a_column_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "J,cost,cost_limit\nhigh,2,25\n")
    with pytest.raises(CspoError, match="column 'J', line 2: 'high' is not a number"):
        read_series(file, names={"return": "J"})


@pytest.mark.skipif(not OMNISAFE.exists(), reason="the reference data are not here")
def test_omnisafe_raw_progress_is_the_same_run_as_its_excerpt() -> None:
    """The raw file and the excerpt of it hold the same run; the excerpt has six digits."""
    excerpt = read_series(OMNISAFE / "SafetyHopperVelocity-v1.csv")
    raw_file = OMNISAFE / "raw_progress_SafetyHopperVelocity-v1.csv"
    with pytest.raises(CspoError, match="--limit 25"):
        read_series(raw_file)
    raw = read_series(raw_file, limit=25)
    assert len(raw) == len(excerpt) == 50
    np.testing.assert_allclose(raw.returns, excerpt.returns, rtol=1e-5)
    np.testing.assert_allclose(raw.violation, excerpt.violation, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(raw.steps, excerpt.steps)
