"""The actor and the critics as small MLPs on the compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from cspo.policy import kernels
from cspo.policy.actor import Actor, Critics, Rows
from cspo.policy.distribution import Distribution
from cspo.policy.fisher import Fisher
from cspo.policy.networks import CHUNK, StackedMLP, Workspace, parameter_count
from cspo.types import Array


class MLPActor(Actor):
    """An MLP for the outputs and the log standard deviations, on one flat array of parameters.

    Attributes:
        mlp: The network; the first of the parameters are its.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        log_std_init: float,
        rng: np.random.Generator,
        choices: Sequence[int] = (),
    ) -> None:
        """Initialise the network from `rng` and the log standard deviations as given.

        Args:
            sizes: Layer sizes: observation, hidden layers, outputs.
            log_std_init: Of every Gaussian column.
            rng: Where the network's parameters are drawn from.
            choices: Options of the choices, to which the last sum(choices) outputs belong.
        """
        self.distribution = Distribution(sizes[-1] - sum(choices), tuple(choices))
        mlp_size = parameter_count(sizes)
        self.parameters = np.zeros(mlp_size + self.distribution.gaussians, np.float32)
        self.gradient = np.zeros_like(self.parameters)
        self.log_std = self.parameters[mlp_size:]
        self._log_std_gradient = self.gradient[mlp_size:]
        views = self.parameters[None, :mlp_size], self.gradient[None, :mlp_size]
        self.mlp = StackedMLP(sizes, *views)
        self.mlp.initialise(rng)
        self.log_std[:] = log_std_init

    def outputs(self, x: Array) -> Array:
        """Return the outputs (n, O) for x (n, D) of any length, as a new array."""
        outputs: Array = self.mlp.predict(x)[0]
        return outputs

    def forward(self, x: Array, rows: Rows) -> Array:
        """Return the outputs (B, O) at these rows of x, and remember what `backward` needs."""
        return self.mlp.forward(0, x, rows)

    def backward(self, by_output: Array, by_log_std: Array) -> None:
        """Fill `gradient`, given the loss's gradient at the last `forward`: (B, O) and (G,)."""
        self.mlp.backward(0, by_output)
        self._log_std_gradient[:] = by_log_std

    def score_gradients(self, x: Array, action: Array, weights: Array, rows: Rows) -> Array:
        """Return the gradients (C, P) for C weightings (C, n), over these rows of the samples.

        Several threads may call it at a time.
        """
        total = np.empty((len(weights), self.parameters.size), np.float32)
        space = Workspace(self.mlp.sizes, CHUNK)
        arrays = (np.ascontiguousarray(array, np.float32) for array in (x, action, weights))
        kernels.score_gradients(
            *(self.parameters, self.mlp.size_array, self.distribution.choice_array),
            *(*arrays, rows, space.work, space.inputs, space.scratch, total),
        )
        return total

    def fisher(self, x: Array, executor: Executor | None = None) -> Fisher:
        """Return products with the Hessian of K at the present parameters."""
        return Fisher(self.mlp, self.distribution, self.log_std, x, executor)


class MLPCritics(Critics):
    """MLPs with one output each.

    Attributes:
        mlp: The networks, on the same parameters.
        sizes: Their layer sizes.
    """

    def __init__(self, sizes: Sequence[int], count: int) -> None:
        """Allocate `count` networks, all zero until `initialise`."""
        self.sizes, self.count = tuple(sizes), count
        self.parameters = np.zeros((count, parameter_count(sizes)), np.float32)
        self.gradient = np.zeros_like(self.parameters)
        self.mlp = StackedMLP(sizes, self.parameters, self.gradient)

    def initialise(self, rows: slice, rng: np.random.Generator) -> None:
        """Draw the parameters of these critics together."""
        StackedMLP(self.sizes, self.parameters[rows], self.gradient[rows]).initialise(rng)

    def values(self, x: Array) -> Array:
        """Return the values (C, n) for x (n, D) of any length, as a new array."""
        return self.mlp.predict(x)[..., 0]

    def forward(self, critic: int, x: Array, rows: Rows) -> Array:
        """Return one critic's values (B,) at these rows of x, and remember for `backward`."""
        return self.mlp.forward(critic, x, rows)[:, 0]

    def backward(self, critic: int, by_value: Array) -> None:
        """Fill this critic's row of `gradient`, given the loss's gradient (B,) at its values."""
        self.mlp.backward(critic, by_value[:, None])
