"""Figures: what is in them is what is in the files, whatever the files hold."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_helpers import GOAL, HOPPER, STEPS, small_study, write_run

from cspo.algorithms import algorithm_names, get_algorithm
from cspo.lab.report import paper
from cspo.lab.report.curves import band, quantities
from cspo.lab.report.figures import draw_figures, render
from cspo.lab.report.looks import look_of, name_of
from cspo.lab.report.results import collect

NAN = float("nan")


def figures_of(folder: Path) -> dict[str, Any]:
    return {name: figure for name, _, figure in draw_figures(collect([folder]))}


def lines_of(panel: Any, colour: str) -> list[Any]:
    return [
        line
        for line in panel.get_lines()
        if line.get_color() == colour and len(line.get_xdata()) > 1
    ]


def test_a_band_is_the_mean_and_the_extremes_over_seeds(tmp_path: Path) -> None:
    for seed, returns in enumerate(([1, 2, 3], [3, 2, 1], [8, 5, 2])):
        write_run(tmp_path, seed=seed, returns=returns, cost=[0, 0, 0])
    (cell,) = collect([tmp_path]).cells
    values = band(cell, quantities([cell])[0])
    assert values is not None
    np.testing.assert_allclose(values.mean, [4, 3, 2])
    np.testing.assert_allclose(values.low, [1, 2, 1])
    np.testing.assert_allclose(values.high, [8, 5, 3])
    np.testing.assert_allclose(values.steps, [STEPS, 2 * STEPS, 3 * STEPS])


def test_seeds_of_different_length_and_unknown_values_leave_gaps_not_zeros(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, returns=[1, NAN, 3], cost=[0, 0, 0])
    write_run(tmp_path, seed=1, returns=[3, NAN], cost=[0, 0])
    (cell,) = collect([tmp_path]).cells
    values = band(cell, quantities([cell])[0])
    assert values is not None
    np.testing.assert_allclose(values.mean, [2, NAN, 3])


def test_learning_curves_draw_the_data_and_the_limit(tmp_path: Path) -> None:
    figure = figures_of(small_study(tmp_path))[f"curves-{HOPPER}"]
    upper, lower = figure.axes
    cell = next(
        cell for cell in collect([tmp_path]).cells if (cell.task, cell.algo) == (HOPPER, "ppo-lag")
    )
    (line,) = lines_of(upper, look_of("ppo-lag").colour)
    np.testing.assert_allclose(
        line.get_ydata(), np.mean([run.series.returns for run in cell.runs], axis=0)
    )
    assert [25.0, 25.0] in [list(line.get_ydata()) for line in lower.get_lines()]
    assert lower.get_ylim()[0] == 0
    tops = [
        values.max()
        for values in (run.series.cost for run in collect([tmp_path]).runs if run.task == HOPPER)
    ]
    assert lower.get_ylim()[1] >= max(tops)  # nothing is cut off


def test_cspo_stands_out_and_every_algorithm_looks_different() -> None:
    assert set(paper.ALGORITHMS) <= set(algorithm_names())
    looks = {name: look_of(name) for name in paper.ALGORITHMS}
    assert all(look is get_algorithm(name).look for name, look in looks.items())
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks)
    assert [name for name, look in looks.items() if look.stands_out] == ["cspo"]


def test_an_algorithm_without_a_title_or_a_look_or_from_an_absent_plugin_is_drawn(
    tmp_path: Path,
) -> None:
    for name in ("somebody's", "shy"):
        assert name_of(name) == name and name_of(f"{name} fast") == f"{name} fast"
        assert look_of(name) == look_of(name)
    write_run(tmp_path, algo="somebody's", returns=[1, 2], cost=[1, 2])
    upper, _ = figures_of(tmp_path)[f"curves-{HOPPER}"].axes
    assert len(lines_of(upper, look_of("somebody's").colour)) == 1


def test_the_oscillation_figure_has_a_thin_line_for_every_seed_and_cuts_nothing_off(
    tmp_path: Path,
) -> None:
    small_study(tmp_path)
    figure = figures_of(tmp_path)[
        "oscillation"
    ]  # cspo and ppo-lag: cpo has no multiplier that follows the violation
    assert len(figure.axes) == 4
    for panel, algo in zip(figure.axes[:2], ("cspo", "ppo-lag"), strict=True):
        assert len(lines_of(panel, look_of(algo).colour)) == 3
        assert panel.get_ylim()[1] > 37  # both share the axis of the larger one


def test_the_scatter_places_every_algorithm_by_its_recovery(tmp_path: Path) -> None:
    # Ten epochs, the window begins at 3: one violation of two epochs at 5, return 10 -> 15; vf = 2
    # / 7.
    cost, returns = [0] * 5 + [30, 30, 0, 0, 0], [10] * 7 + [15, 15, 15]
    write_run(tmp_path, algo="cspo", returns=returns, cost=cost)
    write_run(tmp_path, algo="ppo-lag", returns=returns, cost=[0] * 10)  # none at all
    write_run(tmp_path, algo="cpo", returns=returns, cost=[NAN] * 10)  # not known
    figure = figures_of(tmp_path)["recovery"]
    offsets = [tuple(np.round(item.get_offsets()[0], 6)) for item in figure.axes[0].collections]
    assert offsets == [(round(2 / 7, 6), 2.0), (0.0, 0.0)]
    assert len(figure.axes[0].collections[1].get_facecolor()) == 0  # hollow: no violation


def test_all_constraints_are_drawn(tmp_path: Path) -> None:
    for algo in ("cspo", "trpo-pid"):
        columns = {"multiplier_0": [0, 1, 2], "multiplier_1": [2, 1, 0]}
        costs = [[30, 1], [20, 9], [10, 4]]
        write_run(
            tmp_path, algo=algo, returns=[1, 2, 3], cost=costs, limit=(25, 5), columns=columns
        )
    figures = figures_of(tmp_path)
    assert [panel.get_ylabel() for panel in figures[f"curves-{HOPPER}"].axes] == [
        "return",
        "cost 0",
        "cost 1",
    ]
    limits = [[line.get_ydata()[0] for line in panel.get_lines() if line.get_color() == "#333333"]
              for panel in figures[f"curves-{HOPPER}"].axes]  # fmt: skip
    assert limits == [[], [25], [5]]
    assert [panel.get_ylabel() for panel in figures[f"traces-{HOPPER}"].axes] == [
        "multiplier 0",
        "multiplier 1",
    ]
    assert len(figures["oscillation"].axes) == 4  # two constraints, two algorithms


def test_variants_get_an_ablation_figure_with_their_own_limits(tmp_path: Path) -> None:
    names = "".join(f'[[variants]]\nname = "limit-{limit}"\n' for limit in (5, 25, 50))
    (tmp_path / "study.toml").write_text(names, encoding="utf-8")
    for limit in (5, 25, 50):
        for seed in (0, 1):
            of_seed = {"seed": seed, "returns": [1, 2, 3 + seed]}
            of_limit = {"variant": f"limit-{limit}", "cost": [limit] * 3, "limit": (limit,)}
            write_run(tmp_path / "runs", **of_seed, **of_limit)
    figure = figures_of(tmp_path)["ablation"]
    returns, costs = figure.axes
    assert [text.get_text() for text in returns.get_yticklabels()] == [
        "limit-5",
        "limit-25",
        "limit-50",
    ]
    assert returns.get_ylim() == costs.get_ylim()
    dashed = [list(line.get_xdata()) for line in costs.get_lines() if line.get_linestyle() == "--"]
    assert dashed == [[5, 5], [25, 25], [50, 50]]
    assert len(returns.get_lines()) == 6  # an interval and a mark for each


@pytest.mark.parametrize(
    ("returns", "cost"),
    [
        ([3.0], [10.0]),  # one epoch
        ([3.0], [99.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),  # nothing happens
        ([NAN, NAN, NAN], [NAN, NAN, NAN]),  # no episode ever ended
        ([1.0, NAN, 2.0], [-3.0, NAN, 4.0]),
        ([1e12, -1e12, 0.0], [1e9, 0.0, 1e-9]),
    ],
    ids=["one safe epoch", "one unsafe epoch", "zeros", "all unknown", "some unknown", "huge"],
)
@pytest.mark.filterwarnings("error")
def test_strange_runs_are_drawn(tmp_path: Path, returns: list[float], cost: list[float]) -> None:
    for algo in ("cspo", "ppo-lag"):
        write_run(
            tmp_path,
            algo=algo,
            returns=returns,
            cost=cost,
            columns={"multiplier": [0.0] * len(cost)},
        )
    for figure in figures_of(tmp_path).values():
        assert render(figure, "png").startswith(b"\x89PNG")


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    for algo in ("cspo", "ppo-lag"):
        write_run(tmp_path, "a$b^{<x>&_", algo, returns=[1, 2], cost=[1, 2], name=f"run-{algo}")
    figures = figures_of(tmp_path)
    for figure in figures.values():
        ElementTree.fromstring(render(figure, "svg"))  # well-formed
    assert "curves-a-b-x-_" in figures


def test_equal_data_give_equal_files(tmp_path: Path) -> None:
    small_study(tmp_path, seeds=2, epochs=6)
    first, second = figures_of(tmp_path), figures_of(tmp_path)
    for name in (f"curves-{GOAL}", "recovery"):
        for kind in ("png", "svg"):
            assert render(first[name], kind) == render(second[name], kind)
        assert b"<dc:date>" not in render(first[name], "svg")
