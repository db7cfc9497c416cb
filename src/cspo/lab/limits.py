"""Which limits on a cost would matter, from what is paid without one."""

from __future__ import annotations

from dataclasses import dataclass

from cspo.lab.distribution import Distribution
from cspo.lab.suggest import rounded
from cspo.runs.summary import short_number

SHARES = {"tight": 0.25, "moderate": 0.5, "loose": 0.75}


@dataclass(frozen=True)
class Proposal:
    """Limits for one cost."""

    cost_name: str
    limits: dict[str, float]  # tight, moderate, loose; empty if none would change anything
    reason: str
    first: float  # the limit to begin with, also where none would matter


def propose(name: str, untrained: Distribution, trained: Distribution) -> Proposal:
    """Return limits between what can surely be kept and what is paid without a limit.

    The limits lie a quarter, a half and three quarters of the way from a floor to the mean cost of
    the trained policy. The floor is the mean cost of the untrained policy if that is less than half
    of it: that policy exists, so these limits can be kept. Otherwise, where training does not raise
    the cost or hardly, the floor is zero, and whether so little can be paid is not known.

    Args:
        name: Of the cost.
        untrained: Its distribution over the first episodes.
        trained: Its distribution over the last ones.
    """
    before, after = untrained.mean, trained.mean
    if untrained.highest == trained.highest == 0.0:
        reason = (
            "It never occurred. Either any limit is kept, or the training was too short to find "
            "what costs: try more --total-steps."
        )
        return Proposal(name, {}, reason, 0.0)
    if untrained.lowest == untrained.highest == trained.lowest == trained.highest:
        reason = (
            f"It was {short_number(after)} in every episode, whatever was done. A lower limit may "
            "be impossible to keep, a higher one changes nothing: look at how it is computed."
        )
        return Proposal(name, {}, reason, rounded(after))
    if after == 0.0:
        reason = (
            f"Training for return alone removes it: {short_number(before)} at first, nothing in "
            "the end. A limit matters only on the way there."
        )
        return Proposal(name, {}, reason, 0.0)
    rises = before < 0.5 * after
    floor = before if rises else 0.0
    limits = {word: rounded(floor + share * (after - floor)) for word, share in SHARES.items()}
    words = f"{short_number(before)} untrained, {short_number(after)} trained without a limit"
    if rises:
        reason = f"{words}: a quarter, a half and three quarters of the way. They can be kept."
    else:
        kept = [word for word, limit in limits.items() if limit >= before]
        known = f"known only of the {kept[0]} one" if kept else "not known"
        reason = (
            f"{words}: a quarter, a half and three quarters of the latter. Whether so little can "
            f"be paid is {known}: begin with the loose one."
        )
    return Proposal(name, limits, reason, limits["moderate" if rises else "loose"])
