"""Algorithms by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cspo.errors import CspoError, nearest
from cspo.types import Batch, FloatArray

if TYPE_CHECKING:
    from cspo.optim.minibatch import Learner

BUILT_IN = ("cspo", "ppo_lag", "ppo")  # modules of this package


class Algorithm(Protocol):
    """What the training loop calls once per epoch."""

    multiplier: FloatArray  # (K,) zeros where there is none

    def __init__(self, config: Any, learner: Learner, num_costs: int, gamma: float) -> None:
        """Build the algorithm from its own `Config`; `gamma` is the discount of the costs."""
        ...

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Improve the policy on one epoch of data.

        Args:
            batch: The epoch's samples.
            J_c: Mean episode cost of each constraint over the window of finished episodes, shape (K,).
            d: Limits, shape (K,).

        Returns:
            Numbers to log; `kl` is required.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return what survives an epoch, as nested dicts of arrays and plain values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        ...


AlgorithmType = TypeVar("AlgorithmType")
_registry: dict[str, Any] = {}


def register(name: str) -> Callable[[type[AlgorithmType]], type[AlgorithmType]]:
    """Make a class available as `--algo name`; it needs a frozen dataclass `Config` as an attribute."""

    def add(cls: type[AlgorithmType]) -> type[AlgorithmType]:
        _registry[name] = cls
        return cls

    return add


def _load_built_in() -> None:
    for module in BUILT_IN:
        importlib.import_module(f"cspo.algorithms.{module}")


def algorithm_names() -> list[str]:
    """Return the names of all registered algorithms."""
    _load_built_in()
    return sorted(_registry)


def get_algorithm(name: str) -> Any:
    """Return the class registered under `name`."""
    _load_built_in()
    if name not in _registry:
        raise CspoError(f"Unknown algorithm {name!r}: {nearest(name, _registry)}")
    return _registry[name]
