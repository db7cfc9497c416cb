"""Compiled inner loops: small MLPs forward and backward, Adam, and the policy's gradient.

With 64-unit layers and minibatches of 512, calling a library operation costs about as much as the operation,
and Python threads spend their time handing over the interpreter lock. Each function here does a whole minibatch
or a whole pass without the lock; the matrix products go to BLAS. benchmarks/README.md has the measurements.

Arrays are float32 and C-contiguous. An MLP's parameters are flat: for each layer the weights (in, out), then
the biases. `work` holds the activations of each layer after another, `scratch` two layers' worth of deltas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 (the BLAS behind np.dot below: loaded now, so that thread limits reach it)

from cspo.surrogates import CLIPPED_MAX, CLIPPED_MIN, CONSTANT, DIVERGENCE, INSIDE, UNCLIPPED_INSIDE

# Reductions may be reordered, so that they vectorise; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter lock, and keep the result on disk where there is a place for it."""
    return _compiled(function, _FAST)


def exact_kernel(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, but round every operation as it is written, so that Python gives the same bits."""
    return _compiled(function, False)


def _compiled(function: Callable[..., Any], fastmath: set[str] | bool) -> Any:
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package folder nor the user's cache folder is writable
        return numba.njit(**options)(function)


@kernel
def add_bias_tanh(x, bias):
    """Replace x by tanh(x + bias), by a rational approximation in x^2 with an absolute error below 5e-7.

    Fitted for a small relative error on [0, 9]; beyond it tanh is 1 in single precision.
    """
    bound = np.float32(9.0)
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            u = min(max(x[row, column] + bias[column], -bound), bound)
            t = u * u
            p = np.float32(1.33568639e-08) * t + np.float32(2.06108441e-05)
            p = (p * t + np.float32(0.00349570231)) * t + np.float32(0.13381124)
            p = p * t + np.float32(0.99999998)
            q = np.float32(7.77751117e-07) * t + np.float32(0.000328581661)
            q = (q * t + np.float32(0.0258774237)) * t + np.float32(0.467144397)
            q = q * t + np.float32(1.0)
            x[row, column] = u * p / q


@kernel
def mlp_forward(parameters, sizes, x, work):
    """Return the outputs (B, out) for x (B, in), a view of `work`."""
    rows, last = x.shape[0], sizes.size - 2
    below, start, offset = x, 0, 0
    for layer in range(last + 1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        weight = parameters[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        start += fan_in * fan_out
        bias = parameters[start : start + fan_out]
        start += fan_out
        above = work[offset : offset + rows * fan_out].reshape(rows, fan_out)
        offset += rows * fan_out
        np.dot(below, weight, above)
        if layer < last:
            add_bias_tanh(above, bias)
        else:
            for row in range(rows):
                for column in range(fan_out):
                    above[row, column] += bias[column]
        below = above
    return below


@kernel
def mlp_backward(parameters, sizes, x, work, delta, scratch, gradient):
    """Write the parameter gradient for the output gradient `delta` (B, out) at the last `mlp_forward`."""
    rows, end = x.shape[0], gradient.size
    half = scratch.size // 2
    offset = 0  # where the activations below the current layer begin
    for layer in range(1, sizes.size - 1):
        offset += rows * sizes[layer]
    for layer in range(sizes.size - 2, -1, -1):
        fan_in, fan_out = sizes[layer], sizes[layer + 1]
        bias_gradient = gradient[end - fan_out : end]
        end -= fan_out
        weight = parameters[end - fan_in * fan_out : end].reshape(fan_in, fan_out)
        weight_gradient = gradient[end - fan_in * fan_out : end].reshape(fan_in, fan_out)
        end -= fan_in * fan_out
        bias_gradient[:] = 0.0
        for row in range(rows):
            for column in range(fan_out):
                bias_gradient[column] += delta[row, column]
        if layer == 0:
            np.dot(x.T, delta, weight_gradient)
        else:
            offset -= rows * fan_in
            below = work[offset : offset + rows * fan_in].reshape(rows, fan_in)
            np.dot(below.T, delta, weight_gradient)
            begin = (layer % 2) * half
            lower = scratch[begin : begin + rows * fan_in].reshape(rows, fan_in)
            np.dot(delta, weight.T, lower)
            for row in range(rows):
                for column in range(fan_in):
                    lower[row, column] *= np.float32(1.0) - below[row, column] * below[row, column]
            delta = lower


@kernel
def adam(parameters, gradient, first, second, count, lr, l2, max_norm):
    """Add 2 l2 parameters to the gradient, clip its norm and take the `count`-th Adam step in place."""
    total = np.float32(0.0)
    twice_l2 = np.float32(2.0 * l2)
    for i in range(parameters.size):
        gradient[i] += twice_l2 * parameters[i]
        total += gradient[i] * gradient[i]
    scale = np.float32(min(1.0, max_norm / (np.sqrt(np.float64(total)) + 1e-6)))
    step = np.float32(lr / (1.0 - 0.9**count))
    correction = np.float32(1.0 / np.sqrt(1.0 - 0.999**count))
    for i in range(parameters.size):
        g = gradient[i] * scale
        first[i] += np.float32(0.1) * (g - first[i])
        second[i] = np.float32(0.999) * second[i] + np.float32(0.001) * g * g
        parameters[i] -= step * first[i] / (np.sqrt(second[i]) * correction + np.float32(1e-8))


@kernel
def take_rows(source, index, out):
    """Copy the rows `index` of source into out."""
    for row in range(index.size):
        out[row] = source[index[row]]


@kernel
def critic_pass(
    parameters,
    gradient,
    first,
    second,
    count,
    sizes,
    x,
    target,
    order,
    rows,
    lr,
    l2,
    max_norm,
    inputs,
    work,
    scratch,
):
    """Train one critic on every sample once; returns the sum of squared errors met on the way.

    Args: x (n, D), target (n,), `order` a permutation of n, `rows` the minibatch size, `count` Adam steps so far.
    """
    total = 0.0
    for start in range(0, order.size, rows):
        index = order[start : start + rows]
        size = index.size
        batch = inputs[: size * sizes[0]].reshape(size, sizes[0])
        take_rows(x, index, batch)
        value = mlp_forward(parameters, sizes, batch, work)
        for row in range(size):
            error = value[row, 0] - target[index[row]]
            total += error * error
            value[row, 0] = error * np.float32(2.0 / size)
        mlp_backward(parameters, sizes, batch, work, value, scratch, gradient)
        count += 1
        adam(parameters, gradient, first, second, count, lr, l2, max_norm)
    return total


@kernel
def predict(parameters, sizes, x, work, rows, out):
    """Fill out (n, out) for x (n, in), `rows` at a time so that activations stay in the cache."""
    for start in range(0, x.shape[0], rows):
        out[start : start + rows] = mlp_forward(parameters, sizes, x[start : start + rows], work)


@kernel
def merge_statistics(x, count, mean, square_sum):
    """Count the rows of x (B, D): update the mean and the sum of squared deviations of `count` earlier rows."""
    rows, size = x.shape
    batch_mean, batch_square_sum = np.zeros(size), np.zeros(size)
    for row in range(rows):
        for i in range(size):
            batch_mean[i] += x[row, i]
    batch_mean /= rows
    for row in range(rows):
        for i in range(size):
            deviation = x[row, i] - batch_mean[i]
            batch_square_sum[i] += deviation * deviation
    for i in range(size):
        delta = batch_mean[i] - mean[i]
        square_sum[i] += batch_square_sum[i] + delta * delta * (count * rows / (count + rows))
        mean[i] += delta * (rows / (count + rows))


@kernel
def normalise(x, mean, inverse_std, clip, out):
    """Fill out (B, D), float32, with (x - mean) / std within plus or minus clip."""
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[row, i] = min(max((x[row, i] - mean[i]) * inverse_std[i], -clip), clip)


@kernel
def divergence(mean, log_std, reference_mean, reference_log_std, index, shift, kl):
    """Fill kl (B,) with KL(new || reference), summed over actions, and shift (B, A) with its slope by the mean."""
    for row in range(index.size):
        total = np.float32(0.0)
        for column in range(log_std.size):
            difference = mean[row, column] - reference_mean[index[row], column]
            log_ratio = log_std[column] - reference_log_std[column]
            shift[row, column] = difference * np.exp(np.float32(-2.0) * reference_log_std[column])
            total += np.float32(0.5) * (difference * shift[row, column] + np.expm1(np.float32(2.0) * log_ratio))
            total -= log_ratio
        kl[row] = total


@kernel
def surrogate(kind, r, a, low, high, kl, inside):
    """Return the value of one surrogate at one sample and its slope: by kl for DIVERGENCE, else by the ratio."""
    nothing = np.float32(0.0)
    if kind == CONSTANT:
        return a, nothing
    if kind == DIVERGENCE:
        return (a * kl, a) if inside else (nothing, nothing)
    if kind == INSIDE:
        return (a, nothing) if inside else (nothing, nothing)
    if kind == UNCLIPPED_INSIDE and not inside:
        return nothing, nothing
    clipped = min(max(r, low), high) * a
    if (kind == CLIPPED_MIN and clipped < r * a) or (kind == CLIPPED_MAX and clipped > r * a):
        return clipped, nothing
    return r * a, a


@kernel
def actor_forward(
    parameters,
    sizes,
    x,
    action,
    old_log_prob,
    A,
    kinds,
    clip,
    reference_mean,
    reference_log_std,
    trust,
    index,
    inputs,
    work,
    z,
    ratio,
    shift,
    values,
    slopes,
):
    """Evaluate the policy and S surrogates on the minibatch `index` of the whole batch.

    Fills z (B, A) = (action - mean) / std, the ratio (B,), the slope of KL(new || reference) by the mean, `shift`
    (B, A), the surrogate means `values` (S,) and their slopes (B, S). A is (n, S), its columns of these `kinds` (S,);
    without a reference, reference_mean is empty.
    """
    actions, rows = action.shape[1], index.size
    border = parameters.size - actions
    log_std = parameters[border:]
    batch = inputs[: rows * sizes[0]].reshape(rows, sizes[0])
    take_rows(x, index, batch)
    mean = mlp_forward(parameters[:border], sizes, batch, work)
    inverse_std = np.exp(-log_std)
    constant = log_std.sum() + np.float32(0.5 * np.log(2.0 * np.pi)) * actions
    low, high = np.float32(1.0 - clip), np.float32(1.0 + clip)
    kl = np.zeros(rows, np.float32)
    if reference_mean.shape[0] > 0:
        divergence(mean, log_std, reference_mean, reference_log_std, index, shift, kl)
    values[:] = 0.0
    for row in range(rows):
        sample = index[row]
        square = np.float32(0.0)
        for column in range(actions):
            standard = (action[sample, column] - mean[row, column]) * inverse_std[column]
            z[row, column] = standard
            square += standard * standard
        r = np.exp(np.float32(-0.5) * square - constant - old_log_prob[sample])
        ratio[row] = r
        for s in range(kinds.size):
            value, slope = surrogate(kinds[s], r, A[sample, s], low, high, kl[row], kl[row] <= trust)
            values[s] += value / rows
            slopes[row, s] = slope / rows


@kernel
def actor_backward(
    parameters,
    gradient,
    sizes,
    weights,
    kinds,
    z,
    ratio,
    shift,
    reference_log_std,
    slopes,
    entropy,
    inputs,
    work,
    scratch,
):
    """Write the gradient of sum_s weights_s L_s - entropy * H at the last `actor_forward`."""
    rows, actions = z.shape
    border = parameters.size - actions
    inverse_std = np.exp(-parameters[border:])
    log_std_gradient = gradient[border:]
    log_std_gradient[:] = np.float32(-entropy)  # the entropy grows by one per unit of each log std
    delta = np.empty((rows, actions), np.float32)
    # Apart from each other, so that neither loop has a branch.
    kl_weights = np.where(kinds == DIVERGENCE, weights, np.float32(0.0))
    ratio_weights = weights - kl_weights
    for row in range(rows):
        by_ratio, by_kl = np.float32(0.0), np.float32(0.0)
        for s in range(weights.size):
            by_ratio += ratio_weights[s] * slopes[row, s]
        for s in range(weights.size):
            by_kl += kl_weights[s] * slopes[row, s]
        by_log_prob = by_ratio * ratio[row]  # d ratio / d log_prob = ratio
        for column in range(actions):
            standard = z[row, column]
            delta[row, column] = by_log_prob * standard * inverse_std[column]  # d log_prob / d mean = z / std
            log_std_gradient[column] += by_log_prob * (standard * standard - np.float32(1.0))
        if by_kl != 0.0:
            for column in range(actions):
                log_ratio = parameters[border + column] - reference_log_std[column]
                delta[row, column] += by_kl * shift[row, column]
                log_std_gradient[column] += by_kl * np.expm1(np.float32(2.0) * log_ratio)  # std^2 / reference^2 - 1
    batch = inputs[: rows * sizes[0]].reshape(rows, sizes[0])
    mlp_backward(parameters[:border], sizes, batch, work, delta, scratch, gradient[:border])
