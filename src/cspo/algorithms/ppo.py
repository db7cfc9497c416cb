"""PPO: proximal policy optimisation, without constraints (Schulman et al., 2017).

    maximise  L_R(theta) = mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), eps = `clip`.

Costs are measured, logged and fitted by their critics, but do not influence the policy: the
reference for what ignoring the limits costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cspo.algorithms.duals import WithoutDual
from cspo.algorithms.registry import DOTTED, Look, Traits, register
from cspo.errors import require_positive
from cspo.optim.clipped import fit_clipped
from cspo.types import Batch, Discount, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO."""

    clip: float = 0.2
    """Clip range eps of the probability ratio."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip")


@register("ppo")
class PPO(WithoutDual):
    """Unconstrained PPO."""

    title = "PPO"
    look = Look("#777777", "#a6a6a6", DOTTED, ".")
    Config = PPOConfig
    summary = "unconstrained PPO: measures costs, ignores limits"
    traits = Traits("first", "none")

    def __init__(
        self, config: PPOConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner = config, learner
        self.multiplier = np.zeros(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        return fit_clipped(self.learner, batch, batch.adv_r, self.config.clip)
