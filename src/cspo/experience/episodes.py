"""The last finished episodes: where return, J_c and length come from."""

from __future__ import annotations

from typing import Any

import numpy as np

from cspo.types import Episodes, FloatArray, Rollout


class EpisodeWindow:
    """First in, first out, over epochs; J_c is the mean of the undiscounted costs in it."""

    def __init__(self, size: int, num_costs: int) -> None:
        """Keep the last `size` episodes."""
        self.size, self.newest = size, 0
        self.episodes = Episodes(np.zeros(0), np.zeros((0, num_costs)), np.zeros(0))

    def extend(self, new: Episodes) -> None:
        """Add the episodes of an epoch, in the order in which they ended."""
        old, size, self.newest = self.episodes, self.size, len(new)
        self.episodes = Episodes(
            np.concatenate([old.returns, new.returns])[-size:],
            np.concatenate([old.costs, new.costs])[-size:],
            np.concatenate([old.lengths, new.lengths])[-size:],
        )

    def __len__(self) -> int:
        """Return the number of episodes held."""
        return len(self.episodes)

    @property
    def latest(self) -> Episodes:
        """The episodes of the newest epoch, or the last `size` of them."""
        old, first = self.episodes, max(0, len(self) - self.newest)
        return Episodes(old.returns[first:], old.costs[first:], old.lengths[first:])

    @property
    def epochs_held(self) -> float:
        """How many epochs' worth of episodes the window averages, at least 1."""
        return max(1.0, len(self) / max(1, self.newest))

    @property
    def episode_return(self) -> float:
        """Mean return, NaN before any episode has finished."""
        return _mean(self.episodes.returns)

    @property
    def episode_length(self) -> float:
        """Mean length, NaN before any episode has finished."""
        return _mean(self.episodes.lengths)

    @property
    def J_c(self) -> FloatArray:
        """Mean cost of each constraint, shape (K,)."""
        return np.asarray(self.episodes.costs.mean(axis=0))

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes held."""
        held = self.episodes
        return {"returns": held.returns, "costs": held.costs, "lengths": held.lengths}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        self.episodes = Episodes(*(np.array(state[key]) for key in ("returns", "costs", "lengths")))


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def measured_costs(
    window: EpisodeWindow, episodes: Episodes, rollout: Rollout, time_limit: int | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return J_c over the window, the mean cost of the epoch's own episodes and its standard error.

    All are (K,). The scatter is that within the epoch, or of the whole window where the epoch has a
    single episode.
    """
    J_c = window.J_c if window else cost_without_episodes(rollout, time_limit)
    scatter = episodes.costs if len(episodes) > 1 else window.episodes.costs
    error = np.sqrt(scatter.var(axis=0) / max(1, len(episodes))) if len(scatter) else 0.0 * J_c
    return J_c, episodes.costs.mean(axis=0) if episodes else J_c, error


def cost_without_episodes(rollout: Rollout, time_limit: int | None) -> FloatArray:
    """Estimate J_c (K,) before any episode has finished: cost per step times an episode's length.

    Where the time limit is not known, the steps collected so far stand for the length, a lower
    bound.
    """
    length = rollout.cost.shape[0] if time_limit is None else time_limit
    return np.asarray(rollout.cost.mean(axis=(0, 1)) * length)
