"""How far a price may go beyond its bound, in natural prices, while the cost stays too high.

    c <- c + exp( (n - m)_+ / m ) / m      in an epoch in which the bound holds the price down
    c <- c - max(1, c) / m                 in any other

m is the patience, n how many epochs in a row the bound has held already. So for m epochs c grows
evenly, to 1; if that does not bring the cost down, patience ends, and it grows e-fold every m. It
comes back alike. Around a limit that is kept the bound holds for a few epochs at a time, and there
c moves evenly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cspo.state import Remembers

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

    def spend(self, holds: NDArray[np.bool_], patience: float) -> None:
        """Take in whether the bound held each price down, (K,)."""
        rise = np.exp(np.minimum(np.maximum(self.held / patience - 1.0, 0.0), np.log(MOST)))
        c = self.c + np.where(holds, rise, -np.maximum(1.0, self.c)) / patience
        self.c = np.clip(c, 0.0, MOST)
        self.held = np.where(holds, self.held + 1.0, 0.0)
