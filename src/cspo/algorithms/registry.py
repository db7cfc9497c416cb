"""Algorithms by name."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from cspo.algorithms.learner import Learner
from cspo.errors import CspoError, nearest
from cspo.types import Batch, Discount, FloatArray

# Modules of this package.
BUILT_IN = (
    *("cspo", "ppo_lag", "ppo", "cppo_pid", "p3o", "appo", "ipo", "focops", "cup", "epo"),
    *("trpo_pid", "cpo", "pcpo", "c_trpo"),
)


class Traits(NamedTuple):
    """What tells algorithms apart at a glance, as in the table of docs/algorithms/README.md."""

    order: Literal["first", "second"]  # minibatch gradients, or one trust-region step per epoch
    limits: str  # what enforces them: "dual", "penalty", "dual and penalty", ..., "none"
    feasible_start: bool = False  # whether it needs a policy within the limits to start from
    several_limits: bool = True  # whether it takes more than one constraint


Dash = tuple[float, ...]  # lengths of strokes and gaps in points; empty: a solid line
SOLID: Dash = ()
DASHED: Dash = (5.0, 1.8)
DOTTED: Dash = (1.4, 1.6)


class Look(NamedTuple):
    """How an algorithm is drawn: one colour, one dash, one marker, on paper and on the page.

    The built-in hues stay apart for colour-blind readers (after Okabe and Ito, and Tol); where two
    come close, one is dashed.
    """

    colour: str  # on white
    dark: str  # the same hue on a dark ground
    dash: Dash = SOLID
    marker: str = "o"
    stands_out: bool = False


class Algorithm(Protocol):
    """What the training loop calls once per epoch.

    A class may also have a static method `extra_stream`, an `ExtraStreamRule`: the policy then gets
    K more critics, and the batch `adv_extra`. See `epo.py`.
    """

    multiplier: FloatArray  # (K,) zeros where there is none

    def __init__(self, config: Any, learner: Learner, num_costs: int, discount: Discount) -> None:
        """Build the algorithm from its own `Config`; `discount` is that of the costs."""
        ...

    def update(self, batch: Batch, J_c: FloatArray, d: FloatArray) -> dict[str, float]:
        """Improve the policy on one epoch of data.

        Args:
            batch: The epoch's samples.
            J_c: Mean episode cost of each constraint over the window of finished episodes, shape
                (K,).
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
    """Make a class with a frozen dataclass `Config` available as `--algo name`.

    A later class of the same name takes the place of an earlier one, except that built-in names
    stay what they are.
    """

    def add(cls: type[AlgorithmType]) -> type[AlgorithmType]:
        if not is_built_in(cls):
            _check(name, cls)
        _registry[name] = cls
        return cls

    return add


def is_built_in(cls: type) -> bool:
    """Whether an algorithm is one of this package."""
    return cls.__module__.startswith(f"{__package__}.")


def _check(name: str, cls: Any) -> None:
    """Refuse a user's class that could not be used, or a name that is not free or no name."""
    _load_built_in()
    if name in _registry and is_built_in(_registry[name]):
        raise CspoError(
            f"{name!r} is the name of a built-in algorithm: register {cls.__name__} under another "
            "one."
        )
    if re.fullmatch(r"\w[\w.-]*", name) is None:
        raise CspoError(f"{name!r} cannot name an algorithm: use letters, digits and dashes.")
    if not dataclasses.is_dataclass(getattr(cls, "Config", None)):
        raise CspoError(
            f"Algorithm {name!r} has no settings: give {cls.__name__} a frozen dataclass Config."
        )
    missing = [
        part
        for part in ("update", "state_dict", "load_state_dict")
        if not callable(getattr(cls, part, None))
    ]
    if missing:
        raise CspoError(f"Algorithm {name!r} is incomplete: {cls.__name__} has no {missing[0]}().")


def registered_by(module: str) -> list[str]:
    """Return the names of the algorithms that a module, or a package, has registered."""
    return [
        name for name, cls in _registry.items() if f"{cls.__module__}.".startswith(f"{module}.")
    ]


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
