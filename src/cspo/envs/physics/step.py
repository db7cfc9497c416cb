"""N MuJoCo simulators of one model, stepped together by a few threads."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cspo.envs.batch import FloatArray
from cspo.envs.physics import compiled
from cspo.envs.physics.calls import NO_CONTACTS, contact_places
from cspo.envs.physics.integrators import STATE
from cspo.envs.physics.plain import Queues, Recipe, Steppers, plain_stepper
from cspo.envs.physics.shallow import UNCAPPED, radii_of
from cspo.errors import CspoError

Gather = Callable[[Any], Sequence[NDArray[np.float64]]]
Stepper = Literal["auto", "compiled", "python"]
ONE_STEP = Recipe()


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
        recipe: What a step consists of.
        gather: Says which float64 arrays of a `MjData` make up its row, in order.
        kinds: (geoms,) the object that a geom belongs to, counted from 0, or `ROBOT`, or `NOTHING`.
        stepper: "compiled", "python", or "auto" for the first that works here.

    Attributes:
        data: The N `MjData`.
        models: The N models, which may be the same.
        recipe: What a step consists of.
        rows: (N, S) what `gather` named, after the last `step` (or `refresh`).
        touched: (N, objects) 1 where the robot is in contact with an object of `kinds`, else 0.
        stepper: "compiled" or "python".
    """

    def __init__(
        self,
        model: Any,
        num_envs: int,
        threads: int = 1,
        recipe: Recipe = ONE_STEP,
        gather: Gather = state_of,
        kinds: NDArray[np.int64] | None = None,
        stepper: Stepper = "auto",
    ) -> None:
        """Create the simulators and, for more than one thread, the helpers."""
        import mujoco

        if num_envs < 1 or threads < 1:
            given = f"{num_envs} and {threads}"
            raise CspoError(f"num_envs and threads must be at least 1, not {given}.")
        self.models = list(model) if isinstance(model, Sequence) else [model] * num_envs
        self.num_envs = num_envs
        self.threads = min(threads, num_envs)
        self.data = [mujoco.MjData(one) for one in self.models]
        self.recipe = recipe
        self._views = [[np.asarray(one).reshape(-1) for one in gather(data)] for data in self.data]
        row_size = sum(view.size for view in self._views[0])
        self.controls: FloatArray = np.zeros((num_envs, self.models[0].nu))  # (N, nu)
        self.rows: FloatArray = np.zeros((num_envs, row_size))  # (N, S)
        self._kinds = np.zeros(0, np.int64) if kinds is None else kinds
        self.touched: FloatArray = np.zeros((num_envs, int(self._kinds.max(initial=-1)) + 1))
        self._radii = radii_of(self.models[0]) if recipe.shallow else UNCAPPED
        self._counters = np.zeros(compiled.AWAKE + compiled.STRIDE * self.threads, np.int64)
        self._counters[compiled.NEXT] = num_envs  # nothing to do yet
        fast = None if stepper == "python" else self._compiled_stepper()
        if stepper == "compiled" and fast is None:
            raise CspoError(
                "the compiled stepper needs the MuJoCo library inside the mujoco package, and it "
                "is not there."
            )
        self.stepper: Literal["compiled", "python"] = "python" if fast is None else "compiled"
        self._step, helper = self._python_stepper() if fast is None else fast
        self._queues = _start_helpers(helper, self.threads - 1)
        self._stop = weakref.finalize(self, _stop_helpers, self._queues, self._counters)

    def step(self, controls: ArrayLike) -> FloatArray:
        """Apply `controls` (N, nu), advance every simulator and return `rows`."""
        np.copyto(self.controls, controls)
        self._step(self._queues)
        return self.rows

    def refresh(self, index: int) -> None:
        """Gather row `index` again, after its simulator was changed from outside."""
        np.concatenate(self._views[index], out=self.rows[index])

    def close(self) -> None:
        """Stop the helpers; safe to call twice, and a later step is taken by the caller alone."""
        self._stop()
        self._queues = []

    def _python_stepper(self) -> Steppers:
        """Return (one step of all, what a helper runs) in plain Python."""
        # Not `self`: the helpers would keep it alive, and nobody would stop them.
        arrays = self.controls, self._views, self.rows, self._kinds, self.touched, self._radii
        return plain_stepper(self.models, self.data, self.recipe, *arrays)

    def _compiled_stepper(self) -> Steppers | None:
        """Return (one step of all, what a helper runs) in machine code; None if impossible."""
        functions, felt = compiled.addresses(), bool(self._kinds.size or self._radii.size)
        found = [contact_places(data) if felt else NO_CONTACTS for data in self.data]
        contacts = [places for places in found if places is not None]
        addressed = hasattr(self.models[0], "_address") and len(contacts) == self.num_envs
        if functions is None or not addressed:
            return None
        helpers, counters = self.threads - 1, self._counters
        arguments = self._arguments(functions, contacts)
        counters_address = counters.ctypes.data

        def step(queues: Queues) -> None:
            asleep = compiled.begin(counters_address, helpers)
            if asleep:
                for number, queue in enumerate(queues):
                    # A helper that has not yet seen the last call will come anyway: calls must not
                    # pile up.
                    if asleep >> number & 1 and queue.empty():
                        queue.put(True)
            compiled.work(*arguments, compiled.CALLER)

        def helper(number: int, keep_alive: NDArray[np.int64] = counters) -> None:
            # A late helper touches the counters only, so they are all it has to keep alive.
            compiled.work(*arguments, number)

        return step, helper

    def _arguments(
        self, functions: NDArray[np.int64], contacts: Sequence[tuple[int, int, int, int]]
    ) -> tuple[Any, ...]:
        """Return all arguments of `work` but the last; they hold as long as this object."""
        model, recipe = self.models[0], self.recipe
        memory = (self._counters, self.controls, self.rows, self.touched)
        targets = 0 if recipe.circle is None else model.nmocap
        settings = [
            *(array.ctypes.data for array in memory),
            *(self.touched.shape[1], contacts[0][-1]),
            *(model.nu, model.nq, model.nv, targets),
            *(recipe.frame_skip, recipe.post_constraint, self._method(), recipe.forward),
        ]
        states = [
            [*(getattr(data, name).ctypes.data for name in STATE), *places[:-1]]
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
            np.array(settings, np.int64),
            np.array([model.opt.timestep, *(recipe.circle or (0.0, 0.0))]),
            places,
            np.array([view.size for view in self._views[0]], np.int64),
            self._kinds,
            self._radii,
        )

    def _method(self) -> int:
        """Return how machine code integrates a physics step."""
        import mujoco

        if self.recipe.chained:
            return compiled.CHAINED
        euler = self.models[0].opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
        return compiled.EULERS if euler else compiled.MUJOCOS


def _start_helpers(work: Callable[[int], None], count: int) -> list[SimpleQueue[bool]]:
    """Start threads that run `work(their number)` once per True in their queue, until a False."""

    def serve(queue: SimpleQueue[bool], number: int) -> None:
        while queue.get():
            work(number)

    queues: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]
    for number, queue in enumerate(queues):
        arguments = (queue, number)
        threading.Thread(target=serve, args=arguments, name="cspo-physics", daemon=True).start()
    return queues


def _stop_helpers(queues: Queues, counters: NDArray[np.int64]) -> None:
    counters[compiled.STOPPED] = 1
    for queue in queues:
        queue.put(False)
