"""Everything that is trained: normalisers, the actor, a reward critic and K cost critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cspo.policy.actor import Actor, Critics
from cspo.policy.distribution import Distribution
from cspo.policy.mlp import MLPActor, MLPCritics
from cspo.policy.network import Network, Pixels
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
        signature: Names and shapes of a user's network; None of the compiled ones.
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
        network: Network | None = None,
        shape: tuple[int, ...] | None = None,
        image: bool = False,
    ) -> None:
        """Draw the initial networks from `rng`.

        The last of the action's columns are `choices`; observations are standardised but for the
        columns `as_is`. A `network` takes the place of the compiled ones: it sees observations of
        this `shape`, and bytes of an `image` divided by 255.
        """
        self.observation_size, self.num_costs = observation_size, num_costs
        bounds = settings.observation_clip, settings.observation_std_floor
        enabled = settings.normalise_observations
        self.normaliser = (
            Pixels() if image else Normaliser(observation_size, *bounds, enabled, as_is)
        )
        rewards, costs = settings.normalise_rewards, settings.normalise_costs
        self.signals = SignalNormaliser(num_costs, rewards, costs)
        distribution, critics = Distribution.of(action_size, choices), 1 + num_costs
        self.signature: list[str] | None = None
        if network is None:
            hidden = (observation_size, *settings.hidden_sizes)
            self._use_compiled(hidden, distribution, critics, extra_critics, settings, rng)
        else:
            shape = shape or (observation_size,)
            self._use(network, shape, distribution, critics + extra_critics, settings, rng)

    def _use_compiled(
        self,
        hidden: tuple[int, ...],
        distribution: Distribution,
        count: int,
        extra_critics: int,
        settings: PolicySettings,
        rng: np.random.Generator,
    ) -> None:
        sizes, choices = (*hidden, distribution.output_size), distribution.choices
        self.actor: Actor = MLPActor(sizes, settings.log_std_init, rng, choices)
        critics = MLPCritics((*hidden, 1), count + extra_critics)
        # The extra ones last: whether there are any changes nothing for the others.
        for rows in (slice(0, count), slice(count, None)):
            critics.initialise(rows, rng)
        self.critics: Critics = critics

    def _use(
        self,
        network: Network,
        shape: tuple[int, ...],
        distribution: Distribution,
        count: int,
        settings: PolicySettings,
        rng: np.random.Generator,
    ) -> None:
        from cspo.policy.torch_networks import (
            TorchActor,
            TorchCritics,
        )  # an extra, and slow to load

        actor = TorchActor(network, shape, distribution, settings.log_std_init, rng)
        self.actor, self.signature = actor, actor.signature
        self.critics = TorchCritics(network, shape, count, rng)

    def values(self, x: Array) -> Array:
        """Return the values (1 + K, B) at normalised observations x (B, D), extra ones last."""
        return self.critics.values(x)

    def state_dict(self) -> dict[str, Any]:
        """Return everything trained, and what a user's network is made of."""
        network = {} if self.signature is None else {"network": self.signature}
        return network | {
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
