"""Settings that several algorithms share; each has defaults of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cspo.algorithms.duals import AdamAscent, Dual, PIDDual, ProjectedAscent
from cspo.errors import CspoError
from cspo.settings import memory, not_negative, positive, setting

DualRule = Literal["adam", "projected"]


@dataclass(frozen=True)
class MultiplierSettings:
    """Multipliers that ascend."""

    multiplier_init: float = setting(0.001, not_negative)
    """Initial Lagrange multiplier."""
    multiplier_lr: float = setting(0.035, positive)
    """Step size of the multiplier."""
    multiplier_max: float = setting(float("inf"), not_negative)
    """Upper bound of the multiplier."""
    dual: DualRule = "adam"
    """Adam, or projected (plain gradient ascent, cut off at zero)."""

    def validate(self, num_costs: int) -> None:
        """Refuse a start beyond the bound."""
        if self.multiplier_init > self.multiplier_max:
            raise CspoError("--multiplier-init is above --multiplier-max.")

    def make_dual(self, num_costs: int) -> Dual:
        """Return K multipliers that follow these settings."""
        kind = AdamAscent if self.dual == "adam" else ProjectedAscent
        return kind(num_costs, self.multiplier_init, self.multiplier_lr, self.multiplier_max)


@dataclass(frozen=True)
class PIDSettings:
    """Multipliers set by a PID controller."""

    multiplier_init: float = setting(0.001, not_negative)
    """Initial integral I, and with it the initial multiplier."""
    proportional: float = setting(0.1, not_negative)
    """Gain K_P of the averaged violation."""
    integral: float = setting(0.01, not_negative)
    """Gain K_I of the summed violation."""
    derivative: float = setting(0.01, not_negative)
    """Gain K_D of the rise of the averaged cost."""
    memory: float = setting(0.95, memory)
    """Share of the past in the two moving averages; 0 switches them off."""
    delay: int = setting(10, positive)
    """Epochs over which the rise of the cost is measured."""

    def make_dual(self, num_costs: int) -> PIDDual:
        """Return K multipliers that follow these settings."""
        gains = self.proportional, self.integral, self.derivative
        return PIDDual(num_costs, self.multiplier_init, *gains, self.memory, self.delay)


@dataclass(frozen=True)
class TrustRegionSettings:
    """One step per epoch within a trust region."""

    kl_limit: float = setting(0.01, positive)
    """Trust region delta: limit of the KL averaged over samples and action dimensions."""
    cg_iterations: int = setting(15, positive)
    """Iterations of conjugate gradients."""
    damping: float = setting(0.1, positive)
    """Added to the diagonal of the curvature."""
    backtracks: int = setting(15, positive)
    """Tries of the line search, each 0.8 times the one before."""
