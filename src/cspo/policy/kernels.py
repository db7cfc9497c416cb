"""Compiled inner loops of the networks: small MLPs forward and backward, and running statistics.

With 64-unit layers and minibatches of 512, calling a library operation costs about as much as the
operation, and Python threads spend their time handing over the interpreter lock. Each function here
does a whole minibatch without the lock; the matrix products go to BLAS. benchmarks/README.md has
the measurements.

Arrays are float32 and C-contiguous. An MLP's parameters are flat: for each layer the weights
(in, out), then the biases. `work` holds the activations of each layer after another, `scratch` two
layers' worth of deltas.
"""

from __future__ import annotations

import numpy as np

from cspo.arithmetic import kernel
from cspo.policy.categorical import score


@kernel
def add_bias_tanh(x, bias):
    """Replace x by tanh(x + bias), approximated in x^2 with an absolute error below 5e-7.

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
    """Write the parameter gradient for that of the output, `delta`, at the last `mlp_forward`."""
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
def take_rows(source, index, out):
    """Copy the rows `index` of source into out."""
    for row in range(index.size):
        out[row] = source[index[row]]


@kernel
def gather_forward(parameters, sizes, x, index, inputs, work):
    """Return the outputs (B, out) at the rows `index` of x (n, in), kept in `inputs` for later."""
    batch = inputs[: index.size * sizes[0]].reshape(index.size, sizes[0])
    take_rows(x, index, batch)
    return mlp_forward(parameters, sizes, batch, work)


@kernel
def predict(parameters, sizes, x, work, rows, out):
    """Fill out (n, out) for x (n, in), `rows` at a time so that activations stay in the cache."""
    for start in range(0, x.shape[0], rows):
        out[start : start + rows] = mlp_forward(parameters, sizes, x[start : start + rows], work)


@kernel
def score_gradients(
    parameters, sizes, choices, x, action, weights, index, work, inputs, scratch, total
):
    """Fill total (C, P) with gradients of mean(weights_c log pi(action|x)) over the rows `index`.

    `weights` is (C, n). A piece is as long as the workspace has room for, so that activations stay
    in the cache; one forward pass serves all C.
    """
    count, outputs, gaussians = weights.shape[0], sizes[-1], sizes[-1] - choices.sum()
    border, rows = parameters.size - gaussians, inputs.size // sizes[0]
    inverse_std = np.exp(-parameters[border:])
    z = np.empty((rows, gaussians), np.float32)
    scores = np.empty((rows, outputs - gaussians), np.float32)
    delta = np.empty((rows, outputs), np.float32)
    part = np.empty(border, np.float32)
    total[:] = 0.0
    for start in range(0, index.size, rows):
        size = min(rows, index.size - start)
        batch = inputs[: size * sizes[0]].reshape(size, sizes[0])
        output = gather_forward(
            parameters[:border], sizes, x, index[start : start + size], inputs, work
        )
        for row in range(size):
            for column in range(gaussians):
                difference = action[index[start + row], column] - output[row, column]
                z[row, column] = difference * inverse_std[column]
            first = 0
            for m in range(choices.size):
                chosen, last = action[index[start + row], gaussians + m], first + choices[m]
                logits = output[row, gaussians + first : gaussians + last]
                score(logits, chosen, scores[row, first:last])
                first = last
        for c in range(count):
            for row in range(size):
                weight = weights[c, index[start + row]] / np.float32(index.size)
                for column in range(gaussians):
                    standard = z[row, column]
                    delta[row, column] = weight * standard * inverse_std[column]
                    total[c, border + column] += weight * (standard * standard - np.float32(1.0))
                for column in range(gaussians, outputs):
                    delta[row, column] = weight * scores[row, column - gaussians]
            mlp_backward(parameters[:border], sizes, batch, work, delta[:size], scratch, part)
            for i in range(border):
                total[c, i] += part[i]


@kernel
def merge_statistics(x, count, mean, square_sum):
    """Count the rows of x (B, D) into mean and squared deviations of `count` earlier rows."""
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
