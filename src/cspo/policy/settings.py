"""Settings of the policy: the networks and what they see."""

from __future__ import annotations

from dataclasses import dataclass

from cspo.settings import finite, positive, setting


def _layers(sizes: tuple[int, ...]) -> str | None:
    fine = bool(sizes) and min(sizes) >= 1
    return None if fine else "needs at least one layer, each of at least one unit"


def _network(name: str) -> str | None:
    fine = name in ("auto", "mlp") or ":" in name or name.startswith("<")
    return None if fine else "is auto, mlp, or module:factory of a network of your own"


@dataclass(frozen=True)
class PolicySettings:
    """The networks and what they see."""

    hidden_sizes: tuple[int, ...] = setting((64, 64), _layers)
    """Hidden layers of the actor and of every critic."""
    network: str = setting("auto", _network)
    """The compiled MLP, and a convolution network for images ("auto"), the MLP for images as well
    ("mlp"), or `module:factory` of your own in PyTorch, see docs/own-network.md."""
    init_from: str | None = None
    """Folder of a run whose networks and normaliser to start from, see docs/warm-start.md; the
    multiplier or price, the optimisers and the count of steps begin anew."""
    log_std_init: float = setting(0.0, finite)
    """Initial log standard deviation of the policy."""
    normalise_observations: bool = True
    """Standardise observations with running statistics."""
    observation_clip: float = setting(5.0, positive)
    """Bound of a standardised observation."""
    observation_std_floor: float = setting(0.01, positive)
    """Smallest standard deviation an observation is divided by."""
    normalise_rewards: bool = False
    """Train on rewards standardised with running statistics and bounded by 5; what is logged stays
    raw."""
    normalise_costs: bool = False
    """The same for costs, each on its own; the limit refers to raw costs all the same."""
