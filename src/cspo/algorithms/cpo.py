"""CPO: constrained policy optimisation (Achiam, Held, Tamar and Abbeel, 2017).

    maximise  g^T y   subject to   c + b^T y <= 0 ,  y^T H y / 2 <= delta        over the step y
    x = H^-1 g ,  p = H^-1 b ,  q = x^T H x ,  r = g^T p ,  s = b^T p ,
    A = q - r^2 / s ,  B = 2 delta - c^2 / s

    case                                          step
    4  no cost gradient, within the limit         sqrt(2 delta / q) x
    3  whole trust region within the limit        sqrt(2 delta / q) x
    2  limit cuts it, theta_k within              (x - nu p) / lam , lam and nu from the dual
    1  limit cuts it, theta_k outside             (x - nu p) / lam
    0  whole trust region outside the limit       -sqrt(2 delta / s) p , cost alone

shortened by 0.8 until mean(r A_r) is no worse (cases 2 to 4), mean(r A_c) rises by at most [-c]_+ ,
and K <= delta.

Symbols: g = grad mean(r A_r), b = grad mean(r A_c), c = J_c - d, K = KL(old || new) averaged over
samples and action dimensions, H = its Hessian at theta_k + damping I, delta = `kl_limit`.

The usual implementation compares c per episode with surrogates per step, so cases 1 and 2 need |c|
< sqrt(2 delta s), a few hundredths: reward alone below the limit, cost alone above it. There it
takes r with the wrong sign. A step whose KL overflows is repeated until it gives up.
`variant="corrected"` divides c by an episode's length, and mends the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cspo.algorithms.base import WithoutDual
from cspo.algorithms.learner import Trial
from cspo.algorithms.registry import SOLID, Look, Traits, register
from cspo.algorithms.settings import TrustRegionSettings
from cspo.settings import positive, setting
from cspo.types import Batch, FloatArray


@dataclass(frozen=True)
class CPOConfig(TrustRegionSettings):
    """Settings of CPO."""

    variant: Literal["paper", "corrected"] = "paper"
    """As in the paper's experiments, or with the violation per step (see
    docs/algorithms/cpo.md)."""
    backtracks: int = setting(20, positive)
    """Tries of the line search, each 0.8 times the one before."""


def optimal_step(
    x: FloatArray, p: FloatArray, q: float, r: float, s: float, bb: float, c: float, delta: float
) -> tuple[FloatArray, int, float]:
    """Return the solution of the quadratic problem, its case and nu; bb = b^T b."""
    A, B = q - r**2 / (s + 1e-8), 2.0 * delta - c**2 / (s + 1e-8)
    outside = B < 0.0  # the limit does not cut the trust region
    case = (4 if bb <= 1e-6 else 3 if outside else 2) if c < 0.0 else (0 if outside else 1)
    if case >= 3:
        return np.sqrt(2.0 * delta / (q + 1e-8)) * x, case, 0.0
    if case == 0:
        return -(nu := float(np.sqrt(2.0 * delta / (s + 1e-8)))) * p, case, nu

    # A >= 0 but for rounding
    lam_a, lam_b = float(np.sqrt(max(A, 0.0) / max(B, 1e-16))), float(np.sqrt(q / (2.0 * delta)))
    t = -r / (c + 1e-8)  # parts the multipliers at which the limit is active from the others
    if c < 0.0:
        lam_a, lam_b = max(0.0, min(lam_a, t)), max(lam_b, t)
    else:
        lam_a, lam_b = max(lam_a, t), max(0.0, min(lam_b, t))
    f_a = -0.5 * (A / (lam_a + 1e-8) + B * lam_a) + r * c / (s + 1e-8)  # the dual, limit active
    f_b = -0.5 * (q / (lam_b + 1e-8) + 2.0 * delta * lam_b)
    lam = lam_a if f_a >= f_b else lam_b
    nu = max(0.0, lam * c + r) / (s + 1e-8)
    return (x - nu * p) / (lam + 1e-8), case, nu


@register("cpo")
class CPO(WithoutDual):
    """The step that improves the reward most under the linearised limit."""

    title = "CPO"
    look = Look("#332288", "#a394ee", SOLID, "D")
    Config = CPOConfig
    summary = (
        "trust-region step that best improves the reward under the limit, to second order; "
        "one limit"
    )
    traits = Traits("second", "projection", several_limits=False)

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Solve the quadratic problem, take the step, train the critics."""
        cfg, delta, corrected = (
            self.config,
            self.config.kl_limit,
            self.config.variant == "corrected",
        )
        A_r, A_c = batch.adv_r, batch.adv_c[:, 0]
        c = float(J_c[0] - d[0]) / (batch.episode_length if corrected else 1.0)

        region = self.learner.trust_region(batch, cfg.damping, cfg.cg_iterations)
        g, b = region.gradient(A_r), region.gradient(A_c)
        x, p = region.solve(g, b)
        q, r, s, bb = float(x @ region.product(x)), float(g @ p), float(b @ p), float(b @ b)
        y, case, nu = optimal_step(x, p, q, r if corrected else -r, s, bb, c, delta)

        def accept(new: Trial) -> bool:
            improves = case <= 1 or new.change(A_r) >= 0.0
            return improves and new.change(A_c) <= max(-c, 0.0) and new.kl <= delta

        step = region.search(y, accept, cfg.backtracks, give_up_at_infinity=not corrected)
        own = {"case": case, "violation": c, "nu": nu}
        return {**step.metrics, **own, **self.learner.fit_critics(batch)}
