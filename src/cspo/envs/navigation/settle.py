"""What a step gives beside its reward, in one compiled pass."""

from __future__ import annotations

from typing import Any

from cspo.arithmetic import exact_kernel

TOTAL = -1  # in place of the number of a term: the cost itself


@exact_kernel
def settle(
    met: Any,
    terminated: Any,
    total: Any,
    costs: Any,
    reached: Any,
    terms: Any,
    asked: Any,
    heights: Any,
    lowest: Any,
) -> Any:
    """Write where goals were met (N,), who died (N,), and costs; return how many goals were met.

    Args: total (N,): 1 where any of the terms (T, N) of the cost is; costs (N, K): the terms that
        are asked for, (K,) numbers of terms or TOTAL; reached (N,): where a goal was; heights (N,)
        of the robots, who die at `lowest` or below.
    """
    count = 0
    for n in range(len(met)):
        met[n] = 1.0 if reached[n] else 0.0
        count += reached[n]
        terminated[n] = heights[n] <= lowest
        total[n] = 0.0
        for term in range(len(terms)):
            total[n] = max(total[n], terms[term, n])
        for k in range(len(asked)):
            costs[n, k] = total[n] if asked[k] == TOTAL else terms[asked[k], n]
    return count
