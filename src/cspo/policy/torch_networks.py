"""The actor and the critics as PyTorch modules of a user; needs `cspo[torch]`.

Each of them is a module of its own, made by the same function: they share no parameters, as the
compiled ones do not. A critic's step then never moves the policy, which has its own loss, its own
limit on the KL, and its own trust region.

PyTorch does what lies between the observations and the outputs. What lies above the outputs, the
distributions and the surrogates, is compiled as it always is.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cspo.policy.actor import Actor, Critics, Rows
from cspo.policy.distribution import Distribution
from cspo.policy.network import Network
from cspo.policy.torch_module import FlatModule
from cspo.types import Array, FloatArray


class TorchActor(Actor):
    """A user's network for the outputs, and the log standard deviations, on one flat array.

    Attributes:
        signature: Name and shape of every parameter of the network.
    """

    def __init__(
        self,
        network: Network,
        shape: tuple[int, ...],
        distribution: Distribution,
        log_std_init: float,
        rng: np.random.Generator,
    ) -> None:
        """Make the network and the log standard deviations."""
        self.distribution = distribution
        self._module = FlatModule(network, shape, distribution.output_size, rng)
        size = self._module.size
        self.signature = self._module.signature
        self.parameters = _zeros(size + distribution.gaussians)
        self.gradient = np.zeros_like(self.parameters)
        self.log_std = self.parameters[size:]
        self.log_std[:] = log_std_init
        self._module.move_to(self.parameters[:size])
        self._last: Tensor | None = None  # outputs of the last `forward`, with their graph

    @property
    def module(self) -> Any:
        """The user's module, from observations (B, *shape) to outputs (B, O)."""
        return self._module.module

    def outputs(self, x: Array) -> Array:
        """Return the outputs (n, O) for x (n, D) of any length, as a new array."""
        return self._module.predict(x)

    def forward(self, x: Array, rows: Rows) -> Array:
        """Return the outputs (B, O) at these rows of x, and remember what `backward` needs."""
        self._last = self._module(x, rows)
        return _array(self._last)

    def backward(self, by_output: Array, by_log_std: Array) -> None:
        """Fill `gradient`, given the loss's gradient at the last `forward`: (B, O) and (G,)."""
        assert self._last is not None, "backward comes after forward"
        output, self._last, border = self._last, None, self._module.size
        self._module.pull(output, by_output, self.gradient[:border])
        self.gradient[border:] = by_log_std

    def score_gradients(self, x: Array, action: Array, weights: Array, rows: Rows) -> Array:
        """Return the gradients (C, P) for C weightings (C, n), over these rows of the samples."""
        border, total = self._module.size, np.zeros((len(weights), self.parameters.size))
        part = np.empty(border, np.float32)
        for piece in self._module.pieces(len(rows)):
            index = rows[piece]
            output = self._module(x, index)
            values, taken = _array(output), action[index]
            for c, weight in enumerate(weights[:, index] / np.float32(len(rows))):
                by_output, by_log_std = self.distribution.through_log_prob(
                    values, self.log_std, taken, weight
                )
                self._module.pull(output, by_output, part, again=c + 1 < len(weights))
                total[c, :border] += part
                total[c, border:] += by_log_std
        return total.astype(np.float32)

    def fisher(self, x: Array, executor: Executor | None = None) -> TorchFisher:
        """Return products with the Hessian of K at the present parameters."""
        return TorchFisher(self._module, self.distribution, self.log_std, x)


class TorchFisher:
    """H v, as in `cspo.policy.fisher`: J v by forward derivatives, J^T u by backward ones."""

    def __init__(
        self, module: FlatModule, distribution: Distribution, log_std: Array, x: Array
    ) -> None:
        """Take the samples x (n, D), at which the parameters must stay as they are."""
        self._module, self._distribution = module, distribution
        self._log_std, self._x = log_std, x

    def product(self, v: FloatArray) -> FloatArray:
        """Return H v (P,) for v (P,)."""
        module, border = self._module, self._module.size
        direction, actions = v[:border].astype(np.float32), self._distribution.action_size
        total, part = np.zeros(border), np.empty(border, np.float32)
        for rows in module.pieces(len(self._x)):
            output, tangent = module.push(self._x, rows, direction)
            by_output = self._distribution.apply_metric(_array(output), self._log_std, tangent)
            module.pull(output, by_output, part)
            total += part
        return np.concatenate([total / (len(self._x) * actions), 2.0 * v[border:] / actions])


class TorchCritics(Critics):
    """A user's networks with one output each, all made alike."""

    def __init__(
        self, network: Network, shape: tuple[int, ...], count: int, rng: np.random.Generator
    ) -> None:
        """Make them one after another: the last ones change nothing for the others."""
        self.count = count
        self._modules = [FlatModule(network, shape, 1, rng) for _ in range(count)]
        self.parameters = _zeros(count, self._modules[0].size)
        self.gradient = np.zeros_like(self.parameters)
        for module, row in zip(self._modules, self.parameters, strict=True):
            module.move_to(row)
        self._last: list[Tensor | None] = [None] * count

    def values(self, x: Array) -> Array:
        """Return the values (C, n) for x (n, D) of any length, as a new array."""
        return np.stack([module.predict(x)[:, 0] for module in self._modules])

    def forward(self, critic: int, x: Array, rows: Rows) -> Array:
        """Return one critic's values (B,) at these rows of x, and remember for `backward`."""
        output = self._last[critic] = self._modules[critic](x, rows)
        return _array(output)[:, 0]

    def backward(self, critic: int, by_value: Array) -> None:
        """Fill this critic's row of `gradient`, given the loss's gradient (B,) at its values."""
        output, self._last[critic] = self._last[critic], None
        assert output is not None, "backward comes after forward"
        self._modules[critic].pull(output, by_value[:, None], self.gradient[critic])


def _zeros(*shape: int) -> Array:
    """Return an array that begins at a multiple of 64 bytes, see `FlatModule._inputs`."""
    return _array(torch.zeros(shape))


def _array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's memory as an array."""
    array: NDArray[Any] = tensor.detach().numpy()
    return array
