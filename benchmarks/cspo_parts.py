"""CSPO with one part taken out or replaced, for studies of what that part is worth.

    cspo train TASK --plugin benchmarks/cspo_parts.py --algo cspo-without-rho
    cspo study run results/cspo-parts/study.toml --out studies/cspo-parts

Each class changes one symbol of the equations in `cspo/algorithms/cspo.py`, and inherits the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import cspo
from cspo.algorithms.cspo import CSPO, CSPOConfig
from cspo.algorithms.forecast import Forecast
from cspo.algorithms.learner import Learner
from cspo.algorithms.registry import DASHED, DOTTED, SOLID, Look
from cspo.algorithms.sensitivity import Sensitivity
from cspo.settings import positive, setting
from cspo.types import Batch, Discount, FloatArray


class Part(CSPO):
    """CSPO with another way to measure, or to foresee."""

    Measure: ClassVar[type[Sensitivity]] = Sensitivity
    Foresee: ClassVar[type[Forecast]] = Forecast

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Begin as CSPO does."""
        super().__init__(config, learner, num_costs, discount)
        self.sensitivity, self.forecast = self.Measure(num_costs), self.Foresee(num_costs)
        self.cost_unit = self.forecast.cost_unit


class WithoutPrice(Sensitivity):
    """Gradients tell how steep the cost is, but not which price holds it."""

    def average(self, gradients: FloatArray, solved: FloatArray, live: Any) -> None:
        """Average the products, then forget rho."""
        super().average(gradients, solved, live)
        self.rho = np.zeros_like(self.rho)


@cspo.register("cspo-without-rho")
class WithoutRho(Part):
    """What experience adds to rho must then be the whole price that holds the cost."""

    title, look = "CSPO without rho", Look("#0072b2", "#5ab4e6", DASHED, "s")
    summary = "CSPO with rho = 0: no price from the gradients"
    Measure = WithoutPrice


class WithoutCorrection(Forecast):
    """A filter that knows the model to be right: an error of the prediction is noise."""

    def expect(self, change: FloatArray, S: FloatArray) -> None:
        """Expect a change that no delta could add to, so that delta stays 0, and certain."""
        super().expect(change, np.zeros_like(S))

    def lift(self, rise: FloatArray) -> None:
        """Leave delta, which time raises in CSPO, at 0 as well."""


@cspo.register("cspo-without-delta")
class WithoutDelta(Part):
    """The gradients alone must give the price that holds the cost: no experience, no patience."""

    title, look = "CSPO without delta", Look("#009e73", "#4fd6ae", DASHED, "^")
    summary = "CSPO with delta = 0: no correction by experience"
    Foresee = WithoutCorrection


@cspo.register("cspo-without-epsilon")
class WithoutEpsilon(Part):
    """The weight is 1 / S, however little the cost answers: a hundredth of epsilon is left."""

    title, look = "CSPO without epsilon", Look("#332288", "#8a7fe0", DOTTED, "X")
    summary = "CSPO with w = 1/S: nothing beside the sensitivity"
    epsilon = CSPO.epsilon / 100.0


class ConstantSteepness(Sensitivity):
    """S is a given number from the moment on at which it would have been measured."""

    given: float

    def measure(self, *arguments: Any) -> None:
        """Measure the prices, and leave S as it is given."""
        super().measure(*arguments)
        self.S = self.given * (self.S > 0.0)
        self._per_eta = self.S / np.diag(self.bb)  # so that `change` predicts by this S as well


@dataclass(frozen=True)
class ConstantSConfig(CSPOConfig):
    """Settings of CSPO, and S."""

    S: float = setting(1.0, positive)
    """The constant: the median of the column `sensitivity` in the task's runs of CSPO."""


@cspo.register("cspo-constant-S")
class ConstantS(Part):
    """The violation is answered alike wherever the policy is."""

    title, look = "CSPO constant S", Look("#aa4499", "#dd8bd0", DOTTED, "D")
    summary = "CSPO with a given S: the cost's sensitivity not measured"
    Config, Measure = ConstantSConfig, ConstantSteepness

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Begin as CSPO does, with S."""
        super().__init__(config, learner, num_costs, discount)
        self.sensitivity.given = config.S


class PlainNorm(Sensitivity):
    """b . b is that of the whole batch: the noise of the gradient counts as steepness."""

    def _factorise(self, own: FloatArray) -> None:
        super()._factorise(np.where(self.known, np.diag(self.total)[1:], own))


@cspo.register("cspo-plain-norm")
class WithNoise(Part):
    """S comes out the larger, and the price the smaller, the noisier the gradient is."""

    title, look = "CSPO plain norm", Look("#56b4e9", "#8fd0f5", SOLID, "v")
    summary = "CSPO with S from |b|^2, its noise included, not from b1.b2"
    Measure = PlainNorm


@dataclass(frozen=True)
class WindowedConfig(CSPOConfig):
    """Settings of CSPO, and the length of the window."""

    window: int = setting(100, positive)
    """Episodes behind J_c: what the run's `episode_window` is."""


@cspo.register("cspo-windowed")
class Windowed(Part):
    """The filter sees J_c, the cost that is reported, instead of the epoch's own.

    The standard error of J_c is the epoch's, less in proportion to the square root of how many more
    episodes the window holds.
    """

    title, look = "CSPO windowed", Look("#8c6d00", "#e0c040", SOLID, "P")
    summary = "CSPO whose filter sees the cost averaged over the window"
    Config = WindowedConfig
    remembered = (*CSPO.remembered, "episodes")

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Begin as CSPO does, before any episode."""
        super().__init__(config, learner, num_costs, discount)
        self.episodes = np.array(0.0)  # so far

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Update on the windowed cost."""
        fresh = len(batch.log_prob) / batch.episode_length
        self.episodes = self.episodes + fresh
        held = np.minimum(self.episodes, self.config.window)
        error = batch.cost_error * np.sqrt(fresh / held)
        return super().update(replace(batch, epoch_cost=J_c, cost_error=error), J_c, d)
