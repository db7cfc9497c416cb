"""Randomness only from named streams of one seed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator called `name` of this seed; other names are independent of it."""
    # crc32 rather than hash(): Python salts hash() anew in every process.
    words = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    return np.random.Generator(np.random.PCG64(words))


class Streams(dict[str, np.random.Generator]):
    """Generators by name, whose states are kept and put back together."""

    def __init__(self, seed: int, *names: str) -> None:
        super().__init__({name: stream(seed, name) for name in names})

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every stream."""
        return {name: stream_state(generator) for name, generator in self.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` returned."""
        for name, generator in self.items():
            set_stream_state(generator, state[name])


def stream_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the generator's state as JSON-compatible data."""
    return dict(generator.bit_generator.state)


def set_stream_state(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Put back what `stream_state` returned."""
    generator.bit_generator.state = state
