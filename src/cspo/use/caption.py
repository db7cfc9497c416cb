"""What is written into the pictures of a video: the return, and every cost against its limit."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cspo.envs.tools.render import Picture
from cspo.types import FloatArray, cost_labels

QUIET, COSTLY = (255, 255, 255), (255, 150, 130)  # text, and that of a cost in this very step
KEPT, BROKEN = (120, 200, 255), (255, 80, 60)  # bar of a cost within its limit, and of one above
GROUND = (110, 110, 110)  # of a bar
SHADE = 0.4  # of the picture behind the text


class Line(NamedTuple):
    """A line of text, and how far a bar below it reaches."""

    text: str
    colour: tuple[int, int, int] = QUIET
    share: float | None = None  # of the limit that is spent; more than 1 above it


def lines_of(
    total_return: float,
    total_cost: FloatArray,
    step_cost: FloatArray,
    limits: FloatArray,
    names: Sequence[str],
) -> list[Line]:
    """Return what is written: return and costs so far; all but the first are one per constraint."""
    lines = [Line(f"return {total_return:.1f}")]
    costs = zip(cost_labels(names), total_cost, step_cost, limits, strict=True)
    for label, total, now, limit in costs:
        share = total / limit if limit > 0 else (math.inf if total > 0 else 0.0)
        text = f"{label} {round(float(total), 1):g} of {limit:g}"
        lines.append(Line(text, COSTLY if now > 0 else QUIET, float(share)))
    return lines


def captioned(picture: Picture, lines: Sequence[Line]) -> Picture:
    """Return the picture with lines in its upper left corner, on a darkened strip."""
    from PIL import Image, ImageDraw

    font = _font(max(10, picture.shape[0] // 26))
    gap, height = font.size // 2, 2 * font.size
    width = math.ceil(max(font.getlength(line.text) for line in lines)) + 2 * gap
    marked = picture.copy()
    strip = marked[: height * len(lines) + gap // 2, :width]
    strip[:] = (SHADE * strip).astype(np.uint8)
    image = Image.fromarray(marked)
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(lines):
        top = i * height
        draw.text((gap, top + height // 2), line.text, fill=line.colour, font=font, anchor="lm")
        if line.share is None:
            continue
        bottom, right = top + height - 1, width - gap
        thick = max(2, font.size // 6)
        draw.rectangle((gap, bottom - thick + 1, right, bottom), fill=GROUND)
        if line.share > 0:
            reach = gap + min(1.0, line.share) * (right - gap)
            full = BROKEN if line.share > 1 else KEPT
            draw.rectangle((gap, bottom - thick + 1, reach, bottom), fill=full)
    return np.array(image)


@functools.lru_cache(maxsize=4)
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
