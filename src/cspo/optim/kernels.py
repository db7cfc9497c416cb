"""Compiled inner loops of the update: Adam, a critic's pass, surrogates, the policy's gradient.

Each function does a whole minibatch or a whole pass without the interpreter lock. Arrays are as in
`cspo.policy.kernels`.
"""

from __future__ import annotations

import numpy as np

from cspo.algorithms.surrogates import (
    CLIPPED_MAX,
    CLIPPED_MIN,
    DIVERGENCE,
    INSIDE,
    UNCLIPPED_INSIDE,
)
from cspo.arithmetic import kernel
from cspo.policy.kernels import mlp_backward, mlp_forward


@kernel
def adam(parameters, gradient, first, second, count, lr, l2, max_norm):
    """Add 2 l2 parameters to the gradient, clip it and take the `count`-th Adam step in place."""
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

    Args: x (n, D), target (n,), `order` a permutation of n, `rows` the minibatch size, `count` Adam
    steps so far.
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
def divergence(mean, log_std, reference_mean, reference_log_std, index, shift, kl):
    """Fill kl (B,) with KL(new || reference) and shift (B, A) with its slope by the mean."""
    for row in range(index.size):
        total = np.float32(0.0)
        for column in range(log_std.size):
            difference = mean[row, column] - reference_mean[index[row], column]
            log_ratio = log_std[column] - reference_log_std[column]
            shift[row, column] = difference * np.exp(np.float32(-2.0) * reference_log_std[column])
            total += np.float32(0.5) * (
                difference * shift[row, column] + np.expm1(np.float32(2.0) * log_ratio)
            )
            total -= log_ratio
        kl[row] = total


@kernel
def surrogate(kind, r, a, low, high, kl, inside):
    """Return a surrogate at one sample and its slope: by kl for DIVERGENCE, else by the ratio."""
    nothing = np.float32(0.0)
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

    Fills z (B, A) = (action - mean) / std, the ratio (B,), the slope of KL(new || reference) by the
    mean, `shift` (B, A), the surrogate means `values` (S,) and their slopes (B, S). A is (n, S),
    its columns of these `kinds` (S,); without a reference, reference_mean is empty.
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
            value, slope = surrogate(
                kinds[s], r, A[sample, s], low, high, kl[row], kl[row] <= trust
            )
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
            delta[row, column] = (
                by_log_prob * standard * inverse_std[column]
            )  # d log_prob / d mean = z / std
            log_std_gradient[column] += by_log_prob * (standard * standard - np.float32(1.0))
        if by_kl != 0.0:
            for column in range(actions):
                log_ratio = parameters[border + column] - reference_log_std[column]
                delta[row, column] += by_kl * shift[row, column]
                log_std_gradient[column] += by_kl * np.expm1(
                    np.float32(2.0) * log_ratio
                )  # std^2 / reference^2 - 1
    batch = inputs[: rows * sizes[0]].reshape(rows, sizes[0])
    mlp_backward(parameters[:border], sizes, batch, work, delta, scratch, gradient[:border])
