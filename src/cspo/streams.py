"""Randomness only from named streams of one seed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """Return the generator called `name` of this seed; different names are independent."""
    # crc32 rather than hash(): Python salts hash() anew in every process.
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
    )


def stream_state(generator: np.random.Generator) -> dict[str, Any]:
    """Return the generator's state as JSON-compatible data."""
    return dict(generator.bit_generator.state)


def set_stream_state(generator: np.random.Generator, state: dict[str, Any]) -> None:
    """Put back what `stream_state` returned."""
    generator.bit_generator.state = state
