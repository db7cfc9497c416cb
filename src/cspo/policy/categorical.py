"""The brick of choices: a categorical with k >= 2 options, or a bit.

The first functions are about one choice at one sample. `logits` is a view of what the network puts
out there: k logits of a categorical, or a single one, the log-odds of a bit. What is chosen is an
option's index, or 0 and 1, as a float. Compiled, and inlined into the loops over samples; sums are
not reordered, which could round differently from one compilation to the next, for nothing.

The slopes of log p, of the entropy H and of KL(p || q), by the logits l:

    categorical   1[i = chosen] - p_i     -p_i (log p_i + H)     p_i (log p_i - log q_i - KL)
    bit           chosen - p              -p (1 - p) l           p (1 - p) (l - l_q)
"""

from __future__ import annotations

import numpy as np

from cspo.arithmetic import exact_kernel


@exact_kernel
def log_sum_exp(logits):
    """Return log sum_i exp(logits_i) without overflow."""
    top = logits[0]
    for i in range(1, logits.size):
        top = max(top, logits[i])
    total = np.exp(logits[0] - top)
    for i in range(1, logits.size):
        total += np.exp(logits[i] - top)
    return top + np.log(total)


@exact_kernel
def log_sigmoid(logit):
    """Return log(1 / (1 + exp(-logit))) without overflow."""
    return min(logit, np.float32(0.0)) - np.log1p(np.exp(-abs(logit)))


@exact_kernel
def log_prob(logits, chosen):
    """Return the log-probability of what was chosen."""
    if logits.size == 1:
        return log_sigmoid(logits[0] if chosen > 0.5 else -logits[0])
    return logits[int(chosen)] - log_sum_exp(logits)


@exact_kernel
def score(logits, chosen, out):
    """Fill out (k,) with the slope of `log_prob` by the logits, and return `log_prob`."""
    if logits.size == 1:
        out[0] = np.float32(chosen) - np.exp(log_sigmoid(logits[0]))
        return log_prob(logits, chosen)
    total, option = log_sum_exp(logits), int(chosen)
    for i in range(logits.size):
        out[i] = -np.exp(logits[i] - total)
    out[option] += np.float32(1.0)
    return logits[option] - total


@exact_kernel
def entropy(logits, out):
    """Return the entropy, and fill out (k,) with its slope by the logits."""
    if logits.size == 1:
        logit = logits[0]
        yes, no = log_sigmoid(logit), log_sigmoid(-logit)
        out[0] = -np.exp(yes + no) * logit
        return -np.exp(yes) * yes - np.exp(no) * no
    total = log_sum_exp(logits)
    result = total - total  # zero, of the type of the logits
    for i in range(logits.size):
        result -= np.exp(logits[i] - total) * (logits[i] - total)
    for i in range(logits.size):
        out[i] = -np.exp(logits[i] - total) * (logits[i] - total + result)
    return result


@exact_kernel
def divergence(logits, other, out):
    """Return KL(p || q) of `logits` to `other`, and fill out (k,) with its slope by `logits`."""
    if logits.size == 1:
        p, q = logits[0], other[0]
        yes, no = log_sigmoid(p), log_sigmoid(-p)
        out[0] = np.exp(yes + no) * (p - q)
        return np.exp(yes) * (yes - log_sigmoid(q)) + np.exp(no) * (no - log_sigmoid(-q))
    total, other_total = log_sum_exp(logits), log_sum_exp(other)
    result = total - total
    for i in range(logits.size):
        out[i] = (logits[i] - total) - (other[i] - other_total)
        result += np.exp(logits[i] - total) * out[i]
    for i in range(logits.size):
        out[i] = np.exp(logits[i] - total) * (out[i] - result)
    return result


@exact_kernel
def apply_fisher(logits, tangent):
    """Replace tangent (k,) by (diag(p) - p p^T) tangent, for a bit p (1 - p) tangent."""
    if logits.size == 1:
        tangent[0] *= np.exp(log_sigmoid(logits[0]) + log_sigmoid(-logits[0]))
        return
    total = log_sum_exp(logits)
    mean = total - total
    for i in range(logits.size):
        mean += np.exp(logits[i] - total) * tangent[i]
    for i in range(logits.size):
        tangent[i] = np.exp(logits[i] - total) * (tangent[i] - mean)


@exact_kernel
def sample(logits, uniform):
    """Return the choice at which the distribution function first exceeds uniform in [0, 1)."""
    if logits.size == 1:
        return 1.0 if uniform < np.exp(log_sigmoid(logits[0])) else 0.0
    total, below = log_sum_exp(logits), 0.0
    for i in range(logits.size - 1):
        below += np.exp(logits[i] - total)
        if uniform < below:
            return float(i)
    return float(logits.size - 1)  # also where rounding leaves the sum below one


@exact_kernel
def mode(logits):
    """Return the most probable choice, the first of several."""
    if logits.size == 1:
        return 1.0 if logits[0] > 0.0 else 0.0
    best = 0
    for i in range(1, logits.size):
        if logits[i] > logits[best]:
            best = i
    return float(best)


# All choices at all samples: outputs (B, O) begin with the means, actions (B, A) with the Gaussian
# samples, and choices (M,) say how many logits each choice has.


@exact_kernel
def choice_scores(output, action, choices, total, scores):
    """Add the log-probabilities of choices to total (B,) and fill scores (B, sum(choices)).

    The means come first in `output` (B, O) and the Gaussian samples first in `action` (B, A).
    """
    gaussians = action.shape[1] - choices.size
    for row in range(output.shape[0]):
        start = gaussians
        for m in range(choices.size):
            logits = output[row, start : start + choices[m]]
            out = scores[row, start - gaussians : start - gaussians + choices[m]]
            total[row] += score(logits, action[row, gaussians + m], out)
            start += choices[m]


@exact_kernel
def choice_entropies(output, choices, entropies, slopes):
    """Fill entropies (B,) with those of all choices and slopes (B, sum(choices)) by the logits."""
    gaussians = output.shape[1] - slopes.shape[1]
    for row in range(output.shape[0]):
        start, entropies[row] = 0, 0.0
        for m in range(choices.size):
            logits = output[row, gaussians + start : gaussians + start + choices[m]]
            out = slopes[row, start : start + choices[m]]
            entropies[row] += entropy(logits, out)
            start += choices[m]


@exact_kernel
def choice_divergences(output, other, choices, kl, slopes):
    """Fill kl (B,) with KL(output || other) of all choices, and slopes (B, sum(choices))."""
    gaussians = output.shape[1] - slopes.shape[1]
    for row in range(output.shape[0]):
        start, kl[row] = 0, 0.0
        for m in range(choices.size):
            begin, end = gaussians + start, gaussians + start + choices[m]
            out = slopes[row, start : start + choices[m]]
            kl[row] += divergence(output[row, begin:end], other[row, begin:end], out)
            start += choices[m]


@exact_kernel
def apply_fishers(output, choices, tangent):
    """Apply the metric of every choice to the last columns of tangent (B, O), in place."""
    gaussians = output.shape[1] - choices.sum()
    for row in range(output.shape[0] if choices.size else 0):
        start = gaussians
        for m in range(choices.size):
            end = start + choices[m]
            apply_fisher(output[row, start:end], tangent[row, start:end])
            start = end


@exact_kernel
def choose(output, choices, action, draw):
    """Turn the last M columns of action (B, A) into choices.

    They hold uniform numbers if `draw`, and are overwritten by the most probable choice if not.
    """
    gaussians = action.shape[1] - choices.size
    for row in range(output.shape[0]):
        start = gaussians
        for m in range(choices.size):
            logits = output[row, start : start + choices[m]]
            if draw:
                action[row, gaussians + m] = sample(logits, action[row, gaussians + m])
            else:
                action[row, gaussians + m] = mode(logits)
            start += choices[m]
