"""How fast delta rises, in natural prices, while the bound on the push holds the price down.

    delta <- delta + alpha r / m natural        in an epoch in which the bound holds the price down

    r = 1                                             in the first m of them in a row
    r = max( 1, (J - d) / limit exp((n - m) / m) )    then, n being how many there were before

m is the patience, d the limit less its margin. So for m epochs delta grows evenly, by one natural
price; if that does not bring the cost down, patience ends: delta grows e-fold every m, and in
proportion to how far the cost is above its target, so that it does not rush the last part of the
way. It comes back as experience takes it down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cspo.algorithms.forecast import BOUNDS
from cspo.state import Remembers
from cspo.types import FloatArray


class Patience(Remembers):
    """n of K constraints.

    Attributes:
        held: (K,) epochs in a row in which the bound has held the price down.
    """

    remembered = ("held",)

    def __init__(self, num_costs: int) -> None:
        """Start with all of it."""
        self.held = np.zeros(num_costs)

    def spend(self, holds: NDArray[np.bool_], excess: FloatArray, patience: float) -> FloatArray:
        """Return r / m (K,) from whether the bound held, and the excess (J - d) / limit."""
        late = np.minimum(self.held / patience - 1.0, np.log(BOUNDS[1]))  # so that exp stays finite
        rise = np.where(late >= 0.0, np.maximum(excess * np.exp(late), 1.0), 1.0)
        self.held = np.where(holds, self.held + 1.0, 0.0)
        return np.where(holds, rise, 0.0) / patience
