"""PCPO: a reward step, then a projection onto the limit (Yang et al., 2020).

    step = sqrt(2 delta / q) Hx - [ (sqrt(2 delta / q) r + c) / s ]_+ p        variant="paper"
    step = sqrt(2 delta / q) x  - [ (sqrt(2 delta / q) r + c) / s ]_+ p        variant="corrected"

    x = H^-1 g ,  p = H^-1 b ,  q = x^T H x ,  r = g^T p ,  s = b^T p

shortened by 0.8 until mean(r A_c) rises by at most [-c]_+ and K <= delta; the reward is not tested.
The second term is the shortest way, in the norm of H, from the reward step to the linearised limit
c + b^T y = 0.

Symbols: g = grad mean(r A_r), b = grad mean(r A_c), c = J_c - d, K = KL(old || new) averaged over
samples and action dimensions, H = its Hessian at theta_k + damping I, delta = `kl_limit`.

The usual implementation multiplies x by H once more: its first term Hx is the plain gradient g,
with a scale meant for x. That is what the paper's experiments ran, so it is the default; the
projection then does not end on the limit. Both keep c per episode beside surrogates per step: above
the limit the step is -p, and the search decides its length. The usual implementation repeats a step
whose KL overflows until it gives up; "corrected" shortens it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Trial
from cspo.algorithms.registry import DASHED, Look, Traits, register
from cspo.algorithms.settings import TrustRegionSettings
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray


@dataclass(frozen=True)
class PCPOConfig(TrustRegionSettings):
    """Settings of PCPO."""

    variant: Literal["paper", "corrected"] = "paper"
    """As in the paper's experiments, with Hx in the reward step, or x as it should be."""
    backtracks: int = setting(200, positive)
    """Tries of the line search, each 0.8 times the one before."""


@register("pcpo")
class PCPO(WithoutDual):
    """A reward step projected onto the limit."""

    title = "PCPO"
    look = Look("#3796cc", "#93d3f6", DASHED, "P")
    Config = PCPOConfig
    summary = "reward step, then a projection onto the limit; one limit"
    traits = Traits("second", "projection", several_limits=False)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Take the reward step, project it, train the critics."""
        cfg, delta, corrected = (
            self.config,
            self.config.kl_limit,
            self.config.variant == "corrected",
        )
        A_c, c = batch.adv_c[:, 0], float(J_c[0] - d[0])

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        g, b = region.gradient(batch.adv_r), region.gradient(A_c)
        x, p = region.solve(g, b)
        Hx = region.product(x)
        q, r, s = float(x @ Hx), float(g @ p), float(b @ p)

        scale = np.sqrt(2.0 * delta / (q + 1e-8))
        # Without any cost gradient there is nothing to project along.
        projection = max(0.0, (scale * r + c) / s) if s > 0.0 else 0.0
        y = scale * (x if corrected else Hx) - projection * p

        def accept(new: Trial) -> bool:
            return new.change(A_c) <= max(-c, 0.0) and new.kl <= delta

        step = region.search(y, accept, cfg.backtracks, give_up_at_infinity=not corrected)
        return {
            **step.metrics,
            "violation": c,
            "projection": projection,
            **self.learner.fit_critics(batch),
        }
