"""The one interface the trainer knows: N environments, arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs.layout import ActionLayout, ObservationLayout
from cspo.errors import CspoError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class StepResult(NamedTuple):
    """What one step of N environments returns.

    The arrays belong to the environment and are overwritten by its next call: copy what you keep.
    """

    observation: FloatArray  # (N, D) the next one; a finished environment shows its new episode
    reward: FloatArray  # (N,)
    cost: FloatArray  # (N, K)
    terminated: BoolArray  # (N,) the task ended the episode
    truncated: BoolArray  # (N,) the time limit ended the episode (never both)
    final_observation: FloatArray  # (N, D) the true last observation, valid where an episode ended

    @classmethod
    def zeros(cls, num_envs: int, observation_size: int, num_costs: int) -> StepResult:
        """Return the arrays of an environment that has not been stepped yet."""
        return cls(
            observation=np.zeros((num_envs, observation_size)),
            reward=np.zeros(num_envs),
            cost=np.zeros((num_envs, num_costs)),
            terminated=np.zeros(num_envs, np.bool_),
            truncated=np.zeros(num_envs, np.bool_),
            final_observation=np.zeros((num_envs, observation_size)),
        )

    @classmethod
    def with_numbers(
        cls, num_envs: int, observation_size: int, num_costs: int
    ) -> tuple[StepResult, FloatArray]:
        """Return the same arrays, and one flat view of all numbers in them that must be finite."""
        rows = num_envs * observation_size, num_envs, num_envs * num_costs
        numbers = np.zeros(sum(rows))
        observation, reward, cost = np.split(numbers, np.cumsum(rows[:2]))
        arrays = cls.zeros(num_envs, observation_size, num_costs)._replace(
            observation=observation.reshape(num_envs, observation_size),
            reward=reward,
            cost=cost.reshape(num_envs, num_costs),
        )
        return arrays, numbers


class BatchEnv(Protocol):
    """N environments stepped together, with same-step automatic reset.

    An environment whose episode ended is reset within the same `step`: `observation` already shows
    the new episode and `final_observation` keeps the last one of the old.

    Four attributes more may be there (`Extras` has their defaults): `action_choices`, how many
    options each of the last action columns has (1 is a bit), which then hold the index of the
    option chosen, and whose bounds are 0 and k - 1; `observation_as_is`, a mask (D,) of observation
    columns that are not to be standardised; `observation_layout` and `action_layout`, what the flat
    arrays are in the environment's own spaces (`cspo.envs.layout`). With the last, a bound of an
    action may be infinite.
    """

    name: str
    num_envs: int
    observation_size: int
    action_size: int
    action_low: FloatArray  # (A,)
    action_high: FloatArray  # (A,)
    cost_names: tuple[str, ...]  # K names, one per constraint
    time_limit: int | None  # steps after which an episode is truncated, where known

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N new episodes; environment i is seeded with `seed + i`, or goes on if None.

        Returns:
            The first observations, shape (N, D).
        """
        ...

    def step(self, actions: FloatArray) -> StepResult:
        """Advance every environment by one step with `actions` (N, A) in environment units."""
        ...

    def random_state(self) -> dict[str, Any]:
        """Everything random that survives a reset, as JSON-compatible data."""
        ...

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        ...

    def close(self) -> None:
        """Release threads and simulators."""
        ...


class Extras(NamedTuple):
    """What a `BatchEnv` may say of itself beyond its sizes."""

    action_choices: tuple[int, ...] = ()  # options of the last action columns
    observation_as_is: BoolArray | None = None  # (D,) columns that are not standardised
    observation_layout: ObservationLayout | None = None
    action_layout: ActionLayout | None = None


def extras_of(env: Any) -> Extras:
    """Return what an environment says of itself, and the defaults of what it does not."""
    known = {name: getattr(env, name) for name in Extras._fields if hasattr(env, name)}
    return Extras(**known)


def check_actions(name: str, actions: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return `actions` as a float64 array, or refuse them by their shape or a value not finite.

    A simulator would go on with a NaN for the rest of the episode, and some steps later blame
    something else.
    """
    try:
        array = np.asarray(actions, np.float64)
    except (TypeError, ValueError):
        taken = f"{name} takes actions of shape {shape}"
        raise CspoError(f"{taken}, and these are not an array of numbers.") from None
    if array.shape != shape:
        raise CspoError(f"{name} takes actions of shape {shape}, not {array.shape}.")
    if not np.isfinite(array).all():
        copy = int(np.argwhere(~np.isfinite(array))[0][0])
        given = "an action that is not finite (NaN or infinity)"
        raise CspoError(f"{name} was given {given}, for copy {copy}.")
    return array


# NumPy's legacy generator, which the navigation tasks draw from, takes seeds below this.
SEEDS = 2**32


def check_seed(name: str, seed: int | None, copies: int = 1) -> None:
    """Refuse a seed that the random streams of `copies` copies, from it on, cannot begin with."""
    if seed is None:
        return
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed <= SEEDS - copies:
        allowed = f"a whole number from 0 to {SEEDS - copies}"
        raise CspoError(f"a seed of {name} is {allowed}, not {seed!r}.")


def check_copies(saved: Sequence[Any], num_envs: int) -> Sequence[Any]:
    """Return the saved random states, or refuse those of another number of environments."""
    if len(saved) != num_envs:
        raise CspoError(f"the saved random state is of {len(saved)} environments, not {num_envs}.")
    return saved
