"""N MuJoCo simulators of one model, stepped together by a few threads."""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs.batch import FloatArray
from cspo.envs.physics import rk4 as chained_rk4
from cspo.envs.physics.compiled import (
    AWAKE,
    CALLER,
    NEXT,
    NO_CONTACTS,
    ROBOT,
    SETTINGS,
    STATE,
    STOPPED,
    STRIDE,
    addresses,
    begin,
    contact_places,
    work,
)
from cspo.errors import CspoError

Gather = Callable[[Any], Sequence[NDArray[np.float64]]]
Stepper = Literal["auto", "compiled", "python"]


class Circle(NamedTuple):
    """The way of mocap bodies: around the origin once in 2 pi seconds, clockwise from the y axis."""

    radius: float
    height: float


def state_of(data: Any) -> tuple[FloatArray, FloatArray]:
    """Gather positions and velocities: the default of `Physics`."""
    return data.qpos, data.qvel


class Physics:
    """N `MjData` of one model, their controls, and one row of gathered numbers per simulator.

    Results are bit-identical whatever `threads` and `stepper`: simulators share nothing but a model
    that no step changes.

    Note:
        A fatal MuJoCo error (out of memory inside the solver, not an unstable simulation) raises
        with the "python" stepper but ends the process with the "compiled" one.

    Args:
        model: A `mujoco.MjModel`, or N copies of one if each simulator has fixed bodies elsewhere.
        num_envs: Number of simulators, N.
        threads: Threads that step them, the calling one included; 1 starts no thread.
        frame_skip: Physics steps per `step`.
        gather: Says which float64 arrays of a `MjData` make up its row, in order.
        post_constraint: Also run `mj_rnePostConstraint`, which fills the contact forces.
        chained: Integrate as `chained_rk4` explains, instead of by `mj_step`.
        forward: End with `mj_forward`, which refreshes sensors and contacts, and let the solver
            start its next search from the acceleration it found, as mujoco 2.3.3 did.
        circle: Before every physics step, move all mocap bodies to where they are on this circle.
        kinds: (geoms,) the object that a geom belongs to, counted from 0, or `ROBOT`, or `NOTHING`.
        stepper: "compiled", "python", or "auto" for the first that works here.

    Attributes:
        data: The N `MjData`.
        models: The N models, which may be the same.
        frame_skip: Physics steps per `step`.
        forward: Whether a step ends with `mj_forward`.
        rows: (N, S) what `gather` named, after the last `step` (or `refresh`).
        touched: (N, objects) 1 where the robot is in contact with an object of `kinds`, else 0.
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
        forward: bool = False,
        circle: Circle | None = None,
        kinds: NDArray[np.int64] | None = None,
        stepper: Stepper = "auto",
    ) -> None:
        """Create the simulators and, for more than one thread, the helpers."""
        import mujoco

        if num_envs < 1 or threads < 1:
            raise CspoError(
                f"num_envs and threads must be at least 1, not {num_envs} and {threads}."
            )
        self.models = list(model) if isinstance(model, Sequence) else [model] * num_envs
        self.num_envs = num_envs
        self.threads = min(threads, num_envs)
        self.data = [mujoco.MjData(one) for one in self.models]
        self._views = [
            [np.asarray(array).reshape(-1) for array in gather(data)] for data in self.data
        ]
        self._flat_views = [view for views in self._views for view in views]
        row_size = sum(view.size for view in self._views[0])
        self.controls: FloatArray = np.zeros((num_envs, self.models[0].nu))  # (N, nu)
        self.rows: FloatArray = np.zeros((num_envs, row_size))  # (N, S)
        self._flat_rows = self.rows.reshape(-1)
        self.frame_skip = frame_skip
        self._post_constraint = post_constraint
        self._chained = chained
        self.forward = forward
        self._circle = circle
        self._kinds = np.zeros(0, np.int64) if kinds is None else kinds
        self.touched: FloatArray = np.zeros((num_envs, int(self._kinds.max(initial=-1)) + 1))
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
        contacts = (
            [contact_places(data) for data in self.data]
            if self._kinds.size
            else [NO_CONTACTS] * self.num_envs
        )
        known = [place for place in contacts if place is not None]
        if (
            functions is None
            or not hasattr(self.models[0], "_address")
            or len(known) < self.num_envs
        ):
            return None
        helpers, counters = self.threads - 1, self._counters
        arguments = self._arguments(functions, known)
        counters_address = counters.ctypes.data

        def step(queues: Sequence[SimpleQueue[bool]]) -> None:
            asleep = begin(counters_address, helpers)
            if asleep:
                for number, queue in enumerate(queues):
                    # A helper that has not yet seen the last call will come anyway: calls must not
                    # pile up.
                    if asleep >> number & 1 and queue.empty():
                        queue.put(True)
            work(*arguments, CALLER)

        def helper(number: int, keep_alive: NDArray[np.int64] = counters) -> None:
            # A late helper touches the counters only, so they are all it has to keep alive.
            work(*arguments, number)

        return step, helper

    def _arguments(
        self, functions: NDArray[np.int64], contacts: Sequence[tuple[int, int, int]]
    ) -> tuple[Any, ...]:
        """Return all arguments of `work` but the last: numbers and addresses that hold as long as this object."""
        model = self.models[0]
        settings = {
            "controls": self.controls.ctypes.data,
            "rows": self.rows.ctypes.data,
            "counters": self._counters.ctypes.data,
            "nu": model.nu,
            "nq": model.nq,
            "nv": model.nv,
            "frame_skip": self.frame_skip,
            "post_constraint": self._post_constraint,
            "chained": self._chained,
            "forward": self.forward,
            "targets": 0 if self._circle is None else model.nmocap,
            "objects": self.touched.shape[1],
            "touched": self.touched.ctypes.data,
            "contact_stride": contacts[0][2],
        }
        states = [
            [*(getattr(data, name).ctypes.data for name in STATE), *places[:2]]
            for data, places in zip(self.data, contacts, strict=True)
        ]
        places = (
            np.array([one._address for one in self.models], np.int64),
            np.array([data._address for data in self.data], np.int64),
            np.array(states, np.int64),
            np.array([[view.ctypes.data for view in views] for views in self._views], np.int64),
        )
        return (
            functions,
            np.array([settings[name] for name in SETTINGS], np.int64),
            np.array([model.opt.timestep, *(self._circle or (0.0, 0.0))]),
            places,
            np.array([view.size for view in self._views[0]], np.int64),
            self._kinds,
        )

    def _python_step(self) -> tuple[Callable[..., None], Callable[[int], None]]:
        """Return (one step of all, what a helper runs) in plain Python; the same numbers, slower."""
        import mujoco

        # Not `self`: the helpers would keep it alive, and nobody would stop them.
        models, data, controls, frame_skip = self.models, self.data, self.controls, self.frame_skip
        chained, circle, forward, post_constraint = (
            self._chained,
            self._circle,
            self.forward,
            self._post_constraint,
        )
        flat_views, flat_rows, kinds, touched = (
            self._flat_views,
            self._flat_rows,
            self._kinds,
            self.touched,
        )
        ctrl = [one.ctrl for one in data]
        queue_of_work = _WorkQueue(len(data))
        finished: SimpleQueue[BaseException | None] = SimpleQueue()

        def step_free_ones() -> None:
            for i in queue_of_work:
                model, one = models[i], data[i]
                ctrl[i][:] = controls[i]
                for _ in range(frame_skip):
                    if circle is not None:
                        _move_targets(one, circle)
                    if chained:
                        chained_rk4.step(model, one)
                    else:
                        mujoco.mj_step(model, one)
                if forward:
                    mujoco.mj_forward(model, one)
                    one.qacc_warmstart[:] = one.qacc
                if post_constraint:
                    mujoco.mj_rnePostConstraint(model, one)
                _note_contacts(one, kinds, touched[i])

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


def _move_targets(data: Any, circle: Circle) -> None:
    """Put every mocap body where it is on its circle at the simulated time."""
    data.mocap_pos[:] = (
        circle.radius * math.sin(data.time),
        circle.radius * math.cos(data.time),
        circle.height,
    )


def _note_contacts(data: Any, kinds: NDArray[np.int64], touched: FloatArray) -> None:
    """Write 1 for each object that the robot is in contact with, else 0."""
    if touched.size:
        pairs = kinds[data.contact.geom]  # (contacts, 2)
        objects = pairs.max(axis=1)[pairs.min(axis=1) == ROBOT]
        touched[:] = 0.0
        touched[objects[objects >= 0]] = 1.0


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
        threading.Thread(
            target=serve, args=(queue, number), name="cspo-physics", daemon=True
        ).start()
    return queues


def _stop_helpers(queues: Sequence[SimpleQueue[bool]], counters: NDArray[np.int64]) -> None:
    counters[STOPPED] = 1
    for queue in queues:
        queue.put(False)
