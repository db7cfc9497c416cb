"""How an algorithm looks wherever it is drawn: one colour, one dash, one marker, on paper and on the page."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cspo.lab.report.results import Cell

Dash = tuple[float, ...]  # lengths of strokes and gaps in points; empty: a solid line


@dataclass(frozen=True)
class Look:
    """How the line and the mark of one row of the tables are drawn."""

    colour: str  # on white
    dark: str  # the same hue on a dark ground
    dash: Dash = ()
    marker: str = "o"
    stands_out: bool = False


SOLID: Dash = ()
DASHED: Dash = (5.0, 1.8)
DOTTED: Dash = (1.4, 1.6)
# Hues that stay apart for colour-blind readers (after Okabe and Ito, and Tol); where two come
# close, one is dashed.
ALGORITHMS = {
    "cspo": Look("#d55e00", "#ff8f45", SOLID, "*", stands_out=True),
    "ppo-lag": Look("#0072b2", "#5bb0ea", SOLID, "o"),
    "appo": Look("#00876a", "#3ecb9e", SOLID, "s"),
    "cppo-pid": Look("#aa4499", "#dd8bd0", SOLID, "^"),
    "trpo-pid": Look("#882255", "#e583ad", DASHED, "v"),
    "cpo": Look("#332288", "#a394ee", SOLID, "D"),
    "pcpo": Look("#3796cc", "#93d3f6", DASHED, "P"),
    "c-trpo": Look("#117733", "#74c686", DASHED, "X"),
    "focops": Look("#b07d00", "#e6bd50", SOLID, "<"),
    "cup": Look("#7b7b1c", "#c9c96e", DASHED, ">"),
    "ipo": Look("#cc6677", "#f09ca8", SOLID, "p"),
    "p3o": Look("#3a9c8c", "#83dccf", DASHED, "h"),
    "epo": Look("#6b4c2a", "#c79d70", DASHED, "d"),
    "ppo": Look("#777777", "#a6a6a6", DOTTED, "."),
}
# For algorithms of users, by name, so that one keeps its look from report to report.
OTHERS = (
    Look("#4b5d16", "#b3c46c", DOTTED, "8"),
    Look("#7a3b8f", "#c79be0", DOTTED, "H"),
    Look("#00637c", "#58c4de", DOTTED, "s"),
    Look("#a3300b", "#f0936f", DOTTED, "D"),
)
MARKERS = "os^Dv<>pPXhd"


def looks_of(cells: Sequence[Cell]) -> dict[str, Look]:
    """Return the look of every label; variants of an algorithm go from dark to light in their order."""
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    looks = {}
    for cell in cells:
        plain = look_of(cell.algo)
        looks[cell.label] = (
            plain
            if len(variants) < 2
            else _variant(plain, variants.index(cell.variant), len(variants))
        )
    return looks


def look_of(algorithm: str) -> Look:
    """Return the look of an algorithm."""
    known = ALGORITHMS.get(algorithm)
    return known or OTHERS[zlib.crc32(algorithm.encode()) % len(OTHERS)]


def _variant(plain: Look, position: int, count: int) -> Look:
    """Return the look of one of several variants: a place on a scale, the dash of the algorithm."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale, share = colormaps["viridis"], position / (count - 1)
    colour, dark = to_hex(scale(0.82 * share)), to_hex(scale(0.35 + 0.6 * share))
    dash = plain.dash if position % 2 == 0 else DASHED
    return Look(colour, dark, dash, MARKERS[position % len(MARKERS)], plain.stands_out)
