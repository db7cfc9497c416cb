"""What an algorithm is called and how it is drawn, as far as its class says so."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from cspo.algorithms.registry import DASHED, DOTTED, Look, get_algorithm
from cspo.errors import CspoError
from cspo.lab.report.results import Cell

# For algorithms of users, by name, so that one keeps its look from report to report.
OTHERS = (
    Look("#4b5d16", "#b3c46c", DOTTED, "8"),
    Look("#7a3b8f", "#c79be0", DOTTED, "H"),
    Look("#00637c", "#58c4de", DOTTED, "s"),
    Look("#a3300b", "#f0936f", DOTTED, "D"),
)
MARKERS = "os^Dv<>pPXhd"


def name_of(label: str) -> str:
    """Return a label, or an algorithm, with the algorithm's name as its paper writes it."""
    algo, _, variant = label.partition(" ")
    return f"{getattr(_class_of(algo), 'title', algo)} {variant}".rstrip()


def look_of(algo: str) -> Look:
    """Return the look of an algorithm."""
    look: Look | None = getattr(_class_of(algo), "look", None)
    return look or OTHERS[zlib.crc32(algo.encode()) % len(OTHERS)]


def looks_of(cells: Sequence[Cell]) -> dict[str, Look]:
    """Return the look of every label; variants go from dark to light in their order."""
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    looks = {cell.label: look_of(cell.algo) for cell in cells}
    if len(variants) < 2:
        return looks
    places = {cell.label: variants.index(cell.variant) for cell in cells}
    return {name: _variant(look, places[name], len(variants)) for name, look in looks.items()}


def _class_of(algo: str) -> Any:
    """Return the class of an algorithm; None for a plugin's, which a report does not load."""
    try:
        return get_algorithm(algo)
    except CspoError:
        return None


def _variant(plain: Look, position: int, count: int) -> Look:
    """Return the look of one of several variants: a place on a scale, its algorithm's dash."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale, share = colormaps["viridis"], position / (count - 1)
    return plain._replace(
        colour=to_hex(scale(0.82 * share)),
        dark=to_hex(scale(0.35 + 0.6 * share)),
        dash=plain.dash if position % 2 == 0 else DASHED,
        marker=MARKERS[position % len(MARKERS)],
    )
