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
from cspo.policy import categorical
from cspo.policy.kernels import gather_forward, mlp_backward


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
        value = gather_forward(parameters, sizes, x, index, inputs, work)
        for row in range(size):
            error = value[row, 0] - target[index[row]]
            total += error * error
            value[row, 0] = error * np.float32(2.0 / size)
        mlp_backward(parameters, sizes, batch, work, value, scratch, gradient)
        count += 1
        adam(parameters, gradient, first, second, count, lr, l2, max_norm)
    return total


@kernel
def divergence(output, log_std, choices, reference_output, reference_log_std, index, shift, kl):
    """Fill kl (B,) with KL(new || reference) and shift (B, O) with its slope by the outputs."""
    for row in range(index.size):
        total = np.float32(0.0)
        for column in range(log_std.size):
            difference = output[row, column] - reference_output[index[row], column]
            log_ratio = log_std[column] - reference_log_std[column]
            shift[row, column] = difference * np.exp(np.float32(-2.0) * reference_log_std[column])
            total += np.float32(0.5) * (
                difference * shift[row, column] + np.expm1(np.float32(2.0) * log_ratio)
            )
            total -= log_ratio
        start = log_std.size
        for m in range(choices.size):
            end = start + choices[m]
            other = reference_output[index[row], start:end]
            total += categorical.divergence(output[row, start:end], other, shift[row, start:end])
            start = end
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
def surrogate_means(
    output,
    log_std,
    choices,
    action,
    old_log_prob,
    A,
    kinds,
    clip,
    reference_output,
    reference_log_std,
    trust,
    index,
    z,
    scores,
    ratio,
    shift,
    values,
    slopes,
):
    """Evaluate S surrogates at a policy's outputs (B, O) on the minibatch `index` of the batch.

    Fills z (B, G) = (action - mean) / std, the slopes of the choices' log-probabilities, `scores`
    (B, O - G), the ratio (B,), the slope of KL(new || reference) by the outputs, `shift` (B, O),
    the surrogate means `values` (S,) and their slopes (B, S). A is (n, S), its columns of these
    `kinds` (S,); without a reference, reference_output is empty.
    """
    gaussians, rows = log_std.size, index.size
    inverse_std = np.exp(-log_std)
    constant = log_std.sum() + np.float32(0.5 * np.log(2.0 * np.pi)) * gaussians
    low, high = np.float32(1.0 - clip), np.float32(1.0 + clip)
    kl = np.zeros(rows, np.float32)
    if reference_output.shape[0] > 0:
        divergence(output, log_std, choices, reference_output, reference_log_std, index, shift, kl)
    values[:] = 0.0
    for row in range(rows):
        sample = index[row]
        square = np.float32(0.0)
        for column in range(gaussians):
            standard = (action[sample, column] - output[row, column]) * inverse_std[column]
            z[row, column] = standard
            square += standard * standard
        log_prob = np.float32(-0.5) * square - constant
        start = 0
        for m in range(choices.size):
            end = start + choices[m]
            logits = output[row, gaussians + start : gaussians + end]
            chosen = action[sample, gaussians + m]
            log_prob += categorical.score(logits, chosen, scores[row, start:end])
            start = end
        r = np.exp(log_prob - old_log_prob[sample])
        ratio[row] = r
        for s in range(kinds.size):
            value, slope = surrogate(
                kinds[s], r, A[sample, s], low, high, kl[row], kl[row] <= trust
            )
            values[s] += value / rows
            slopes[row, s] = slope / rows


@kernel
def output_slopes(
    output,
    log_std,
    choices,
    weights,
    kinds,
    z,
    scores,
    ratio,
    shift,
    reference_log_std,
    slopes,
    entropy,
    delta,
    log_std_gradient,
):
    """Differentiate sum_s weights_s L_s - entropy * H where `surrogate_means` was evaluated.

    Fills delta (B, O), the gradient at the outputs, and that at the log standard deviations (G,).
    """
    rows, gaussians = z.shape
    inverse_std = np.exp(-log_std)
    log_std_gradient[:] = np.float32(-entropy)  # the entropy grows by one per unit of each log std
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
        for column in range(gaussians):
            standard = z[row, column]
            delta[row, column] = (
                by_log_prob * standard * inverse_std[column]
            )  # d log_prob / d mean = z / std
            log_std_gradient[column] += by_log_prob * (standard * standard - np.float32(1.0))
        for column in range(scores.shape[1]):
            delta[row, gaussians + column] = by_log_prob * scores[row, column]
        if by_kl != 0.0:
            for column in range(gaussians):
                log_ratio = log_std[column] - reference_log_std[column]
                delta[row, column] += by_kl * shift[row, column]
                log_std_gradient[column] += by_kl * np.expm1(
                    np.float32(2.0) * log_ratio
                )  # std^2 / reference^2 - 1
            for column in range(gaussians, delta.shape[1]):
                delta[row, column] += by_kl * shift[row, column]
    if entropy != 0.0 and choices.size > 0:
        of_choices = np.empty(rows, np.float32)
        by_logits = np.empty_like(scores)
        categorical.choice_entropies(output, choices, of_choices, by_logits)
        share = np.float32(entropy / rows)
        for row in range(rows):
            for column in range(scores.shape[1]):
                delta[row, gaussians + column] -= share * by_logits[row, column]
