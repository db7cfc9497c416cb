"""What users call an environment and a cost, for their type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, SupportsFloat, TypeAlias

from numpy.typing import NDArray


class Steppable(Protocol):
    """An environment, of any library: what can be reset and stepped.

    Their arguments and what they return are examined when it is made, and said in words.
    """

    @property
    def reset(self) -> Callable[..., object]:
        """Begin an episode."""

    @property
    def step(self) -> Callable[..., object]:
        """Take an action."""


# A name, what makes an environment, or one: a Gymnasium `Env`, a `VectorEnv`, a `BatchEnv` ...
Environment: TypeAlias = str | Callable[..., object] | Steppable
# (observation, action, next observation, info) -> cost, or K costs
CostFunction: TypeAlias = Callable[
    [Any, Any, Any, dict[str, Any]], SupportsFloat | Sequence[SupportsFloat] | NDArray[Any]
]
