"""Settings of the advantages: how rewards and costs are credited to actions."""

from __future__ import annotations

from dataclasses import dataclass

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
