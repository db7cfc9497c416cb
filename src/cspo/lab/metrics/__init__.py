"""What a run is worth: recovery metrics, and statistics over seeds."""

from cspo.lab.metrics.aggregate import (
    Estimate,
    Spread,
    difference_of_means,
    iqm,
    iqm_estimate,
    mean_of_seeds,
    probability_of_improvement,
    spread,
    stratified_iqm,
)
from cspo.lab.metrics.recovery import (
    Recovery,
    RecoverySummary,
    SplitPart,
    Violation,
    recovery,
    sensitivity_split,
    summarise,
)
from cspo.lab.metrics.series import Series, read_series

__all__ = [
    "Estimate",
    "Recovery",
    "RecoverySummary",
    "Series",
    "SplitPart",
    "Spread",
    "Violation",
    "difference_of_means",
    "iqm",
    "iqm_estimate",
    "mean_of_seeds",
    "probability_of_improvement",
    "read_series",
    "recovery",
    "sensitivity_split",
    "spread",
    "stratified_iqm",
    "summarise",
]
