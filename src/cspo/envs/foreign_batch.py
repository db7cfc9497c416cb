"""A `BatchEnv` of a user's own: every call of it is surrounded, and its arrays are looked at."""

from __future__ import annotations

from typing import Any, NoReturn, cast

import numpy as np

from cspo.envs.batch import BatchEnv, Extras, FloatArray, StepResult, extras_of
from cspo.envs.foreign import REAL_KINDS, ForeignCall, WrongAnswer, check_state, close_all
from cspo.errors import in_one_line, shown

PACKAGE = __name__.partition(".")[0]


def surrounded(env: Any) -> BatchEnv:
    """Return a `BatchEnv` whose faults are told in words: ours as it is, a user's in a shell."""
    ours = type(env).__module__.partition(".")[0] == PACKAGE
    return cast("BatchEnv", env if ours else ForeignBatch(env))


class ForeignBatch:
    """A user's `BatchEnv`; whatever else the object has is found here as well."""

    def __init__(self, env: Any) -> None:
        """Take the environment, or say what it lacks."""
        self._env, self._owner = env, f"the environment {type(env).__name__}"
        with self._calling("the description"):
            self.name = in_one_line(getattr(env, "name", type(env).__name__))
            self._owner = f"the environment {self.name}"
            self._shapes = _shapes(env)
        self._stepping = self._calling("step()")

    def __getattr__(self, name: str) -> Any:
        """Return what the user's object has under that name."""
        if name == "_env":  # not there yet: this object is being copied
            raise AttributeError(name)
        return getattr(self._env, name)

    def reset(self, seed: int | None = None) -> FloatArray:
        """Start N new episodes."""
        with self._calling("reset()"):
            return _usable(self._env.reset(seed), "observation", self._shapes[0])

    def step(self, actions: FloatArray) -> StepResult:
        """Advance every environment by one step."""
        with self._stepping:
            result = self._env.step(actions)
            if type(result) is StepResult:
                a, b, c, d, e, f = result
                try:
                    shapes = (a.shape, b.shape, c.shape, d.shape, e.shape, f.shape)
                    types = a.dtype.char + b.dtype.char + c.dtype.char + f.dtype.char
                    if (
                        shapes == self._shapes
                        and types == "dddd"
                        and d.dtype.char == e.dtype.char == "?"
                    ):
                        return result
                except AttributeError:
                    pass  # said below, which of them is no array
            return _as_result(result, self._shapes)

    def random_state(self) -> dict[str, Any]:
        """Return everything random that survives a reset."""
        with self._calling("random_state()"):
            state = self._env.random_state()
            if not isinstance(state, dict):
                raise WrongAnswer(f"must return a dict, not {shown(state)}")
            check_state(state)
            return state

    def set_random_state(self, state: dict[str, Any]) -> None:
        """Put back what `random_state` returned."""
        with self._calling("set_random_state()"):
            self._env.set_random_state(state)

    def close(self) -> None:
        """Release what the environment holds."""
        close_all([self._env], self._owner)

    def _calling(self, call: str) -> ForeignCall:
        return ForeignCall(call, self._owner, self._env)


def _shapes(env: Any) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a step's six arrays, or refuse what the environment says of itself."""
    sizes = []
    for name in ("num_envs", "observation_size", "action_size"):
        value = getattr(env, name)
        if not isinstance(value, int | np.integer) or value < 1:
            raise WrongAnswer(f"gives {name} = {shown(value)}, not a whole number of at least 1")
        sizes.append(int(value))
    n, width, actions = sizes
    if isinstance(env.cost_names, str) or not len(env.cost_names):
        raise WrongAnswer(f"gives cost_names = {shown(env.cost_names)}, not a sequence of names")
    extras = extras_of(env)
    for name in ("action_low", "action_high"):
        bound = _usable(getattr(env, name), name, (actions,))
        if np.isnan(bound).any() or (extras.action_layout is None and np.isinf(bound).any()):
            raise WrongAnswer(f"gives an {name} that is not finite")
    _check_extras(env, extras, width, actions)
    if not isinstance(env.time_limit, int | np.integer | None):
        raise WrongAnswer(f"gives time_limit = {shown(env.time_limit)}, not a number of steps")
    return (n, width), (n,), (n, len(env.cost_names)), (n,), (n,), (n, width)


def _check_extras(env: Any, extras: Extras, width: int, actions: int) -> None:
    """Refuse choices and masks that do not fit the sizes, or each other."""
    choices = extras.action_choices
    if not isinstance(choices, tuple) or not all(isinstance(k, int) and k >= 1 for k in choices):
        raise WrongAnswer(f"gives action_choices = {shown(choices)}, not a tuple of whole numbers")
    last = slice(actions - len(choices), actions)
    if len(choices) > actions or not (
        np.array_equal(env.action_low[last], [0] * len(choices))
        and np.array_equal(env.action_high[last], [max(k, 2) - 1 for k in choices])
    ):
        raise WrongAnswer("gives action_choices whose columns are not the last, from 0 to k - 1")
    if extras.observation_as_is is not None:
        mask = extras.observation_as_is
        if getattr(mask, "shape", None) != (width,) or mask.dtype != np.bool_:
            raise WrongAnswer("gives an observation_as_is that is not a mask of its observations")
    seen, done = extras.observation_layout, extras.action_layout
    if (seen is not None and seen.size != width) or (done is not None and done.size != actions):
        raise WrongAnswer("gives a layout that does not fit its sizes")


def _usable(array: Any, what: str, shape: tuple[int, ...]) -> FloatArray:
    """Return an array as compiled code takes it: float64, of that shape, in one piece."""
    if not isinstance(array, np.ndarray) or array.shape != shape:
        _refuse(array, what, f"numbers of shape {shape}")
    if array.dtype.kind not in REAL_KINDS:
        _refuse(array, what, "real numbers")
    return np.ascontiguousarray(array, np.float64)


def _as_result(result: Any, shapes: tuple[tuple[int, ...], ...]) -> StepResult:
    """Return a step's result with every array as it has to be, or say which cannot be used."""
    if not isinstance(result, tuple) or len(result) != len(shapes):
        raise WrongAnswer(f"must return a StepResult, not {shown(result)}")
    names = StepResult._fields
    usable: list[Any] = [_usable(*one) for one in zip(result, names, shapes, strict=True)]
    for i in (names.index("terminated"), names.index("truncated")):
        if not np.isin(usable[i], (0.0, 1.0)).all():
            _refuse(result[i], names[i], "True and False")
        usable[i] = usable[i].astype(np.bool_)
    return StepResult(*usable)


def _refuse(value: Any, what: str, wanted: str) -> NoReturn:
    raise WrongAnswer(f"gave {what} that is not an array of {wanted} but {shown(value)}")
