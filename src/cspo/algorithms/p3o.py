"""P3O: penalised proximal policy optimisation, an exact penalty without multipliers (Zhang et al., 2022).

    minimise  -L_R + kappa sum_i [ mean(r A_c_i) + c_i ]_+

    L_R = mean min(r A_r, clip(r, 1 - eps, 1 + eps) A_r)

    variant     c
    paper       J_c - d                 as the usual implementation has it: a cost per episode beside one per step
    corrected   (1 - gamma)(J_c - d)    as published: the hinge compares like with like

Symbols: r = pi_theta(a|s) / pi_k(a|s), A_r = reward advantage (standardised), A_c_i = cost
advantages (centred), kappa = `penalty`, J_c = mean episode cost over the window, d = `cost_limit`,
gamma = discount of costs, eps = `clip`.

A minibatch's mean(r A_c) is of the order of 0.05 and J_c - d of 1 to 10, so "paper" is a switch:
PPO below the limit, PPO plus kappa grad mean(r A_c) above it. "corrected" also opens and closes
within an update. In both the ratio of the cost is not clipped and the loss is not divided by 1 +
kappa, as usually implemented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cspo.algorithms.duals import WithoutDual
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.surrogates import clip_fraction, clipped_reward, unclipped
from cspo.errors import require_not_negative, require_positive
from cspo.optim.objective import SurrogateObjective
from cspo.types import Batch, Discount, FloatArray, per_constraint

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner


@dataclass(frozen=True)
class P3OConfig:
    """Settings of P3O."""

    penalty: float = 20.0
    """Weight kappa of the penalty."""
    clip: float = 0.2
    """Clip range eps of the probability ratio of the reward."""
    variant: Literal["paper", "corrected"] = "paper"
    """The violation inside the hinge: J_c - d, or times 1 - gamma as published."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "clip")
        require_not_negative(self, "penalty")


@register("p3o")
class P3O(WithoutDual):
    """PPO with a hinge penalty on every cost."""

    title = "P3O"
    look = Look("#3a9c8c", "#83dccf", DASHED, "h")
    Config = P3OConfig
    summary = "PPO with an exact penalty: a hinge on each cost, no multiplier"
    traits = Traits("first", "penalty")

    def __init__(
        self, config: P3OConfig, learner: Learner, num_costs: int, discount: Discount
    ) -> None:
        """See `Algorithm`."""
        self.config, self.learner, self.gamma = config, learner, discount.gamma
        self.multiplier = np.zeros(num_costs)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """See `Algorithm`."""
        eps, kappa = self.config.clip, self.config.penalty
        c = J_c - d if self.config.variant == "paper" else (1.0 - self.gamma) * (J_c - d)

        def slopes(L_R: float, L_C: FloatArray) -> tuple[Any, ...]:
            return -1.0, kappa * (L_C + c > 0.0)  # the derivative of kappa [L_C + c]_+

        objective = SurrogateObjective(
            [clipped_reward(batch.adv_r), unclipped(batch.adv_c)], eps, slopes
        )
        fit = self.learner.fit(batch, objective)
        L_C = (fit.ratio.double() @ batch.adv_c.double()).numpy() / len(fit.ratio)
        return {
            "kl": fit.kl,
            "passes": fit.passes,
            "clip_fraction": clip_fraction(fit.ratio, batch.adv_r, eps),
            **per_constraint("violation", J_c - d),
            **per_constraint("hinge", np.maximum(L_C + c, 0.0)),
            **fit.metrics,
        }
