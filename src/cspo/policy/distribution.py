"""What a policy draws from: a product of Gaussian columns and of choices.

A network puts out O = G + sum(choices) numbers at a sample: G means, then the logits of M choices,
k of a categorical with k options and one of a bit. An action has A = G + M columns: G raw Gaussian
samples, then the index of each chosen option, or 0 and 1, as floats. The log standard deviations
(G,) are trained and do not depend on the sample.

Without choices every sum here is that of the Gaussian brick alone, to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cspo.policy import categorical, gaussian
from cspo.types import Array


@dataclass(frozen=True)
class Distribution:
    """The layout of outputs and actions, and everything that follows from it.

    Letters: B samples, G Gaussian columns, M choices, O outputs, A action columns.

    Attributes:
        gaussians: G.
        choices: Options of each choice, k >= 2; 1 is a bit.
    """

    gaussians: int
    choices: tuple[int, ...] = ()

    @classmethod
    def of(cls, action_size: int, choices: Sequence[int] = ()) -> Distribution:
        """Return the one whose actions have so many columns, the last of them these choices."""
        return cls(action_size - len(choices), tuple(int(k) for k in choices))

    @property
    def action_size(self) -> int:
        """A, the columns of an action."""
        return self.gaussians + len(self.choices)

    @cached_property
    def logits(self) -> int:
        """How many outputs are logits."""
        return sum(self.choices)

    @property
    def output_size(self) -> int:
        """O, what a network puts out."""
        return self.gaussians + self.logits

    @cached_property
    def choice_array(self) -> NDArray[np.int64]:
        """The choices as the kernels take them, (M,)."""
        return np.array(self.choices, dtype=np.int64)

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...], log_std: Array) -> Array:
        """Return what `sample` needs (*shape, A): scaled normal numbers, then uniform ones.

        The uniform numbers are drawn after all normal ones, and only if there are choices.
        """
        noise = rng.standard_normal((*shape, self.gaussians), dtype=np.float32) * np.exp(log_std)
        if not self.choices:
            return noise
        return np.concatenate([noise, rng.random((*shape, len(self.choices)), np.float32)], axis=-1)

    def sample(self, output: Array, noise: Array) -> Array:
        """Turn noise (B, A) into an action in place: the means added, the choices drawn."""
        if not self.choices:
            noise += output
            return noise
        noise[:, : self.gaussians] += output[:, : self.gaussians]
        categorical.choose(output, self.choice_array, noise, True)
        return noise

    def mode(self, output: Array) -> Array:
        """Return the means and the most probable choices, (B, A)."""
        if not self.choices:
            return output
        action = np.empty((len(output), self.action_size), np.float32)
        action[:, : self.gaussians] = output[:, : self.gaussians]
        categorical.choose(output, self.choice_array, action, False)
        return action

    def log_prob(self, output: Array, log_std: Array, action: Array) -> Array:
        """Return the log-probability (B,) of actions (B, A): a density in the Gaussian columns."""
        z = gaussian.standardise(action[:, : self.gaussians], output[:, : self.gaussians], log_std)
        result = gaussian.log_density(z, log_std)
        if self.choices:
            scores = np.empty((len(output), self.logits), np.float32)
            categorical.choice_scores(output, action, self.choice_array, result, scores)
        return result

    def ratio(self, output: Array, log_std: Array, action: Array, old_log_prob: Array) -> Array:
        """Return pi(a|s) / pi_old(a|s), (B,), of the policy with these outputs."""
        with np.errstate(over="ignore", invalid="ignore"):
            ratio: Array = np.exp(self.log_prob(output, log_std, action) - old_log_prob)
        return ratio

    def through_log_prob(
        self, output: Array, log_std: Array, action: Array, by_log_prob: Array
    ) -> tuple[Array, Array]:
        """Return gradients at outputs (B, O) and log_std (G,) of one at log-probabilities (B,)."""
        z = gaussian.standardise(action[:, : self.gaussians], output[:, : self.gaussians], log_std)
        by_mean, by_log_std = gaussian.through_log_density(z, log_std, by_log_prob)
        if not self.choices:
            return by_mean, by_log_std
        scores = np.empty((len(output), self.logits), np.float32)
        categorical.choice_scores(
            output, action, self.choice_array, np.zeros(len(output), np.float32), scores
        )
        return np.concatenate([by_mean, scores * by_log_prob[:, None]], axis=1), by_log_std

    def choice_entropy(self, output: Array) -> tuple[Array, Array]:
        """Return the entropy (B,) of the choices, and its slope (B, O) by the outputs."""
        entropy, slopes = np.empty(len(output), np.float32), np.zeros_like(output)
        categorical.choice_entropies(
            output, self.choice_array, entropy, slopes[:, self.gaussians :]
        )
        return entropy, slopes

    def mean_entropy(self, output: Array, log_std: Array) -> float:
        """Return the entropy, summed over columns, averaged over samples."""
        result = gaussian.entropy(log_std)
        if self.choices:
            result += float(self.choice_entropy(output)[0].mean(dtype=np.float64))
        return result

    def mean_kl(
        self, old_output: Array, old_log_std: Array, output: Array, log_std: Array
    ) -> float:
        """Return KL(old || new), summed over columns, averaged over samples."""
        G = self.gaussians
        kl = gaussian.mean_kl(old_output[:, :G], old_log_std, output[:, :G], log_std)
        if self.choices:
            of_choices, slopes = np.empty(len(output)), np.empty((len(output), self.logits))
            categorical.choice_divergences(
                old_output, output, self.choice_array, of_choices, slopes
            )
            kl += float(of_choices.mean())
        return kl

    def apply_metric(self, output: Array, log_std: Array, tangent: Array) -> Array:
        """Replace tangent (B, O) by the Fisher metric at the outputs times it, and return it.

        The metric is 1 / std^2 of a mean and diag(p) - p p^T of a choice's logits.
        """
        tangent[:, : self.gaussians] *= np.exp(-2.0 * log_std)
        categorical.apply_fishers(output, self.choice_array, tangent)
        return tangent
