"""Settings of the update: how the networks are fitted to an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cspo.settings import not_negative, positive, positive_or_infinite, setting


@dataclass(frozen=True)
class UpdateSettings:
    """How the networks are fitted to an epoch."""

    passes: int = setting(10, positive)
    """Passes over the epoch's samples per update."""
    minibatch_size: int = setting(512, positive)
    """Samples per gradient step; the last minibatch of a pass may be shorter."""
    target_kl: float = setting(0.02, positive_or_infinite)
    """Stop the update when KL(old || new), summed over action dimensions, exceeds this."""
    kl_check: Literal["pass", "minibatch"] = "pass"
    """Check the KL after every pass on all samples, or after every minibatch on its own."""
    actor_lr: float = setting(3e-4, positive)
    """Learning rate of the actor."""
    actor_lr_decay: bool = True
    """Decay the actor's learning rate linearly to zero over the run."""
    critic_lr: float = setting(3e-4, positive)
    """Learning rate of the critics."""
    max_grad_norm: float = setting(40.0, positive)
    """Gradient norm clip, separately for the actor and for each critic."""
    critic_l2: float = setting(0.001, not_negative)
    """Weight of the sum of squared parameters in each critic's loss."""
    entropy_coefficient: float = setting(0.0, not_negative)
    """Weight of the policy's entropy in the objective."""
