"""Everything that is trained: normalisers, the actor, a reward critic and K cost critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.policy.actor import Actor, Critics
from cspo.policy.distribution import Distribution
from cspo.policy.mlp import MLPActor, MLPCritics
from cspo.policy.normaliser import Normaliser, SignalNormaliser
from cspo.policy.settings import PolicySettings
from cspo.types import Array


class Policy:
    """Normalisers, actor and 1 + K critics.

    Attributes:
        normaliser: Of observations.
        signals: Of rewards and costs.
        actor: Acts.
        critics: Value of the reward, of the K costs, and of the K extra streams of an algorithm
            that has one.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        num_costs: int,
        settings: PolicySettings,
        rng: np.random.Generator,
        *,
        choices: Sequence[int] = (),
        as_is: NDArray[np.bool_] | None = None,
        extra_critics: int = 0,
    ) -> None:
        """Draw the initial networks from `rng`.

        The last of the action's columns are `choices`; observations are standardised but for the
        columns `as_is`.
        """
        self.observation_size, self.num_costs = observation_size, num_costs
        self.normaliser = Normaliser(
            observation_size,
            settings.observation_clip,
            settings.observation_std_floor,
            settings.normalise_observations,
            as_is,
        )
        rewards, costs = settings.normalise_rewards, settings.normalise_costs
        self.signals = SignalNormaliser(num_costs, rewards, costs)
        hidden = (observation_size, *settings.hidden_sizes)
        outputs = Distribution.of(action_size, choices).output_size
        self.actor: Actor = MLPActor((*hidden, outputs), settings.log_std_init, rng, choices)
        critics = MLPCritics((*hidden, 1), 1 + num_costs + extra_critics)
        # The extra ones last: whether there are any changes nothing for the others.
        for rows in (slice(0, 1 + num_costs), slice(1 + num_costs, None)):
            critics.initialise(rows, rng)
        self.critics: Critics = critics

    def values(self, x: Array) -> Array:
        """Return the values (1 + K, B) at normalised observations x (B, D), extra ones last."""
        return self.critics.values(x)

    def state_dict(self) -> dict[str, Any]:
        """Return everything trained."""
        return {
            "actor": self.actor.parameters.copy(),
            "critics": self.critics.parameters.copy(),
            "normaliser": self.normaliser.state_dict(),
            "signals": self.signals.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.actor.parameters[:] = state["actor"]
        self.critics.parameters[:] = state["critics"]
        self.normaliser.load_state_dict(state["normaliser"])
        self.signals.load_state_dict(state["signals"])
