"""Trust-region algorithms on problems whose constrained optima are known.

The problems are those of test_probes.py. The comment beside a tolerance gives the range over eight
seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_envs import ConstantSignals, TwoLimits
from test_probes import LENGTH, first_safe, late_mean, tradeoff, trainer, values

ALGORITHMS = ("trpo-pid", "cpo", "pcpo", "c-trpo")
HARD = {  # the methods that aim at the limit itself, and how near the late mean of the cost comes
    "cpo": 0.6,  # -0.3 to +0.2
    "cpo corrected": 0.3,  # -0.1 to +0.1
    "pcpo": 0.9,  # +0.2 to +0.5
    "pcpo corrected": 0.6,  # -0.3 to +0.2
    "c-trpo": 1.0,  # -0.7 to -0.1
}


def run(
    name: str,
    limit: Any,
    epochs: int,
    start: float | None = None,
    env: Any = tradeoff,
    **settings: Any,
) -> Any:
    """Train and return the reports; "NAME corrected" is the variant of that name."""
    algo, _, variant = name.partition(" ")
    own = {"variant": variant} if variant else {}
    # The step itself keeps the policy's std from collapsing: a trust-region algorithm has no
    # entropy bonus.
    return list(
        trainer(env, algo, limit, epochs, start=start, entropy_coefficient=0.0, **own, **settings)
    )


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_critics_find_the_value_of_constant_signals(algo: str) -> None:
    reward, cost = values(
        lambda: ConstantSignals(LENGTH, "truncated"), algo, entropy_coefficient=0.0
    )
    assert reward == pytest.approx(20.0, rel=0.005)
    assert cost == pytest.approx(10.0, rel=0.005)


@pytest.mark.parametrize("name", HARD)
def test_cost_settles_at_the_constrained_optimum(name: str) -> None:
    """A limit of 40 asks for a = -0.2; the start at a = 0 costs 50."""
    reports = run(name, 40.0, 60, start=0.0)
    assert late_mean(reports, "cost") == pytest.approx(40.0, abs=HARD[name])
    assert first_safe(reports) <= 12  # 7 to 10
    assert max(report.cost[0] for report in reports[-20:]) < 43.0  # 40.4 to 42.3
    assert all(report.kl <= 0.01 for report in reports)
    assert all(report.multiplier == (0.0,) for report in reports)


@pytest.mark.parametrize("name", HARD)
def test_recovery_from_an_infeasible_start(name: str) -> None:
    """Starts at a = 0.6, cost 80; the limit of 30 asks for a = -0.4."""
    reports = run(name, 30.0, 60, start=0.6)
    safe = first_safe(reports)
    assert 28 <= safe <= 48  # 32 to 44: the trust region bounds the speed, whatever the violation
    assert late_mean(reports, "cost") == pytest.approx(30.0, abs=HARD[name])
    for report in reports[: safe - 5]:
        assert report.metrics.get("case", 0) == 0, "cost alone as long as the limit is out of reach"
        assert report.metrics.get("safe", 0) == 0


def test_trpo_pid_swings_around_the_limit() -> None:
    reports = run("trpo-pid", 40.0, 110, start=0.0)
    assert late_mean(reports, "cost") == pytest.approx(40.0, abs=2.5)  # 39.8 to 40.9
    right = 1.8 * np.sqrt(1.0 - (0.9 * 0.95) ** 2)  # ratio of the slopes, see test_probes.py
    assert late_mean(reports, "multiplier") == pytest.approx(
        right, rel=0.35
    )  # 0.78 to 1.14 for 0.93


def test_trpo_pid_pays_for_a_long_violation() -> None:
    """The integral has grown all the way down from 80: the cost falls far below the limit of 30."""
    reports = run("trpo-pid", 30.0, 60, start=0.6)
    assert 30 <= first_safe(reports) <= 46  # 34 to 42
    assert min(report.cost[0] for report in reports) < 15.0  # 1.9 to 9.6
    assert reports[-1].metrics["integral"] > 5.0


def test_trpo_pid_keeps_several_limits_apart() -> None:
    """At a = -0.2 the second cost is 50 * 1.44 = 72, far below its limit of 150."""
    reports = run(
        "trpo-pid", (40.0, 150.0), 80, start=0.0, env=lambda: TwoLimits(LENGTH, "truncated")
    )
    assert late_mean(reports, "cost") == pytest.approx(40.0, abs=3.0)  # 38.7 to 41.0
    assert late_mean(reports, "multiplier") > 0.3  # 0.8 to 1.2
    assert all(report.multiplier[1] == 0.0 for report in reports[10:])


def test_cpo_switches_and_its_corrected_form_slides() -> None:
    """In cost per episode the limit hardly ever cuts the trust region; in cost per step it does,
    near the limit."""
    cases = {
        name: [report.metrics["case"] for report in run(name, 40.0, 40, start=0.0)[15:]]
        for name in ("cpo", "cpo corrected")
    }
    assert np.isin(cases["cpo"], [0, 3]).mean() > 0.85  # 0.96 to 1
    assert np.isin(cases["cpo corrected"], [1, 2]).mean() > 0.85  # 0.96 to 1


def test_pcpo_as_implemented_oversteps_and_is_shortened() -> None:
    """Far below the limit the corrected step fits the trust region; the plain gradient, scaled for
    it, does not."""
    backtracks = {
        name: [report.metrics["backtracks"] for report in run(name, 1e3, 12, start=0.0)]
        for name in ("pcpo", "pcpo corrected")
    }
    assert max(backtracks["pcpo corrected"]) <= 2 < 5 <= min(backtracks["pcpo"])  # 1; 9 to 14


def test_c_trpo_slows_down_towards_the_limit() -> None:
    """From far below, the barrier takes over from the KL: steps shrink, and the limit is not
    crossed by much."""
    reports = run("c-trpo", 60.0, 60, start=-0.6)
    assert all(report.metrics["safe"] == 1 for report in reports[:15])
    early, late = (
        np.mean([report.kl for report in part]) for part in (reports[:10], reports[-10:])
    )
    assert early > 0.005
    assert late < early
    assert max(report.cost[0] for report in reports) < 62.0  # 60.3 to 60.9
