"""Lagrange multipliers against transcriptions of spec section 1.9 and of projected ascent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cspo.algorithms.settings import MultiplierSettings


def make_dual(rule, num_costs, init, lr, upper=np.inf):
    return MultiplierSettings(init, lr, upper, rule).make_dual(num_costs)


def steps(dual: Any, violations: Any) -> list[float]:
    """Return the multiplier after each of a list of violations."""
    return [float(dual.step(np.array([25.0 + v]), np.array([25.0]))[0]) for v in violations]


@pytest.mark.parametrize(
    ("violation", "expected"),
    [(1e-3, 0.036), (30.0, 0.036), (1e4, 0.036), (-1e-3, 0.0), (-25.0, 0.0)],
)
def test_first_adam_step_is_the_learning_rate_whatever_the_violation(
    violation: float, expected: float
) -> None:
    # Adam's eps of 1e-8 shortens the step by 1e-8 / |violation|, at most 1e-5 of 0.035 here.
    assert steps(make_dual("adam", 1, 0.001, 0.035), [violation])[0] == pytest.approx(
        expected, abs=4e-7
    )


def test_adam_multiplier_equals_torch_adam_with_clamping() -> None:
    violations = np.random.default_rng(0).normal(-1.0, 20.0, 300)
    parameter = torch.tensor([0.001], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([parameter], lr=0.035)
    expected = []
    for violation in violations:
        optimiser.zero_grad()
        (-parameter * violation).sum().backward()
        optimiser.step()
        with torch.no_grad():
            parameter.clamp_(min=0.0)
        expected.append(parameter.item())
    assert min(expected) == 0.0, "the clamp has to be exercised"
    np.testing.assert_allclose(
        steps(make_dual("adam", 1, 0.001, 0.035), violations), expected, atol=1e-13
    )


def test_adam_multiplier_keeps_rising_after_the_violation_ended() -> None:
    dual = make_dual("adam", 1, 0.001, 0.035)
    lam = steps(dual, [30.0] * 20 + [3.0] * 60 + [-3.0] * 40)
    assert lam[19] == pytest.approx(0.70, abs=0.005)
    assert lam[79] == pytest.approx(1.35, abs=0.005)
    # Flipped to -3 it rises for 6 more epochs, is above its old value after 10 and only at 1.17
    # after 40.
    assert int(np.argmax(lam)) == 79 + 6
    assert lam[89] == pytest.approx(1.36, abs=0.005)
    assert lam[89] > lam[79]
    assert lam[119] == pytest.approx(1.17, abs=0.005)


def test_projected_ascent_moves_in_proportion_and_stops_at_zero() -> None:
    dual = make_dual("projected", 1, 0.001, 0.035)
    assert steps(dual, [10.0, -4.0, -100.0, 2.0]) == pytest.approx(
        [0.351, 0.211, 0.0, 0.07], abs=1e-15
    )


@pytest.mark.parametrize("rule", ["adam", "projected"])
def test_multiplier_never_exceeds_its_upper_bound(rule: Any) -> None:
    lam = steps(make_dual(rule, 1, 0.001, 0.035, 0.1), [30.0] * 10)
    assert lam[-1] == 0.1
    assert max(lam) == 0.1


@pytest.mark.parametrize("rule", ["adam", "projected"])
def test_every_constraint_has_its_own_multiplier(rule: Any) -> None:
    J_c, d = np.random.default_rng(1).normal(10.0, 5.0, (30, 3)), np.array([5.0, 10.0, 15.0])
    together = make_dual(rule, 3, 0.5, 0.035)
    alone = [make_dual(rule, 1, 0.5, 0.035) for _ in range(3)]
    for row in J_c:
        separate = [
            float(dual.step(row[k : k + 1], d[k : k + 1])[0]) for k, dual in enumerate(alone)
        ]
        np.testing.assert_array_equal(together.step(row, d), separate)
    assert len(set(together.lam.tolist())) == 3


@pytest.mark.parametrize("rule", ["adam", "projected"])
def test_restored_multiplier_goes_on_exactly(rule: Any) -> None:
    violations = np.random.default_rng(2).normal(0.0, 10.0, 40)
    dual = make_dual(rule, 1, 0.5, 0.035)
    steps(dual, violations[:20])
    state = dual.state_dict()
    expected = steps(dual, violations[20:])
    restored = make_dual(rule, 1, 0.0, 0.035)
    restored.load_state_dict(state)
    assert steps(restored, violations[20:]) == expected
