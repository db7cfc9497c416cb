"""A loss as the minibatch loop needs it: columns for the kernels, and its derivatives.

The derivative of loss(L_1, L_2, ...) by each mean is taken by a complex step: with h tiny,
Im loss(L + i h) / h = loss'(L) up to rounding, as no difference of nearby numbers is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from cspo.algorithms.learner import Loss
from cspo.errors import CspoError
from cspo.types import Array, FloatArray

TINY = 1e-100  # the step h; its square vanishes beside any number that occurs


class SurrogateObjective:
    """The surrogates of a `Loss` side by side, one column for each of S means.

    Attributes:
        columns: (n, S) advantages.
        kinds: (S,) what each column's mean is, as the kernels know it.
        reference_output: (n, O) and `reference_log_std` (G,); empty without a reference, so that
            one compiled function serves both.
    """

    def __init__(self, loss: Loss) -> None:
        """Lay the columns out."""
        self.clip, self.trust = loss.clip, loss.trust
        self._function, self._observe = loss.function, loss.observe
        self.reference_output = np.empty((0, 0), np.float32)
        self.reference_log_std = np.empty(0, np.float32)
        if loss.reference is not None:
            self.reference_output = np.ascontiguousarray(loss.reference.output)
            self.reference_log_std = loss.reference.log_std
        columns = [np.atleast_2d(item.A.T).T for item in loss.surrogates]  # (n, 1) or (n, K) each
        self.columns = np.ascontiguousarray(np.concatenate(columns, axis=1), dtype=np.float32)
        widths = [column.shape[1] for column in columns]
        self.kinds = np.repeat([item.kind for item in loss.surrogates], widths)
        self._unchecked = set(range(len(self.kinds)))  # means whose derivative is not confirmed yet
        ends = np.cumsum(widths).tolist()
        self._parts: list[int | slice] = [
            end - 1 if item.A.ndim == 1 else slice(end - width, end)
            for item, width, end in zip(loss.surrogates, widths, ends, strict=True)
        ]

    def _loss(self, means: Any) -> Any:
        return self._function(*(means[part] for part in self._parts))

    def weights(self, means: FloatArray) -> Array:
        """Return dloss / dL (S,) at the surrogate means (S,)."""
        weights = derivatives(self._loss, means)
        for i in tuple(self._unchecked):
            if is_smooth(self._loss, means, i, weights[i]):
                self._unchecked.remove(i)
        if self._observe is not None:
            self._observe(*(means[part] for part in self._parts))
        return weights.astype(np.float32)


def derivatives(function: Callable[[Any], Any], point: FloatArray) -> FloatArray:
    """Return the derivatives (S,) of a function of S numbers."""
    shifted = point.astype(np.complex128)
    result = np.empty(len(point))
    for i in range(len(point)):
        shifted[i] += 1j * TINY
        value = function(shifted)
        if np.ndim(value) or not np.iscomplexobj(value):
            _explain(value)
        result[i] = value.imag / TINY
        shifted[i] = point[i]
    return result


def is_smooth(function: Callable[[Any], Any], point: FloatArray, i: int, derivative: float) -> bool:
    """Whether no kink is near a point; refuses a function that lost its i-th derivative there.

    `np.abs` of a complex number loses it, for one: differences to both sides show that, unless
    there is a kink, where they differ from each other.
    """
    step = np.zeros_like(point)
    step[i] = 1e-5 * max(1.0, abs(point[i]))
    below, here, above = (float(function(point + shift)) for shift in (-step, 0.0, step))
    left, right = (here - below) / step[i], (above - here) / step[i]
    size = abs(left) + abs(right) + abs(derivative)
    smooth = bool(abs(right - left) <= 0.1 * size)
    if smooth and abs(0.5 * (left + right) - derivative) > 0.2 * size + 1e-6:
        _explain(here)
    return smooth


def _explain(value: Any) -> NoReturn:
    if np.ndim(value):
        shape = np.shape(value)
        raise CspoError(
            f"The loss has the shape {shape}: sum it over the constraints to one number."
        )
    raise CspoError(
        "The loss lost its derivative on the way: write it with operators and NumPy's functions, "
        "without float() or abs()."
    )
