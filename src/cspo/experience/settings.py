"""Settings of the advantages: how rewards and costs are credited to actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cspo.settings import setting, share
from cspo.types import Discount


@dataclass(frozen=True)
class AdvantageSettings:
    """How rewards and costs are credited to actions."""

    gamma: float = setting(0.99, share)
    """Discount of rewards."""
    gae_lambda: float = setting(0.95, share)
    """GAE's lambda for rewards."""
    cost_gamma: float | None = setting(None, share)
    """Discount of costs; by default that of rewards."""
    cost_gae_lambda: float | None = setting(None, share)
    """GAE's lambda for costs; by default that of rewards."""

    @property
    def of_rewards(self) -> Discount:
        """Discount and GAE's lambda of rewards."""
        return Discount(self.gamma, self.gae_lambda)

    @property
    def of_costs(self) -> Discount:
        """Discount and GAE's lambda of costs."""
        return Discount(
            self.gamma if self.cost_gamma is None else self.cost_gamma,
            self.gae_lambda if self.cost_gae_lambda is None else self.cost_gae_lambda,
        )


@dataclass(frozen=True)
class MarginSettings:
    """How far below the limit to steer."""

    margin: Literal["auto", "on", "off"] = "auto"
    """Steer below the limit, so far that the reported cost exceeds it as rarely as asked; auto
    means on with CSPO, but not to the letter of its paper, and off with the baselines."""
    violation_rate: float = setting(0.1, share)
    """Largest share of epochs in which the reported cost may exceed its limit, once learning has
    settled; the margin is set by it."""
