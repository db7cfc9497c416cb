"""Networks in PyTorch for tests: good ones, and each kind that is refused."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """The compiled MLP once more, with 16 and 16 hidden units."""

    hidden = 16

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        sizes, h = prod(shape), self.hidden
        first, second = nn.Linear(sizes, h), nn.Linear(h, h)
        self.body = nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Tanh())
        self.head = nn.Linear(h, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Wider(Plain):
    hidden = 17


class Frozen(Plain):
    """Trains only its last layer."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.body.requires_grad_(False)


class Tied(Plain):
    """Uses one layer twice."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body[3](self.body(x))))


class Normed(Plain):
    """A layer norm, and a buffer that stays as it is."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.norm = nn.LayerNorm(self.hidden)
        self.register_buffer("scale", torch.rand(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x)) * self.scale)


class WithBatchNorm(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.body.append(nn.BatchNorm1d(self.hidden))


class WithDropout(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.body.append(nn.Dropout(0.1))


class Noisy(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1)


class Remembering(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1.0
        return super().forward(x)


class Mixing(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class Double(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.double()


class Lazy(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.head: Any = nn.LazyLinear(outputs)


class OneTooMany(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs + 1)


class Detached(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class Untrained(Plain):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(shape, outputs)
        self.requires_grad_(False)


class Pair(Plain):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Raising(Plain):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("lost")


class _NoForwardDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2.0 * x

    @staticmethod
    def backward(ctx: Any, *by_output: Any) -> Any:
        return 2.0 * by_output[0]


class BackwardOnly(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return _NoForwardDerivative.apply(super().forward(x))


def not_a_module(shape: tuple[int, ...], outputs: int) -> Any:
    return outputs


def takes_nothing() -> Any:
    raise AssertionError("never called")
