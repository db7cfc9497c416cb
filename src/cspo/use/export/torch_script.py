"""A policy as TorchScript; needs `cspo[torch]`."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cspo.envs.described import EXACT, Leaf
from cspo.errors import CspoError, told
from cspo.use.export.names import CARD
from cspo.use.export.recipe import DISTRIBUTION, NOISE, Options, Recipe, option_columns

_jit: Any = torch.jit  # which has no types


class Deployed(nn.Module):
    """From the leaves of an observation to those of an action, by name."""

    def __init__(self, recipe: Recipe) -> None:
        """Keep the arrays of the recipe as buffers."""
        super().__init__()
        self.recipe = recipe
        self.network = _mlp(recipe) if recipe.layers is not None else recipe.module

    def constant(self, value: Any, dtype: Any = np.float64) -> Tensor:
        """Return an array as a tensor, which the trace keeps."""
        return torch.from_numpy(np.array(value, dtype))

    def forward(self, *raw: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name, for inputs (B, *shape)."""
        recipe = self.recipe
        output = self.network(self._network_input(raw))
        gaussians = recipe.distribution.gaussians
        noise: list[Tensor] = []
        numbers, chosen = output[:, :gaussians], None
        if gaussians:
            if not recipe.deterministic:
                std = self.constant(recipe.std, np.float32)
                noise.append(torch.empty_like(numbers).normal_() * std)
                numbers = numbers + noise[0]
            numbers = self._scaled(numbers)
        if recipe.distribution.choices:
            pairs = [self._chosen(output[:, gaussians:], group) for group in recipe.option_groups]
            chosen = torch.cat([option for option, _ in pairs], dim=1)
            noise += [uniform for _, uniform in pairs if uniform is not None]
        results = self._leaves(numbers, chosen) | {DISTRIBUTION: output}
        return results if recipe.deterministic else results | {NOISE: torch.cat(noise, dim=1)}

    def _network_input(self, raw: tuple[Tensor, ...]) -> Tensor:
        recipe = self.recipe
        if recipe.image:
            return raw[0].to(torch.float32) / 255.0
        leaves = zip(recipe.seen.leaves, raw, strict=True)
        x = torch.cat([self._flat(leaf, value) for leaf, value in leaves], dim=1)
        if recipe.mean is not None:
            x = (x - self.constant(recipe.mean)) * self.constant(recipe.inverse_std)
            bound = self.constant(recipe.bound)
            x = torch.maximum(torch.minimum(x, bound), -bound)
        x = x.to(torch.float32)
        return x if recipe.layers is not None else x.reshape(-1, *recipe.shape)

    def _flat(self, leaf: Leaf, value: Tensor) -> Tensor:
        flat = value.reshape(-1, leaf.size)
        if not leaf.start:
            return flat.to(torch.float64)
        numbers, values = (self.constant(array, np.int64) for array in option_columns(leaf))
        return (flat.to(torch.int64)[:, numbers] == values).to(torch.float64)

    def _scaled(self, numbers: Tensor) -> Tensor:
        recipe = self.recipe
        x = numbers.to(torch.float64) * self.constant(recipe.half_range)
        x = x + self.constant(recipe.centre)
        if recipe.low is None:
            return x
        return torch.maximum(
            torch.minimum(x, self.constant(recipe.high)), self.constant(recipe.low)
        )

    def _chosen(self, logits: Tensor, group: Options) -> tuple[Tensor, Tensor | None]:
        own = logits[:, group.begin : group.begin + group.size * group.options]
        if group.options == 1:
            if self.recipe.deterministic:
                return (own > 0.0).to(torch.int64), None
            uniform = torch.empty_like(own).uniform_()
            return (uniform < torch.sigmoid(own)).to(torch.int64), uniform
        own = own.reshape(-1, group.size, group.options)
        if self.recipe.deterministic:
            return own.argmax(dim=2), None
        below = torch.softmax(own, dim=2).cumsum(dim=2)[:, :, :-1]
        uniform = torch.empty_like(own[:, :, :1]).uniform_()
        return (uniform >= below).to(torch.int64).sum(dim=2), uniform[:, :, 0]

    def _leaves(self, numbers: Tensor, chosen: Tensor | None) -> dict[str, Tensor]:
        found, number, choice = {}, 0, 0
        for leaf, port in zip(self.recipe.done.leaves, self.recipe.outputs, strict=False):
            dtype = torch.from_numpy(np.empty(0, leaf.dtype)).dtype
            if leaf.kind == "box":
                value = numbers[:, number : number + leaf.size]
                number += leaf.size
                if np.dtype(leaf.dtype).kind in "iu":
                    info = np.iinfo(leaf.dtype)
                    low, high = float(max(info.min, -EXACT)), float(min(info.max, EXACT))
                    value = value.round().clamp(low, high)
            else:
                is_open = np.array([k > 1 for k in leaf.options] or [True] * leaf.size)
                size = int(is_open.sum())
                value = torch.zeros_like(numbers[:, :1], dtype=torch.int64)
                if chosen is not None:
                    value = torch.cat([chosen[:, choice : choice + size], chosen[:, :1] * 0], dim=1)
                where = np.where(is_open, np.cumsum(is_open) - 1, size if chosen is not None else 0)
                value = value[:, self.constant(where, np.int64)]
                value = value + self.constant(leaf.start or [0], np.int64)
                choice += size
            found[port.name] = value.to(dtype).reshape(-1, *leaf.shape)
        return found


def _mlp(recipe: Recipe) -> nn.Module:
    parts: list[nn.Module] = []
    assert recipe.layers is not None
    for weight, bias in recipe.layers:
        layer = nn.Linear(*weight.shape)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight.T))
            layer.bias.copy_(torch.from_numpy(bias))
        parts += [layer, nn.Tanh()]
    return nn.Sequential(*parts[:-1])


def torch_script(recipe: Recipe, card: str) -> bytes:
    """Return the file; the card is kept inside of it."""
    examples = tuple(
        torch.from_numpy(np.zeros((2, *port.shape), port.dtype) + (leaf.start or (0,))[0]).to(
            torch.from_numpy(np.empty(0, port.dtype)).dtype
        )
        for port, leaf in zip(recipe.inputs, recipe.seen.leaves, strict=True)
    )
    module, file = Deployed(recipe), io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            traced: Any = _jit.trace(module, examples, strict=False, check_trace=False)
            _jit.save(_jit.freeze(traced.eval()), file, _extra_files={CARD: card})
    except Exception as fault:  # whatever the tracing of a user's network raises
        raise CspoError(f"The network cannot be traced by TorchScript ({told(fault)}).") from fault
    return file.getvalue()


class ScriptRunner:
    """Runs a TorchScript file on arrays."""

    def __init__(self, content: bytes, seed: int | None) -> None:
        """Read the file: that runs what its author wrote."""
        if seed is not None:
            torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._module = _jit.load(io.BytesIO(content))

    def __call__(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs by name, for inputs by name, which come in their order."""
        with torch.no_grad():
            tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs.values()]
            return {name: value.numpy() for name, value in self._module(*tensors).items()}
