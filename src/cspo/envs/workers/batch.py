"""N environments spread over processes, as one `BatchEnv`: the same bits as in one process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cspo.envs.batch import FloatArray, StepResult, check_actions, check_copies
from cspo.envs.foreign import EnvironmentWarning
from cspo.envs.settings import WorkerSettings
from cspo.envs.workers import recipe
from cspo.envs.workers.handle import GRACE, Worker, WorkerFault
from cspo.envs.workers.memory import Sizes, bytes_needed, nameless_file, share
from cspo.errors import EnvironmentFault
from cspo.settings import check_memory

WORKER_BYTES = 50_000_000  # what the interpreter, NumPy and Gymnasium take


class WorkerBatchEnv:
    """Copies of an environment in processes of their own, each of which steps a slice of them.

    What describes the environment (sizes, limits, names, `clip_actions` ...) is what the adapter in
    the first worker says. Copy i is seeded with `seed + i`, and the random state is that of one
    process: neither results nor checkpoints depend on the number of workers.

    A worker that dies, hangs or raises ends the training; as often as `restart_workers` allows, it
    is started again instead. Its copies then begin new episodes, with seeds that follow from the
    run's and the number of the restart. The step in which that happens is in `lost`: it counts
    neither reward nor cost, and its episode is cut there like one at the end of an epoch, with
    the value of the last observation that was seen.

    Args:
        env: A Gymnasium id, "module:factory", or a factory that can be imported.
        num_envs: Number of copies, N.
        settings: How many workers, and what is done about one that fails.
        cost_fn: As in `make_batch`, if it can be imported.
        cost_terms: As in `make_batch`.
        env_options: As in `make_batch`.

    Attributes:
        lost: Which copies lost their last step, shape (N,).
    """

    name: str
    observation_size: int
    action_size: int
    action_low: FloatArray  # (A,)
    action_high: FloatArray  # (A,)
    cost_names: tuple[str, ...]
    time_limit: int | None

    def __init__(
        self,
        env: Any,
        num_envs: int,
        settings: WorkerSettings,
        cost_fn: Any = None,
        cost_terms: Sequence[str] = (),
        env_options: Mapping[str, Any] | None = None,
    ) -> None:
        packed = recipe.pack(env, cost_fn, tuple(cost_terms), env_options or {})
        count = min(settings.workers, num_envs)
        check_memory(f"{count} workers", {"--workers": count * WORKER_BYTES})
        self.num_envs, self.lost = num_envs, np.zeros(num_envs, np.bool_)  # (N,)
        self._settings, self._restarts, self._seed = settings, 0, 0
        self._memory, self._workers = nameless_file(), list[Worker]()
        script = recipe.program() if b"__main__" in packed else None
        parts = np.array_split(np.arange(num_envs), count)
        try:
            for index, part in enumerate(parts):
                order = recipe.Order(int(part[0]), len(part), None, packed, script, sys.argv)
                self._workers.append(self._start(index, order))
            self._learn()
        except WorkerFault as fault:
            self.close()
            raise fault.error from fault.error.__cause__
        except BaseException:
            self.close()
            raise

    def _start(self, index: int, order: recipe.Order) -> Worker:
        return Worker(index, order, self._memory, self._settings.worker_timeout)

    def _learn(self) -> None:
        """Take the description from the first worker, compare the others, and share the arrays."""
        first, *others = self._workers
        described = first.made()
        vars(self).update(described)
        for worker in self._workers:
            worker.owner = f" of the environment {self.name}"
        for worker in others:
            worker.tell(self.cost_names)
        for worker in others:
            _check_alike(described, worker.made(), worker)
        sizes = (self.num_envs, self.observation_size, self.action_size, len(self.cost_names))
        self._sizes = Sizes(*sizes)
        needed = bytes_needed(self._sizes)
        check_memory(f"The results of {self.num_envs} environments", {"--num-envs": needed})
        os.ftruncate(self._memory, needed)
        self._actions, self._result = share(self._memory, self._sizes)
        self._before = np.zeros_like(self._result.observation)  # what was seen before a step
        for worker in self._workers:
            worker.ask("attach", self._sizes)
        for worker in self._workers:
            worker.made()

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N episodes; environment i is seeded with `seed + i`, or goes on if None."""
        if seed is not None:
            self._seed = int(seed)
        for worker in self._workers:
            worker.ask("reset", None if seed is None else int(seed) + worker.order.first)
        for index, fault in self._faults("reset()"):
            self._restart(index, fault, seed)
        return self._result.observation

    def step(self, actions: FloatArray) -> StepResult:
        """Step every environment with its row of `actions` (N, A), and reset those that ended."""
        result = self._result
        self._actions[...] = check_actions(self.name, actions, self._actions.shape)
        if self._settings.restart_workers:
            self._before[...] = result.observation
            self.lost[:] = False
        for worker in self._workers:
            worker.step()
        for index, fault in self._faults("step()"):
            self._restart(index, fault)
            part = self._part(index)
            result.final_observation[part] = self._before[part]
            result.reward[part], result.cost[part] = 0.0, 0.0
            result.terminated[part], result.truncated[part] = False, True
            self.lost[part] = True
        return result

    def random_state(self) -> dict[str, Any]:
        """Return what is random in each environment, as one process would."""
        parts = []
        for worker in self._workers:
            worker.ask("random_state")
        for index, worker in enumerate(self._workers):
            try:
                parts.append(worker.answer("random_state()"))
            except WorkerFault as fault:
                self._restart(index, fault)
                self._workers[index].ask("random_state")
                parts.append(self._workers[index].answer("random_state()"))
        # Whatever is in it has a row for each copy.
        return {name: [row for part in parts for row in part[name]] for name in parts[0]}

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned, there or in one process."""
        for rows in state.values():
            check_copies(rows, self.num_envs)
        self._seed = zlib.crc32(json.dumps(state, sort_keys=True).encode())
        for index, worker in enumerate(self._workers):
            part = self._part(index)
            worker.ask("set_random_state", {name: rows[part] for name, rows in state.items()})
        for _, fault in self._faults("set_random_state()"):
            raise fault.error from fault.error.__cause__

    def close(self) -> None:
        """Close the environments and end the workers; one that does not end is killed."""
        workers, self._workers = getattr(self, "_workers", []), []
        deadline, warned = time.monotonic() + GRACE, []
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            warned += worker.end(deadline)
        if (memory := getattr(self, "_memory", -1)) >= 0:
            self._memory = -1
            os.close(memory)
        if warned:
            more = f" So did {len(warned) - 1} more." if len(warned) > 1 else ""
            warnings.warn(EnvironmentWarning(warned[0] + more), stacklevel=2)

    def __del__(self) -> None:
        """End the workers of an environment that nobody holds any more."""
        with contextlib.suppress(Exception):
            self.close()

    def _part(self, index: int) -> slice:
        order = self._workers[index].order
        return slice(order.first, order.first + order.copies)

    def _faults(self, call: str) -> list[tuple[int, WorkerFault]]:
        """Wait for the answers of all workers; return which of them failed."""
        faults = []
        for index, worker in enumerate(self._workers):
            try:
                worker.answer(call)
            except WorkerFault as fault:
                faults.append((index, fault))
        return faults

    def _restart(self, index: int, fault: WorkerFault, seed: int | None = None) -> None:
        """Start a worker again, with new episodes, if that is allowed; otherwise raise its fault.

        Without a seed, one follows from the last that was given and the number of the restart.
        """
        allowed = self._settings.restart_workers
        if not fault.restartable or self._restarts >= allowed:
            used = f" All {allowed} restarts of --restart-workers are used up."
            if fault.restartable and allowed:
                fault.error.args = (f"{fault.error}{used}",)
            raise fault.error from fault.error.__cause__
        self._restarts += 1
        told = f"{str(fault.error).rstrip('.')}. Its copies begin new episodes"
        note = f"{told} in a new process (restart {self._restarts} of {allowed})."
        warnings.warn(EnvironmentWarning(note), stacklevel=4)
        if seed is None:
            entropy = np.random.SeedSequence([self._seed, self._restarts])
            seed = int(entropy.generate_state(1)[0]) // 2  # with room for the number of a copy
        try:
            self._replace(index, seed)
        except WorkerFault as again:
            self._restart(index, again, seed)

    def _replace(self, index: int, seed: int) -> None:
        """Start a new process for the copies of a worker, and reset them."""
        old = self._workers[index]
        old.kill()
        order = old.order._replace(cost_names=self.cost_names)
        worker = self._workers[index] = self._start(index, order)
        worker.owner = old.owner
        worker.made()
        worker.ask("attach", self._sizes)
        worker.made()
        worker.ask("reset", seed + order.first)
        worker.answer("reset()")


def _check_alike(first: dict[str, Any], other: dict[str, Any], worker: Worker) -> None:
    """Refuse copies that are not of the same kind as the first."""
    for name in ("observation_size", "action_size", "cost_names"):
        if first[name] != other[name]:
            differ = f"{name} is {other[name]}, and {first[name]} in copy 0"
            raise EnvironmentFault(f"{worker.title}{worker.owner} made another kind: {differ}.")
