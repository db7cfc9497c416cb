"""How far a price may go beyond its bound, in natural prices, while the cost stays too high.

    c <- c + r / m              in an epoch in which the bound holds the price down
    c <- c - max(1, c) / m      in any other
    c <- c / 2                  in one in which the cost is half a limit or more below its target d

    r = 1                                           in the first m of them in a row
    r = max(1, (J - d) / limit) exp((n - m) / m)    then, n being how many there were before

m is the patience, d the limit less its margin. So for m epochs c grows evenly, to 1; if that does
not bring the cost down, patience ends: c grows e-fold every m, and the faster the farther the cost
is above its target. Around a limit that is kept the bound holds for a few epochs at a time: there c
moves evenly.

It comes back slowly, and no brake takes it off: most of a price that was needed to come down to the
limit is needed to stay there. Only where it carried the cost far below does it go at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cspo.state import Remembers
from cspo.types import FloatArray

FAR_BELOW = 0.5  # `level` of a cost that is half a limit below its target
MOST = 100.0  # natural prices: the reward has a hundredth of the weight, and less is no different


class Patience(Remembers):
    """c of K constraints.

    Attributes:
        c: (K,) in natural prices.
        held: (K,) n.
    """

    remembered = ("c", "held")

    def __init__(self, num_costs: int) -> None:
        """Start with nothing spent."""
        self.c, self.held = np.zeros(num_costs), np.zeros(num_costs)

    def spend(self, holds: NDArray[np.bool_], level: FloatArray, patience: float) -> None:
        """Take in whether the bound held each price down, and `level` = 1 + (J - d) / limit."""
        late = np.minimum(self.held / patience - 1.0, np.log(MOST))  # so that exp stays finite
        rise = np.where(late >= 0.0, np.maximum(level - 1.0, 1.0) * np.exp(late), 1.0)
        c = self.c + np.where(holds, rise, -np.maximum(1.0, self.c)) / patience
        c = np.where(level < FAR_BELOW, np.minimum(c, self.c / 2.0), c)
        self.c = np.clip(c, 0.0, MOST)
        self.held = np.where(holds, self.held + 1.0, 0.0)
