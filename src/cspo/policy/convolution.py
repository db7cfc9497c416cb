"""The network for images: convolutions, then the hidden layers; needs `cspo[torch]`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

# Channels, kernel, stride and padding of each convolution. Large images as Mnih et al. (2015)
# have them; small ones, of a grid world for instance, in smaller steps.
LARGE = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))
SMALL = ((16, 3, 2, 1), (32, 3, 2, 1), (32, 3, 1, 1))
SMALLEST_LARGE = 36  # pixels on the shorter side, from which LARGE leaves something


class ConvolutionNetwork(nn.Module):
    """Three convolutions and the hidden layers, with ReLU between them.

    Written to the protocol of docs/own-network.md, as a user's network is.
    """

    def __init__(
        self, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64, 64)
    ) -> None:
        """Make it for images (H, W, C), or (C, H, W) where the first number is less than the last.

        Args:
            shape: Of an observation.
            outputs: How many numbers to put out.
            hidden: Units of the layers after the convolutions.
        """
        super().__init__()
        self.channels_last = shape[-1] <= shape[0]
        height, width, channels = shape if self.channels_last else (*shape[1:], shape[0])
        table = LARGE if min(height, width) >= SMALLEST_LARGE else SMALL
        layers: list[nn.Module] = []
        for filters, kernel, stride, padding in table:
            layers += [nn.Conv2d(channels, filters, kernel, stride, padding), nn.ReLU()]
            height, width = (1 + (n + 2 * padding - kernel) // stride for n in (height, width))
            channels = filters
        layers.append(nn.Flatten())
        sizes = (channels * height * width, *hidden)
        for fan_in, fan_out in pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (B, outputs) for images (B, *shape) in [0, 1]."""
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        result: Tensor = self.layers(x)
        return result


def parameter_count(shape: Sequence[int], outputs: int, hidden: Sequence[int]) -> int:
    """Return how many parameters one has, without the memory for them."""
    with torch.device("meta"):
        module = ConvolutionNetwork(shape, outputs, hidden)
    return sum(parameter.numel() for parameter in module.parameters())
