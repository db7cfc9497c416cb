"""N MuJoCo simulators of one model, stepped together by a few threads."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs import chained_rk4
from cspo.envs.batch import FloatArray
from cspo.envs.compiled import AWAKE, CALLER, NEXT, SETTINGS, STATE, STOPPED, STRIDE, addresses, begin, work
from cspo.errors import CspoError

Gather = Callable[[Any], Sequence[NDArray[np.float64]]]


def state_of(data: Any) -> tuple[FloatArray, FloatArray]:
    """Gather positions and velocities: the default of `Physics`."""
    return data.qpos, data.qvel


class Physics:
    """N `MjData` of one model, their controls, and one row of gathered numbers per simulator.

    Results are bit-identical whatever `threads` and `stepper`: simulators share nothing but the constant
    model.

    Note:
        A fatal MuJoCo error (out of memory inside the solver, not an unstable simulation) raises with the
        "python" stepper but ends the process with the "compiled" one.

    Args:
        model: A `mujoco.MjModel`, constant from now on.
        num_envs: Number of simulators, N.
        threads: Threads that step them, the calling one included; 1 starts no thread.
        frame_skip: Physics steps per `step`.
        gather: Says which float64 arrays of a `MjData` make up its row, in order.
        post_constraint: Also run `mj_rnePostConstraint`, which fills the contact forces.
        chained: Integrate as `chained_rk4` explains, instead of by `mj_step`.
        stepper: "compiled", "python", or "auto" for the first that works here.

    Attributes:
        data: The N `MjData`.
        rows: (N, S) what `gather` named, after the last `step` (or `refresh`).
        stepper: "compiled" or "python".
    """

    def __init__(
        self,
        model: Any,
        num_envs: int,
        threads: int = 1,
        frame_skip: int = 1,
        gather: Gather = state_of,
        post_constraint: bool = False,
        chained: bool = False,
        stepper: Literal["auto", "compiled", "python"] = "auto",
    ) -> None:
        """Create the simulators and, for more than one thread, the helpers."""
        import mujoco

        if num_envs < 1 or threads < 1:
            raise CspoError(f"num_envs and threads must be at least 1, not {num_envs} and {threads}.")
        self.model = model
        self.num_envs = num_envs
        self.threads = min(threads, num_envs)
        self.data = [mujoco.MjData(model) for _ in range(num_envs)]
        self._views = [[np.asarray(array).reshape(-1) for array in gather(data)] for data in self.data]
        self._flat_views = [view for views in self._views for view in views]
        row_size = sum(view.size for view in self._views[0])
        self.controls: FloatArray = np.zeros((num_envs, model.nu))  # (N, nu)
        self.rows: FloatArray = np.zeros((num_envs, row_size))  # (N, S)
        self._flat_rows = self.rows.reshape(-1)
        self._frame_skip = frame_skip
        self._post_constraint = post_constraint
        self._chained = chained
        self._counters = np.zeros(AWAKE + STRIDE * self.threads, np.int64)
        self._counters[NEXT] = num_envs  # nothing to do yet
        compiled = None if stepper == "python" else self._compiled_step()
        if stepper == "compiled" and compiled is None:
            raise CspoError(
                "the compiled stepper needs the MuJoCo library inside the mujoco package, and it is not there."
            )
        self.stepper: Literal["compiled", "python"] = "python" if compiled is None else "compiled"
        self._step, helper = self._python_step() if compiled is None else compiled
        self._queues = _start_helpers(helper, self.threads - 1)
        self._stop = weakref.finalize(self, _stop_helpers, self._queues, self._counters)

    def step(self, controls: ArrayLike) -> FloatArray:
        """Apply `controls` (N, nu), advance every simulator by `frame_skip` steps and return `rows`."""
        np.copyto(self.controls, controls)
        self._step(self._queues)
        return self.rows

    def refresh(self, index: int) -> None:
        """Gather row `index` again, after its simulator was changed from outside."""
        np.concatenate(self._views[index], out=self.rows[index])

    def close(self) -> None:
        """Stop the helper threads; safe to call twice, and a later step is taken by the caller alone."""
        self._stop()
        self._queues = []

    def _compiled_step(self) -> tuple[Callable[..., None], Callable[[int], None]] | None:
        """Return (one step of all, what a helper runs) in machine code, or None where impossible."""
        functions = addresses()
        if functions is None or not hasattr(self.model, "_address"):
            return None
        model, views = self.model, self._views
        helpers, counters = self.threads - 1, self._counters
        settings = {
            "model": model._address,
            "controls": self.controls.ctypes.data,
            "rows": self.rows.ctypes.data,
            "counters": counters.ctypes.data,
            "nu": model.nu,
            "nq": model.nq,
            "nv": model.nv,
            "frame_skip": self._frame_skip,
            "post_constraint": self._post_constraint,
            "chained": self._chained,
        }
        arguments = (
            functions,
            np.array([settings[name] for name in SETTINGS], np.int64),
            float(model.opt.timestep),
            np.array([data._address for data in self.data], np.int64),
            np.array([[getattr(data, name).ctypes.data for name in STATE] for data in self.data], np.int64),
            np.array([[view.ctypes.data for view in one] for one in views], np.int64),
            np.array([view.size for view in views[0]], np.int64),
        )
        counters_address = counters.ctypes.data

        def step(queues: Sequence[SimpleQueue[bool]]) -> None:
            asleep = begin(counters_address, helpers)
            if asleep:
                for number, queue in enumerate(queues):
                    # A helper that has not yet seen the last call will come anyway: calls must not pile up.
                    if asleep >> number & 1 and queue.empty():
                        queue.put(True)
            work(*arguments, CALLER)

        def helper(number: int, keep_alive: NDArray[np.int64] = counters) -> None:
            # A late helper touches the counters only, so they are all it has to keep alive.
            work(*arguments, number)

        return step, helper

    def _python_step(self) -> tuple[Callable[..., None], Callable[[int], None]]:
        """Return (one step of all, what a helper runs) in plain Python; the same numbers, slower."""
        import mujoco

        model, data, controls = self.model, self.data, self.controls
        frame_skip, chained = self._frame_skip, self._chained
        post_constraint, flat_views, flat_rows = self._post_constraint, self._flat_views, self._flat_rows
        ctrl = [one.ctrl for one in data]
        queue_of_work = _WorkQueue(len(data))
        finished: SimpleQueue[BaseException | None] = SimpleQueue()

        def advance(one: Any) -> None:
            if not chained:
                mujoco.mj_step(model, one, frame_skip)
                return
            for _ in range(frame_skip):
                chained_rk4.step(model, one)

        def step_free_ones() -> None:
            for i in queue_of_work:
                ctrl[i][:] = controls[i]
                advance(data[i])
                if post_constraint:
                    mujoco.mj_rnePostConstraint(model, data[i])

        def helper(number: int) -> None:
            try:
                step_free_ones()
            except BaseException as fault:
                finished.put(fault)
            else:
                finished.put(None)

        def step(queues: Sequence[SimpleQueue[bool]]) -> None:
            queue_of_work.restart()
            for queue in queues:
                queue.put(True)
            try:
                step_free_ones()
            finally:
                faults = [fault for fault in [finished.get() for _ in queues] if fault is not None]
            if faults:
                raise faults[0]
            np.concatenate(flat_views, out=flat_rows)

        return step, helper


class _WorkQueue:
    """Indices 0..size-1, each given once to whichever thread asks first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._counter = itertools.count(size)

    def restart(self) -> None:
        self._counter = itertools.count()

    def __iter__(self) -> _WorkQueue:
        return self

    def __next__(self) -> int:
        index = next(self._counter)  # atomic under the interpreter lock
        if index >= self._size:
            raise StopIteration
        return index


def _start_helpers(work: Callable[[int], None], count: int) -> list[SimpleQueue[bool]]:
    """Start `count` threads that run `work(their number)` once per True in their queue and end at False."""

    def serve(queue: SimpleQueue[bool], number: int) -> None:
        while queue.get():
            work(number)

    queues: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]
    for number, queue in enumerate(queues):
        threading.Thread(target=serve, args=(queue, number), name="cspo-physics", daemon=True).start()
    return queues


def _stop_helpers(queues: Sequence[SimpleQueue[bool]], counters: NDArray[np.int64]) -> None:
    counters[STOPPED] = 1
    for queue in queues:
        queue.put(False)
