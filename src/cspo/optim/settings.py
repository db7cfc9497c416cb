"""Settings that trust-region algorithms share, apart from what they set: the command line reads them without torch."""

from __future__ import annotations

from dataclasses import dataclass

from cspo.errors import require_positive


@dataclass(frozen=True)
class TrustRegionSettings:
    """Settings that trust-region algorithms share; each has defaults of its own."""

    kl_limit: float = 0.01
    """Trust region delta: limit of the KL averaged over samples and action dimensions."""
    cg_iterations: int = 15
    """Iterations of conjugate gradients."""
    damping: float = 0.1
    """Added to the diagonal of the curvature."""
    backtracks: int = 15
    """Tries of the line search, each 0.8 times the one before."""

    def validate(self, num_costs: int) -> None:
        """Refuse settings that make no sense."""
        require_positive(self, "kl_limit", "cg_iterations", "damping", "backtracks")
