"""What the native tasks share: episodes of N copies that begin, end and begin again."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from cspo.envs.batch import BatchEnv, FloatArray, StepResult, check_seed
from cspo.envs.physics.step import Physics


class SimulatedEnv(BatchEnv):
    """N copies of a native task; a task adds its physics, its observation, and how an episode of it begins."""

    autoreset: bool
    physics: Physics
    _result: StepResult

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
            self._seed_stream(index, int(seed))

    def close(self) -> None:
        """Stop the helper threads."""
        self.physics.close()

    def _reset_finished(self) -> None:
        """Within a step: keep the last observations of episodes that ended, and start the next ones."""
        result = self._result
        finished = np.flatnonzero(result.terminated | result.truncated)
        if not self.autoreset or not finished.size:
            return
        result.final_observation[finished] = result.observation[finished]
        for i in finished.tolist():
            self._reset_one(i)
        self._observe(finished)

    @abstractmethod
    def _seed_stream(self, index: int, seed: int) -> None:
        """Start the random stream of one copy from this seed."""

    @abstractmethod
    def _reset_one(self, index: int) -> None:
        """Start a new episode of one copy."""

    @abstractmethod
    def _observe(self, which: Any = slice(None)) -> FloatArray:
        """Write the observations into the result, for all or for some copies, and return all."""
