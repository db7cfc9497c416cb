"""A PyTorch module on a flat NumPy array of parameters; needs `cspo[torch]`.

The module's parameters are made views of a part of an array that somebody else owns. Optimisers,
trust regions, checkpoints and hashes work on that array and need not know that it is a module's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from cspo.arithmetic import single_threaded_math
from cspo.envs.foreign import ForeignCall, WrongAnswer
from cspo.policy.network import Network, NetworkFault
from cspo.types import Array

Rows = NDArray[np.int64]
PIECE = 2**21  # numbers of the observations that are in the network at a time
PROBES = 3  # observations that a new network is tried on
CLOSE = 1e-3  # how much one observation's outputs may depend on what is beside it, by rounding
_dual_level = threading.Lock()  # PyTorch has one level of forward derivatives per process


class NetworkCall(ForeignCall):
    """Surrounds calls of a user's network: what goes wrong in it is said in words."""

    kind = NetworkFault


class FlatModule:
    """A module from observations (B, *shape) to (B, outputs) whose parameters lie in one array.

    Attributes:
        signature: Name and shape of every parameter, in the order of the array.
        size: P, how many numbers they are.
        module: The module itself.
    """

    def __init__(
        self, network: Network, shape: tuple[int, ...], outputs: int, rng: np.random.Generator
    ) -> None:
        """Make the module, with PyTorch's random numbers seeded from `rng`, and look it over."""
        self.shape, self.outputs = shape, outputs
        self.name = str(getattr(network, "__name__", type(network).__name__))
        self._call = NetworkCall(f"the network {self.name}", code=network)
        probes = torch.linspace(0.0, 1.0, PROBES * int(np.prod(shape))).view(PROBES, *shape)
        with single_threaded_math(), _seeded(rng), torch.enable_grad(), self._call:
            self.module = _made(network, shape, outputs)
            _check_outputs(self.module, probes, outputs)
        trained = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in trained]
        self._parameters = [parameter for _, parameter in trained]
        self.signature = [f"{name} {tuple(p.shape)}" for name, p in trained]
        self.size = sum(p.numel() for p in self._parameters)

    def move_to(self, parameters: Array) -> None:
        """Let the module's parameters be this array (P,), which takes their values."""
        views = self._views(parameters)
        with torch.no_grad():
            for parameter, view in zip(self._parameters, views, strict=True):
                view.copy_(parameter)
                parameter.data = view

    def _views(self, array: Array) -> list[Tensor]:
        parts = torch.from_numpy(array).split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]

    def pieces(self, count: int) -> Iterator[Rows]:
        """Yield the rows of `count` samples, as many at a time as are worth keeping in memory."""
        length = max(1, PIECE // int(np.prod(self.shape)))
        for start in range(0, count, length):
            yield np.arange(start, min(start + length, count))

    def _inputs(self, x: NDArray[Any], rows: Rows) -> Tensor:
        # A tensor of PyTorch's own begins at a multiple of 64 bytes. Products may be rounded
        # differently elsewhere, and NumPy's arrays begin anywhere.
        picked = torch.from_numpy(x).index_select(0, torch.from_numpy(rows))
        if picked.dtype == torch.uint8:
            picked = picked.to(torch.float32).div_(255.0)
        return picked.view(-1, *self.shape)

    def __call__(self, x: NDArray[Any], rows: Rows) -> Tensor:
        """Return the outputs (B, O) at these rows of x (n, D), with their graph."""
        with self._call, torch.enable_grad():
            output: Tensor = self.module(self._inputs(x, rows))
            return output.contiguous()

    def predict(self, x: NDArray[Any]) -> Array:
        """Return the outputs (n, O) for x (n, D) of any length, as a new array."""
        result = np.empty((len(x), self.outputs), np.float32)
        with self._call, torch.no_grad():
            for rows in self.pieces(len(x)):
                result[rows] = self.module(self._inputs(x, rows)).numpy()
        return result

    def pull(self, output: Tensor, by_output: Array, gradient: Array, again: bool = False) -> None:
        """Fill gradient (P,) with J^T by_output, J being the Jacobian where `output` comes from.

        `again` keeps the graph for another call.
        """
        with self._call:
            found = torch.autograd.grad(
                output,
                self._parameters,
                torch.from_numpy(by_output),
                retain_graph=again,
                allow_unused=True,
                materialize_grads=True,
            )
        np.concatenate([part.numpy().reshape(-1) for part in found], out=gradient)

    def push(self, x: NDArray[Any], rows: Rows, direction: Array) -> tuple[Tensor, Array]:
        """Return the outputs (B, O) with their graph, and J v (B, O) for a direction v (P,)."""
        views = self._views(direction)
        with self._call, _dual_level, torch.enable_grad(), forward_ad.dual_level():
            parts = zip(self._names, self._parameters, views, strict=True)
            dual = {name: forward_ad.make_dual(p, tangent) for name, p, tangent in parts}
            try:
                pushed = functional_call(self.module, dual, (self._inputs(x, rows),))
            except NotImplementedError as fault:
                raise WrongAnswer(
                    "has an operation without a forward derivative, which trust-region algorithms "
                    f"need; choose another one, or a first-order algorithm ({fault})"
                ) from fault
            output, tangent = forward_ad.unpack_dual(pushed)
            tangent = torch.zeros_like(output) if tangent is None else tangent
            return output.contiguous(), tangent.detach().contiguous().numpy()


@contextmanager
def _seeded(rng: np.random.Generator) -> Iterator[None]:
    """Let what a user's module draws come from `rng`, and leave PyTorch's generator as it was."""
    before = torch.get_rng_state()
    torch.set_rng_state(torch.Generator().manual_seed(int(rng.integers(2**63))).get_state())
    try:
        yield
    finally:
        torch.set_rng_state(before)


def _made(network: Network, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a new module, or say why it cannot be trained here."""
    module = network(shape, outputs)
    if not isinstance(module, nn.Module):
        raise WrongAnswer(f"is to make a torch.nn.Module, and made a {type(module).__name__}")
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm):
            raise WrongAnswer(
                f"has BatchNorm ({name}), whose statistics change beside training: use LayerNorm "
                "or GroupNorm"
            )
        if isinstance(part, _DropoutNd) and part.p > 0.0:
            raise WrongAnswer(
                f"has Dropout ({name}): the probabilities of actions must not be random; leave it "
                "out"
            )
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise WrongAnswer(f"has lazy parameters ({name}): give its layers their sizes")
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            kind = f"{str(parameter.dtype).removeprefix('torch.')} on {parameter.device}"
            raise WrongAnswer(f"has the parameter {name} of {kind}: float32 on cpu is needed")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise WrongAnswer("has no parameters to train")
    return module


def _check_outputs(module: nn.Module, x: Tensor, outputs: int) -> None:
    """Refuse a network that gives other outputs than asked for, or that is no function of x."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    first, second, alone = module(x), module(x), module(x[:1])
    if not isinstance(first, Tensor):
        raise WrongAnswer(f"returned a {type(first).__name__} and not a tensor")
    if first.shape != (len(x), outputs) or first.dtype != torch.float32:
        found = f"{tuple(first.shape)} and type {str(first.dtype).removeprefix('torch.')}"
        wanted = f"({len(x)}, {outputs}) and float32"
        raise WrongAnswer(f"returned outputs of shape {found} for {len(x)} observations: {wanted}")
    if not first.requires_grad:
        raise WrongAnswer("returned outputs that do not depend on its parameters")
    for name, buffer in module.named_buffers():
        if not torch.equal(before[name], buffer):
            raise WrongAnswer(f"changes its buffer {name} when it is called: it must not remember")
    if not torch.equal(first, second):
        raise WrongAnswer(
            "returned other outputs for the same observations: it must neither draw random "
            "numbers nor remember (recurrent policies are not supported)"
        )
    if not torch.allclose(first[:1], alone, rtol=CLOSE, atol=CLOSE):
        raise WrongAnswer("lets the outputs of one observation depend on others in the batch")
