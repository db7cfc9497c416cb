"""What the families of tasks share to be replayed against a recording by `tools.parity`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cspo.envs.batch import FloatArray, StepResult
from cspo.envs.physics.simulated import SimulatedEnv

Recording = Mapping[str, FloatArray]  # one row per step or reset
Shapes = Mapping[str, tuple[int, ...]]  # of one row


class Field(NamedTuple):
    """One recorded quantity and how closely it must be reproduced."""

    name: str
    key: str  # in the file
    columns: slice = slice(None)
    tolerance: float | None = None  # of the 99th percentile of row errors; None: rows must be equal
    optional: bool = False
    typical: float = math.inf  # what the 95th percentile must keep as well
    largest: float | None = None  # what every row must keep; by default ten tolerances
    unequal_share: float = 0.0  # share of rows that may be unequal where there is no tolerance


class Replay(ABC):
    """One environment of a task, put into recorded states.

    Args:
        env: A single copy that never resets by itself.
    """

    def __init__(self, env: SimulatedEnv) -> None:
        """Look up the simulator."""
        self.model, self.data = env.physics.models[0], env.physics.data[0]
        nq, nv = (int(self.model.nq),), (int(self.model.nv),)
        results = ("episode", "reward", "cost", "terminated", "truncated")
        self._common: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("qpos", "qpos_before", "qpos_after"), nq),
            **dict.fromkeys(("qvel", "qvel_before", "qvel_after", "qacc_warmstart_before"), nv),
            "action": (env.action_size,),
            "obs": (env.observation_size,),
            **dict.fromkeys((*results, *env.info_terms), ()),
        }
        self._info_terms = env.info_terms

    def shapes(self) -> Shapes:
        """Return the shape of one row of each key that a file must or may have."""
        return self._common

    def optional(self) -> frozenset[str]:
        """Return keys of the state before a step that a file may lack."""
        return frozenset()

    def outcome(self, result: StepResult) -> dict[str, Any]:
        """Return what every task tells of a step, by key."""
        return {
            "obs": result.observation[0],
            "reward": result.reward[0],
            "cost": result.cost[0, 0],
            "terminated": result.terminated[0],
            "truncated": result.truncated[0],
            "qpos_after": self.data.qpos,
            "qvel_after": self.data.qvel,
            **{name: values[0] for name, values in self._info_terms.items()},
        }

    @abstractmethod
    def step_fields(self) -> Sequence[Field]:
        """Return what is compared after a step."""

    @abstractmethod
    def reset_fields(self) -> Sequence[Field]:
        """Return what is compared after a reset."""

    @abstractmethod
    def step(self, trace: Recording, row: int) -> Mapping[str, Any]:
        """Restore the state before `row`, step, and return our values by key; rows are in order."""

    @abstractmethod
    def reset(self, seed: int | None) -> Mapping[str, Any]:
        """Reset with `seed`, or on from the last reset if None, and return our values by key."""
