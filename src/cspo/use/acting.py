"""What can be measured and filmed: a policy of a run, or one that was exported."""

from __future__ import annotations

from abc import ABC, abstractmethod

from cspo.config import TrainConfig
from cspo.envs.batch import BatchEnv, extras_of
from cspo.errors import CspoError
from cspo.types import FloatArray


class Acting(ABC):
    """Acts on flat observations, and knows what it was trained on.

    Attributes:
        config: Settings of the run it comes from.
        observation_size: D.
        action_size: A, the columns of a flat action.
        action_choices: How many options each of the last columns has; 1 is a bit.
        cost_names: Names of the K costs.
        cost_limit: Limits at the end of training, shape (K,).
        modes: Whether it can act stochastically (False) and deterministically (True).
    """

    config: TrainConfig
    observation_size: int
    action_size: int
    action_choices: tuple[int, ...]
    cost_names: tuple[str, ...]
    cost_limit: FloatArray
    modes: tuple[bool, ...] = (False, True)

    @abstractmethod
    def act(self, rows: FloatArray, *, deterministic: bool = True) -> FloatArray:
        """Return flat actions (B, A) for flat observations (B, D), as a `BatchEnv` has them."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Start the stream that stochastic actions are drawn from anew."""

    def check_sizes(self, env: BatchEnv) -> None:
        """Refuse an environment with other sizes of observations, actions or costs."""
        theirs = (env.observation_size, env.action_size, len(env.cost_names))
        ours = (self.observation_size, self.action_size, len(self.cost_names))
        if theirs != ours:
            raise CspoError(
                f"The environment has sizes {theirs} of observation, action and costs; "
                f"the policy was trained on {ours}."
            )
        if tuple(extras_of(env).action_choices) != self.action_choices:
            raise CspoError("The environment has other discrete actions than the policy's.")
