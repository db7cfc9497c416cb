"""PPO's step: the clipped surrogate of one advantage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cspo.algorithms.surrogates import clip_fraction, clipped_reward
from cspo.optim.objective import SurrogateObjective
from cspo.types import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from cspo.optim.minibatch import Learner


def fit_clipped(learner: Learner, batch: Batch, A: Tensor, eps: float) -> dict[str, float]:
    """Maximise mean min(r A, clip(r, 1 - eps, 1 + eps) A) over the minibatches, and return the metrics of that.

    Args:
        learner: Holds the policy and the minibatch loop.
        batch: The samples; the critics are trained on them too.
        A: (n,) advantage, of the reward or of a Lagrangian.
        eps: Clip range of the probability ratio r.
    """
    fit = learner.fit(batch, SurrogateObjective([clipped_reward(A)], eps, lambda L: (-1.0,)))
    fraction = clip_fraction(fit.ratio, A, eps)
    return {"kl": fit.kl, "passes": fit.passes, "clip_fraction": fraction, **fit.metrics}
