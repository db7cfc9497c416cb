"""How a run recovers from violations: violation frequency, time to safety, reward preservation.

With g_k = C_k - d at epoch k, an epoch is violating if g_k > 0. A violation starts at its first
violating epoch s and ends at the first safe epoch e after it: TTS = e - s, RP = J_e / J_s.
docs/recovery-metrics.md has the corner cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from cspo.errors import CspoError
from cspo.lab.metrics.aggregate import Spread, spread
from cspo.lab.metrics.series import Series
from cspo.types import FloatArray

SKIP = 0.3  # share of training before the window
# What is averaged over seeds, and what is counted.
AVERAGED = ("vf", "tts", "rp", "worst")
COUNTED = ("open_at_start", "open_at_end", "rp_undefined", "unknown_epochs")
SHARE = 0.3  # of violations that count as flat, and as steep


@dataclass(frozen=True)
class Violation:
    """One stretch of epochs above the limit that starts inside the window."""

    start: int  # first violating epoch
    end: int | None  # first safe epoch after it, None if it never ended
    return_start: float
    return_end: float | None
    gradient_norm: float | None  # logged at the start, None if the file has no such column

    @property
    def tts(self) -> float:
        """Epochs until the limit was kept again; nan if it never was."""
        return math.nan if self.end is None else float(self.end - self.start)

    @property
    def rp(self) -> float:
        """Return at the end over return at the start; nan without an end, or a positive start."""
        if self.return_end is None or not self.return_start > 0.0:
            return math.nan
        return self.return_end / self.return_start


@dataclass(frozen=True)
class Recovery:
    """The metrics of one run; nan where undefined."""

    window: tuple[int, int]  # first epoch, and one past the last
    vf: float
    violating_epochs: int
    tts: float
    rp: float
    violations: tuple[Violation, ...]  # that start inside the window
    open_at_start: int  # 1 if a violation was under way when the window began
    open_at_end: int  # 1 if a violation was under way when the run ended
    rp_undefined: int  # that ended, but began at a return that is not positive, or not known
    unknown_epochs: int = 0  # of the window, whose cost is nan
    worst: float = math.nan  # greatest g of the window; negative if the limit was never violated


@dataclass(frozen=True)
class RecoverySummary:
    """Mean and standard deviation over seeds; the counts of corner cases are summed."""

    seeds: int
    vf: Spread
    violating_epochs: Spread
    tts: Spread
    rp: Spread
    violations: int
    open_at_start: int
    open_at_end: int
    rp_undefined: int
    unknown_epochs: int
    worst: Spread
    without_violation: int  # seeds that have no violation which started in the window and ended


@dataclass(frozen=True)
class SplitPart:
    """The violations of one group of the sensitivity split."""

    violations: int
    tts: float
    rp: float
    rp_violations: int  # how many of them have an RP
    gradient_norm: float  # the group's bound: the greatest of the flat, the least of the steep


def recovery(series: Series, skip: float = SKIP) -> Recovery:
    """Return the recovery metrics of a run, after the first `skip` of its planned length."""
    if not 0.0 <= skip < 1.0:
        raise CspoError(f"--skip must be at least 0 and less than 1, not {skip:g}.")
    g = series.violation
    first, stop = round(skip * series.planned_epochs), len(g)
    window = g[first:]
    violating, unknown = int(np.sum(window > 0.0)), int(np.sum(np.isnan(window)))
    known = len(window) - unknown
    stretches = list(_stretches(g))
    reaching_in = [(s, e) for s, e in stretches if first < stop and (e is None or e > first)]
    inside = tuple(_violation(series, s, e) for s, e in stretches if s >= first)
    ended = [item for item in inside if item.end is not None]
    return Recovery(
        window=(first, max(first, stop)),
        vf=violating / known if known else math.nan,
        violating_epochs=violating,
        tts=spread([item.tts for item in ended]).mean,
        rp=spread([item.rp for item in ended]).mean,
        violations=inside,
        open_at_start=sum(s < first for s, _ in reaching_in),
        open_at_end=sum(e is None for _, e in reaching_in),
        rp_undefined=sum(math.isnan(item.rp) for item in ended),
        unknown_epochs=unknown,
        worst=float(np.nanmax(window)) if known else math.nan,
    )


def _stretches(g: FloatArray) -> Iterator[tuple[int, int | None]]:
    """Yield (s, e) of every violation of a run; an unknown epoch neither starts nor ends one."""
    start: int | None = None
    for k, value in enumerate(g):
        if value > 0.0 and start is None:
            start = k
        elif value <= 0.0 and start is not None:
            yield start, k
            start = None
    if start is not None:
        yield start, None


def _violation(series: Series, start: int, end: int | None) -> Violation:
    final = None if end is None else float(series.returns[end])
    most = np.argmax(series.cost[start] - series.limit[start])  # violated constraint
    norms = series.columns.get("gradient_norm", series.columns.get(f"gradient_norm_{most}"))
    norm = None if norms is None or math.isnan(norms[start]) else float(norms[start])
    return Violation(start, end, float(series.returns[start]), final, norm)


def summarise(recoveries: Sequence[Recovery]) -> RecoverySummary:
    """Return mean and standard deviation over the seeds of one algorithm on one task."""
    with_window = [item for item in recoveries if item.window[1] > item.window[0]]
    over_seeds: dict[str, Any] = {
        **{name: spread([getattr(item, name) for item in recoveries]) for name in AVERAGED},
        **{name: sum(getattr(item, name) for item in recoveries) for name in COUNTED},
    }
    return RecoverySummary(
        seeds=len(recoveries),
        violating_epochs=spread([item.violating_epochs for item in with_window]),
        violations=sum(len(item.violations) for item in recoveries),
        without_violation=sum(math.isnan(item.tts) for item in recoveries),
        **over_seeds,
    )


def sensitivity_split(recoveries: Sequence[Recovery], share: float = SHARE) -> dict[str, SplitPart]:
    """Return TTS and RP where the constraint is flattest and steepest: "flat" and "steep".

    The violations of all runs are pooled; those that ended and whose gradient norm was logged are
    split by the quantiles of that norm. Where the two quantiles are equal (one violation, or all
    norms equal) both groups are empty.
    """
    ended = [v for item in recoveries for v in item.violations if v.end is not None]
    pooled = [v for v in ended if v.gradient_norm is not None]
    norms = np.array([v.gradient_norm for v in pooled], dtype=np.float64)
    low, high = np.quantile(norms, [share, 1.0 - share]) if pooled else (math.nan, math.nan)
    flat = list(compress(pooled, (norms <= low) & (low < high)))
    steep = list(compress(pooled, (norms >= high) & (low < high)))
    return {"flat": _part(flat, float(low)), "steep": _part(steep, float(high))}


def _part(violations: Sequence[Violation], bound: float) -> SplitPart:
    tts, rp = spread([v.tts for v in violations]), spread([v.rp for v in violations])
    return SplitPart(len(violations), tts.mean, rp.mean, rp.count, bound)
