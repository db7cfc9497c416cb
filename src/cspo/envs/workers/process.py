"""What a worker runs: it makes its copies, and steps them whenever it is told to.

It imports NumPy, Gymnasium and the adapter: neither compiled code nor the learner. It ends with the
training process, whatever that one dies of, and takes no notice of Ctrl-C, about which the training
process decides.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import pickle
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium
from threadpoolctl import threadpool_limits

from cspo.envs.foreign import ForeignCall
from cspo.envs.gym_batch import GymBatchEnv
from cspo.envs.make import factory_of, sizes_left_open
from cspo.envs.workers import channel
from cspo.envs.workers.channel import CALL, CLOSE, CLOSED, DONE, FAULT, STEP, Channel, Report
from cspo.envs.workers.memory import Sizes, share
from cspo.envs.workers.recipe import Order, Recipe, Script
from cspo.errors import CspoError, EnvironmentFault, places, told

PARENT_LOOK = 1.0  # seconds between two looks whether the parent is still the parent
# Kept by this process and of no use to whoever is made from a description.
PRIVATE = ("envs", "cost_fn", "owns", "num_envs")


class Slice(GymBatchEnv):
    """The copies of a worker that is not the first: the number of costs is told, not tried out.

    In one process only the first copy takes the trial step, and results are the same in many.
    """

    def __init__(self, ask: Callable[[], tuple[str, ...]], *arguments: Any, **options: Any) -> None:
        """Make the copies; `ask` waits for the names of the costs."""
        self._ask = ask
        super().__init__(*arguments, **options)

    def _probe_costs(self) -> tuple[str, ...]:
        return self._ask()


def main(commands: int, parent: int, memory: int, trace: int) -> None:
    """Serve until the training process says that it is over, or is gone.

    Args:
        commands: Socket to the training process.
        parent: Pipe whose other end the training process holds as long as it lives.
        memory: File of the shared arrays.
        trace: File for the Python stack, if this process crashes or is asked for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # what prints in the background may be stopped
    _end_with_parent(parent)
    faulthandler.enable(trace, all_threads=False)
    faulthandler.register(signal.SIGUSR1, trace, all_threads=False)
    channel.inside_worker = True
    for descriptor in (commands, parent, memory, trace):  # not for programs that are started here
        os.set_inheritable(descriptor, False)
    talk = Channel(socket.socket(fileno=commands))
    with contextlib.suppress(EOFError, OSError):  # the training process is gone
        Server(talk, memory).serve()


def _end_with_parent(pipe: int) -> None:
    """End at once when the training process does, by whatever it ends.

    A thread waits for the end of the pipe; or for another parent, since a copy of the training
    process may hold the pipe open. Linux kills this process besides, which needs no thread to
    get its turn while an environment keeps the interpreter lock.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        while not select.select([pipe], [], [], PARENT_LOOK)[0] and os.getppid() == parent:
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


class Server:
    """The worker's end of the conversation."""

    def __init__(self, talk: Channel, memory: int) -> None:
        """Nothing is made yet."""
        self._talk, self._memory = talk, memory
        self._names: tuple[str, ...] | None = None
        self._first = 0

    def serve(self) -> None:
        """Answer until told to end."""
        if not self._answer(self._make):
            self._talk.receive()  # whatever comes, there is nothing that could be done
            return
        while True:
            letter, value = self._talk.receive()
            if letter == STEP:
                self._answer(self._step)
            elif letter == CALL:
                method, *arguments = value
                self._answer(getattr(self, f"_{method}"), *arguments)
            elif letter == CLOSE:
                self._talk.send(CLOSED, self._close())
                return

    def _answer(self, method: Callable[..., Any], *arguments: Any) -> bool:
        """Call a method and send what it returns, or what went wrong; say whether it went well."""
        try:
            value = method(*arguments)
        except BaseException as fault:
            self._talk.send(FAULT, _report(fault))
            return False
        self._talk.send(DONE, value)
        return True

    def _make(self) -> dict[str, Any]:
        """Make the copies; return what they are like."""
        order: Order = self._talk.receive()[1]
        sys.argv = order.argv
        ForeignCall.first_copy = self._first = order.first
        self._names = order.cost_names
        if order.script is not None:
            _import_program(order.script)
        recipe: Recipe = pickle.loads(order.recipe)
        if recipe.spec is not None:
            gymnasium.registry.setdefault(recipe.spec.id, recipe.spec)
        with warnings.catch_warnings():
            if order.first:  # what a copy warns of is said by the first
                warnings.simplefilter("ignore")
            self._batch = self._copies(recipe, order)
        if order.first:
            self._ask_names()  # which is on its way, whether the copies needed it or not
        # As in the training process: neither results nor speed depend on the threads of a product.
        threadpool_limits(1, "blas")
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)
        public = {name: value for name, value in vars(self._batch).items() if name[0] != "_"}
        return {name: value for name, value in public.items() if name not in PRIVATE}

    def _copies(self, recipe: Recipe, order: Order) -> GymBatchEnv:
        factory = factory_of(recipe.env, recipe.env_options)
        if sizes_left_open(factory, recipe.env_options):
            whole = "a function that takes num_envs makes all copies at once and steps them itself"
            raise CspoError(f"{whole}: leave --workers out.")
        label = recipe.env if isinstance(recipe.env, str) else None
        kind: Callable[..., GymBatchEnv] = functools.partial(Slice, self._ask_names)
        if order.first == 0 and order.cost_names is None:
            kind = GymBatchEnv
        return kind(factory, order.copies, recipe.cost_fn, label, cost_terms=recipe.cost_terms)

    def _ask_names(self) -> tuple[str, ...]:
        """Return the names of the costs, which the training process has from the first worker."""
        if self._names is None:
            self._names = self._talk.receive()[1]
        assert self._names is not None
        return self._names

    def _attach(self, sizes: Sizes) -> None:
        """Take hold of the shared arrays."""
        arrays = share(self._memory, sizes).rows(self._first, self._batch.num_envs)
        self._actions, self._result = arrays

    def _step(self) -> None:
        for shared, own in zip(self._result, self._batch.step(self._actions), strict=True):
            shared[...] = own

    def _reset(self, seed: int | None) -> None:
        self._result.observation[...] = self._batch.reset(seed)

    def _random_state(self) -> dict[str, Any]:
        return self._batch.random_state()

    def _set_random_state(self, state: dict[str, Any]) -> None:
        self._batch.set_random_state(state)

    def _close(self) -> list[str]:
        """Close the environments; return what went wrong, which the training process tells."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._batch.close()
        return [str(warning.message) for warning in caught]


def _import_program(script: Script) -> None:
    """Import the program that was started, under the name it has for what is pickled there."""
    module = ModuleType("__main__")
    with ForeignCall("importing the program for a worker"):
        if script.module is not None:
            names = runpy.run_module(script.module, run_name="__mp_main__", alter_sys=True)
        else:
            assert script.path is not None
            sys.path.insert(0, os.path.dirname(script.path))
            names = runpy.run_path(script.path, run_name="__mp_main__")
    module.__dict__.update(names)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _report(fault: BaseException) -> Report:
    """Return what to tell the training process of a fault."""
    cause = fault.__cause__ if isinstance(fault, CspoError) else fault
    whole = "".join(traceback.format_exception(fault))
    rest = whole, [] if cause is None else list(places(cause)), cause is not None
    if isinstance(fault, EnvironmentFault):
        return Report("environment", str(fault), *rest)
    if isinstance(fault, CspoError):
        return Report("input", str(fault), *rest)
    interrupt = isinstance(fault, KeyboardInterrupt)
    return Report("interrupt" if interrupt else "worker", told(fault), *rest)
