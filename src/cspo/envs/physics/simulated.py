"""What the native tasks share: episodes of N copies that begin, end and begin again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from cspo.envs.batch import (
    BatchEnv,
    BoolArray,
    FloatArray,
    StepResult,
    check_copies,
    check_seed,
)
from cspo.envs.facts import TaskRow, TimeLimit
from cspo.envs.physics.step import Physics, Stepper
from cspo.errors import CspoError, nearest


class SimulatedEnv(BatchEnv):
    """N copies of a native task.

    A family of tasks adds its physics, a step, the observation, and how an episode begins.

    Args:
        name: One of the family's tasks.
        num_envs: Number of copies, N.
        threads: Threads that step the physics.
        autoreset: Reset finished environments within `step`; False leaves them where they ended.
        time_limit: Steps after which an episode is truncated, None for no limit; by default the
            task's own.
        stepper: "compiled", "python" or "auto", see `Physics`.
        cost_terms: Terms of the cost to give one by one, K columns; by default the cost itself,
            which is 1 where any term is.
        **options: What else the task takes.

    Attributes:
        task: The facts of the task.
        row: What is derived from them.
        physics: The N simulators.
        model: The model of the first.
        elapsed: (N,) steps since the last reset.
        info_terms: Named facts of the last step, (N,) each.
        untold: (N,) where the original leaves such a fact out, which is 0 here, by its name.
        total_cost: (N,) 0 or 1: the cost of the last step, whichever terms are constrained.
    """

    family: ClassVar[str]
    tasks: ClassVar[Mapping[str, Any]]  # the facts of the family's tasks
    cost_name: ClassVar[str] = "cost"  # of the cost itself
    streams_name: ClassVar[str]  # in what `random_state` returns
    task: Any
    info_terms: dict[str, FloatArray]
    untold: Mapping[str, BoolArray] = MappingProxyType({})
    total_cost: FloatArray

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        threads: int = 1,
        autoreset: bool = True,
        time_limit: TimeLimit = "task",
        stepper: Stepper = "auto",
        cost_terms: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Create the simulators."""
        if name not in self.tasks:
            raise CspoError(f"there is no {self.family} task {name!r}: {nearest(name, self.tasks)}")
        self.task = self.tasks[name]
        self.row: TaskRow = self.task.row
        self.row.check_cost_terms(cost_terms)
        for option in options.keys() - set(self.task.options):
            raise CspoError(f"{name} has no option {option!r}.")
        self.name, self.num_envs = name, num_envs
        self.autoreset = autoreset
        self.time_limit = self.row.time_limit if time_limit == "task" else time_limit
        self.observation_size = self.row.observation_size
        self.action_size = self.row.action_size
        self.cost_names = tuple(cost_terms) or (self.cost_name,)
        self.physics = self._make_physics(threads, stepper)
        self.model = self.physics.models[0]
        low, high = self.model.actuator_ctrlrange.T.copy()
        self.action_low, self.action_high = low, high
        self.elapsed = np.zeros(num_envs, np.int64)
        self._streams: list[Any] = [None] * num_envs  # made when first needed
        self._result = StepResult.zeros(num_envs, self.observation_size, len(self.cost_names))
        self._prepare(options)

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N new episodes; environment i draws from its own stream, seeded with `seed + i`."""
        check_seed(self.name, seed, self.num_envs)
        for i in range(self.num_envs):
            self.seed_one(i, None if seed is None else seed + i)
            self._reset_one(i)
        return self._observe()

    def seed_one(self, index: int, seed: int | None) -> None:
        """Start the random stream of one copy anew; None leaves it as it is."""
        check_seed(self.name, seed)
        if seed is not None:
            self._streams[index] = self._new_stream(int(seed))

    def random_state(self) -> dict[str, Any]:
        """Return the state of the N random streams; null for one that was never used."""
        used = [stream is not None for stream in self._streams]
        states = [self._stream(i).state() if used[i] else None for i in range(self.num_envs)]
        return {self.streams_name: states}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        saved = check_copies(state[self.streams_name], self.num_envs)
        self._streams = [None if one is None else self._new_stream(None) for one in saved]
        for stream, one in zip(self._streams, saved, strict=True):
            if stream is not None:
                stream.set_state(one)

    def close(self) -> None:
        """Stop the helper threads."""
        self.physics.close()

    def _end_step(self) -> StepResult:
        """End a step: count it, truncate, observe, and begin the next episodes where one ended."""
        result = self._result
        self.elapsed += 1
        if self.time_limit is not None:
            np.greater(self.elapsed >= self.time_limit, result.terminated, out=result.truncated)
        self._observe()
        finished = np.flatnonzero(result.terminated | result.truncated)
        if self.autoreset and finished.size:
            result.final_observation[finished] = result.observation[finished]
            for i in finished.tolist():
                self._reset_one(i)
            self._observe(finished)
        return result

    def _stream(self, index: int) -> Any:
        """Return the random stream of one copy."""
        if self._streams[index] is None:
            self._streams[index] = self._new_stream(None)
        return self._streams[index]

    @abstractmethod
    def scene(self, index: int = 0) -> Any:
        """Return what there is to see of one copy, for a `Renderer`; the physics is only read."""

    @abstractmethod
    def _make_physics(self, threads: int, stepper: Stepper) -> Physics:
        """Create the simulators."""

    @abstractmethod
    def _prepare(self, options: Mapping[str, Any]) -> None:
        """Take the options of the task, and make room for what its steps need."""

    @abstractmethod
    def _new_stream(self, seed: int | None) -> Any:
        """Return a random stream from a seed or anywhere, with `state()` and `set_state(state)`."""

    @abstractmethod
    def _reset_one(self, index: int) -> None:
        """Start a new episode of one copy."""

    @abstractmethod
    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations into the result, for all or for some copies, and return all."""
