"""The first-order baselines on the problems of `test_probes`: what each promises, and what it does.

All runs are short (0.4 to 1.5 s) and have fixed seeds; the comments give the ranges seen over eight
seeds for the first test and over four for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_envs import TwoLimits
from test_probes import LENGTH, first_safe, late_mean, tradeoff, trainer

# Where the defaults are made for 500 epochs, faster ones. A step of the actor ten times that of the
# experiments makes the switch of P3O and the two stages of CUP swing widely: theirs is three times
# smaller than that of the others.
FAST: dict[str, dict[str, Any]] = {
    "p3o": {"actor_lr": 3e-3},
    "focops": {
        "dual": "projected", "multiplier_init": 0.8, "multiplier_lr": 0.004, "temperature": 0.3,
    },
    "cup": {
        "dual": "projected", "multiplier_init": 0.6, "multiplier_lr": 0.003,
        "actor_lr": 3e-3, "target_kl": 0.02,
    },
}  # fmt: skip
EPOCHS = {"focops": 150}
START = {"ipo": -0.5}  # a cost of 25: the barrier wants a policy inside
PRICE = 1.8 * np.sqrt(
    1.0 - (0.9 * 0.95) ** 2
)  # of a unit of cost at the optimum, see `test_probes`


def run(algo: str, limit: Any, env: Any = tradeoff, **settings: Any) -> list[Any]:
    options = FAST.get(algo, {}) | settings
    return list(
        trainer(env, algo, limit, EPOCHS.get(algo, 90), start=START.get(algo, 0.0), **options)
    )


@pytest.mark.parametrize(
    ("algo", "settings", "low", "high"),
    [
        ("cppo-pid", {}, 38.5, 42.0),  # 40.1 to 41.1
        ("p3o", {}, 34.0, 40.0),  # 35.9 to 37.6: a switch, so the cost swings below the limit
        (
            "p3o",
            {"variant": "corrected"},
            36.5,
            40.0,
        ),  # 37.5 to 38.7: it stops at the limit, or before
        ("appo", {}, 39.0, 41.0),  # 39.6 to 40.1: the penalty damps the multiplier
        ("ipo", {}, 37.5, 40.3),  # 38.7 to 39.3: the barrier keeps a distance
        ("focops", {}, 36.0, 44.0),  # 38.7 to 43.0, still oscillating
        ("cup", {}, 38.0, 45.0),  # 40.7 to 43.3, still oscillating
    ],
)
def test_cost_settles_at_the_constrained_optimum(
    algo: str, settings: Any, low: float, high: float
) -> None:
    """A limit of 40 asks for a = -0.2; without a limit the cost would be 85."""
    reports = run(algo, 40.0, **settings)
    assert low < late_mean(reports, "cost") < high
    if algo in (
        "cppo-pid",
        "appo",
        "focops",
    ):  # CUP's multiplier has another scale, the others have none
        assert late_mean(reports, "multiplier") == pytest.approx(
            PRICE, rel=0.25
        )  # 0.78 to 1.06 for 0.93
    if algo in ("p3o", "ipo"):
        assert all(report.multiplier == (0.0,) for report in reports)
    if algo == "ipo":  # hardly leaves the feasible side on the way: 40.2 to 41.6
        assert max(report.cost[0] for report in reports) < 43.0


# ---------------------------------------------------------------- an infeasible start: a = 0.6,
# cost 80, limit 30


@pytest.mark.parametrize(
    ("algo", "soonest", "latest"),
    [("p3o", 5, 15), ("cppo-pid", 12, 24), ("appo", 25, 58)],  # 9 to 11, 16 to 18, 31 to 47
)
def test_recovery_from_an_infeasible_start(algo: str, soonest: int, latest: int) -> None:
    """PPO-Lag needs 53 epochs or more."""
    reports = list(trainer(tradeoff, algo, 30.0, 60, start=0.6))
    assert reports[0].cost[0] > 75.0
    assert soonest <= first_safe(reports) <= latest
    if algo == "cppo-pid":  # the integral has wound up and needs as long to come down: 0.9 to 1.5
        assert min(report.cost[0] for report in reports) < 10.0
    if algo == "appo":  # 30.8 to 30.9
        assert late_mean(reports, "cost") == pytest.approx(30.0, abs=2.0)
        assert min(report.cost[0] for report in reports) > 26.0


@pytest.mark.parametrize(("algo", "init"), [("focops", 1.0), ("cup", 0.001)])
def test_slow_multipliers_take_longer_than_sixty_epochs(algo: str, init: float) -> None:
    reports = list(trainer(tradeoff, algo, 30.0, 60, start=0.6))
    assert first_safe(reports) == 60
    assert reports[9].multiplier[0] == pytest.approx(
        init + 10 * 0.01, rel=0.01
    )  # Adam, whatever the violation
    assert (
        reports[-1].cost[0] < reports[9].cost[0] - 5.0
    )  # but the way is right: down by 10 and more


def test_ipo_outside_its_barrier_stops_where_the_highest_price_is_right() -> None:
    """Price 1 is right where 2 (0.7 - a) sqrt(1 - 0.855^2) = 1: a = -0.26, cost 37, above 30."""
    raw = {
        "normalise_rewards": False,
        "normalise_costs": False,
    }  # a price on raw costs, so that it can be computed
    reports = list(trainer(tradeoff, "ipo", 30.0, 90, start=0.6, **raw))
    assert all(report.metrics["penalty"] == 1.0 and report.violated for report in reports)
    assert late_mean(reports, "cost") == pytest.approx(36.8, abs=4.0)  # 34.9 to 38.0


def test_ipo_with_a_higher_price_finds_the_way_back() -> None:
    raw = {"normalise_rewards": False, "normalise_costs": False}
    reports = list(trainer(tradeoff, "ipo", 30.0, 60, start=0.6, penalty_max=5.0, **raw))
    assert first_safe(reports) < 30  # 16 to 18
    assert 26.0 < late_mean(reports, "cost") < 30.5  # 28.6 to 29.2


# ---------------------------------------------------------------- two constraints


@pytest.mark.parametrize(
    ("algo", "low", "high"),
    [
        ("cppo-pid", 38.5, 42.0),  # 40.0 to 41.0
        ("p3o", 34.0, 40.0),  # 35.8 to 37.1
        ("appo", 39.0, 41.0),  # 39.6 to 40.1
        ("ipo", 37.5, 40.3),  # 38.8 to 39.0
        ("focops", 35.0, 45.0),  # 39.4 to 40.2
        ("cup", 37.0, 46.0),  # 41.1 to 43.2
    ],
)
def test_only_the_active_constraint_is_paid_for(algo: str, low: float, high: float) -> None:
    """At a = -0.2 the second cost is 50 * 1.44 = 72, far below its limit of 150."""
    reports = run(algo, (40.0, 150.0), lambda: TwoLimits(LENGTH, "truncated"))
    assert low < late_mean(reports, "cost") < high
    last = reports[-30:]
    assert all(report.multiplier[1] == 0.0 for report in last)
    if algo == "p3o":
        assert all(report.metrics["hinge_1"] == 0.0 for report in reports)
    elif algo == "ipo":
        assert all(report.metrics["penalty_1"] < 0.002 for report in last)  # 0.1 / (150 - 76)
    else:
        assert late_mean(reports, "multiplier") > 0.3
